"""Training programs measured on real GPUs, as published with the Pollux paper: their speed and their
statistical efficiency.

A folder holds one sub-folder per program, with `placements.csv`, `scalability.csv` and one
`validation-BATCH.csv` per batch size, and `workloads/*.csv`. The files are read where they are. What was
not measured is interpolated linearly: over the local batch size within a placement; over (machines,
replicas, local batch size) otherwise; over the batch size between two validation files.

A broken file raises a `UserError` that names the file and the line. Every look-up is cached, because a
replay asks the same few thousand questions millions of times.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.simulator.interpolation import TriangleInterpolator

WORKLOADS = "workloads"
# The published measurements end at 16 machines.
_MAX_MACHINES = 16
# Of machines, pods and workers: more than a cluster has.
MOST_COUNT = 1_000_000

Placement = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ProgramRules:
    """The parameters that the published comparison fixes for one program beyond its measurements."""

    max_local_batch: int | None = None
    fixed_batch: int | None = None
    max_replicas: int | None = None


RULES: Mapping[str, ProgramRules] = MappingProxyType(
    {
        "yolov3": ProgramRules(max_local_batch=8),
        "ncf": ProgramRules(fixed_batch=32768, max_replicas=1),
    }
)
_FREE = ProgramRules()


@dataclass(frozen=True, kw_only=True)
class _Epoch:
    progress: float
    iteration: float
    grad_sqr: float
    grad_var: float


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Measured times of one placement, or of one (machines, replicas), by local batch size."""

    local_batch: tuple[float, ...]
    step_time: tuple[float, ...]
    sync_time: tuple[float, ...]

    def at(self, local_batch: float) -> tuple[float, float]:
        # `np.interp` is slower than this for so few points.
        xs = self.local_batch
        if local_batch <= xs[0]:
            return self.step_time[0], self.sync_time[0]
        if local_batch >= xs[-1]:
            return self.step_time[-1], self.sync_time[-1]
        right = next(i for i, x in enumerate(xs) if x >= local_batch)
        share = (local_batch - xs[right - 1]) / (xs[right] - xs[right - 1])
        step = self.step_time[right - 1] + share * (self.step_time[right] - self.step_time[right - 1])
        sync = self.sync_time[right - 1] + share * (self.sync_time[right] - self.sync_time[right - 1])
        return step, sync


class TracedProgram:
    """A measured training program: the duration of a step in a placement, and the efficiency of an update."""

    def __init__(
        self,
        *,
        name: str,
        placements: Mapping[Placement, _Column],
        scalability: Mapping[tuple[int, ...], _Column],
        validation: Mapping[int, tuple[_Epoch, ...]],
        rules: ProgramRules = _FREE,
    ) -> None:
        self.name = name
        self.rules = rules
        self._placements = placements
        self._validation = dict(sorted(validation.items()))
        self.init_batch = min(validation)
        self.max_batch = max(validation)
        locals_ = [size for column in placements.values() for size in column.local_batch]
        self.min_local_batch = int(min(locals_))
        self.max_local_batch = rules.max_local_batch or int(max(locals_))
        self.epochs = min(len(rows) for rows in validation.values())
        self._columns = {**_average(placements), **scalability}
        self._triangles = TriangleInterpolator([(key[0], key[1]) for key in self._columns])
        self._progress = [0.0] + [
            min(rows[epoch].progress for rows in validation.values()) for epoch in range(self.epochs)
        ]
        self._times: dict[tuple[Placement, int], tuple[float, float]] = {}
        self._stats: dict[tuple[int, int], tuple[float, float]] = {}

    def __repr__(self) -> str:
        return f"TracedProgram({self.name})"

    def step_time(self, placement: Placement, local_batch: int) -> tuple[float, float]:
        """Returns the seconds of one step, and those of them that are synchronisation."""
        key = (placement, local_batch)
        known = self._times.get(key)
        if known is None:
            known = self._times[key] = self._measure(placement, local_batch)
        return known

    def gradient(self, batch: int, epoch: int) -> tuple[float, float]:
        """Returns the squared norm and the variance of the gradient in an epoch at a batch size."""
        key = (batch, epoch)
        known = self._stats.get(key)
        if known is None:
            known = self._stats[key] = self._gradient(batch, epoch)
        return known

    def progress_after(self, epochs: int) -> float:
        """Returns the progress, in updates of the smallest batch size, at which so many epochs are done."""
        return self._progress[epochs]

    def _measure(self, placement: Placement, local_batch: int) -> tuple[float, float]:
        name = min(placement[i:] + placement[:i] for i in range(len(placement)))
        column = self._placements.get(name)
        if column is not None:
            return column.at(local_batch)
        weights = self._triangles.weights(min(len(name), _MAX_MACHINES), sum(name))
        step = sync = 0.0
        for key, weight in weights.items():
            a, b = self._columns[key].at(local_batch)
            step += weight * a
            sync += weight * b
        return step, sync

    def _gradient(self, batch: int, epoch: int) -> tuple[float, float]:
        sizes = list(self._validation)
        lower = max((size for size in sizes if size <= batch), default=sizes[0])
        upper = min((size for size in sizes if size >= batch), default=sizes[-1])
        low, high = self._validation[lower][epoch], self._validation[upper][epoch]
        share = 0.0 if upper == lower else (batch - lower) / (upper - lower)
        return (
            low.grad_sqr + share * (high.grad_sqr - low.grad_sqr),
            low.grad_var + share * (high.grad_var - low.grad_var),
        )


