"""A job in a notebook, run by a real kernel: its progress is one output below the cell that started it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

CELLS = [
    'import elasticdl\njob = elasticdl.train(job_name="job", job_command="echo hello", num_workers=1, quiet=False)',
    "result = await job\nprint(result.state)",
    "job",
    "job.wait().succeeded",
]


def test_job_started_in_a_cell_is_shown_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    started, awaited, shown, waited = (cell.outputs for cell in notebook.cells)
    # One output, which was replaced as the job went on.
    (progress,) = started
    assert "Job job has succeeded." in progress.data["text/plain"]
    assert "<pre" in progress.data["text/html"]
    assert _text(awaited) == "succeeded\n"
    assert "job · succeeded" in shown[0].data["text/plain"]
    assert waited[0].data["text/plain"] == "True"


def _text(outputs: Any) -> str:
    return "".join(output.text for output in outputs if output.output_type == "stream")
