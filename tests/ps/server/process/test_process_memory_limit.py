"""A server process with a memory limit refuses new rows with a clear error, and goes on with those it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.wire import ps_pb2
from tests.ps.processes import Job

ADAGRAD = ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")
TABLE = TableSpec(name="users", width=16)
DENSE = {"w": np.zeros(4, np.float32)}
# Of which rows may take three quarters.
LIMIT = 40 * 1024 * 1024
AT_ONCE = 20_000


def gradients(ids: NDArray[np.int64]) -> dict[str, RowGradients]:
    return {"users": RowGradients(ids=ids, values=np.ones((len(ids), 16), np.float32))}


def push_until_refused(client: ParameterClient) -> tuple[int, str]:
    """How many rows there are then, and what is said."""
    # Each of them takes more than 64 bytes.
    for pushed in range(0, LIMIT // 64, AT_ONCE):
        rows = gradients(np.arange(pushed, pushed + AT_ONCE))
        try:
            client.push({"w": np.ones(4, np.float32)}, rows=rows, learning_rate=0.1)
        except UserError as error:
            return pushed, str(error)
    raise AssertionError("it takes all that there is")


@pytest.fixture
def job(tmp_path: Path, token: str) -> Iterator[Job]:
    job = Job(tmp_path, token, job={"ps_resource_limit": f"memory={LIMIT}"})
    yield job
    job.close()


def test_a_full_server_refuses_new_rows_and_goes_on(job: Job) -> None:
    job.master.want(generation=1)
    client = job.client(1)
    client.initialize(DENSE, {}, ADAGRAD, [TABLE])
    pushed, error = push_until_refused(client)
    assert f"cannot take {AT_ONCE:,} new rows: {pushed:,} rows" in error
    assert f"of {LIMIT * 3 // 4:,} bytes are in use" in error
    assert "--num_ps" in error
    status = job.stub().ServerStatus(ps_pb2.ServerStatusRequest())
    assert status.rows == pushed
    assert status.bytes <= LIMIT

    # Nothing of the push that was refused is there, and everything goes on with what is.
    other = job.client(1, worker="worker-1")
    assert other.initialize(DENSE, {}, ADAGRAD, [TABLE]) is True
    assert set(other.pull().versions.tolist()) == {pushed // AT_ONCE}
    known = np.arange(0, pushed, 7)
    before = other.pull_rows({"users": known})["users"]
    other.push({"w": np.ones(4, np.float32)}, rows=gradients(known), learning_rate=0.1)
    assert (other.pull_rows({"users": known})["users"] < before).all()
    # A lookup of what has no row makes none, and is answered.
    unknown = np.arange(pushed, pushed + AT_ONCE)
    assert other.pull_rows({"users": unknown})["users"].shape == (AT_ONCE, 16)
    both = np.concatenate([known, unknown])
    with pytest.raises(UserError, match=f"cannot take {AT_ONCE:,} new rows"):
        other.push({}, rows=gradients(both), learning_rate=0.1)
