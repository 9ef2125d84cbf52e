"""Workload files: what they mean, and what is refused with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.simulator.inputs import quantity, read_workload, read_workloads
from elasticdl.simulator.workload import CPU, GPU, MEMORY, parse_machines
from tests.simulator.small_traces import write_traces

MACHINES = parse_machines("2x8cpu")


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_csv_line_becomes_a_job(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "jobs.csv",
        "name,submit,min,max,workers,work,cpu,memory,gpu,ps,ps_cpu,master_cpu,priority,weight,overhead\n"
        "a,60,2,8,4,3600,0.5,2Gi,1,3,2,500m,7,2.5,0.1\n",
    )
    workload = read_workload(path, machines=MACHINES)
    (job,) = workload.jobs
    master, ps, worker = job.groups
    assert (master.minimum, master.requests) == (1, {CPU: 500})
    assert (ps.minimum, ps.maximum, ps.requests) == (3, 3, {CPU: 2000})
    assert (worker.minimum, worker.maximum) == (2, 8)
    assert worker.requests == {CPU: 500, MEMORY: 2 * 1024**3, GPU: 1}
    assert (job.submitted_at_seconds, job.requested, job.priority, job.weight) == (60, 4, 7, 2.5)


def test_yaml_describes_machines_services_and_an_end(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "jobs.yaml",
        "nodes: 3x4cpu\nhorizon: 500\nresize_cost: 5\njobs:\n  - {name: a, max: 2, work: inf}\n"
        "services:\n  - {name: web, cpu: 1, replicas: {0: 2, 60: 4}, priority: 9}\n",
    )
    workload = read_workload(path)
    assert len(workload.machines) == 3
    assert (workload.horizon, workload.rules.resize_cost) == (500, 5)
    assert workload.services[0].targets == ((0.0, 2), (60.0, 4))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("name,max,work,min\na,2,9,3\n", "line 2: min 3 exceeds max 2"),
        ("name,max,work\na,-2,9\n", "line 2: max must be at least 1, not -2"),
        ("name,max,work\na,2,9\na,2,9\n", "line 3: the name a is used twice"),
        ("name,max,work\na,2,nan\n", "line 2: work must be a finite number, not nan"),
        ("name,max,work\na,2,-5\n", "line 2: work must be greater than 0"),
        ("name,max,work\na,2.5,5\n", "line 2: max must be a whole number"),
        ("name,max,work\na,two,5\n", "line 2: max must be a number, not 'two'"),
        ("name,max,work,cpu\na,2,5,-1\n", "line 2: cpu: '-1' is no quantity"),
        ("name,max,work,submit\na,2,5,-1\n", "line 2: submit must be at least 0"),
        ("name,max,work,wieght\na,2,5,1\n", "line 1: unknown column wieght. Did you mean weight"),
        ("name,max\na,2\n", "no column work"),
        ("name,max,work\n,2,5\n", "line 2: the job has no name"),
        ("name,max,work,workers\na,2,5,3\n", "line 2: workers 3 is not between"),
        ("name,max,work\n", "has no jobs"),
        ("name,max,work\na,2,5,7\n", "line 2: more cells than the 3 columns"),
        ("name,max,work,max\na,2,5,7\n", "line 1: the column max is there twice"),
        ("name,max,work,priority\na,2,5,0.5\n", "line 2: priority must be a whole number"),
        (f"name,max,work\na,{10**30},5\n", "line 2: max must be at most 1,000,000"),
    ],
)
def test_bad_csv_names_file_and_line(tmp_path: Path, lines: str, message: str) -> None:
    path = write(tmp_path, "jobs.csv", lines)
    with pytest.raises(UserError, match=message) as error:
        read_workload(path, machines=MACHINES)
    assert "jobs.csv" in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs:\n  - {name: a, max: 2, wrok: 5}\n", "line 2: unknown field wrok of a job. Did you mean work"),
        ("jobs:\n  - {name: a, max: 2}\n", "line 2: no value for work"),
        ("jobs:\n  - {name: a, max: 2, work: inf}\nnodes: 1x1cpu\n", "a never ends"),
        ("jobs: 5\n", "jobs must be a list"),
        ("- a\n", "must be a mapping"),
        ("jobs: [\n", "is not valid YAML"),
        ("jobs:\n  - {name: a, max: 1, work: 1}\n", "does not say on which machines"),
    ],
)
def test_bad_yaml_names_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_workload(write(tmp_path, "jobs.yaml", text))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,10,slwo,2,32", "line 2: unknown program 'slwo'. Did you mean slow"),
        ("a,10,slow,0,32", "line 2: num_replicas must be at least 1"),
        ("a,10,slow,2,4096", "batch_size of slow must be between 8 and 128"),
        ("a,-1,slow,2,32", "time must be at least 0"),
    ],
)
def test_bad_line_of_a_measured_workload_is_named(tmp_path: Path, line: str, message: str) -> None:
    folder = write_traces(tmp_path / "traces", jobs=f"{line}\n")
    with pytest.raises(UserError, match=message):
        read_workloads(str(folder))


def test_folder_of_traces_has_all_its_workloads(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "traces")
    assert [workload.name for workload in read_workloads(str(folder))] == ["small"]


def test_unknown_word_names_the_nearest_scenario() -> None:
    with pytest.raises(UserError, match="Did you mean edl-case2"):
        read_workloads("edl-case-2")


def test_scenario_may_run_on_other_machines() -> None:
    assert len(read_workloads("two-jobs", machines=MACHINES)[0].machines) == 2


@pytest.mark.parametrize("text", ["", "16", "x4gpu", "4x", "4x4tpu", "-4x4gpu", "0x4gpu", "4x0gpu"])
def test_machines_that_describe_nothing_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--nodes"):
        parse_machines(text)


def test_machines_of_two_kinds_have_names_of_their_own() -> None:
    machines = parse_machines("2x4gpu,3x8cpu32Gi")
    assert len({machine.name for machine in machines}) == 5
    assert machines[-1].allocatable == {CPU: 8000, MEMORY: 32 * 1024**3}


@pytest.mark.parametrize(
    ("text", "scale", "value"),
    [("4", 1000, 4000), ("500m", 1000, 500), ("2Ki", 1, 2048), ("1.5G", 1, 1_500_000_000)],
)
def test_quantities_are_read_as_kubernetes_does(text: str, scale: int, value: int) -> None:
    assert quantity(text, scale=scale, where="here") == value


@pytest.mark.parametrize("nodes", ["100001x4cpu", "99999x4cpu,2x4gpu", f"{'9' * 5000}x4gpu"])
def test_more_machines_than_memory_has_room_for_are_refused(nodes: str) -> None:
    with pytest.raises(UserError, match="the most are 100,000"):
        parse_machines(nodes)


def test_yaml_keys_that_are_merged_may_be_overridden(tmp_path: Path) -> None:
    jobs = "jobs:\n  - &a {name: a, max: 2, work: 5}\n  - {<<: *a, name: b}\n"
    workload = read_workload(write(tmp_path, "jobs.yaml", f"nodes: 3x4cpu\n{jobs}"))
    assert [job.name for job in workload.jobs] == ["a", "b"]
