"""Jobs that are complete, so that a test says only what it is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec

MINIMAL: dict[str, dict[str, Any]] = {
    "train": {"model_zoo": "zoo", "model_def": "digits.cnn.custom_model", "training_data": "data"},
    "evaluate": {
        "model_zoo": "zoo",
        "model_def": "digits.cnn.custom_model",
        "validation_data": "data",
        "checkpoint_dir_for_init": "ckpt",
    },
    "predict": {
        "model_zoo": "zoo",
        "model_def": "digits.cnn.custom_model",
        "prediction_data": "data",
        "checkpoint_dir_for_init": "ckpt",
        "output": "out.parquet",
    },
}


@pytest.fixture
def job() -> Callable[..., JobSpec]:
    def build(kind: str = "train", **flags: object) -> JobSpec:
        return JobSpec.build(kind=kind, **{**MINIMAL[kind], **flags})

    return build


@pytest.fixture
def refused(job: Callable[..., JobSpec]) -> Callable[..., str]:
    """The message with which a job is refused."""

    def build(kind: str = "train", **flags: object) -> str:
        with pytest.raises(UserError) as caught:
            job(kind, **flags)
        return caught.value.message

    return build
