"""A worker that gets a SIGTERM ends in good order. Without a drain request, its exit code says that it was terminated
from outside: it has not failed, nor ended by itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec, to_yaml
from elasticdl.platforms.platform import EXIT_DRAINED, EXIT_TERMINATED
from elasticdl.wire import master_pb2 as pb
from elasticdl.worker import process
from elasticdl.worker.master_link import MasterLink
from tests.ps.processes import Master

SPEC = to_yaml(JobSpec.build(model_zoo="zoo", model_def="m.m.custom_model", training_data="data", num_ps=1))
FINISHED, DRAINED, GO_ON = pb.Directive(finished=True), pb.Directive(drain=True), pb.Directive(generation=2)
# What takes long reports itself, and never ends. It waits in pieces: a signal that comes just before a wait begins is
# handled when the wait is over.
SLOW = """
import time
print("begun", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def link() -> Iterator[MasterLink]:
    # No server listens there, and no call is made.
    made = MasterLink(address="127.0.0.1:1", token="token", node="worker-0")
    yield made
    made.close()


@pytest.fixture
def kept_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("kept_handler")
@pytest.mark.parametrize(
    ("directive", "code"), [(GO_ON, EXIT_TERMINATED), (DRAINED, EXIT_DRAINED), (FINISHED, EXIT_DRAINED)]
)
def test_while_it_trains(
    link: MasterLink, monkeypatch: pytest.MonkeyPatch, directive: pb.Directive, code: int
) -> None:
    class Loop:
        lease_id = 0

        def run(self) -> None:
            link._take(directive)
            for _ in range(2):
                # An impatient user sends it twice.
                os.kill(os.getpid(), signal.SIGTERM)
                link.wait(lambda: link.directive().drain)

    monkeypatch.setattr(process, "_make_loop", lambda *given: Loop())
    assert process.work(link, SPEC, "token") == code


@pytest.mark.parametrize(("announced", "code"), [(False, EXIT_TERMINATED), (True, EXIT_DRAINED)])
def test_while_it_imports_the_definition(tmp_path: Path, announced: bool, code: int) -> None:
    folder = tmp_path / "zoo" / "slow"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(SLOW)
    (tmp_path / "token").write_text("secret")
    master = Master("secret", model_zoo=str(tmp_path / "zoo"), model_def="slow.model.custom_model")
    environment = {
        **os.environ,
        "MASTER_ADDR": f"127.0.0.1:{master.port}",
        "ELASTICDL_TOKEN_FILE": str(tmp_path / "token"),
        "ELASTICDL_NODE": "worker-0",
    }
    command = [sys.executable, "-m", "elasticdl.worker"]
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
        if announced:
            master.want(drain=True)
        else:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == code
    finally:
        worker.kill()
        worker.communicate()
        master.stop()
