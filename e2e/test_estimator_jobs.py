"""The Estimator programs of the model zoo as jobs: to their end, and with any process killed in any phase."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import programs
from e2e.conftest import ROOT, Gates, Job, wait_until

ROLES = ("chief-0", "worker-0", "ps-0", "evaluator-0")
TRAINED, BATCH, EPOCHS = 120, 12, 40
IRIS = {"dataset": "iris_training_data", "size": TRAINED, "epochs": EPOCHS}
CLICKS, CLICK_EPOCHS = 400, 20
CRITEO = {"dataset": "criteo_training_data", "size": CLICKS, "epochs": CLICK_EPOCHS}
# Shards of each trainer, of which the first are trained: enough steps for a first checkpoint.
MIDDLE = 35

pytestmark = pytest.mark.timeout(600)


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
    _make("criteo-like", f"--rows={CLICKS}", "--test_rows=200", f"--output={tmp_path}/criteo")
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


# -- to the end ----------------------------------------------------------------------------------------------


def test_iris_to_its_end(start_iris: Callable[..., Job], gates: Gates, tmp_path: Path) -> None:
    # Until it has been evaluated once while it trains.
    _set_holds(gates, "fetch", 30)
    job = start_iris()
    programs.wait_for_log(job, "evaluator-0", "Saving dict for global step")
    _release(gates, "fetch")
    programs.assert_exact(job, **IRIS)
    assert _final(job, "accuracy") >= 0.9
    assert "accuracy = " in programs.log(job, "evaluator-0")
    assert [programs.nodes(job, role) for role in ("chief", "worker", "ps", "evaluator")] == [
        {"chief-0"},
        {"worker-0"},
        {"ps-0"},
        {"evaluator-0"},
    ]
    given = {node: programs.environment_of(gates.folder, node) for node in ROLES}
    cluster = given["chief-0"]["TF_CONFIG"]["cluster"]
    assert {role: len(addresses) for role, addresses in cluster.items()} == {"chief": 1, "worker": 1, "ps": 1}
    assert given["worker-0"]["TF_CONFIG"]["cluster"] == cluster
    # A server also knows where workers would be that are not there yet.
    served = given["ps-0"]["TF_CONFIG"]["cluster"]
    assert {role: addresses[:1] for role, addresses in served.items()} == cluster
    for node in ROLES:
        role = node.rpartition("-")[0]
        assert given[node]["TF_CONFIG"]["task"] == {"type": role, "index": 0}
        assert given[node]["WORKER_TYPE"] == role
    # Both of them trained.
    assert "Loss for final step" in programs.log(job, "worker-0")
    assert "Loss for final step" in programs.log(job, "chief-0")
    assert list((tmp_path / "iris-ckpts").glob("model.ckpt-*.index"))


def test_workers_come_and_go(start_iris: Callable[..., Job], gates: Gates) -> None:
    _set_holds(gates, "fetch", MIDDLE)
    (gates.folder / "hold-fetch-worker-1").write_text("10")
    job = start_iris()
    _wait_for_the_middle(gates)
    grown = job.command("jobs", "scale", job.name, "--num_workers=2")
    assert grown.returncode == 0, grown.stderr
    wait_until((gates.folder / "held-fetch-worker-1").exists, "the second worker trains")
    assert programs.environment_of(gates.folder, "worker-1")["TF_CONFIG"]["task"] == {
        "type": "worker",
        "index": 1,
    }
    shrunk = job.command("jobs", "scale", job.name, "--num_workers=1")
    assert shrunk.returncode == 0, shrunk.stderr
    _release(gates, "fetch")
    programs.assert_exact(job, **IRIS)
    assert _final(job, "accuracy") >= 0.9
    assert programs.nodes(job, "worker") == {"worker-0", "worker-1"}
    # It was sent away, and had trained until then.
    assert "Loss for final step" in programs.log(job, "worker-1")


# -- killed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [*ROLES, "master"])
def test_killed_in_the_middle(start_iris: Callable[..., Job], gates: Gates, victim: str) -> None:
    _set_holds(gates, "fetch", MIDDLE)
    job = start_iris()
    _wait_for_the_middle(gates)
    if victim == "evaluator-0":
        programs.wait_for_log(job, victim, "Saving dict for global step")
    programs.kill(job, victim)
    if victim == "evaluator-0":
        # Its replacement evaluates too, before there is nothing left to do.
        programs.wait_for_log(job, "evaluator-1", "Saving dict for global step")
    _release(gates, "fetch")
    programs.assert_exact(job, **IRIS)
    assert _final(job, "accuracy") >= 0.9
    if victim != "master":
        role = victim.rpartition("-")[0]
        assert programs.nodes(job, role) == {f"{role}-0", f"{role}-1"}
        # Where it was in the cluster, there it is again: the others find it at the same address.
        before, after = (programs.environment_of(gates.folder, f"{role}-{number}") for number in (0, 1))
        assert after["TF_CONFIG"] == before["TF_CONFIG"]
        assert after["WORKER_ID"] != before["WORKER_ID"]
    for role in {"chief", "worker", "ps", "evaluator"} - {victim.rpartition("-")[0]}:
        assert programs.nodes(job, role) == {f"{role}-0"}, "somebody was restarted because somebody else died"
    if victim == "ps-0":
        # The chief has lost nothing but what came after its checkpoint.
        assert programs.log(job, "chief-0").count("Restoring parameters from") >= 1


@pytest.mark.parametrize("victim", [*ROLES, "master"])
def test_killed_while_starting(start_iris: Callable[..., Job], gates: Gates, victim: str) -> None:
    gates.hold("start")
    job = start_iris()
    for node in ROLES:
        wait_until((gates.folder / f"held-start-{node}").exists, f"{node} starts")
    programs.kill(job, victim)
    gates.release("start")
    programs.assert_exact(job, **IRIS)
    assert _final(job, "accuracy") >= 0.9


@pytest.mark.parametrize("victim", ["chief-0", "worker-0", "master"])
def test_killed_at_the_end(start_iris: Callable[..., Job], gates: Gates, victim: str) -> None:
    """When all is trained and saved, and its process has only to end."""
    _set_holds(gates, "end")
    job = start_iris()
    for node in ("chief-0", "worker-0"):
        wait_until((gates.folder / f"held-end-{node}").exists, f"{node} is through")
    programs.kill(job, victim)
    _release(gates, "end")
    programs.assert_exact(job, **IRIS)
    assert _final(job, "accuracy") >= 0.9


def test_every_role_of_deepfm_killed_one_after_the_other(
    start_program: Callable[..., Job], clicks: Path, gates: Gates
) -> None:
    program = (
        "e2e.gated_program model_zoo.deepctr.deepfm_estimator "
        f"--training_data={clicks}/train --validation_data={clicks}/train "
        f"--num_epochs={CLICK_EPOCHS} --evaluation_seconds=1 --checkpoint_steps=50 --num_minibatches_per_shard=1"
    )
    _set_holds(gates, "fetch", MIDDLE)
    (gates.folder / "hold-fetch-chief-1").write_text("10")
    (gates.folder / "hold-fetch-worker-1").write_text("10")
    job = start_program(program)
    _wait_for_the_middle(gates)
    programs.wait_for_log(job, "evaluator-0", "Saving dict for global step")
    programs.kill(job, "evaluator-0")
    programs.kill(job, "worker-0")
    wait_until((gates.folder / "held-fetch-worker-1").exists, "the new worker trains")
    programs.kill(job, "chief-0")
    wait_until((gates.folder / "held-fetch-chief-1").exists, "the new chief trains")
    programs.kill(job, "master")
    programs.kill(job, "ps-0")
    _release(gates, "fetch")
    programs.assert_exact(job, **CRITEO)
    assert _final(job, "AUC") >= 0.9
    # Without a kill it is run by its guide, docs/estimator-deepfm.md.
    chiefs = programs.log(job, "chief-0") + programs.log(job, "chief-1")
    assert "global_step/sec: " in chiefs
    assert f"into {clicks}/ckpts/model.ckpt" in chiefs
