"""`elasticdl data`: make data sets to start with, turn one format into another, see what is in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from elasticdl.cli.group import UserPath
from elasticdl.cli.output.data_output import Progress, human_bytes, show_description
from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean

if TYPE_CHECKING:
    from elasticdl.data.generators.bundled import Made
    from elasticdl.data.reader import Reader

# Flags are written with underscores; dashes mean the same.
_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}

_Command = TypeVar("_Command", bound=Callable[..., Any])
_DIGITS, _IRIS, _MNIST = 1797, 150, 70_000


@click.group(context_settings=_CONTEXT)
def data() -> None:
    """Make, convert and describe data sets."""


# -- make --------------------------------------------------------------------------------------------------


class _DataSets(click.Group):
    """Takes dashes and underscores in names for the same, and proposes the right name for a wrong one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0].replace("_", "-")
        if not name.startswith("-") and name not in self.commands and not ctx.resilient_parsing:
            known = ", ".join(self.commands)
            raise UserError(
                f"There is no data set {args[0]!r} to make.{did_you_mean(name, self.commands)}",
                hint=f"There are {known}.",
            )
        return super().resolve_command(ctx, [name, *args[1:]])


@data.group(cls=_DataSets)
def make() -> None:
    """Write a data set to start with.

    Each is a folder with the parts "train" and "test", for --training_data and --validation_data.
    """


def _making(records_per_file: int) -> Callable[[_Command], _Command]:
    """The options that all data sets have."""
    options = [
        click.option(
            "--output", type=UserPath(path_type=Path), help="Folder to write.  [default: data/NAME]"
        ),
        click.option(
            "--records_per_file",
            type=click.IntRange(min=1),
            default=records_per_file,
            show_default=True,
            help="Samples in a file.",
        ),
        click.option("--overwrite", is_flag=True, help="Replace the data that is there."),
    ]

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The same seed gives the same data.",
)


@make.command()
@_making(512)
@_seed
def digits(output: Path | None, records_per_file: int, overwrite: bool, seed: int) -> None:
    """Handwritten digits: 1797 images of 8×8 pixels, RecordIO.

    They come with scikit-learn. A record is an Example with "image", 64 float32 between 0 and 1, and "label", int64.
    """
    from elasticdl.data.generators.bundled import make_digits

    with Progress("writing", _DIGITS) as progress:
        made = make_digits(
            output or Path("data/digits"),
            records_per_file=records_per_file,
            seed=seed,
            overwrite=overwrite,
            progress=progress.advance,
        )
    _tell(made)


@make.command()
@_making(512)
@_seed
@click.option(
    "--file",
    type=UserPath(path_type=Path),
    help="Write one file in place of a folder: all rows in their usual order, as in the well-known iris.data.",
)
def iris(output: Path | None, records_per_file: int, overwrite: bool, seed: int, file: Path | None) -> None:
    """Irises: 150 rows of CSV, four measures and the species.

    They come with scikit-learn.
    """
    from elasticdl.data.generators.bundled import make_iris, make_iris_file

    if file is not None:
        if output is not None:
            raise UserError("--output and --file are two ways to say where the data goes.", hint="Give one.")
        samples = make_iris_file(file, overwrite=overwrite)
        click.echo(f"{file}: {samples} samples, {human_bytes(file.stat().st_size)}")
        return
    with Progress("writing", _IRIS) as progress:
        made = make_iris(
            output or Path("data/iris"),
            records_per_file=records_per_file,
            seed=seed,
            overwrite=overwrite,
            progress=progress.advance,
        )
    _tell(made)


@make.command()
@click.option(
    "--source",
    type=UserPath(path_type=Path),
    required=True,
    help="Folder with MNIST's four idx files, compressed or not, or with Keras' mnist.npz.",
)
@_making(8192)
def mnist(source: Path, output: Path | None, records_per_file: int, overwrite: bool) -> None:
    """MNIST from its files: images of 28×28 pixels, RecordIO.

    A record is an Example with "image", 784 float32 between 0 and 255, and "label", int64.
    """
    from elasticdl.data.generators.bundled import make_mnist

    with Progress("writing", _MNIST) as progress:
        made = make_mnist(
            source,
            output or Path("data/mnist"),
            records_per_file=records_per_file,
            overwrite=overwrite,
            progress=progress.advance,
        )
    _tell(made)


