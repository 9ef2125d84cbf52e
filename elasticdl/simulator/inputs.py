"""Reads workloads: the simple table of jobs (CSV or YAML), and the workloads published with the Pollux paper.

Errors are `UserError`s that name the file and the line. A job larger than the whole cluster is no error
here: the simulation reports it and goes on with the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.flags.yaml_nesting import check_nesting
from elasticdl.scheduling.cluster import Machine
from elasticdl.scheduling.demand import RoleGroup
from elasticdl.scheduling.errors import SchedulingInputError
from elasticdl.simulator.scenarios import SCENARIOS
from elasticdl.simulator.traces import WORKLOADS, Row, TraceFolder, read_rows
from elasticdl.simulator.work import LinearWork, TracedWork
from elasticdl.simulator.workload import (
    CPU,
    GPU,
    MEMORY,
    Rules,
    Service,
    Workload,
    WorkloadJob,
    parse_machines,
)

# Cluster and rules of the published comparison.
POLLUX_NODES = "16x4gpu"
POLLUX_RULES = Rules(interval=60.0, resize_cost=30.0)
_POLLUX_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
# Jobs of a table: planned on events, workers start within a few seconds.
TABLE_RULES = Rules(interval=60.0, reacts=True, resize_cost=30.0, pod_start=3.0, pod_stop=2.0)
_JOB_FIELDS = (
    "name", "submit", "workers", "min", "max", "work", "overhead", "cpu", "memory", "gpu", "ps", "ps_cpu", "ps_memory",
    "master_cpu", "priority", "weight", "namespace",
)  # fmt: skip
_NEEDED = ("name", "max", "work")
_SERVICE_FIELDS = ("name", "cpu", "memory", "gpu", "replicas", "priority")
_TOP_FIELDS = ("jobs", "services", "nodes", "horizon", "interval", "resize_cost")
_QUANTITY = re.compile(r"^(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")
# Beyond it, numbers of units are not exact.
_MOST_UNITS = 2**60
_UNITS = {
    None: 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 1024.0, "Mi": 1024.0**2, "Gi": 1024.0**3, "Ti": 1024.0**4,
}  # fmt: skip


def read_workloads(text: str, *, machines: tuple[Machine, ...] | None = None) -> list[Workload]:
    """Returns the workloads that a word of the command line means: a built-in scenario, a file, or a folder of
    measured programs.
    """
    path = Path(text)
    scenario = text.replace("_", "-")
    if scenario in SCENARIOS and not path.exists():
        workload = SCENARIOS[scenario]()
        return [workload.with_machines(machines) if machines else workload]
    if not path.exists():
        raise UserError(
            f"There is no file, folder or scenario {text}.{did_you_mean(text, SCENARIOS)}",
            hint=f"Scenarios: {', '.join(SCENARIOS)}. Or give a CSV or YAML file of jobs, or a folder of traces.",
        )
    if path.is_dir():
        traces = TraceFolder(path)
        files = traces.workloads()
        if not files:
            raise UserError(
                f"{path} has no {WORKLOADS}/*.csv.",
                hint="Give a folder with measured programs and workloads.",
            )
        return [read_pollux(file, machines=machines, traces=traces) for file in files]
    return [read_workload(path, machines=machines)]


def read_workload(path: Path, *, machines: tuple[Machine, ...] | None = None) -> Workload:
    if path.suffix in (".yaml", ".yml"):
        return _read_yaml(path, machines)
    if path.suffix != ".csv":
        raise UserError(
            f"{path} is neither a .csv nor a .yaml file.", hint="docs/simulator.md describes both."
        )
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = {name.strip() for name in file.readline().split(",")}
    if "application" in header:
        return read_pollux(path, machines=machines)
    rows = read_rows(path, needed=_NEEDED)
    unknown = sorted(header - set(_JOB_FIELDS) - {""})
    if unknown:
        raise UserError(
            f"{path}, line 1: unknown column {unknown[0]}.{did_you_mean(unknown[0], _JOB_FIELDS)}",
            hint=f"Columns: {', '.join(_JOB_FIELDS)}.",
        )
    jobs = _jobs(rows)
    if not jobs:
        raise UserError(f"{path} has no jobs.")
    return _table_workload(path, jobs, machines)


def read_pollux(
    path: Path, *, machines: tuple[Machine, ...] | None = None, traces: TraceFolder | None = None
) -> Workload:
    """Reads one workload file of a folder of measured programs (`FOLDER/workloads/NAME.csv`)."""
    folder = traces or TraceFolder(path.parent.parent if path.parent.name == WORKLOADS else path.parent)
    rows = read_rows(path, needed=_POLLUX_COLUMNS)
    jobs = [_pollux_job(row, folder) for row in rows]
    _check_names(jobs, rows)
    if not jobs:
        raise UserError(f"{path} has no jobs.")
    return Workload(
        name=path.stem,
        machines=machines or parse_machines(POLLUX_NODES),
        jobs=tuple(jobs),
        rules=POLLUX_RULES,
        resource=GPU,
    )


def _pollux_job(row: Row, traces: TraceFolder) -> WorkloadJob:
    program = traces.program(row.text("application"), where=row.where)
    batch = row.count("batch_size")
    if not program.init_batch <= batch <= program.max_batch:
        raise UserError(
            f"{row.where}: batch_size of {program.name} must be between {program.init_batch} and "
            f"{program.max_batch}, not {batch}."
        )
    work = TracedWork(program=program, batch=batch)
    return WorkloadJob(
        name=_name(row),
        submitted_at_seconds=row.number("time", least=0),
        groups=(RoleGroup(role="worker", minimum=1, maximum=work.largest_size, requests={GPU: 1}),),
        requested=row.count("num_replicas"),
        work=work,
    )


def _name(row: Row) -> str:
    name = row.text("name")
    if not name:
        raise UserError(f"{row.where}: the job has no name.")
    return name


def _check_names(jobs: list[WorkloadJob], rows: list[Row]) -> None:
    seen: set[str] = set()
    for job, row in zip(jobs, rows, strict=True):
        if job.name in seen:
            raise UserError(f"{row.where}: the name {job.name} is used twice.")
        seen.add(job.name)


def _jobs(rows: list[Row]) -> list[WorkloadJob]:
    jobs = [_table_job(row) for row in rows]
    _check_names(jobs, rows)
    return jobs


def _table_job(row: Row) -> WorkloadJob:
    maximum = row.count("max")
    minimum = row.count("min") if row.has("min") else 1
    if minimum > maximum:
        raise UserError(f"{row.where}: min {minimum} exceeds max {maximum}.")
    requested = row.count("workers") if row.has("workers") else maximum
    if not minimum <= requested <= maximum:
        raise UserError(f"{row.where}: workers {requested} is not between min {minimum} and max {maximum}.")
    needs = {
        CPU: _quantity(row, "cpu", 1000),
        MEMORY: _quantity(row, "memory", 1),
        GPU: _quantity(row, "gpu", 1),
    }
    needs = {key: value for key, value in needs.items() if value}
    groups = []
    if row.has("master_cpu"):
        groups.append(
            RoleGroup(role="master", minimum=1, maximum=1, requests={CPU: _quantity(row, "master_cpu", 1000)})
        )
    servers = row.count("ps", least=0) if row.has("ps") else 0
    if servers:
        requests = {CPU: _quantity(row, "ps_cpu", 1000), MEMORY: _quantity(row, "ps_memory", 1)}
        requests = {key: value for key, value in requests.items() if value}
        groups.append(RoleGroup(role="ps", minimum=servers, maximum=servers, requests=requests))
    groups.append(RoleGroup(role="worker", minimum=minimum, maximum=maximum, requests=needs or {CPU: 1000}))
    seconds = math.inf if row.text("work").lower() in ("inf", "endless") else row.number("work", above=0)
    return WorkloadJob(
        name=_name(row),
        submitted_at_seconds=row.number("submit", least=0) if row.has("submit") else 0.0,
        groups=tuple(groups),
        requested=requested,
        work=LinearWork(
            seconds=seconds, overhead=row.number("overhead", least=0) if row.has("overhead") else 0.0
        ),
        priority=row.whole_number("priority") if row.has("priority") else 0,
        weight=row.number("weight", above=0) if row.has("weight") else 1.0,
        namespace=row.text("namespace") if row.has("namespace") else "default",
    )


def quantity(text: str, *, scale: int, where: str) -> int:
    """Reads a Kubernetes quantity (`500m`, `8Gi`, `4`) as an integer in units of 1/scale."""
    match = _QUANTITY.match(text.strip())
    if match is None:
        raise UserError(
            f"{where}: {text!r} is no quantity of at least zero.",
            hint="Write 4, 0.5 or 500m; for memory 8Gi or 512Mi.",
        )
    amount = float(match[1]) * _UNITS[match[2]] * scale
    if amount > _MOST_UNITS:
        raise UserError(f"{where}: {text[:40]!r} is more than any machine has.")
    return round(amount)


def _quantity(row: Row, key: str, scale: int) -> int:
    return quantity(row.text(key), scale=scale, where=f"{row.where}: {key}") if row.has(key) else 0


def _table_workload(path: Path, jobs: list[WorkloadJob], machines: tuple[Machine, ...] | None) -> Workload:
    if machines is None:
        raise UserError(
            f"{path} does not say on which machines the jobs run.",
            hint="Add --nodes, for example --nodes 16x4gpu.",
        )
    return Workload(
        name=path.stem,
        machines=machines,
        jobs=tuple(jobs),
        rules=TABLE_RULES,
        resource=main_resource(machines),
    )


def main_resource(machines: tuple[Machine, ...]) -> str:
    """GPUs where there are any, else CPUs."""
    return GPU if any(machine.allocatable.get(GPU, 0) for machine in machines) else CPU


# YAML


class _LineLoader(yaml.SafeLoader):
    """Remembers the line of every mapping."""


def _mapping(loader: _LineLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    # Before the keys of merged mappings (`<<`) come to them.
    keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise yaml.constructor.ConstructorError(None, None, f"{twice[0]} is given twice", node.start_mark)
    values = loader.construct_mapping(node, deep=True)
    values["__line__"] = node.start_mark.line + 1
    return dict(values)


_LineLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load_yaml(path: Path) -> Any:
    """Reads a YAML file; every mapping has its line under `__line__`."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read()
        check_nesting(text)
        return yaml.load(text, Loader=_LineLoader)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {error}") from None


