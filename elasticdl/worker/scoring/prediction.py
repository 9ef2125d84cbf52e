"""Predictions of a worker, and how they become one file in the order of the samples.

A shard's predictions are written to a part file whose name tells the samples, and only then reported. A
shard done twice (its first worker died before it could report) gives the same rows again; merging takes
every index once.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from elasticdl.data.files.atomic_file import disk_errors
from elasticdl.data.files.cache_paths import cache_folder
from elasticdl.data.reader import Reader
from elasticdl.data.remote.upload import upload
from elasticdl.errors import UserError
from elasticdl.jobs.flags.grammar import is_url
from elasticdl.jobs.mode import Mode
from elasticdl.jobs.spec import JobSpec
from elasticdl.ps.checkpoint.remote_checkpoint import sibling_url
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import read_token
from elasticdl.worker.master_link import MasterLink
from elasticdl.worker.model.model_store import restore
from elasticdl.worker.reporter import Reporter
from elasticdl.worker.shard_source import LeasedShards
from elasticdl.worker.trainer import Array, Batch, Trainer

DATASET = "prediction"
_NO_ROOM = "Make room there, or choose another place with --output."
_PART = re.compile(r"part-(\d+)-(\d+)\.parquet$")


class PredictionLoop:
    def __init__(self, *, link: MasterLink, spec: JobSpec, trainer: Trainer, reader: Reader) -> None:
        self._link = link
        self._spec = spec
        self._trainer = trainer
        self._reader = reader
        self._process = trainer.output_processor()
        self._reporter = Reporter(link)
        self._parts = parts_folder(spec) if spec.training.output else None
        self._worker_number = int(link.node.rsplit("-", 1)[1])
        self._rows: list[tuple[int, dict[str, Array]]] = []
        self._restored = False
        self.lease_id = 0

    def run(self) -> None:
        directive = self._link.directive()
        self._reporter.start_generation(directive.generation)
        shards = LeasedShards(self._link, DATASET, generation=directive.generation)
        batches = self._trainer.batches(
            self._reader,
            shards,
            mode=Mode.PREDICTION,
            batch_size=self._spec.training.minibatch_size,
            max_bad_records=self._spec.data.max_bad_records,
        )
        for batch in batches:
            self._predict(batch)
            if self._link.directive().drain:
                shards.close()
                break
        self._reporter.flush()
        self._finish()

    def _predict(self, batch: Batch) -> None:
        self.lease_id = batch.shard.lease_id
        if batch.atomic:
            raise UserError(
                "The feed changes the order or the number of samples when predicting.",
                hint="In mode PREDICTION let the feed give one sample for each record, in their order.",
            )
        if batch.size:
            if not self._restored:
                self._trainer.build(batch)
                restore(self._trainer, self._spec.checkpoint.checkpoint_dir_for_init)
                self._restored = True
            outputs = self._trainer.predict(batch)
            if self._process is not None:
                only = outputs["output"] if set(outputs) == {"output"} else outputs
                self._process(only, self._worker_number)
            self._rows.append((batch.position - batch.size, outputs))
        if batch.bad:
            self._reporter.note_bad(batch.bad, DATASET)
        if batch.last:
            if self._parts is not None:
                write_part(self._parts, batch.shard.start, batch.shard.end, self._rows)
            self._rows = []
            self._reporter.note(
                lease_id=batch.shard.lease_id, position=batch.shard.end, batches=1, atomic=True
            )
        self.lease_id = 0

    def _finish(self) -> None:
        while True:
            serial, directive = self._link.latest()
            if directive.finished or directive.drain:
                return
            if directive.task == "merge":
                with disk_errors(output_file(self._spec), hint=_NO_ROOM):
                    lines = merge_parts(self._spec, len(self._reader))
                if is_url(self._spec.training.output):
                    lines = upload_predictions(self._spec, lines)
                request = pb.FinishTaskRequest(node=self._link.node, task="merge", result="\n".join(lines))
                self._link.call(self._link.stub.FinishTask, request)
                discard_parts(self._spec)
            self._link.wait(lambda: self._link.serial != serial)  # noqa: B023 - called before the next round


def output_file(spec: JobSpec) -> Path:
    """Returns the file of the predictions; for a URL, a file in the cache folder that is uploaded in the end."""
    output = spec.training.output
    if is_url(output):
        name = PurePosixPath(output.partition("?")[0]).name
        path = cache_folder() / "predictions" / _run_key() / name
    else:
        path = Path(output).resolve()
    return path if path.suffix in (".csv", ".parquet") else path / "predictions.parquet"


def parts_folder(spec: JobSpec) -> Path:
    target = output_file(spec)
    return target.parent / f".{target.name}.{spec.job_name}.{_run_key()}.parts"


def _run_key() -> str:
    """The same for all workers of a run, and another for a later run of the same job: by the token of the run."""
    file = os.environ.get("ELASTICDL_TOKEN_FILE")
    return hashlib.sha256(read_token(file).encode()).hexdigest()[:12] if file else "0"


def write_part(folder: Path, start: int, end: int, rows: list[tuple[int, dict[str, Array]]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {}
    first = [position for position, _ in rows]
    sizes = [len(next(iter(outputs.values()))) for _, outputs in rows]
    columns["index"] = np.concatenate(
        [np.arange(p, p + n, dtype=np.int64) for p, n in zip(first, sizes, strict=True)]
        or [np.empty(0, np.int64)]
    )
    for name in rows[0][1] if rows else ():
        values = np.concatenate([outputs[name] for _, outputs in rows])
        columns[name] = values if values.ndim == 1 else _as_lists(pa, values)
    path = folder / f"part-{start}-{end}.parquet"
    partial = folder / f".{path.name}.{os.getpid()}"
    with disk_errors(path, hint=_NO_ROOM):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            pq.write_table(pa.table(columns), partial)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def upload_predictions(spec: JobSpec, lines: list[str]) -> list[str]:
    """Puts the merged file at the URL. Returns the lines about it with the URL in them."""
    file, url = output_file(spec), spec.training.output
    if not url.partition("?")[0].endswith(file.name):
        url = sibling_url(url, f"/{file.name}")
    upload(file, url)
    return [line.replace(str(file), url) for line in lines]


def _as_lists(pa: Any, values: Array) -> Any:
    flat = pa.array(values.reshape(len(values), -1).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))


def merge_parts(spec: JobSpec, size: int) -> list[str]:
    """All parts as one file, every sample once, in the order of their indices.

    The parts stay until the master knows of the file: a worker may be killed before it reports it, and the next one
    has to see that there was something to merge, and that it is done.
    """
    import pyarrow.parquet as pq

    target = output_file(spec)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = parts_folder(spec)
    if not folder.exists() and _merged(folder).exists() and target.exists():
        return [f"{size} predictions: {target}"]
    parts = _find_parts(folder, size)
    partial = target.with_name(f".{target.name}.partial")
    rows = 0
    writer: Any = None
    with partial.open("wb") as sink:
        for table in _tables(parts):
            rows += table.num_rows
            if target.suffix == ".csv":
                _append_csv(sink, table, header=writer is None)
                writer = writer or True
            else:
                writer = writer or pq.ParquetWriter(sink, table.schema)
                writer.write_table(table)
        if writer is not None and writer is not True:
            writer.close()
    os.replace(partial, target)
    shutil.rmtree(_merged(folder), ignore_errors=True)
    # At one stroke: a worker that is killed here must not leave some of the parts to the next one.
    os.rename(folder, _merged(folder))
    return [f"{rows} predictions: {target}"]


def discard_parts(spec: JobSpec) -> None:
    """The master knows of the file."""
    shutil.rmtree(_merged(parts_folder(spec)), ignore_errors=True)
    if is_url(spec.training.output):
        output_file(spec).unlink(missing_ok=True)


def _merged(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.merged")


def _find_parts(folder: Path, size: int) -> list[tuple[int, int, Path]]:
    """Start, end and file of parts that have all samples, in their order. Raises `UserError` if some are missing."""
    found = []
    for path in folder.iterdir() if folder.exists() else ():
        match = _PART.match(path.name)
        if match:
            found.append((int(match.group(1)), int(match.group(2)), path))
    parts, reached = [], 0
    for start, end, path in [*sorted(found), (size, size, folder)]:
        if start > reached:
            raise UserError(
                f"The predictions of samples [{reached:,}, {start:,}) are not in {folder}.",
                hint="All workers need the same folder for --output, for instance on a volume that all of them mount.",
            )
        if end > reached:
            parts.append((reached, end, path))
            reached = end
    return parts


def _tables(parts: list[tuple[int, int, Path]]) -> Iterator[Any]:
    """Yields the tables of each part without rows that an earlier one has already.

    A part of which no record could be read has no columns for outputs, and is left out, unless all are such.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    empty, rows = None, 0
    for start, _, path in parts:
        table = pq.read_table(path)
        table = table.filter(pc.greater_equal(table["index"], start))
        rows += table.num_rows
        if table.num_rows:
            yield table
        else:
            empty = table
    if not rows and empty is not None:
        yield empty


def _append_csv(sink: Any, table: Any, *, header: bool) -> None:
    names: list[str] = []
    columns: list[list[Any]] = []
    for name in table.column_names:
        values = table[name].to_pylist()
        if values and isinstance(values[0], list):
            for i in range(len(values[0])):
                names.append(f"{name}_{i}")
                columns.append([row[i] for row in values])
        else:
            names.append(name)
            columns.append(values)
    import io

    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    if header:
        out.writerow(names)
    out.writerows(zip(*columns, strict=True))
    sink.write(text.getvalue().encode())
