"""A worker joins its job at once, does something else meanwhile, and checks its peer only without an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import add_port, new_server
from elasticdl.wire.master_pb2_grpc import MasterServicer, add_MasterServicer_to_server
from elasticdl.wire.security import NotTrusted
from elasticdl.worker import master_link
from elasticdl.worker.master_link import MasterLink

MINE, OTHER = Credentials.make("mine"), Credentials.make("mine")


class OneJob(MasterServicer):
    """Answers who joins when it may."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinReply:
        self.may_answer.wait()
        return pb.JoinReply(job_spec=f"the job of {request.node}")

    def Watch(self, request: pb.WatchRequest, context: Any) -> Iterator[pb.Directive]:
        yield pb.Directive(finished=True)


Link = Callable[[OneJob], MasterLink]


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    """A worker's link to a master with the certificates of its job."""
    ends = []

    def connected(master: OneJob) -> MasterLink:
        _in_environment(MINE, tmp_path / "mine", monkeypatch)
        server = new_server("secret", threads=4)
        add_MasterServicer_to_server(master, server)  # type: ignore[no-untyped-call]
        port = add_port(server, "127.0.0.1:0")
        server.start()
        made = MasterLink(address=f"127.0.0.1:{port}", token="secret", node="worker-0")
        ends.append((made, master, server))
        return made

    yield connected
    for made, master, server in ends:
        master.may_answer.set()
        made.close()
        server.stop(None).wait()


def _in_environment(made: Credentials, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    for name, text in made.files().items():
        (folder / name).write_text(text)
    monkeypatch.setenv("ELASTICDL_TLS_NAME", tls_name("mine"))
    for variable, name in (("CA", "ca.crt"), ("CERT", "tls.crt"), ("KEY", "tls.key")):
        monkeypatch.setenv(f"ELASTICDL_{variable}_FILE", str(folder / name))


def _fail_on_check(address: str) -> None:
    raise AssertionError(f"{address} was looked at")


def test_the_master_is_asked_meanwhile(connect: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_link, "check_peer", _fail_on_check)
    # However slow the machine is.
    monkeypatch.setattr(master_link, "_ANSWER_SECONDS", 300.0)
    master = OneJob()
    assert connect(master).join(meanwhile=master.may_answer.set).job_spec == "the job of worker-0"


def test_join_waits_for_slow_master(connect: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_link, "_ANSWER_SECONDS", 0.1)
    master, looked_at = OneJob(), []

    def look(address: str) -> None:
        looked_at.append(address)
        master.may_answer.set()

    monkeypatch.setattr(master_link, "check_peer", look)
    assert connect(master).join().job_spec == "the job of worker-0"
    assert len(looked_at) == 1


def test_join_rejects_untrusted_master(
    connect: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_link, "_ANSWER_SECONDS", 0.1)
    stranger = connect(OneJob())
    _in_environment(OTHER, tmp_path / "other", monkeypatch)
    node = MasterLink(address=stranger._address, token="secret", node="worker-0")
    try:
        with pytest.raises(NotTrusted, match="is not elasticdl-mine"):
            node.join()
    finally:
        node.close()
