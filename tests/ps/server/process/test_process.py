"""`python -m elasticdl.ps`, the real process, with a master played by the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name
from elasticdl.platforms.platform import EXIT_DEFINITION_ERROR, EXIT_TERMINATED
from elasticdl.ps.checkpoint.array_file import NamedArrays, read_array_file, write_array_file
from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, SavedFile, file_name, write_manifest
from elasticdl.ps.checkpoint.resharding import share
from elasticdl.ps.core.server_errors import CallStopped, StaleGeneration
from elasticdl.wire import ps_pb2
from elasticdl.wire.channel import open_channel
from elasticdl.wire.ps_pb2_grpc import ParameterServerStub
from elasticdl.wire.reserved_ports import KeptPort
from elasticdl.wire.security import Security
from tests.ps.processes import Job, Master

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
MODEL = {"a": np.arange(30, dtype=np.float32), "b": np.ones(20, np.float32)}


@pytest.fixture
def job(tmp_path: Path, token: str) -> Iterator[Job]:
    job = Job(tmp_path, token)
    yield job
    job.close()


def checkpoint(folder: Path, values: dict[str, Any], servers: int, step: int = 7) -> Path:
    """A checkpoint that another job made with so many servers."""
    folder.mkdir()
    whole = NamedArrays(attributes={"version": step}, groups={"trainable": values, "state": {}})
    files = []
    for server in range(servers):
        name = file_name(server, servers)
        size, crc32 = write_array_file(folder / name, share(whole, server, servers))
        files.append(SavedFile(name=name, bytes=size, crc32=crc32))
    write_manifest(folder, Manifest(step=step, files=tuple(files)), None)
    return folder


def test_server_joins_with_name_role_and_loopback_address(job: Job) -> None:
    assert (job.request.node, job.request.role) == ("ps-0", "ps")
    assert job.request.incarnation
    assert job.request.address.startswith("127.0.0.1:")


def test_server_listens_with_tls_as_configured(tmp_path: Path, token: str) -> None:
    made = Credentials.make("mine")
    for name, text in made.files().items():
        (tmp_path / name).write_text(text)
    environment = {
        "ELASTICDL_CA_FILE": str(tmp_path / "ca.crt"),
        "ELASTICDL_TLS_NAME": tls_name("mine"),
        "ELASTICDL_CERT_FILE": str(tmp_path / "tls.crt"),
        "ELASTICDL_KEY_FILE": str(tmp_path / "tls.key"),
    }
    kept = KeptPort()
    binding = {
        "ELASTICDL_BIND": "0.0.0.0",
        "ELASTICDL_PORT": str(kept.number),
        "ELASTICDL_ADVERTISE": f"localhost:{kept.number}",
    }
    security = Security.of_environment(environment)
    variables: dict[str, Any] = {**environment, **binding}
    job = Job(tmp_path, token, security=security, **variables)
    try:
        assert job.request.address == f"localhost:{kept.number}"
        job.master.want(generation=1)
        status = job.stub().ServerStatus(ps_pb2.ServerStatusRequest(), wait_for_ready=True, timeout=60)
        assert not status.initialized
        with open_channel(job.request.address, token) as channel, pytest.raises(grpc.RpcError) as error:
            ParameterServerStub(channel).ServerStatus(ps_pb2.ServerStatusRequest(), timeout=60)  # type: ignore[no-untyped-call]
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        job.close()
        kept.close()


def test_server_rejects_master_of_another_authority(tmp_path: Path, token: str) -> None:
    made, other = Credentials.make("mine"), Credentials.make("mine")
    for name, text in made.files().items():
        (tmp_path / name).write_text(text)
    master = Master(
        token,
        security=Security(
            ca=other.ca_crt.encode(),
            name=tls_name("mine"),
            certificate=other.tls_crt.encode(),
            key=other.tls_key.encode(),
        ),
    )
    (tmp_path / "token").write_text(token)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "elasticdl.ps"],
            env={
                **os.environ,
                "MASTER_ADDR": f"127.0.0.1:{master.port}",
                "ELASTICDL_TOKEN_FILE": str(tmp_path / "token"),
                "ELASTICDL_NODE": "ps-0",
                "WORKER_ID": "0",
                "ELASTICDL_CA_FILE": str(tmp_path / "ca.crt"),
                "ELASTICDL_TLS_NAME": tls_name("mine"),
                "ELASTICDL_CERT_FILE": str(tmp_path / "tls.crt"),
                "ELASTICDL_KEY_FILE": str(tmp_path / "tls.key"),
            },
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    finally:
        master.stop()
    assert ended.returncode == 1
    assert "is not elasticdl-mine" in ended.stderr
    assert master.joined.empty()


def test_server_applies_push_and_exits_when_job_finishes(job: Job) -> None:
    job.master.want(generation=1)
    client = job.client(1)
    client.initialize(MODEL, {}, SGD)
    client.push({name: np.ones_like(value) for name, value in MODEL.items()}, learning_rate=0.5)
    np.testing.assert_array_equal(client.pull().trainable["a"], MODEL["a"] - 0.5)
    job.master.want(generation=1, finished=True)
    assert job.process.wait(60) == 0


def test_drained_server_exits_with_zero(job: Job) -> None:
    job.master.want(generation=1, drain=True)
    assert job.process.wait(60) == 0


def test_terminated_server_exits_with_its_own_code(job: Job) -> None:
    """The master did not announce it: the process was terminated, and has not ended by itself."""
    assert job.master.watched.acquire(timeout=60)
    job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(60) == EXIT_TERMINATED


def test_server_without_generation_rejects_calls(job: Job) -> None:
    assert job.master.watched.acquire(timeout=60)
    answers = iter([False])
    with pytest.raises(CallStopped):
        job.client(1, stop=lambda: next(answers, True)).pull()
    status = job.stub().ServerStatus(ps_pb2.ServerStatusRequest())
    assert (status.generation, status.ready) == (-1, False)


def test_server_restores_checkpoint_at_start(job: Job, tmp_path: Path) -> None:
    values = {name: value + 100 for name, value in MODEL.items()}
    job.master.want(generation=1, restore_from=str(checkpoint(tmp_path / "version-7", values, 3)))
    client = job.client(1)
    assert client.initialize(MODEL, {}, SGD) is True
    pulled = client.pull()
    assert set(pulled.versions.tolist()) == {7}
    for name, value in values.items():
        np.testing.assert_array_equal(pulled.trainable[name], value)


def test_new_generation_restores_the_named_checkpoint(job: Job, tmp_path: Path) -> None:
    job.master.want(generation=1)
    first = job.client(1)
    first.initialize(MODEL, {}, SGD)
    values = {name: value - 100 for name, value in MODEL.items()}
    job.master.want(generation=2, restore_from=str(checkpoint(tmp_path / "version-7", values, 2)))
    second = job.client(2)
    np.testing.assert_array_equal(second.pull().trainable["a"], values["a"])
    with pytest.raises(StaleGeneration):
        first.push({"a": np.ones(30, np.float32)}, learning_rate=1.0)
    # The same directive again changes nothing, a higher one without a checkpoint empties it.
    second.initialize(MODEL, {}, SGD)
    second.push({"a": np.ones(30, np.float32)}, learning_rate=1.0)
    job.master.want(generation=2, restore_from="elsewhere", barrier_requested=1)
    job.master.want(generation=3)
    assert not job.client(3).pull().initialized


def test_unusable_checkpoint_is_reported_to_the_master(job: Job, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "version-7", MODEL, 1)
    content = bytearray((folder / "ps-0-of-1.edl").read_bytes())
    content[30] ^= 1
    (folder / "ps-0-of-1.edl").write_bytes(content)
    job.master.want(generation=1, restore_from=str(folder))
    failure = job.master.failed.get(timeout=60)
    assert failure.kind == "definition"
    assert "ps-0-of-1.edl is damaged" in failure.message
    assert job.process.wait(60) == EXIT_DEFINITION_ERROR


def test_server_serves_while_master_restarts(job: Job) -> None:
    job.master.want(generation=1)
    client = job.client(1)
    client.initialize(MODEL, {}, SGD)
    job.restart_master()
    # It serves on while the master is away, and reports back as the one it was.
    client.push({"a": np.ones(30, np.float32)}, learning_rate=1.0)
    again = job.master.joined.get(timeout=60)
    assert again == job.request
    job.master.want(generation=1)
    assert set(client.pull().versions.tolist()) == {1}
    job.master.want(generation=2)
    assert not job.client(2).pull().initialized


def test_killed_while_it_saves_it_leaves_the_file_before(job: Job, tmp_path: Path) -> None:
    job.master.want(generation=1)
    client = job.client(1)
    stub = job.stub()
    client.initialize({"a": np.zeros(8_000_000, np.float32)}, {}, SGD)
    path = tmp_path / "saved.edl"
    stub.Freeze(ps_pb2.FreezeRequest(name="first", generation=1))
    saved = stub.Save(ps_pb2.SaveRequest(name="first", path=str(path)))
    client.push({"a": np.ones(8_000_000, np.float32)}, learning_rate=1.0)
    stub.Freeze(ps_pb2.FreezeRequest(name="second", generation=1))
    call = stub.Save.future(ps_pb2.SaveRequest(name="second", path=str(path)))
    partial = tmp_path / ".saved.edl.partial"
    while not partial.exists() and not call.done():
        pass
    job.process.kill()
    job.process.wait()
    assert call.code() is grpc.StatusCode.UNAVAILABLE, "it was saved before it could be killed"
    assert partial.exists()
    assert path.stat().st_size == saved.bytes
    np.testing.assert_array_equal(read_array_file(path).groups["trainable"]["a"], 0)


def test_full_disk_is_reported_with_the_path(
    tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on the size of files stands for a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on the size of files would truncate what Python caches of a module, for good.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    # Inherited by the process; 100 KB are enough for everything but the parameters.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        job = Job(tmp_path, token)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    try:
        job.master.want(generation=1)
        client = job.client(1)
        client.initialize({"a": np.zeros(100_000, np.float32)}, {}, SGD)
        stub = job.stub()
        stub.Freeze(ps_pb2.FreezeRequest(name="barrier", generation=1))
        with pytest.raises(grpc.RpcError) as error:
            stub.Save(ps_pb2.SaveRequest(name="barrier", path=str(tmp_path / "x.edl")))
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"{tmp_path}/x.edl cannot be written" in (error.value.details() or "")
        # And it goes on.
        assert client.pull().initialized
    finally:
        job.close()
