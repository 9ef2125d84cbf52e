"""Commands of Paddle's guide in an environment without Paddle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_WITHOUT_PACKAGES = """
import sys
from elasticdl.paddle_compat.command.__main__ import main

sys.path = [each for each in sys.path if "site-packages" not in each]
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["train", "pserver", "version"])
def test_missing_paddle_is_named_with_its_installation(command: str) -> None:
    """Without the packages of the environment, in the checkout, whose folder `paddle` is no Paddle."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PACKAGES, command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: PaddlePaddle is not installed.\nhint: pip install paddlepaddle==")
    assert "Traceback" not in done.stderr
