"""A large ordinary embedding is moved to the servers, trained there, reported, and exported as what it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from e2e.conftest import Job
from e2e.zoo.moved.model import Network
from elasticdl.data.dataset import open_reader


def test_moved_embedding_is_trained_reported_and_exported(
    start_job: Callable[..., Job], digits: Path, tmp_path: Path
) -> None:
    export = tmp_path / "export"
    job = start_job(
        "train",
        "--model_zoo=e2e/zoo",
        "--model_def=moved.model.custom_model",
        "--minibatch_size=32",
        "--num_workers=2",
        "--num_ps=2",
        "--move_embeddings_mib=1",
        "--num_epochs=2",
        f"--training_data={digits}/train",
        f"--validation_data={digits}/test",
        f"--output={export}",
        "--job_name=moved",
    )
    job.assert_exact(epochs=2, size=len(open_reader(f"{digits}/train")))
    assert job.status()["evaluations"][-1]["metrics"]["accuracy"] > 0.5

    moved = "pixels (16,384 rows of 16, 1 MiB)"
    # When it is moved, in one line, though two workers tell of it; and where the export is.
    lines = job.output.splitlines()
    remark = f"Moved to the parameter servers: embedding {moved}."
    assert lines.count(remark) == 1
    assert lines.index(remark) < next(
        number for number, line in enumerate(lines) if "Evaluation metrics" in line
    )
    assert remark in job.status()["remarks"]
    assert f"embedding {moved}: was moved to the parameter servers" in job.output
    logs = "".join(path.read_text() for path in (job.folder / "logs").glob("worker-*.log"))
    assert f"Moving the embedding {moved} to the parameter servers" in logs
    tables = [table for server in job.status()["servers"] for table in server["tables"]]
    assert {table["table"] for table in tables} == {"pixels"}
    assert all(table["rows"] > 0 for table in tables)

    # PyTorch alone can use it.
    model = Network().eval()
    start = model.pixels.weight.detach().clone()
    model.load_state_dict(torch.load(export / "state_dict.pt", weights_only=True))
    assert not torch.equal(model.pixels.weight, start)
    program = torch.export.load(export / "model.pt2").module()
    ids = torch.arange(0, 64 * 256, 256).repeat(2, 1)
    with torch.no_grad():
        torch.testing.assert_close(program(ids), model(ids), rtol=1e-4, atol=1e-4)
