"""The commands of the guides are taken as they stand, and every flag arrives with its value."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from elasticdl.jobs.schema.flag_index import LEAVES, NAMES

MNIST_ON_A_CLUSTER = """
  --image_name=gcr.io/project/elasticdl:mnist
  --model_zoo=model_zoo
  --model_def=mnist_functional_api.mnist_functional_api.custom_model
  --training_data=/data/mnist/train
  --validation_data=/data/mnist/test
  --num_epochs=5
  --master_resource_request="cpu=2,memory=2048Mi"
  --master_resource_limit="cpu=2,memory=2048Mi"
  --master_pod_priority=high
  --worker_resource_request="cpu=2,memory=2048Mi"
  --worker_resource_limit="cpu=2,memory=2048Mi"
  --worker_pod_priority=low
  --ps_resource_request="cpu=2,memory=2048Mi"
  --ps_resource_limit="cpu=2,memory=2048Mi"
  --ps_pod_priority=high
  --minibatch_size=64
  --num_minibatches_per_task=64
  --num_ps_pods=2
  --num_workers=4
  --evaluation_steps=200
  --grads_to_wait=1
  --job_name=test-mnist
  --log_level=INFO
  --image_pull_policy=Always
  --volume="mount_path=/data,claim_name=fileserver-claim"
  --distribution_strategy=ParameterServerStrategy
"""

DEEPFM_ESTIMATOR = """
  --image_name=elasticdl/elasticdl:1.0.0
  --worker_image=elasticdl:deepctr_estimator
  --ps_image=elasticdl:deepctr_estimator
  --job_command="python -m model_zoo.deepctr.deepfm_estimator --training_data=/data/criteo_sample.txt
                 --validation_data=/data/criteo_sample.txt"
  --num_workers=1
  --num_ps=1
  --num_evaluator=1
  --master_resource_request="cpu=0.2,memory=1024Mi"
  --master_resource_limit="cpu=1,memory=2048Mi"
  --ps_resource_request="cpu=0.2,memory=1024Mi"
  --ps_resource_limit="cpu=1,memory=2048Mi"
  --worker_resource_request="cpu=0.3,memory=1024Mi"
  --worker_resource_limit="cpu=1,memory=2048Mi"
  --chief_resource_request="cpu=0.3,memory=1024Mi"
  --chief_resource_limit="cpu=1,memory=2048Mi"
  --evaluator_resource_request="cpu=0.3,memory=1024Mi"
  --evaluator_resource_limit="cpu=1,memory=2048Mi"
  --job_name=test-deepfm-estimator
  --distribution_strategy=ParameterServerStrategy
  --need_tf_config=true
  --volume="host_path=/home/me/data,mount_path=/data"
"""

IRIS_ESTIMATOR = """
  --image_name=elasticdl:1.0.0
  --worker_image=elasticdl:iris_estimator
  --ps_image=elasticdl:iris_estimator
  --job_command="python -m model_zoo.iris.dnn_estimator"
  --master_resource_request="cpu=0.2,memory=1024Mi"
  --master_resource_limit="cpu=1,memory=2048Mi"
  --num_ps=1
  --ps_resource_request="cpu=0.2,memory=1024Mi"
  --ps_resource_limit="cpu=1,memory=2048Mi"
  --num_workers=1
  --worker_resource_request="cpu=0.3,memory=1024Mi"
  --worker_resource_limit="cpu=1,memory=2048Mi"
  --chief_resource_request="cpu=0.3,memory=1024Mi"
  --chief_resource_limit="cpu=1,memory=2048Mi"
  --num_evaluator=1
  --evaluator_resource_request="cpu=0.3,memory=1024Mi"
  --evaluator_resource_limit="cpu=1,memory=2048Mi"
  --job_name=test-iris-estimator
  --image_pull_policy=Never
  --distribution_strategy=ParameterServerStrategy
  --need_tf_config=true
  --volume="host_path=/home/me/data,mount_path=/data"
"""

# Every flag that a model definition's job may have, each with a value that is not its default.
EVERY_FLAG = """
  --model_zoo=zoo --model_def=a.b.c --feed=f --loss=l --optimizer=o --callbacks=c --eval_metrics_fn=e
  --custom_data_reader=r --data_reader_params=sep=x --model_params=depth=3 --minibatch_size=32
  --num_minibatches_per_task=4 --num_epochs=2 --max_step=7 --training_data=t --validation_data=v
  --evaluation_steps=10 --log_loss_steps=50 --checkpoint_dir=/m/ck --checkpoint_steps=20
  --keep_checkpoint_max=5 --checkpoint_dir_for_init=old --output=/m/out
  --distribution_strategy=ParameterServerStrategy --num_workers=3 --num_ps=2 --grads_to_wait=2
  --use_async=false --lr_staleness_modulation=true --sync_version_tolerance=1 --get_model_steps=2
  --job_name=job --log_level=DEBUG --envs=A=1,B=2 --relaunch_on_worker_failure=1
  --max_shard_retries=2 --stall_factor=5 --stall_floor_seconds=9 --max_bad_records=4 --shuffle=false
  --shuffle_seed=11 --namespace=ours --image_pull_secret=s --service_account=a --master_port=5000
  --image_name=i --worker_image=w --ps_image=p --image_pull_policy=Never
  --cluster_spec_json='{"pod_spec": {"nodeSelector": {"disk": "ssd"}}}'
  --volume=host_path=/h,mount_path=/m --worker_pod_priority=high=0.5
"""


@pytest.mark.parametrize("command", [MNIST_ON_A_CLUSTER, DEEPFM_ESTIMATOR, IRIS_ESTIMATOR, EVERY_FLAG])
def test_every_flag_of_guide_is_in_job_spec(elasticdl: Any, command: str) -> None:
    words = shlex.split(command)
    job = elasticdl("train", *words, "--dry_run").job
    for word in words:
        name, _, text = word.removeprefix("--").partition("=")
        leaf = LEAVES[NAMES[name]]
        if leaf.name == "envs":
            # Their values are in a Secret.
            assert job["nodes"]["secret_envs"] == {"A": "elasticdl-job-envs", "B": "elasticdl-job-envs"}
            continue
        written = (job[leaf.section] if leaf.section else job)[leaf.name]
        grammar = leaf.flag.grammar
        expected = yaml.safe_load(yaml.safe_dump(grammar.plain(grammar.parse(text))))
        assert written == expected, name
        if command is EVERY_FLAG:
            assert grammar.parse(text) != leaf.default() or leaf.flag.derived, name


def test_estimator_command_of_guides_sets_node_counts(elasticdl: Any) -> None:
    nodes = elasticdl("train", *shlex.split(IRIS_ESTIMATOR), "--dry_run").job["nodes"]
    counts = {name: nodes[name] for name in ("num_chief", "num_evaluator", "num_ps", "num_workers")}
    assert counts == {"num_chief": 1, "num_evaluator": 1, "num_ps": 1, "num_workers": 1}


def test_mnist_command_of_guides_sets_servers_and_volume(elasticdl: Any) -> None:
    job = elasticdl("train", *shlex.split(MNIST_ON_A_CLUSTER), "--dry_run").job
    assert job["nodes"]["num_ps"] == 2
    assert job["training"]["use_async"] is True
    assert job["cluster"]["volume"] == [{"claim_name": "fileserver-claim", "mount_path": "/data"}]
