"""What people wait for loads nothing that takes time: help, `import elasticdl`, a submission, a master that starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = (
    "grpc",
    "google.protobuf",
    "rich",
    "pyarrow",
    "numpy",
    "sklearn",
    "tensorflow",
    "keras",
    "torch",
    "asyncio",
)
LIST = "import sys; print(*[name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"


@pytest.mark.parametrize(
    "code",
    [
        "import elasticdl",
        "from elasticdl.cli.main import main; main(['--help'])",
        "from elasticdl.cli.main import main; main(['train', '--help'])",
        "from elasticdl.cli.main import main; main(['ps', '--help'])",
        "from elasticdl.cli.main import main; main(['trian'])",
        "from elasticdl import JobSpec; JobSpec.build(job_command='x')",
    ],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LIST.format(heavy=HEAVY)}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == ""


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        (
            "elasticdl.cli.submission.commands, elasticdl.cli.submission.run, elasticdl.catalog.kubernetes.catalog",
            {"grpc", "numpy", "rich", "pygments"},
        ),
        ("elasticdl.master.kubernetes.pod_master", {"numpy", "rich", "pygments", "click"}),
    ],
)
def test_modules_on_a_jobs_start_path_import_nothing_heavy(modules: str, heavy: set[str]) -> None:
    code = (
        f"import sys, {modules}; from elasticdl.platforms.kubernetes.http_transport import http_library;"
        f"http_library(); print(*sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "\n"


def test_help_needs_no_command_module() -> None:
    code = (
        "from elasticdl.cli.main import main; main(['--help']); import sys;"
        "print(*[n for n in sys.modules if n.startswith('elasticdl.cli.') and n not in ('elasticdl.cli.main',"
        " 'elasticdl.cli.group', 'elasticdl.cli.jobs', 'elasticdl.cli.submission')], 'yaml' in sys.modules,"
        " file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr == "False\n"
