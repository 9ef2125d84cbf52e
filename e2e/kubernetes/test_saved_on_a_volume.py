"""What a job writes to a volume is there for others: a model is trained and checkpointed by one, trained further and
exported by a second, and evaluated and asked for predictions by two more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.conftest import Elasticdl, Kubectl, machines
from e2e.kubernetes.host_access import host_access

# Of digits, in batches of 64.
SIZE, TEST_SIZE, STEPS = 1437, 360, 23
_PREDICTED = "import pyarrow.parquet as pq; print(pq.read_table('predictions.parquet')['index'].to_pylist())"


def test_checkpoint_on_volume_is_continued_evaluated_and_predicted(
    kubectl: Kubectl, elasticdl: Elasticdl, digits: Path
) -> None:
    for part in ("train", "test"):
        kubectl("create", "configmap", part, f"--from-file={digits}/{part}")
    with host_access(kubectl, machines(kubectl)[0]) as machine:
        common = (
            "--image_name=elasticdl-test:keras",
            "--image_pull_policy=Never",
            "--model_zoo=/model_zoo",
            "--model_def=digits.keras_cnn.custom_model",
            "--minibatch_size=64",
            "--envs=ELASTICDL_THREADS=1",
            f"--cluster_spec_json={json.dumps({'pod_spec': machine.here})}",
            f"--volume=host_path={machine.folder},mount_path=/saved;"
            "config_map=train,mount_path=/data/train;config_map=test,mount_path=/data/test",
        )
        training = (*common, "--training_data=/data/train", "--num_ps=1")
        elasticdl.train(*training, "--job_name=first", "--checkpoint_dir=/saved/checkpoints", "--wait")
        assert machine.sh("ls checkpoints").split() == [f"version-{STEPS}"]

        elasticdl.train(
            *training,
            "--job_name=second",
            "--validation_data=/data/test",
            "--num_epochs=2",
            "--checkpoint_dir_for_init=/saved/checkpoints",
            "--output=/saved/model",
            "--wait",
        )
        begun = (
            f"Starting from the checkpoint /saved/checkpoints/version-{STEPS}, continuing at step {STEPS}."
        )
        assert begun in kubectl("logs", "elasticdl-second-master")
        rows = [row for row in status(kubectl, "second")["audit"]["rows"] if row["dataset"] == "training"]
        assert [row["done"] for row in rows] == [SIZE, SIZE]

        jobs = {
            "evaluate": ("--validation_data=/data/test",),
            "predict": ("--prediction_data=/data/test", "--output=/saved/predictions.parquet"),
        }
        for kind, flags in jobs.items():
            elasticdl.submit(
                kind, *common, *flags, f"--job_name={kind}", "--checkpoint_dir_for_init=/saved/model"
            )
        for kind in jobs:
            kubectl.wait_for_phase(f"elasticdl-{kind}-master", "Succeeded")
            assert [row["done"] for row in status(kubectl, kind)["audit"]["rows"]] == [TEST_SIZE]
        assert metrics(kubectl, "evaluate") == pytest.approx(metrics(kubectl, "second"), rel=1e-5)
        assert json.loads(machine.sh(f'python3 -c "{_PREDICTED}"')) == list(range(TEST_SIZE))


def status(kubectl: Kubectl, job: str) -> dict[str, Any]:
    return dict(json.loads(kubectl.get("configmap", f"elasticdl-{job}")["data"]["status.json"]))


def metrics(kubectl: Kubectl, job: str) -> dict[str, float]:
    return dict(status(kubectl, job)["evaluations"][-1]["metrics"])
