"""What cannot be written to in the end fails before the job starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.catalog.local.preflight import check_job
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("flag", ["output", "checkpoint_dir"])
@pytest.mark.parametrize("url", ["nowhere://bucket/x", "S3://bucket/x"])
def test_store_that_nothing_opens_is_an_error_before_the_job_starts(
    tmp_path: Path, flag: str, url: str
) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    flags = {
        "job_name": "stores",
        "model_zoo": str(ROOT / "model_zoo"),
        "model_def": "digits.torch_cnn.custom_model",
        "training_data": str(tmp_path / "data.csv"),
    }
    check_job(JobSpec.build(**flags, **{flag: f"file://{tmp_path}/there"}))
    with pytest.raises(UserError, match=f"^--{flag}: .*(nowhere|S3)://"):
        check_job(JobSpec.build(**flags, **{flag: url}))
