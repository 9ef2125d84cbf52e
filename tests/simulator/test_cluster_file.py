"""Files that describe a cluster and its jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.simulator.cluster_file import read_cluster, read_job

CLUSTER = """\
machines:
  - {name: node, count: 2, cpu: 16, memory: 64Gi, labels: {zone: a}, taints: ["gpu=yes:NoSchedule"]}
  - {name: spare, cpu: 8, pods: 30, cordoned: true}
jobs:
  - name: clicks
    age: 600
    work_total: 1000
    work_done: 250
    groups:
      - {role: ps, count: 2, cpu: 2}
      - {role: worker, min: 1, max: 4, cpu: 4}
    running:
      ps: {node-0: 2}
      worker: {node-0: 1, node-1: 2}
    measured:
      - {machines: 2, workers: 3, per_second: 12}
pods:
  - {name: web, count: 3, machine: node-1, cpu: 500m, priority: 10}
  - {name: late, cpu: 1}
quotas:
  - {namespace: default, guaranteed: {cpu: 20}, limit: {cpu: 30}}
"""


def write(folder: Path, text: str, name: str = "cluster.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_cluster_file_describes_machines_jobs_and_pods(tmp_path: Path) -> None:
    state = read_cluster(write(tmp_path, CLUSTER))
    assert [machine.name for machine in state.machines] == ["node-0", "node-1", "spare"]
    assert state.machines[0].taints[0].key == "gpu"
    assert state.machines[2].is_cordoned
    assert [machine.allocatable.get("pods") for machine in state.machines] == [None, None, 30]
    (job,) = state.jobs
    assert (job.submitted_at_seconds, job.progress.work_done, job.largest_run_size) == (-600, 250, 3)
    assert job.observations[0].step_seconds == pytest.approx(3 / 12)
    assert sum(pod.job == "clicks" for pod in state.pods) == 5
    assert len({pod.key for pod in state.pods}) == 9
    assert state.quotas[0].limit == {"cpu": 30_000}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("min: 1, max: 4", "min: 5, max: 4"), "line 11: min 5 exceeds max 4"),
        (("worker: {node-0: 1", "worker: {node-9: 1"), "line 5: there is no machine node-9"),
        (("machine: node-1", "machine: nod-1"), "line 18: there is no machine nod-1"),
        (("age: 600", "aeg: 600"), "line 5: unknown field aeg of a job. Did you mean age"),
        (("cpu: 500m", "cpu: lots"), "'lots' is no quantity"),
        (("per_second: 12", "per_second: nan"), "per_second must be a finite number"),
        (("per_second: 12", "per_second: 0"), "per_second must be greater than 0"),
        (("ps: {node-0: 2}", "ps: {node-0: -2}"), "-2 on node-0 is no count"),
        (("      ps: {node-0: 2}", "      pss: {node-0: 2}"), "job clicks has no group pss"),
        (("limit: {cpu: 30}", "limit: {cpu: 10}"), "exceeds limit"),
        (("gpu=yes:NoSchedule", "gpu=yes:Never"), "is no taint"),
        (('["gpu=yes:NoSchedule"]', '"gpu=yes:NoSchedule"'), "taints must be a list"),
        (('["gpu=yes:NoSchedule"]', '["=yes:NoSchedule"]'), "is no taint"),
        (("cordoned: true", "cordoned: 'true'"), "cordoned must be true or false, not 'true'"),
        (("cordoned: true", "ready: 0"), "ready must be true or false, not 0"),
        (("count: 2, cpu: 16", f"count: {10**30}, cpu: 16"), "count must be at most 1,000,000"),
        (("ps: {node-0: 2}", f"ps: {{node-0: {10**30}}}"), "is no count from 1 to 1,000,000"),
        (("cpu: 500m", f"cpu: '{'1' * 5000}'"), "is more than any machine has"),
        (
            ("    running:\n      ps: {node-0: 2}\n      worker: {node-0: 1, node-1: 2}", "    running: 3"),
            "it is 3",
        ),
        (
            ("    measured:\n      - {machines: 2, workers: 3, per_second: 12}", "    measured: 3"),
            "must be a list",
        ),
        (("priority: 10}", "priority: 0.5}"), "priority must be a whole number"),
        (("worker: {node-0: 1, node-1: 2}", "worker: {node-0: 1, node-0: 2}"), "node-0 is given twice"),
    ],
)
def test_bad_cluster_file_names_file_and_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = CLUSTER.replace(*change)
    assert text != CLUSTER
    with pytest.raises(UserError, match=message) as error:
        read_cluster(write(tmp_path, text))
    assert "cluster.yaml" in str(error.value)


def test_cluster_without_machines_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="describes no machines"):
        read_cluster(write(tmp_path, "jobs: []\n"))


def test_short_form_of_machines_is_accepted(tmp_path: Path) -> None:
    assert len(read_cluster(write(tmp_path, "nodes: 4x8cpu\n")).machines) == 4


def test_list_of_kubectl_is_accepted(tmp_path: Path) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [{"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}}],
    }
    state = read_cluster(write(tmp_path, json.dumps(document), "cluster.json"))
    assert [machine.name for machine in state.machines] == ["n1"]


def test_list_without_nodes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no nodes"):
        read_cluster(write(tmp_path, '{"kind": "List", "items": []}', "cluster.json"))


@pytest.mark.parametrize("items", [[1], {"a": 1}, "x", [[]]])
def test_list_of_no_objects_is_an_error(tmp_path: Path, items: object) -> None:
    with pytest.raises(UserError, match="items must be a list of objects"):
        read_cluster(write(tmp_path, json.dumps({"kind": "List", "items": items}), "cluster.json"))


def test_broken_json_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not valid JSON"):
        read_cluster(write(tmp_path, "{", "cluster.json"))


def test_job_file_is_one_job(tmp_path: Path) -> None:
    path = write(tmp_path, "name: a\ngroups:\n  - {role: worker, min: 1, max: 2, cpu: 1}\n", "job.yaml")
    assert read_job(path).key == "default/a"


def test_job_file_of_two_jobs_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "jobs:\n  - {name: a}\n  - {name: b}\n", "job.yaml")
    with pytest.raises(UserError, match="describes 2 jobs"):
        read_job(path)


def test_job_without_groups_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="job a has no groups"):
        read_job(write(tmp_path, "name: a\n", "job.yaml"))
