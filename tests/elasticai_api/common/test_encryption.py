"""Programs speak to the master encrypted where their environment says so, and only to the master of their own job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticai_api.common.constants import PodEnv
from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticai_api.common.master_client import MasterClient, build_master_client
from elasticai_api.errors import MasterError, TokenError
from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name


@pytest.fixture
def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in Credentials.make("mine").files().items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv(PodEnv.CA_FILE, str(tmp_path / "ca.crt"))
    monkeypatch.setenv(PodEnv.TLS_NAME, tls_name("mine"))
    monkeypatch.setenv("ELASTICDL_CERT_FILE", str(tmp_path / "tls.crt"))
    monkeypatch.setenv("ELASTICDL_KEY_FILE", str(tmp_path / "tls.key"))


def train(**arguments: Any) -> int:
    service = build_data_shard_service(
        batch_size=4, dataset_size=40, num_epochs=1, num_minibatches_per_shard=2, **arguments
    )
    samples = 0
    while (shard := service.fetch_shard()) is not None:
        for _ in range(-(-(shard.end - shard.start) // 4)):
            service.report_batch_done()
        samples += shard.end - shard.start
    return samples


def test_a_program_trains_encrypted(encrypted: None, job: Any) -> None:
    assert train() == 40


def test_the_public_port_is_not_encrypted(encrypted: None, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PodEnv.TOKEN_FILE)
    monkeypatch.setenv(PodEnv.DLROVER_MASTER_ADDR, job.public_address)
    assert train() == 40


def test_a_master_of_another_job_is_refused_at_once(encrypted: None, job: Any, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(Credentials.make("mine").ca_crt)
    with pytest.raises(MasterError, match="is not the master of this job"):
        build_master_client().epoch("data")


def test_encryption_does_not_replace_the_token(encrypted: None, job: Any) -> None:
    with pytest.raises(TokenError):
        MasterClient(job.address, token="wrong").epoch("data")


def test_half_an_environment_is_an_error(
    encrypted: None, job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PodEnv.TLS_NAME, "")
    with pytest.raises(MasterError, match="ELASTICDL_TLS_NAME"):
        build_master_client()
    monkeypatch.setenv(PodEnv.CA_FILE, str(tmp_path / "nowhere"))
    monkeypatch.setenv(PodEnv.TLS_NAME, "elasticdl-mine")
    with pytest.raises(MasterError, match=r"ELASTICDL_CA_FILE is .*nowhere"):
        build_master_client()
