"""Constraints between flags; all violations are reported at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec

Build = Callable[..., JobSpec]
Refused = Callable[..., str]


@pytest.mark.parametrize(
    ("kind", "needed"),
    [
        ("train", ["model_zoo", "model_def", "training_data"]),
        ("evaluate", ["model_zoo", "model_def", "validation_data", "checkpoint_dir_for_init"]),
        ("predict", ["model_zoo", "model_def", "prediction_data", "checkpoint_dir_for_init"]),
    ],
)
def test_missing_flags_of_job_kind_are_all_named(kind: str, needed: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        JobSpec.build(kind=kind)
    lines = caught.value.message.splitlines()
    assert lines[0] == f"{len(needed)} things are wrong with this job:"
    assert [line.split()[1] for line in lines[1:]] == [f"--{name}" for name in needed]


@pytest.mark.parametrize("kind", ["train", "evaluate", "predict"])
def test_complete_job_of_each_kind_is_valid(job: Build, kind: str) -> None:
    assert job(kind).kind == kind


def test_a_command_needs_nothing_else() -> None:
    assert JobSpec.build(job_command="python train.py").program == "command"


def test_blank_job_command_is_rejected() -> None:
    with pytest.raises(UserError, match="--job_command is blank"):
        JobSpec.build(job_command="  \n")


@pytest.mark.parametrize(
    ("flags", "because"),
    [
        ({"distribution_strategy": "Local", "num_workers": 2}, "Local is for one worker"),
        ({"distribution_strategy": "Local", "num_ps": 1}, "Local has no parameter servers"),
        ({"distribution_strategy": "AllreduceStrategy", "num_ps": 1}, "AllreduceStrategy has no parameter"),
        ({"distribution_strategy": "ParameterServerStrategy", "num_ps": 0}, "needs --num_ps of at least 1"),
        ({"num_workers": 2, "num_ps": 0}, "needs --num_ps of at least 1"),
        ({"num_workers": 0}, "--num_workers must be at least 1"),
        ({"use_async": True, "grads_to_wait": 2}, "--use_async=true waits for no other gradients"),
        ({"sync_version_tolerance": 1}, "only in synchronous training"),
        ({"checkpoint_steps": 10}, "--checkpoint_steps needs --checkpoint_dir"),
        ({"evaluation_steps": 10}, "--evaluation_steps needs --validation_data"),
        ({"job_command": "x"}, "--job_command and --model_def exclude each other"),
        ({"num_evaluator": 1}, "--num_evaluator has a meaning only with --job_command"),
        ({"num_chief": 1}, "--num_chief has a meaning only with --job_command"),
        ({"need_tf_config": True}, "--need_tf_config has a meaning only with --job_command"),
        ({"envs": "MASTER_ADDR=x"}, "MASTER_ADDR is set by the master"),
        ({"envs": "ELASTICDL_NODE=x"}, "ELASTICDL_NODE is set by the master"),
        ({"secret_envs": "ELASTICDL_NODE=x", "image_name": "i"}, "ELASTICDL_NODE is set by the master"),
        (
            {"job_account": True, "service_account": "x", "image_name": "i"},
            "--job_account and --service_account exclude",
        ),
        ({"secret_envs": "A=x"}, "--secret_envs is for jobs on a cluster"),
        (
            {"secret_envs": "A=x", "envs": "A=x", "image_name": "i"},
            "A is given twice, by --envs and by --secret_envs",
        ),
        ({"secret_envs": "A=Not_A_Name", "image_name": "i"}, "A: 'Not_A_Name' is not a name for Kubernetes"),
        ({"secret_envs": "A=x/", "image_name": "i"}, "A: '' is not a key of a Secret"),
        ({"envs": "ELASTICDL_PLATFORM=x"}, "ELASTICDL_PLATFORM is set by the master"),
        ({"envs": "ELASTICDL_JOB=x"}, "ELASTICDL_JOB is set by the master"),
        ({"envs": "ELASTICDL_JOB_DIR=x"}, "ELASTICDL_JOB_DIR is set by the master"),
        ({"worker_image": "x"}, "--worker_image needs --image_name"),
        ({"ps_image": "x"}, "--ps_image needs --image_name"),
        ({"cluster_spec": "a", "cluster_spec_json": "{}"}, "exclude each other"),
        ({"cluster_spec_json": "{"}, "--cluster_spec_json: it is neither JSON nor YAML"),
        ({"cluster_spec_json": "[]"}, "must be an object"),
        ({"cluster_spec_json": '{"pod_spec": {"nodeselector": {}}}'}, "Did you mean nodeSelector?"),
        (
            {"ps_resource_request": "cpu=2", "ps_resource_limit": "cpu=1"},
            "--ps_resource_request: cpu=2 is more than its limit 1 in --ps_resource_limit",
        ),
    ],
)
def test_contradicting_flags_are_rejected(refused: Refused, flags: dict[str, object], because: str) -> None:
    assert because in refused(**flags)


@pytest.mark.parametrize(
    "flags",
    [
        {"grads_to_wait": 2, "sync_version_tolerance": 1},
        {"use_async": False, "grads_to_wait": 1},
        {"checkpoint_steps": 10, "checkpoint_dir": "ckpt"},
        {"evaluation_steps": 10, "validation_data": "data"},
        {"num_workers": 3, "num_ps": 2, "distribution_strategy": "ParameterServerStrategy"},
        {"envs": "PYTHONPATH=/x"},
        # Set for programs of the user's own alone, and the first only if they want it.
        {"envs": {"TF_CONFIG": "{}", "POD_IP": "x"}},
        {"restart_policy": "Never", "master_port": 5000},
    ],
)
def test_compatible_flags_are_valid(job: Build, flags: dict[str, object]) -> None:
    job(**flags)


@pytest.mark.parametrize(
    ("flags", "because"),
    [
        ({"need_tf_config": True, "envs": "TF_CONFIG=x"}, "--envs: TF_CONFIG is set by the master"),
        ({"num_ps": 1, "envs": "PADDLE_TRAINER_ID=x"}, "--envs: PADDLE_TRAINER_ID is set by the master"),
        (
            {
                "need_tf_config": True,
                "cluster_spec_json": '{"worker_spec": {"env": [{"name": "TF_CONFIG", "value": "x"}]}}',
            },
            "--cluster_spec_json: worker_spec.env: TF_CONFIG is set by the job",
        ),
    ],
)
def test_variables_that_programs_of_the_users_own_are_given(flags: dict[str, Any], because: str) -> None:
    with pytest.raises(UserError, match=because):
        JobSpec.build(job_command="python p.py", **flags)


def test_variables_of_another_framework_are_the_user_s_own() -> None:
    JobSpec.build(job_command="python p.py", envs={"TF_CONFIG": "{}", "POD_IP": "x"})
    JobSpec.build(job_command="python p.py", need_tf_config=True, envs={"PADDLE_PORT": "1"})


def test_that_kubernetes_restarts_nothing_is_explained(refused: Refused) -> None:
    assert "'Always' is not Never: pods that end are replaced by the master" in refused(
        restart_policy="Always"
    )


def test_a_command_is_for_training_only() -> None:
    with pytest.raises(UserError, match="no meaning for predict"):
        JobSpec.build(kind="predict", job_command="x", prediction_data="d", checkpoint_dir_for_init="c")


def test_job_command_without_workers_is_refused() -> None:
    with pytest.raises(UserError, match="no node would train"):
        JobSpec.build(job_command="x", num_workers=0)
    assert JobSpec.build(job_command="x", num_workers=0, num_chief=1).nodes.num_chief == 1


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("num_workers", -1),
        ("num_ps", "-2"),
        ("minibatch_size", 0),
        ("num_minibatches_per_task", 0),
        ("num_epochs", 0),
        ("max_step", -1),
        ("grads_to_wait", 0),
        ("get_model_steps", 0),
        ("log_loss_steps", 0),
        ("evaluation_steps", -1),
        ("checkpoint_steps", -1),
        ("keep_checkpoint_max", -1),
        ("max_bad_records", -1),
        ("relaunch_on_worker_failure", -1),
        ("max_shard_retries", -1),
        ("stall_factor", -1),
        ("stall_floor_seconds", "-0.1"),
        ("master_port", 65536),
        ("num_chief", 2),
        ("restart_policy", "Sometimes"),
        ("restart_policy", "OnFailure"),
        ("image_pull_policy", "always"),
        ("log_level", "info"),
        ("namespace", "No_Such"),
        ("loss", ""),
        ("loss", "a b"),
        ("volume", "x"),
        ("model_params", "x"),
        ("shuffle", "maybe"),
        ("job_name", "Not A Name"),
        ("worker_pod_priority", "high=7"),
    ],
)
def test_values_out_of_range_are_reported_with_their_flag(refused: Refused, flag: str, value: object) -> None:
    assert refused(**{flag: value}).startswith(f"{flag}: ")


def test_all_mistakes_are_reported_at_once_without_consequential_ones(refused: Refused) -> None:
    message = refused(num_worker=3, num_workers="two", distribution_strategy="Local", num_ps=1, use_async="x")
    assert message.splitlines() == [
        "4 things are wrong with this job:",
        "  - num_worker: there is no flag of that name. Did you mean num_workers?",
        "  - num_workers: 'two' is not a whole number.",
        "  - use_async: 'x' is neither true nor false (nor 1/0, yes/no, on/off).",
        "  - --distribution_strategy=Local has no parameter servers, and --num_ps is 1.",
    ]


def test_two_names_of_one_flag(refused: Refused) -> None:
    assert "num_ps is given twice" in refused(num_ps=1, num_ps_pods=2)


def test_an_unknown_kind() -> None:
    with pytest.raises(UserError, match="Did you mean train"):
        JobSpec.build(kind="trian")


def test_none_means_not_given(job: Build) -> None:
    assert job(num_workers=None, job_name=None) == job()
