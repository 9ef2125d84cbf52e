"""The wheel alone, outside of a checkout: the command works, and the zoo in it is `elasticdl.zoo`."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from e2e.cluster.package import make_wheel


def test_wheel_outside_checkout_trains_model_of_installed_zoo(tmp_path: Path, digits: Path) -> None:
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(make_wheel(tmp_path)) as wheel:
        wheel.extractall(installed)
    # A user's own folder of that name must not clash.
    assert not (installed / "model_zoo").exists()
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "elasticdl", "train"),
            "--model_zoo=elasticdl.zoo",
            "--model_def=digits.torch_cnn.custom_model",
            f"--training_data={digits}/train",
            "--num_minibatches_per_task=8",
            "--output=out",
        ],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1", "ELASTICDL_HOME": "home"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "has succeeded" in ended.stdout
    assert list((elsewhere / "out").iterdir())
