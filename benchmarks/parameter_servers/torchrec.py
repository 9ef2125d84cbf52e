"""The environment of TorchRec's kernels, which are compiled for one version of PyTorch."""

from __future__ import annotations

import shutil
import subprocess
import venv
from pathlib import Path

from benchmarks.parameter_servers.missing import Missing
from benchmarks.processes import DEADLINE, ROOT

_ENVIRONMENT = ROOT / ".venv-torchrec"
# The version of PyTorch that we measure with.
_PACKAGES = ("torch==2.13.0", "fbgemm-gpu-cpu==1.8.0", "numpy<2")


def torchrec_python() -> Path:
    """Returns the interpreter of an environment with the kernels. Raises `Missing`."""
    python = _ENVIRONMENT / "bin" / "python"
    complete = _ENVIRONMENT / ".installed"
    if not complete.exists():
        shutil.rmtree(_ENVIRONMENT, ignore_errors=True)
        venv.create(_ENVIRONMENT, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *_PACKAGES]
        try:
            subprocess.run(install, check=True, timeout=10 * DEADLINE)
        except (subprocess.SubprocessError, OSError) as error:
            raise Missing(f"TorchRec's kernels cannot be installed: {error}") from error
        complete.touch()
    return python
