"""Which master a program talks to, by its environment; and who is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticai_api.common.alone import AloneMaster
from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticai_api.common.master_client import MasterClient, build_master_client
from elasticai_api.errors import MasterError, TokenError

Train = Callable[..., list[int]]


def test_program_without_master_uses_alone_master() -> None:
    assert isinstance(build_master_client(), AloneMaster)


def test_pytorchs_variable_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert isinstance(build_master_client(), AloneMaster)


def test_in_a_job(job: Any) -> None:
    master = build_master_client()
    assert isinstance(master, MasterClient)
    assert master.address == job.address


@pytest.mark.parametrize("token", ["not set", "no file", "empty"])
def test_without_a_token_whole_shards_at_the_public_port(
    job: Any, train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, token: str
) -> None:
    monkeypatch.setenv("DLROVER_MASTER_ADDR", job.public_address)
    if token == "not set":
        monkeypatch.delenv("ELASTICDL_TOKEN_FILE")
        monkeypatch.delenv("MASTER_ADDR")
    else:
        (tmp_path / "none").write_text("") if token == "empty" else None
        monkeypatch.setenv("ELASTICDL_TOKEN_FILE", str(tmp_path / "none"))
    service = build_data_shard_service(
        batch_size=4, num_epochs=2, dataset_size=50, num_minibatches_per_shard=3, dataset_name="d"
    )
    service.fetch_shard()
    service.report_batch_done()
    service.report_global_step(1)
    service.flush()
    assert job.done("d") == 0
    service.report_batch_done(8)
    service.flush()
    assert job.done("d") == 12
    assert len(train(service)) == 88
    service.flush()
    assert job.done("d") == 100


def test_a_wrong_token_is_refused_at_once(job: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wrong")
    with pytest.raises(TokenError, match="token is missing or wrong"):
        build_data_shard_service(batch_size=4, dataset_size=50)


def test_no_token_and_no_other_port(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTICDL_TOKEN_FILE")
    with pytest.raises(TokenError, match="there is no token for it: ELASTICDL_TOKEN_FILE is 'not set'"):
        build_master_client()


@pytest.mark.parametrize("variable", ["WORKER_ID", "ELASTICAI_MASTER_PATIENCE"])
def test_variable_that_is_no_number_is_refused(
    job: Any, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "one")
    with pytest.raises(MasterError, match=rf"{variable} must be a number.*'one'"):
        build_master_client()


def test_a_forked_process_leaves_the_connection_alone(job: Any) -> None:
    service = build_data_shard_service(batch_size=4, dataset_size=50, dataset_name="d")
    service.fetch_shard()
    service.report_batch_done()
    service.flush()
    child = os.fork()
    if child == 0:
        try:
            service.report_batch_done()
        except MasterError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    service.report_batch_done()
    service.flush()
    assert job.done("d") == 8
