"""A job whose master has an account of its own runs to its end; that account may not change records of other jobs."""

from __future__ import annotations

from e2e.kubernetes.conftest import Elasticdl, Kubectl

PROGRAM = """
from elasticai_api.common.data_shard_service import DataShardService
shards = DataShardService(batch_size=10, num_epochs=1, dataset_size=100, num_minibatches_per_shard=2)
while shard := shards.fetch_shard():
    for start in range(shard.start, shard.end, 10):
        shards.report_batch_done(10)
"""


def test_job_with_an_account_of_its_own_ends_exactly(kubectl: Kubectl, elasticdl: Elasticdl) -> None:
    kubectl("create", "configmap", "programs", f"--from-literal=program.py={PROGRAM}")
    elasticdl.train(
        "--job_name=job",
        "--image_name=elasticdl-test:light",
        "--image_pull_policy=Never",
        "--job_command=python3 /programs/program.py",
        "--volume=config_map=programs,mount_path=/programs",
        "--num_workers=1",
        "--max_workers=1",
        # Servers have addresses of their own: Services that the master makes.
        "--num_chief=1",
        "--need_tf_config=true",
        "--job_account=true",
        "--wait",
    )
    assert "Exact: every sample of every epoch is accounted for." in elasticdl.jobs("audit", "job")
    master = f"--as=system:serviceaccount:{kubectl.namespace}:elasticdl-job"
    for verb, what, answer in (
        ("patch", "configmap/elasticdl-job", "yes"),
        ("patch", "configmap/elasticdl-other", "no"),
        ("patch", "service/job-edljob-worker-0", "yes"),
        ("patch", "service/other", "no"),
        ("get", "secret/elasticdl-job", "no"),
    ):
        assert kubectl.attempt("auth", "can-i", verb, what, master).stdout.strip() == answer, (verb, what)
    elasticdl.jobs("delete", "job")
    assert kubectl.left_of("job") == []
