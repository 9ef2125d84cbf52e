"""A job without a name is named after what it runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.jobs.flags.names import JOB_NAME, default_job_name
from elasticdl.jobs.spec import JobSpec


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({"model_def": "mnist_functional_api.mnist_functional_api.custom_model"}, "mnist-functional-api-x1"),
        ({"model_def": "digits.keras_cnn.custom_model"}, "digits-keras-cnn-x1"),
        ({"model_def": "cnn.custom_model"}, "cnn-x1"),
        ({"model_def": "digits.cnn.m", "kind": "predict"}, "digits-cnn-predict-x1"),
        ({"job_command": "python -m model_zoo.iris.dnn_estimator --a=b"}, "dnn-estimator-x1"),
        ({"job_command": "python3 /code/train_it.py --epochs 2"}, "train-it-x1"),
        ({"job_command": "run.sh"}, "run-x1"),
        ({"job_command": "'unclosed"}, "job-x1"),
        ({"job_command": "7zip"}, "job-7zip-x1"),
        ({}, "job-x1"),
    ],
)
def test_default_job_name_is_derived_from_program(flags: dict[str, str], name: str) -> None:
    given_flags = {"kind": "train", "model_def": "", "job_command": "", **flags}
    assert default_job_name(suffix="x1", **given_flags) == name


@settings(deadline=None)
@given(st.text(), st.text(), st.sampled_from(["", "ab12cd"]))
def test_every_default_name_is_a_job_name(model_def: str, command: str, suffix: str) -> None:
    JOB_NAME.check(default_job_name(kind="evaluate", model_def=model_def, job_command=command, suffix=suffix))


def test_a_job_takes_the_suffix(job: Callable[..., JobSpec]) -> None:
    assert job(name_suffix="a1b2c3").job_name == "digits-cnn-a1b2c3"
    assert job(job_name="mine", name_suffix="a1b2c3").job_name == "mine"
    assert job(job_name="").job_name == "digits-cnn"
