"""A whole job with encryption between its nodes, as on a cluster; its servers refuse all other clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name
from elasticdl.wire.channel import open_channel
from elasticdl.wire.master_pb2 import StatusRequest
from elasticdl.wire.master_pb2_grpc import MasterStub


def test_all_calls_of_encrypted_job_are_encrypted(
    start_gated: Callable[..., Any], gates: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    for name, text in Credentials.make("any").files().items():
        (folder / name).write_text(text)
    gates.hold("train")
    # Two servers: they speak to each other too.
    job = start_gated(
        "--num_ps=2",
        environment={
            "ELASTICDL_CA_FILE": str(folder / "ca.crt"),
            "ELASTICDL_TLS_NAME": tls_name("any"),
            "ELASTICDL_CERT_FILE": str(folder / "tls.crt"),
            "ELASTICDL_KEY_FILE": str(folder / "tls.key"),
        },
    )
    gates.wait_for("train", 2)
    # The command of a person is a caller like any other, and has the same environment here.
    assert job.status()["state"] == "running"
    token = (job.folder / "token").read_text().strip()
    with open_channel((job.folder / "master.addr").read_text(), token) as plain:
        with pytest.raises(grpc.RpcError) as error:
            MasterStub(plain).Status(StatusRequest(), timeout=60)  # type: ignore[no-untyped-call]
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    job.kill("master")
    job.kill("ps-0")
    gates.release("train")
    job.assert_exact(epochs=2, size=1437)
    assert [row["again"] for row in job.audit()["rows"]] == [0, 0]
