"""A server that meets a fault of its own says so, and ends the connection; who has called does not use it again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.server_errors import ServerFailure
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_next_call_has_a_connection_of_its_own(
    start_servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = start_servers(1)
    client = servers.client()
    client.initialize({"x": np.ones(2, np.float32)}, {}, SGD)
    (session,) = client._sessions

    def fail(*given: Any, **more: Any) -> Any:
        raise RuntimeError("an unforeseen error")

    with monkeypatch.context() as patch:
        patch.setattr(servers.stores[0].workers, "pull", fail)
        with pytest.raises(ServerFailure, match=r"a fault of the parameter server: .*an unforeseen error"):
            client.pull()
    assert not session._connections
    # Nor is anything asked twice.
    monkeypatch.setattr(session, "_wait", fail)
    np.testing.assert_array_equal(client.pull().trainable["x"], 1.0)


def test_other_errors_leave_a_connection_as_it_is(start_servers: Any) -> None:
    servers = start_servers(1)
    client = servers.client()
    client.initialize({"x": np.ones(2, np.float32)}, {}, SGD)
    (session,) = client._sessions
    before = dict(session._connections)
    with pytest.raises(ServerFailure, match="no snapshot"):
        client.pull(frozen="nothing")
    assert session._connections == before