def _average(placements: Mapping[Placement, _Column]) -> dict[tuple[int, ...], _Column]:
    """Returns the mean of all placements with the same number of machines and replicas."""
    groups: dict[tuple[int, ...], dict[float, list[tuple[float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for placement, column in placements.items():
        group = groups[len(placement), sum(placement)]
        for size, step, sync in zip(column.local_batch, column.step_time, column.sync_time, strict=True):
            group[size].append((step, sync))
    return {
        key: _Column(
            local_batch=tuple(sorted(group)),
            step_time=tuple(float(np.mean([step for step, _ in group[size]])) for size in sorted(group)),
            sync_time=tuple(float(np.mean([sync for _, sync in group[size]])) for size in sorted(group)),
        )
        for key, group in groups.items()
    }


class TraceFolder:
    """The measured programs of a folder, each read when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise UserError(
                f"There is no folder {folder}.", hint="Give the folder that holds the measured programs."
            )
        self.names = sorted(path.parent.name for path in folder.glob("*/placements.csv"))
        self._programs: dict[str, TracedProgram] = {}

    def program(self, name: str, *, where: str = "") -> TracedProgram:
        if name not in self.names:
            raise UserError(
                f"{where + ': ' if where else ''}unknown program {name!r}.{did_you_mean(name, self.names)}",
                hint=f"{self.folder} has measurements of {', '.join(self.names) or 'no program'}.",
            )
        if name not in self._programs:
            self._programs[name] = read_program(self.folder / name)
        return self._programs[name]

    def workloads(self) -> list[Path]:
        return sorted((self.folder / WORKLOADS).glob("*.csv"))


def read_program(folder: Path) -> TracedProgram:
    placements = _columns(folder / "placements.csv", _placement_of)
    scalability_file = folder / "scalability.csv"
    scalability = _columns(scalability_file, _counts_of) if scalability_file.exists() else {}
    validation: dict[int, tuple[_Epoch, ...]] = {}
    for path in folder.glob("validation-*.csv"):
        size = path.stem.rpartition("-")[2]
        if not (size.isascii() and size.isdigit() and size.strip("0")):
            raise UserError(f"{path}: the name must end in a batch size, as in validation-128.csv.")
        validation[int(size)] = _epochs(path)
    if not validation:
        raise UserError(f"{folder} has no validation-BATCH.csv.", hint="One file per batch size is needed.")
    return TracedProgram(
        name=folder.name,
        placements=placements,
        scalability=scalability,
        validation=validation,
        rules=RULES.get(folder.name, _FREE),
    )


class Row:
    """A line of a CSV file, with errors that name the place."""

    def __init__(self, path: Path, line: int, values: Mapping[str, str | None]) -> None:
        self.where = f"{path}, line {line}"
        self._values = values

    def text(self, key: str) -> str:
        value = self._values.get(key)
        if value is None:
            raise UserError(f"{self.where}: no value for {key}.")
        return value.strip()

    def has(self, key: str) -> bool:
        return bool((self._values.get(key) or "").strip())

    def number(self, key: str, *, least: float | None = None, above: float | None = None) -> float:
        text = self.text(key)
        try:
            value = float(text)
        except ValueError:
            raise UserError(f"{self.where}: {key} must be a number, not {text!r}.") from None
        if not math.isfinite(value):
            raise UserError(f"{self.where}: {key} must be a finite number, not {text}.")
        if least is not None and value < least:
            raise UserError(f"{self.where}: {key} must be at least {least:g}, not {text}.")
        if above is not None and value <= above:
            raise UserError(f"{self.where}: {key} must be greater than {above:g}, not {text}.")
        return value

    def count(self, key: str, *, least: int = 1) -> int:
        value = self.whole_number(key, least=least)
        if value > MOST_COUNT:
            raise UserError(f"{self.where}: {key} must be at most {MOST_COUNT:,}, not {self.text(key)}.")
        return value

    def whole_number(self, key: str, *, least: int | None = None) -> int:
        value = self.number(key, least=least)
        if value != int(value):
            raise UserError(f"{self.where}: {key} must be a whole number, not {self.text(key)}.")
        return int(value)


def read_rows(path: Path, *, needed: tuple[str, ...]) -> list[Row]:
    """Reads a CSV file with a header; names the columns that are missing."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = names
            missing = [name for name in needed if name not in names]
            if missing:
                raise UserError(
                    f"{path}: no column {', '.join(missing)}.",
                    hint=f"The first line must name the columns: {', '.join(needed)}.",
                )
            if twice := [name for name in names if name and names.count(name) > 1]:
                raise UserError(f"{path}, line 1: the column {twice[0]} is there twice.")
            rows = []
            for values in reader:
                # Cells without a column are under None.
                if None in values:
                    raise UserError(
                        f"{path}, line {reader.line_num}: more cells than the {len(names)} columns."
                    )
                rows.append(Row(path, reader.line_num, values))
            return rows
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a CSV file: {error}.") from None


def _columns(path: Path, key_of: Callable[[Row], tuple[int, ...]]) -> dict[tuple[int, ...], _Column]:
    rows = read_rows(path, needed=("local_bsz", "step_time", "sync_time"))
    found: dict[tuple[int, ...], dict[float, tuple[float, float]]] = defaultdict(dict)
    for row in rows:
        step = row.number("step_time", above=0)
        sync = row.number("sync_time", least=0)
        found[key_of(row)][row.number("local_bsz", above=0)] = (step, min(sync, step))
    if not found:
        raise UserError(f"{path} has no measurements.")
    return {
        key: _Column(
            local_batch=tuple(sorted(sizes)),
            step_time=tuple(sizes[size][0] for size in sorted(sizes)),
            sync_time=tuple(sizes[size][1] for size in sorted(sizes)),
        )
        for key, sizes in found.items()
    }


def _placement_of(row: Row) -> tuple[int, ...]:
    digits = row.text("placement")
    if not digits.isdigit() or "0" in digits:
        raise UserError(f"{row.where}: placement must be digits from 1 to 9, not {digits!r}.")
    counts = tuple(int(digit) for digit in digits)
    return min(counts[i:] + counts[:i] for i in range(len(counts)))


def _counts_of(row: Row) -> tuple[int, ...]:
    return row.count("num_nodes"), row.count("num_replicas")


def _epochs(path: Path) -> tuple[_Epoch, ...]:
    rows = read_rows(path, needed=("progress", "iteration", "grad_sqr", "grad_var"))
    if not rows:
        raise UserError(f"{path} has no epochs.")
    epochs = tuple(
        _Epoch(
            progress=row.number("progress", above=0),
            iteration=row.number("iteration", above=0),
            grad_sqr=row.number("grad_sqr", least=0),
            grad_var=row.number("grad_var", least=0),
        )
        for row in rows
    )
    for row, before, after in zip(rows[1:], epochs, epochs[1:], strict=False):
        if after.progress <= before.progress:
            raise UserError(f"{row.where}: progress must grow from epoch to epoch.")
    return epochs
