"""The way into a data set: from a path and some parameters to a reader of its samples.

    reader = open_reader("/data/mnist/train")
    reader = open_reader("/data/*.csv", {"sep": ";", "header": "true"})

A path is one file, a folder (all files below it, in the order of their paths) or a pattern with `*`. The
format is detected from the files, or given by `format`; which other parameters there are depends on it (see
`format_registry.py`). Compressed files (.gz .bz2 .xz .zst) of the formats recordio, tfrecord, csv and idx are read
like others. The module of a format is imported on first use, as far as detection does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from elasticdl.data.files.data_file import open_source
from elasticdl.data.files.file_listing import Listing, list_files
from elasticdl.data.files.multi_file import FilesReader, PieceCache, open_files
from elasticdl.data.format_parameters import word_list
from elasticdl.data.format_registry import check_params, format_of
from elasticdl.data.formats.idx import IdxFile
from elasticdl.data.formats.image_folder import SUFFIXES, ImageFiles
from elasticdl.data.formats.parquet import ParquetFile
from elasticdl.data.formats.recordio import RecordIOFile
from elasticdl.data.reader import Metadata, Reader
from elasticdl.data.remote.listing import RemoteListing, remote_listing
from elasticdl.errors import UserError
from elasticdl.jobs.flags.grammar import is_url

Params = Mapping[str, str]


def open_reader(origin: str, params: Params | None = None) -> Reader:
    """The samples of a data set.

    Raises `UserError` for a path that does not exist or holds no samples, a format that cannot be detected, and
    a parameter that is not known.
    """
    params = params or {}
    listing = remote_listing(origin, params) if is_url(origin) else list_files(origin)
    chosen = format_of(listing, params)
    check_params(chosen, params)
    reader = _OPENING[chosen.name](listing, params)
    if not len(reader):
        raise UserError(f"{origin} has no samples ({chosen.name}, {_files(len(listing.paths))}).")
    return reader


def _files(count: int) -> str:
    return "one file" if count == 1 else f"{count} files"


def _recordio(listing: Listing, params: Params) -> Reader:
    cache = PieceCache()
    files = open_files(listing.paths, lambda path: RecordIOFile(open_source(path), cache))
    return FilesReader(origin=listing.origin, format="recordio", files=files, kind="bytes")


def _tfrecord(listing: Listing, params: Params) -> Reader:
    from elasticdl.data.formats.tfrecord import TFRecordFile

    files = open_files(listing.paths, lambda path: TFRecordFile(open_source(path)))
    return FilesReader(origin=listing.origin, format="tfrecord", files=files, kind="bytes")


def _csv(listing: Listing, params: Params) -> Reader:
    from elasticdl.data.formats.csv_dialect import dialect_of
    from elasticdl.data.formats.csv_file import CsvFile

    # The first file may be empty; the first with a row tells how the rows are written.
    for path in listing.paths:
        dialect = dialect_of(open_source(path), params)
        if dialect.width:
            break
    files = open_files(listing.paths, lambda path: CsvFile(open_source(path), dialect))
    metadata = Metadata(column_names=dialect.names, column_dtypes=("str",) * len(dialect.names))
    return FilesReader(origin=listing.origin, format="csv", files=files, kind="row", metadata=metadata)


def _parquet(listing: Listing, params: Params) -> Reader:
    cache = PieceCache()
    columns = word_list("columns", params.get("columns", ""))
    copies = listing.copies if isinstance(listing, RemoteListing) else {}
    files = open_files(listing.paths, lambda path: ParquetFile(path, columns, cache, copies.get(path)))
    first, *others = files
    for other in others:
        if other.metadata != first.metadata:
            raise UserError(
                f"{first.path} and {other.path} have different columns: {_difference(first, other)}.",
                hint="All files of a data set must have the same columns; columns=[a,b] chooses some of them.",
            )
    return FilesReader(
        origin=listing.origin, format="parquet", files=files, kind="columns", metadata=first.metadata
    )


def _difference(first: ParquetFile, other: ParquetFile) -> str:
    mine = dict(zip(first.metadata.column_names, first.metadata.column_dtypes, strict=True))
    theirs = dict(zip(other.metadata.column_names, other.metadata.column_dtypes, strict=True))
    names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    if not names:
        return "their order"
    return f"{names[0]} is {mine.get(names[0], 'missing')} and {theirs.get(names[0], 'missing')}"


def _images(listing: Listing, params: Params) -> Reader:
    # Other files may lie beside images (lists, labels). Without a format that was an error; with it, it is
    # clear that they don't count.
    chosen = "format" in params and not listing.single
    paths = [path for path in listing.paths if not chosen or path.suffix.lower() in SUFFIXES]
    files = ImageFiles(listing.root, paths, word_list("classes", params.get("classes", "")))
    metadata = Metadata(
        column_names=("image", "label", "path"),
        column_dtypes=("bytes", "int64", "str"),
        class_names=files.class_names,
    )
    return FilesReader(
        origin=listing.origin, format="images", files=[files], kind="columns", metadata=metadata
    )


def _idx(listing: Listing, params: Params) -> Reader:
    if len(listing.paths) > 1:
        raise UserError(
            f"{listing.origin} holds several idx files.",
            hint="Name one file of images, or write RecordIO: elasticdl data make mnist --source=FOLDER",
        )
    images = IdxFile(listing.paths[0])
    metadata = Metadata(column_names=("image", "label"), column_dtypes=(images.dtype, "int64"))
    return FilesReader(origin=listing.origin, format="idx", files=[images], kind="columns", metadata=metadata)


_OPENING: dict[str, Callable[[Listing, Params], Reader]] = {
    "recordio": _recordio,
    "tfrecord": _tfrecord,
    "csv": _csv,
    "parquet": _parquet,
    "images": _images,
    "idx": _idx,
}
