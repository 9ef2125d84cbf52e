"""The Estimator programs of the model zoo as jobs: to their end, and with any process killed in any phase."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import programs
from e2e.conftest import ROOT, Gates, Job, wait_until

ROLE_NAMES = ("chief", "worker", "ps", "evaluator")
ROLES = tuple(f"{role}-0" for role in ROLE_NAMES)
TRAINED, BATCH, EPOCHS = 120, 12, 40
IRIS: dict[str, Any] = {"dataset": "iris_training_data", "size": TRAINED, "epochs": EPOCHS}
CLICKS, CLICK_EPOCHS = 200, 26
CRITEO: dict[str, Any] = {"dataset": "criteo_training_data", "size": CLICKS, "epochs": CLICK_EPOCHS}
# Enough to tell the rows apart. With all columns a process is busy for many seconds until it has its graph.
COLUMNS = "C3,C4,C10,C12,C16,C21"
# Shards of each trainer, of which the first are trained: enough steps for a first checkpoint.
MIDDLE = 35


def _make(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "elasticdl", "data", "make", *arguments],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )


@pytest.fixture
def iris(tmp_path: Path) -> Path:
    _make("iris", f"--file={tmp_path}/iris.data")
    return tmp_path / "iris.data"


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    _make("criteo-like", f"--rows={CLICKS}", "--test_rows=20", f"--output={tmp_path}/criteo")
    return tmp_path / "criteo"


@pytest.fixture
def start_program(start_job: Callable[..., Job]) -> Callable[..., Job]:
    """A program of the zoo in the roles of an Estimator."""

    def start(program: str, *flags: str, **more: Any) -> Job:
        return start_job(
            "train",
            f"--job_command={sys.executable} -m {program}",
            "--need_tf_config=true",
            "--distribution_strategy=ParameterServerStrategy",
            "--num_ps=1",
            "--num_workers=1",
            "--num_evaluator=1",
            "--job_name=estimator",
            *flags,
            **more,
        )

    return start


@pytest.fixture
def start_iris(start_program: Callable[..., Job], iris: Path) -> Callable[..., Job]:
    def start(*flags: str) -> Job:
        program = (
            f"e2e.gated_program model_zoo.iris.dnn_estimator --training_data={iris} --batch_size={BATCH} "
            f"--num_epochs={EPOCHS} --checkpoint_steps=50 --evaluation_seconds=1"
        )
        return start_program(program, *flags)

    return start


def _final(job: Job, what: str) -> float:
    """What the chief printed last."""
    found = re.findall(
        rf"^Final {what}: ([\d.]+)", "\n".join(programs.log(job, n) for n in _chiefs(job)), re.M
    )
    assert found, programs.log(job, "chief-0")[-3000:]
    return float(found[-1])


def _chiefs(job: Job) -> list[str]:
    return sorted(programs.nodes(job, "chief"))


def _wait_for_the_middle(gates: Gates) -> None:
    for node in ("chief-0", "worker-0"):
        wait_until((gates.folder / f"held-fetch-{node}").exists, f"{node} asks for its shard {MIDDLE}")


def _set_holds(gates: Gates, point: str, number: int = 0) -> None:
    for node in ("chief-0", "worker-0"):
        (gates.folder / f"hold-{point}-{node}").write_text(str(number))


def _release(gates: Gates, point: str) -> None:
    for path in gates.folder.glob(f"hold-{point}*"):
        path.unlink()


# -- calm ----------------------------------------------------------------------------------------------------


def test_iris_estimator_trains_while_workers_are_scaled(
    start_iris: Callable[..., Job], gates: Gates, tmp_path: Path
) -> None:
    _set_holds(gates, "fetch", MIDDLE)
    (gates.folder / "hold-fetch-worker-1").write_text("10")
    job = start_iris()
    _wait_for_the_middle(gates)
    grown = job.command("jobs", "scale", job.name, "--num_workers=2")
    assert grown.returncode == 0, grown.stderr
    wait_until((gates.folder / "held-fetch-worker-1").exists, "the second worker trains")
    # It is evaluated while it trains.
    programs.wait_for_log(job, "evaluator-0", "Saving dict for global step")
    shrunk = job.command("jobs", "scale", job.name, "--num_workers=1")
    assert shrunk.returncode == 0, shrunk.stderr
    _release(gates, "fetch")
    programs.assert_exact(job, **IRIS)
    assert _final(job, "accuracy") >= 0.9
    assert "accuracy = " in programs.log(job, "evaluator-0")
    assert [programs.nodes(job, role) for role in ROLE_NAMES] == [
        {"chief-0"},
        {"worker-0", "worker-1"},
        {"ps-0"},
        {"evaluator-0"},
    ]
    given = {node: programs.environment_of(gates.folder, node) for node in (*ROLES, "worker-1")}
    cluster = given["chief-0"]["TF_CONFIG"]["cluster"]
    assert {role: len(addresses) for role, addresses in cluster.items()} == {"chief": 1, "worker": 1, "ps": 1}
    assert given["worker-0"]["TF_CONFIG"]["cluster"] == cluster
    # A server also knows where workers would be that are not there yet.
    served = given["ps-0"]["TF_CONFIG"]["cluster"]
    assert {role: addresses[:1] for role, addresses in served.items()} == cluster
    for node in given:
        role, _, index = node.rpartition("-")
        assert given[node]["TF_CONFIG"]["task"] == {"type": role, "index": int(index)}
        assert given[node]["WORKER_TYPE"] == role
    # All of them trained, also the drained one.
    for node in ("chief-0", "worker-0", "worker-1"):
        assert "Loss for final step" in programs.log(job, node)
    assert list((tmp_path / "iris-ckpts").glob("model.ckpt-*.index"))


# -- killed --------------------------------------------------------------------------------------------------


def test_each_role_killed_in_every_phase(start_iris: Callable[..., Job], gates: Gates) -> None:
    """While they start, all of them; in the middle one after the other, each replacement at work before the next; at
    the end, when all is trained and saved, and the training processes have only to exit.
    """
    gates.hold("start")
    job = start_iris()
    for node in ROLES:
        wait_until((gates.folder / f"held-start-{node}").exists, f"{node} starts")
    for victim in (*ROLES, "master"):
        programs.kill(job, victim)
    for role in ROLE_NAMES:
        wait_until((gates.folder / f"held-start-{role}-1").exists, f"{role}-1 starts")
    started = dict.fromkeys(ROLE_NAMES, 2)
    _assert_started(job, started)

    # The middle.
    for point, node, number in (
        ("fetch", "chief-1", MIDDLE),
        ("fetch", "worker-1", MIDDLE),
        ("fetch", "chief-2", 10),
        ("fetch", "worker-2", 10),
        ("end", "chief-2", 0),
        ("end", "worker-2", 0),
    ):
        (gates.folder / f"hold-{point}-{node}").write_text(str(number))
    gates.release("start")
    for node in ("chief-1", "worker-1"):
        wait_until((gates.folder / f"held-fetch-{node}").exists, f"{node} asks for its shard {MIDDLE}")
    programs.wait_for_log(job, "evaluator-1", "Saving dict for global step")
    programs.kill(job, "evaluator-1")
    programs.wait_for_log(job, "evaluator-2", "Saving dict for global step")
    started["evaluator"] = 3
    _assert_started(job, started)
    programs.kill(job, "worker-1")
    wait_until((gates.folder / "held-fetch-worker-2").exists, "the new worker trains")
    started["worker"] = 3
    _assert_started(job, started)
    programs.kill(job, "master")
    programs.kill(job, "chief-1")
    wait_until((gates.folder / "held-fetch-chief-2").exists, "the new chief trains")
    started["chief"] = 3
    _assert_started(job, started)
    programs.kill(job, "ps-1")
    started["ps"] = 3
    _release(gates, "fetch")

    # The end.
    for node in ("chief-2", "worker-2"):
        wait_until((gates.folder / f"held-end-{node}").exists, f"{node} is through")
    _assert_started(job, started)
    for victim in ("worker-2", "chief-2", "master"):
        programs.kill(job, victim)
    programs.assert_exact(job, **IRIS)
    assert _final(job, "accuracy") >= 0.9
    _assert_started(job, {**started, "chief": 4, "worker": 4})
    for role, number in started.items():
        # Where it was in the cluster, there it is again: the others find it at the same address.
        given = [programs.environment_of(gates.folder, f"{role}-{n}") for n in range(number)]
        assert len({json.dumps(each["TF_CONFIG"], sort_keys=True) for each in given}) == 1
        assert len({each["WORKER_ID"] for each in given}) == number
    # With the server, the chief has lost nothing but what came after its checkpoint.
    assert "Restoring parameters from" in programs.log(job, "chief-2")


def _assert_started(job: Job, numbers: dict[str, int]) -> None:
    """No process was restarted because another one died."""
    for role, number in numbers.items():
        assert programs.nodes(job, role) == {f"{role}-{n}" for n in range(number)}


def test_every_role_of_deepfm_killed_one_after_the_other(
    start_program: Callable[..., Job], clicks: Path, gates: Gates
) -> None:
    program = (
        "e2e.gated_program model_zoo.deepctr.deepfm_estimator "
        f"--training_data={clicks}/train --validation_data={clicks}/train "
        f"--features={COLUMNS} --num_epochs={CLICK_EPOCHS} --num_minibatches_per_shard=1 --checkpoint_steps=50 "
        # Each of them rebuilds its graph.
        "--evaluation_seconds=30"
    )
    _set_holds(gates, "fetch", MIDDLE)
    # There is a checkpoint when it begins.
    gates.hold("start-evaluator-0")
    (gates.folder / "hold-fetch-chief-1").write_text("10")
    (gates.folder / "hold-fetch-worker-1").write_text("10")
    job = start_program(program)
    _wait_for_the_middle(gates)
    gates.release("start-evaluator-0")
    programs.wait_for_log(job, "evaluator-0", "Saving dict for global step")
    programs.kill(job, "evaluator-0")
    programs.kill(job, "worker-0")
    wait_until((gates.folder / "held-fetch-worker-1").exists, "the new worker trains")
    programs.kill(job, "chief-0")
    wait_until((gates.folder / "held-fetch-chief-1").exists, "the new chief trains")
    programs.wait_for_log(job, "evaluator-1", "Saving dict for global step")
    programs.kill(job, "master")
    programs.kill(job, "ps-0")
    _release(gates, "fetch")
    programs.assert_exact(job, **CRITEO)
    assert _final(job, "AUC") >= 0.9
    # Without a kill it is run by its guide, docs/estimator-deepfm.md.
    chiefs = programs.log(job, "chief-0") + programs.log(job, "chief-1")
    assert "global_step/sec: " in chiefs
    assert f"into {clicks}/ckpts/model.ckpt" in chiefs
