"""A worker that is drained while it still imports its framework ends at once."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.master_link import MasterLink

FINISHED, DRAINED, GO_ON = pb.Directive(finished=True), pb.Directive(drain=True), pb.Directive(generation=2)


@pytest.fixture
def link() -> Iterator[MasterLink]:
    # No server listens there, and no call is made.
    made = MasterLink(address="127.0.0.1:1", token="token", node="worker-0")
    yield made
    made.close()


@pytest.mark.parametrize("directive", [FINISHED, DRAINED])
def test_directive_during_the_import_ends_it(link: MasterLink, directive: pb.Directive) -> None:
    ends: list[str] = []
    with link.unneeded(lambda: ends.append("end")):
        link._take(GO_ON)
        assert ends == []
        link._take(directive)
        assert ends == ["end"]


@pytest.mark.parametrize("directive", [FINISHED, DRAINED])
def test_directive_before_the_import_ends_it(link: MasterLink, directive: pb.Directive) -> None:
    ends: list[str] = []
    link._take(directive)
    with link.unneeded(lambda: ends.append("end")):
        assert ends == ["end"]


def test_asked_to_end_by_a_signal(link: MasterLink) -> None:
    ends: list[str] = []
    with link.unneeded(lambda: ends.append("end")):
        link.leave()
    assert ends == ["end"]


def test_directive_after_the_start_does_not_end_it(link: MasterLink) -> None:
    ends: list[str] = []
    with link.unneeded(lambda: ends.append("end")):
        link._take(GO_ON)
    link._take(FINISHED)
    assert ends == []
    assert link.directive().finished


def test_an_error_is_not_passed_over(link: MasterLink) -> None:
    """Of the line to the master: the caller that asks for the directive raises it."""
    ends: list[str] = []
    link._error = grpc.RpcError("refused")
    with link.unneeded(lambda: ends.append("end")):
        link._take(DRAINED)
    assert ends == []
    with pytest.raises(grpc.RpcError):
        link.directive()
