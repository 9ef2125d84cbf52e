"""Programs that know nothing of us, and programs that fail: as jobs of N processes, each replaced when it dies."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import programs
from e2e.conftest import ROOT, Gates, Job, wait_until
from e2e.plain import Bench

# Leaves what it was given, stays while it is held, and ends.
SCRIPT = """
import json, os, sys, time
from pathlib import Path

gates = Path(os.environ["ELASTICDL_TEST_GATES"])
node = os.environ["ELASTICDL_NODE"]
names = ("WORKER_ID", "WORKER_TYPE", "WORKER_NUM", "MASTER_ADDR", "MY_POD_IP", "TF_CONFIG")
given = {name: os.environ[name] for name in names if name in os.environ}
given["arguments"] = sys.argv[1:]
given["folder"] = os.getcwd()
(gates / f"new-{node}").write_text(json.dumps(given))
(gates / f"new-{node}").rename(gates / f"began-{node}")
print("hello from", node, flush=True)
while (gates / "hold").exists() or (gates / f"hold-{node}").exists():
    time.sleep(0.01)
"""

# Leases shards and holds each as long as the gate says.
SHARDED = """
import os, sys, time
from pathlib import Path
from elasticai_api.common.data_shard_service import build_data_shard_service

gates = Path(os.environ["ELASTICDL_TEST_GATES"])
node = os.environ["ELASTICDL_NODE"]
service = build_data_shard_service(
    batch_size=10, num_epochs=3, dataset_size=int(sys.argv[1]), num_minibatches_per_shard=2, dataset_name="numbers"
)
while shard := service.fetch_shard():
    (gates / f"began-{node}").touch()
    while (gates / "hold").exists() or (gates / f"hold-{node}").exists():
        time.sleep(0.01)
    for start in range(shard.start, shard.end, 10):
        service.report_batch_done(min(10, shard.end - start))