def entry(path: Path, values: Any, known: tuple[str, ...], *, what: str) -> Row:
    """Returns a mapping of a YAML file as a row; refuses unknown fields."""
    if not isinstance(values, Mapping):
        raise UserError(f"{path}: {what} must be a mapping, not {type(values).__name__}.")
    line = int(values.get("__line__", 1))
    for key in values:
        if key != "__line__" and key not in known:
            raise UserError(
                f"{path}, line {line}: unknown field {key} of {what}.{did_you_mean(str(key), known)}",
                hint=f"Fields: {', '.join(known)}.",
            )
    texts = {
        str(key): None if value is None else str(value) for key, value in values.items() if key != "__line__"
    }
    return Row(path, line, texts)


def items(path: Path, document: Mapping[str, Any], key: str) -> list[Any]:
    values = document.get(key) or []
    if not isinstance(values, list):
        raise UserError(f"{path}: {key} must be a list.")
    return values


def _read_yaml(path: Path, machines: tuple[Machine, ...] | None) -> Workload:
    document = load_yaml(path)
    top = entry(path, document, _TOP_FIELDS, what="a workload")
    rows = []
    for values in items(path, document, "jobs"):
        row = entry(path, values, _JOB_FIELDS, what="a job")
        for needed in _NEEDED:
            row.text(needed)
        rows.append(row)
    jobs = _jobs(rows)
    if not jobs:
        raise UserError(f"{path} has no jobs.")
    if machines is None and top.has("nodes"):
        machines = parse_machines(top.text("nodes"))
    workload = _table_workload(path, jobs, machines)
    services = tuple(_service(path, values) for values in items(path, document, "services"))
    horizon = top.number("horizon", above=0) if top.has("horizon") else None
    endless = [
        job.name for job in jobs if isinstance(job.work, LinearWork) and not math.isfinite(job.work.seconds)
    ]
    if endless and horizon is None:
        raise UserError(f"{path}: {endless[0]} never ends.", hint="Add horizon: SECONDS to the workload.")
    result = Workload(
        name=workload.name,
        machines=workload.machines,
        jobs=workload.jobs,
        services=services,
        rules=workload.rules,
        horizon=horizon,
        resource=workload.resource,
    )
    return result.with_rules(
        interval=top.number("interval", above=0) if top.has("interval") else None,
        resize_cost=top.number("resize_cost", least=0) if top.has("resize_cost") else None,
    )


def _service(path: Path, values: Any) -> Service:
    row = entry(path, values, _SERVICE_FIELDS, what="a service")
    steps = values.get("replicas")
    if isinstance(steps, int):
        steps = {0: steps}
    if not isinstance(steps, Mapping):
        raise UserError(f"{row.where}: replicas must be a count, or a mapping from seconds to counts.")
    targets = []
    for at, count in steps.items():
        if at == "__line__":
            continue
        if not isinstance(at, int | float) or not isinstance(count, int) or count < 0 or at < 0:
            raise UserError(
                f"{row.where}: replicas maps seconds to counts of at least zero, not {at!r}: {count!r}."
            )
        targets.append((float(at), count))
    needs = {
        CPU: _quantity(row, "cpu", 1000),
        MEMORY: _quantity(row, "memory", 1),
        GPU: _quantity(row, "gpu", 1),
    }
    return Service(
        name=_name(row),
        requests={key: value for key, value in needs.items() if value},
        targets=tuple(sorted(targets)),
        priority=row.whole_number("priority") if row.has("priority") else 1000,
    )


def as_user_error(error: SchedulingInputError) -> UserError:
    return UserError(f"The planner refuses the input: {error}.")