@make.command("criteo-like")
@click.option(
    "--rows", type=click.IntRange(min=1), default=100_000, show_default=True, help="Rows to train on."
)
@click.option(
    "--test_rows", type=click.IntRange(min=0), help="Rows to test on.  [default: a tenth of --rows]"
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "recordio", "tfrecord", "parquet"]),
    default="text",
    show_default=True,
    help="Criteo's own text (tabs, no header), or tables or Examples with the columns label, I1-I13, C1-C26.",
)
@_making(1_000_000)
@_seed
def criteo_like(
    rows: int,
    test_rows: int | None,
    format_: str,
    output: Path | None,
    records_per_file: int,
    overwrite: bool,
    seed: int,
) -> None:
    """Generated clicks like Criteo's: 13 numbers, 26 categories, of any size.

    Ids follow Zipf's law, and the label depends on them: there is something to learn.
    """
    from elasticdl.data.generators.criteo import make_criteo_like

    with Progress("writing", rows + (max(1, rows // 10) if test_rows is None else test_rows)) as progress:
        made = make_criteo_like(
            output or Path("data/criteo-like"),
            rows=rows,
            test_rows=test_rows,
            format=format_,
            records_per_file=records_per_file,
            seed=seed,
            overwrite=overwrite,
            progress=progress.advance,
        )
    _tell(made)


@make.command("movielens-like")
@click.option(
    "--rows", type=click.IntRange(min=1), default=20_000, show_default=True, help="Ratings to train on."
)
@click.option(
    "--test_rows", type=click.IntRange(min=0), help="Ratings to test on.  [default: a tenth of --rows]"
)
@_making(1_000_000)
@_seed
def movielens_like(
    rows: int, test_rows: int | None, output: Path | None, records_per_file: int, overwrite: bool, seed: int
) -> None:
    """Generated ratings like MovieLens's: users, movies and stars, CSV.

    Columns are user, gender, age, occupation, movie, title, genres and rating. Groups of users have tastes: there is
    something to learn.
    """
    from elasticdl.data.generators.movielens import make_movielens_like

    with Progress("writing", rows + (max(1, rows // 10) if test_rows is None else test_rows)) as progress:
        made = make_movielens_like(
            output or Path("data/movielens-like"),
            rows=rows,
            test_rows=test_rows,
            records_per_file=records_per_file,
            seed=seed,
            overwrite=overwrite,
            progress=progress.advance,
        )
    _tell(made)


def _tell(made: Made) -> None:
    for part, samples in made.samples.items():
        if samples:
            folder = made.folder / part
            size = sum(path.stat().st_size for path in folder.iterdir())
            click.echo(f"{folder}: {samples} samples, {human_bytes(size)}")


# -- convert -----------------------------------------------------------------------------------------------

_reader_params = click.option(
    "--data_reader_params",
    default="",
    metavar="KEY=VALUE,...",
    help="How to read the data: format, for csv also sep, header, quote, encoding, ragged; for parquet columns; "
    "for images classes.",
)


@data.command()
@click.argument("source")
@click.argument("destination", type=UserPath(path_type=Path))
@click.option(
    "--format",
    "format_",
    default="",
    metavar="FORMAT",
    help="recordio, tfrecord, csv or parquet.  [default: by the suffix of DESTINATION]",
)
@click.option(
    "--compression",
    default="",
    metavar="NAME",
    help="recordio: snappy, none, gzip; tfrecord and csv: none, gzip; parquet: snappy, zstd, gzip, none. "
    "The first is the default.",
)
@click.option(
    "--records_per_file", type=click.IntRange(min=1), help="Samples in a file of a folder.  [default: all]"
)
@click.option(
    "--max_bad_records",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Corrupt samples to leave out before giving up.",
)
@click.option("--overwrite", is_flag=True, help="Replace the data that is there.")
@_reader_params
def convert(
    source: str,
    destination: Path,
    format_: str,
    compression: str,
    records_per_file: int | None,
    max_bad_records: int,
    overwrite: bool,
    data_reader_params: str,
) -> None:
    """Turn data of one format into another.

    SOURCE is a file, a folder or a pattern of recordio, tfrecord, csv, parquet, images or idx. DESTINATION is a
    file if it has the suffix of a format (.recordio .tfrecord .csv .parquet), else a folder. Columns become
    features of Examples, and features columns.
    """
    from elasticdl.data.conversion import convert as convert_data

    reader = _open(source, data_reader_params)
    with Progress("reading", len(reader)) as progress:
        done = convert_data(
            reader,
            destination,
            format=format_,
            compression=compression,
            records_per_file=records_per_file or 0,
            max_bad_records=max_bad_records,
            overwrite=overwrite,
            progress=progress.step,
        )
    for bad in done.bad:
        click.echo(f"left out: {bad}")
    click.echo(f"{done.destination}: {done.records} samples")


# -- describe ----------------------------------------------------------------------------------------------


@data.command()
@click.argument("path")
@click.option(
    "--check", is_flag=True, help="Read everything, and list what is corrupt. Exit code 1 if anything is."
)
@click.option(
    "--records", type=click.IntRange(min=0), default=3, show_default=True, help="First records to show."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@_reader_params
def describe(path: str, check: bool, records: int, as_json: bool, data_reader_params: str) -> int:
    """Show what is in a data set: format, files, samples, columns, first records.

    PATH is a file, a folder or a pattern.
    """
    from elasticdl.data.description import describe as describe_data

    reader = _open(path, data_reader_params)
    with Progress("checking", len(reader) if check else 0) as progress:
        description = describe_data(reader, records=records, check=check, progress=progress.advance)
    if as_json:
        click.echo(json.dumps(description.as_json(), indent=1, ensure_ascii=False))
    else:
        show_description(description)
    return 1 if description.bad else 0


def _open(origin: str, params: str) -> Reader:
    from elasticdl.data.dataset import open_reader
    from elasticdl.jobs.flags.pairs import BadValue, parse_pairs

    try:
        pairs = parse_pairs(params, example="key=value")
    except BadValue as error:
        raise UserError(f"--data_reader_params: {error}.") from error
    return open_reader(origin, pairs)
