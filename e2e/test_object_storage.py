"""Jobs whose data, checkpoints, models and predictions are in a real S3 store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from e2e.conftest import wait_until
from tests.s3_server import BUCKET, names, open_bucket, put, s3_server

SIZE = 1437
MODEL = ("--model_zoo=e2e/zoo", "--model_def=gated.model.custom_model", "--minibatch_size=32")


@pytest.fixture(scope="module")
def store(digits: Path) -> Iterator[dict[str, Any]]:
    with s3_server() as environment:
        files = open_bucket(environment)
        put(files, digits, "digits")
        yield {"environment": environment, "files": files}


def test_job_killed_with_checkpoint_in_store_continues_from_it_elsewhere(
    start_job: Callable[..., Any], gates: Any, store: dict[str, Any], tmp_path: Path
) -> None:
    files = store["files"]

    def run(*arguments: str, cache: str, **more: str) -> Any:
        # Two caches are two machines.
        environment = {**store["environment"], "ELASTICDL_CACHE": str(tmp_path / cache), **more}
        return start_job(*arguments, environment=environment)

    training = (
        *(
            "train",
            *MODEL,
            f"--training_data=s3://{BUCKET}/digits/train",
            "--num_epochs=2",
            "--num_workers=2",
        ),
        *("--num_ps=2", "--num_minibatches_per_task=4", f"--checkpoint_dir=s3://{BUCKET}/checkpoints"),
        *("--checkpoint_steps=5", "--keep_checkpoint_max=2", "--stall_factor=0"),
    )
    # Slow enough to be killed long before its end.
    first = run(*training, "--job_name=first", cache="one", ELASTICDL_TEST_SLOW="1")

    def has_checkpoints() -> bool:
        manifests = [name for name in names(files, "checkpoints") if name.endswith("manifest.json")]
        return len(manifests) >= 2 or first.process.poll() is not None

    wait_until(has_checkpoints, "two checkpoints are uploaded")
    assert first.process.poll() is None, first.output
    for process in [*first.processes().values(), first.process]:
        process.kill()
    first.process.wait()

    second = run(
        *training,
        f"--checkpoint_dir_for_init=s3://{BUCKET}/checkpoints",
        f"--output=s3://{BUCKET}/model.keras",
        "--job_name=second",
        cache="two",
    )
    second.assert_exact(epochs=2, size=SIZE)
    assert "continuing at step" in (second.folder / "logs" / "master.log").read_text()
    # Older ones are removed in the store too, unless a newer one needs them.
    steps = {name.partition("/")[0] for name in names(files, "checkpoints")}
    local = {path.name for path in (second.folder / "checkpoints").glob("version-*")}
    assert local <= steps

    predict = run(
        *("predict", *MODEL, f"--prediction_data=s3://{BUCKET}/digits/test"),
        f"--checkpoint_dir_for_init=s3://{BUCKET}/model.keras",
        f"--output=s3://{BUCKET}/predictions.parquet",
        "--job_name=predict",
        cache="three",
    )
    assert predict.wait() == 0, predict.output
    with files.open_input_file(f"{BUCKET}/predictions.parquet") as file:
        assert pq.read_table(file)["index"].to_pylist() == list(range(360))


def test_missing_bucket_fails_job_and_keeps_checkpoint_locally(
    start_job: Callable[..., Any], digits: Path, tmp_path: Path
) -> None:
    with s3_server() as environment:
        open_bucket(environment)
        place = "s3://no-such-bucket/checkpoints"
        job = start_job(
            *("train", *MODEL, f"--training_data={digits}/train", f"--checkpoint_dir={place}"),
            "--job_name=gone",
            environment=environment,
        )
        assert job.wait() != 0
    assert "no-such-bucket" in job.output
    (kept,) = (job.folder / "checkpoints").glob("version-*")
    assert json.loads((kept / "manifest.json").read_text())["step"] > 0
