"""What a run says of its job, and what it must not say."""

from __future__ import annotations

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.tracking.run_description import describe_run


def test_params_are_the_flags_that_differ_from_their_defaults() -> None:
    spec = JobSpec.build(
        job_name="job",
        model_zoo="zoo",
        model_def="a.b.c",
        training_data="data",
        num_workers=3,
        minibatch_size=64,
        model_params="lr=0.1",
        mlflow_uri="http://127.0.0.1:5000",
    )
    run = describe_run(spec, "k")
    assert run.params == {
        "model_zoo": "zoo",
        "model_def": "a.b.c",
        "model_params": "lr=0.1",
        "training_data": "data",
        "distribution_strategy": "ParameterServerStrategy",
        "num_workers": "3",
        "num_ps": "1",
    }
    assert (run.name, run.tags["elasticdl.strategy"]) == ("job", "ParameterServerStrategy")


def test_secrets_are_in_no_param_and_no_tag() -> None:
    spec = JobSpec.build(
        job_name="job",
        job_command="TOKEN=hunter2 python train.py",
        envs="PASSWORD=hunter2",
        populate_env_names="hunter2",
        data_reader_params="account=hunter2",
        output="s3://user:hunter2@bucket/model",
        mlflow_uri="http://127.0.0.1:5000",
    )
    run = describe_run(spec, "k")
    assert "hunter2" not in repr(run)
    assert run.params["output"] == "s3://bucket/model"
