"""elasticdl as a package (a wheel), for images that users build.

It is built ahead of the tests that want it: what builds it is fetched from an index, and the network of a cluster of
our own has no way out.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.images import ROOT, code_files

_CODE = ("elasticdl", "elasticai_api", "model_zoo", "native", "build_backend")
_FILES = ("CMakeLists.txt", "pyproject.toml", "README.md")


def make_wheel(folder: Path) -> Path:
    """In the folder, if it is not there: rebuilt after each change."""
    state = hashlib.sha256()
    for path in [
        *(ROOT / name for name in _FILES),
        *(each for top in _CODE for each in code_files(ROOT / top)),
    ]:
        # What is compiled beside the sources is compiled of them.
        if path.suffix != ".so":
            state.update(f"{path}{path.stat().st_mtime_ns}{path.stat().st_size}".encode())
    kept = folder / f"wheel-{state.hexdigest()[:12]}"
    if not kept.exists():
        for old in folder.glob("wheel-*"):
            shutil.rmtree(old)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            source, built = Path(made) / "source", Path(made) / "built"
            source.mkdir(parents=True)
            for name in _CODE:
                shutil.copytree(ROOT / name, source / name)
            for name in _FILES:
                shutil.copy(ROOT / name, source / name)
            run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={built}", source)
            built.rename(kept)
    (wheel,) = kept.glob("*.whl")
    return wheel
