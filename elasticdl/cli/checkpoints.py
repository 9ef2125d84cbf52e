"""`elasticdl checkpoints`: see what is in one, and get a table out of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli.output.data_output import Progress, human_bytes, show_table
from elasticdl.errors import UserError

if TYPE_CHECKING:
    from elasticdl.ps.checkpoint.opened_checkpoint import OpenSnapshot, SavedTable

# Flags are written with underscores; dashes mean the same.
_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}


@click.group(context_settings=_CONTEXT)
def checkpoints() -> None:
    """Describe checkpoints and export their tables.

    PATH is always the folder of --checkpoint_dir (the newest in it is meant), one of its version-N folders, or an
    exported model.
    """


@checkpoints.command()
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def describe(path: str, as_json: bool) -> None:
    """Show what is in a checkpoint: its step, its job, its parameters and tables."""
    from elasticdl.ps.checkpoint.opened_checkpoint import open_snapshot

    with open_snapshot(path) as snapshot:
        document = _document(path, snapshot)
    if as_json:
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        _show(document)


@checkpoints.command()
@click.argument("path")
@click.argument("output", type=click.Path(path_type=Path))
@click.option(
    "--table", "name", default="", metavar="NAME", help="The table.  [default: the one, if there is only one]"
)
@click.option("--slots", is_flag=True, help="With what the optimizer remembers of each row, a column a slot.")
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
def export(path: str, output: Path, name: str, slots: bool, overwrite: bool) -> None:
    """Write a table of a checkpoint to a Parquet file.

    OUTPUT has the columns "id", int64, and "values", a list of float32 as long as the table is wide. The table need
    not fit into memory.
    """
    from elasticdl.ps.checkpoint.opened_checkpoint import open_snapshot

    if output.exists() and not (overwrite and output.is_file()):
        raise UserError(f"{output} is there already.", hint="Give another path, or --overwrite for a file.")
    with open_snapshot(path) as snapshot:
        table = _chosen(snapshot, name)
        with Progress("writing", table.rows, what="rows") as progress:
            rows = table.to_parquet(output, slots=slots, progress=progress.advance)
    click.echo(f"{output}: {rows} rows of {table.name}, {human_bytes(output.stat().st_size)}")


def _chosen(snapshot: OpenSnapshot, name: str) -> SavedTable:
    if name:
        return snapshot.table(name)
    if len(snapshot.tables) == 1:
        return snapshot.table(snapshot.tables[0])
    if not snapshot.tables:
        raise UserError("The checkpoint has no tables.", hint="Parameters: see elasticdl.open_snapshot.")
    raise UserError(
        f"The checkpoint has {len(snapshot.tables)} tables, and --table names none.",
        hint=f"It has: {', '.join(snapshot.tables)}.",
    )


def _document(path: str, snapshot: OpenSnapshot) -> dict[str, Any]:
    newest = snapshot.checkpoints[-1] if snapshot.checkpoints else None
    about = newest.manifest.attributes if newest is not None else {}
    tables = [snapshot.table(name) for name in snapshot.tables]
    sizes = [file.bytes for each in snapshot.checkpoints for file in each.manifest.files]
    return {
        "path": str(newest.path) if newest is not None else path,
        "step": snapshot.step,
        "job": about.get("job"),
        "model_def": about.get("model_def"),
        "optimizer": (snapshot.attributes.get("optimizer") or {}).get("name"),
        # The size of the checkpoint and of those that it needs.
        "bytes": sum(sizes) if newest is not None else Path(path).stat().st_size,
        "needs": [each.path.name for each in snapshot.checkpoints[:-1]],
        "arrays": {group: len(names) for group, names in snapshot.arrays.items() if names},
        "tables": [
            {
                "name": table.name,
                "rows": table.rows,
                "width": table.width,
                "slots": list(table.description.slot_names),
                "bytes": table.bytes,
            }
            for table in tables
        ],
    }


def _show(document: dict[str, Any]) -> None:
    facts = [
        f"step {document['step']}" if document["step"] is not None else "",
        f"job {document['job']}" if document["job"] else "",
        document["model_def"] or "",
        f"trained by {document['optimizer']}" if document["optimizer"] else "",
        human_bytes(document["bytes"]),
    ]
    click.echo(f"{document['path']}: {', '.join(fact for fact in facts if fact)}")
    if document["needs"]:
        click.echo(
            f"has what changed since {', '.join(reversed(document['needs']))}, which it needs beside it"
        )
    for group, count in document["arrays"].items():
        click.echo(f"{group}: {count} {'array' if count == 1 else 'arrays'}")
    if document["tables"]:
        rows = [
            (
                table["name"],
                f"{table['rows']:,}",
                str(table["width"]),
                ", ".join(table["slots"]) or "none",
                human_bytes(table["bytes"]),
            )
            for table in document["tables"]
        ]
        show_table(["TABLE", "ROWS", "WIDTH", "SLOTS", "SIZE"], rows)