"""


@pytest.fixture
def start_script(start_job: Callable[..., Job], tmp_path: Path) -> Callable[..., Job]:
    def start(text: str, *flags: str, arguments: str = "", **more: Any) -> Job:
        script = tmp_path / "train.py"
        script.write_text(text)
        command = f"--job_command={sys.executable} {script} {arguments}"
        # Where it is not installed, the program finds elasticai_api in the folder of the project.
        environment = {"PYTHONPATH": str(ROOT)}
        return start_job("train", command, "--job_name=script", *flags, environment=environment, **more)

    return start


def _began(job: Job, gates: Gates, *nodes: str) -> dict[str, dict[str, Any]]:
    def begun() -> bool:
        assert job.process.poll() is None, job.output
        return all((gates.folder / f"began-{node}").exists() for node in nodes)

    wait_until(begun, f"{nodes} begin")
    texts = {node: (gates.folder / f"began-{node}").read_text() for node in nodes}
    return {node: json.loads(text) if text else {} for node, text in texts.items()}


def test_an_ordinary_script_as_several_processes(start_script: Callable[..., Job], gates: Gates) -> None:
    (gates.folder / "hold").touch()
    job = start_script(SCRIPT, "--num_workers=3", arguments="--width 3 'two words'")
    given = _began(job, gates, "worker-0", "worker-1", "worker-2")
    programs.kill(job, "worker-1")
    given |= _began(job, gates, "worker-3")
    (gates.folder / "hold").unlink()
    assert job.wait() == 0, job.output + job.logs()
    programs.assert_nothing_left(job)
    # Its number is new, forever; the others were left alone.
    assert programs.nodes(job, "worker") == {"worker-0", "worker-1", "worker-2", "worker-3"}
    assert [given[f"worker-{n}"]["WORKER_ID"] for n in range(4)] == ["0", "1", "2", "3"]
    for environment in given.values():
        assert environment["WORKER_TYPE"] == "worker"
        assert environment["WORKER_NUM"] == "3"
        assert environment["MASTER_ADDR"].startswith("127.0.0.1:")
        assert environment["arguments"] == ["--width", "3", "two words"]
        assert "TF_CONFIG" not in environment
    logs = job.command("jobs", "logs", "script", "worker-0")
    assert logs.stdout.strip() == "hello from worker-0"
    assert "worker-3: hello from worker-3" in job.command("jobs", "logs", "script").stdout


def test_a_master_killed_under_an_ordinary_script(start_script: Callable[..., Job], gates: Gates) -> None:
    (gates.folder / "hold").touch()
    job = start_script(SCRIPT, "--num_workers=2")
    _began(job, gates, "worker-0", "worker-1")
    before = [programs.pid_of(job, node) for node in ("worker-0", "worker-1")]
    programs.kill(job, "master")
    wait_until(lambda: "started again" in job.output, "the master is back")
    assert [programs.pid_of(job, node) for node in ("worker-0", "worker-1")] == before
    (gates.folder / "hold").unlink()
    assert job.wait() == 0, job.output + job.logs()
    assert programs.nodes(job, "worker") == {"worker-0", "worker-1"}


# -- programs that fail --------------------------------------------------------------------------------------


def test_job_prints_last_output_of_failed_program(start_script: Callable[..., Job]) -> None:
    text = "for n in range(100): print('line', n)\nraise SystemExit('the disk is on fire')\n"
    job = start_script(text, "--relaunch_on_worker_failure=0")
    assert job.wait() == 1
    assert "worker-0 | line 99" in job.output
    assert "worker-0 | the disk is on fire" in job.output
    assert "line 50" not in job.output
    assert "worker-0 ended with 1" in job.output
    assert "line 50\n" in job.command("jobs", "logs", "script", "worker-0").stdout
    programs.assert_nothing_left(job)


def test_a_program_that_crashes_in_a_loop(start_script: Callable[..., Job], tmp_path: Path) -> None:
    text = (
        f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\nprint('no such table')\nraise SystemExit(7)\n"
    )
    job = start_script(text, "--relaunch_on_worker_failure=2")
    assert job.wait() == 1
    assert (tmp_path / "starts").read_text() == "xxx"
    assert "worker-2 | no such table" in job.output
    assert "ended with 7" in job.output
    assert "Job script has failed" in job.output
    programs.assert_nothing_left(job)


def test_program_that_fails_once_is_relaunched(
    start_script: Callable[..., Job], tmp_path: Path, gates: Gates
) -> None:
    text = f"from pathlib import Path\np = Path({str(tmp_path / 'once')!r})\nif not p.exists(): p.touch(); 1 / 0\n"
    job = start_script(text + SCRIPT)
    assert job.wait() == 0, job.output
    assert "worker-0 | ZeroDivisionError: division by zero" in job.output
    assert programs.nodes(job, "worker") == {"worker-0", "worker-1"}


def test_missing_program_is_refused(bench: Bench) -> None:
    bench.run("train", "--job_command=no-such-program --width 3").refused(
        "there is no program 'no-such-program'"
    )


def test_a_module_that_is_not_there(bench: Bench) -> None:
    ended = bench.run("train", "--job_command=python -m no.such.module", "--relaunch_on_worker_failure=0")
    ended.failed("worker-0 | ", "No module named", "worker-0 ended with 1")


def test_a_program_that_ends_at_once(start_script: Callable[..., Job]) -> None:
    job = start_script("", "--num_workers=2")
    assert job.wait() == 0, job.output
    programs.assert_nothing_left(job)


def test_a_command_with_a_pipe(start_job: Callable[..., Job]) -> None:
    job = start_job("train", "--job_command=echo one two | tr ' ' '-' && echo done", "--job_name=piped")
    assert job.wait() == 0, job.output
    assert programs.log(job, "worker-0") == "one-two\ndone\n"


def test_quotes_that_do_not_close(bench: Bench) -> None:
    ended = bench.run("train", "--job_command=python -c 'print(1)")
    ended.refused("--job_command: the shell does not understand it", "nterminated quoted string")


# -- shards --------------------------------------------------------------------------------------------------


def test_program_is_scaled_up_and_down(start_script: Callable[..., Job], gates: Gates) -> None:
    (gates.folder / "hold").touch()
    job = start_script(SHARDED, "--num_workers=1", arguments="205")
    _began(job, gates, "worker-0")
    grown = job.command("jobs", "scale", "script", "--num_workers=3")
    assert grown.returncode == 0, grown.stderr
    _began(job, gates, "worker-1", "worker-2")
    shrunk = job.command("jobs", "scale", "script", "--num_workers=2")
    assert shrunk.returncode == 0, shrunk.stderr
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset="numbers", epochs=3, size=205)
    assert programs.nodes(job, "worker") == {"worker-0", "worker-1", "worker-2"}
    assert {row["again"] for row in job.audit()["rows"]} == {0}


@pytest.mark.parametrize("victim", ["worker-0", "master"])
def test_program_killed_with_a_lease_is_replaced(
    start_script: Callable[..., Job], gates: Gates, victim: str
) -> None:
    (gates.folder / "hold").touch()
    job = start_script(SHARDED, "--num_workers=2", arguments="205")
    _began(job, gates, "worker-0", "worker-1")
    programs.kill(job, victim)
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset="numbers", epochs=3, size=205)


def test_workers_with_different_dataset_sizes_fail_the_job(
    start_script: Callable[..., Job], gates: Gates
) -> None:
    # Neither finishes before the other is there.
    (gates.folder / "hold").touch()
    text = SHARDED.replace("int(sys.argv[1])", "100 + int(os.environ['WORKER_ID'])")
    job = start_script(text, "--num_workers=2", "--relaunch_on_worker_failure=0")
    assert job.wait() == 1
    assert "The data set numbers has" in job.output
    assert "All workers must see the same files." in job.output
