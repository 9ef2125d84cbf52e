"""A volume that fills up while a job of Paddle's guide saves its passes, or while its data is made."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.test_full_disk import Disk

_ELASTICDL = f"{shlex.quote(sys.executable)} -m elasticdl"
_DATA = f"{_ELASTICDL} paddle data --out_dir=job --split_count=1 --reviews=60"
# Each pass has some five megabytes.
_RUN = f"{_ELASTICDL} paddle run --nodes=1 --job_name=job --num_passes=9 --ports_num=1 --port=20900"


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk", request.param)
    yield made
    made.remove()


def run_on(disk: Disk, script: str) -> subprocess.CompletedProcess[str]:
    script = f"cd {shlex.quote(str(disk.folder))} && {script}"
    return subprocess.run(
        [*disk.prefix, "sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("disk", [13_000], indirect=True)
def test_pass_that_does_not_fit_is_discarded_and_named(disk: Disk) -> None:
    show = "code=$?; ls -A job/output job/output/pass-00000; exit $code"
    done = run_on(disk, f"{_DATA} --ratings=100 && {_RUN}; {show}")
    assert done.returncode == 2, done.stdout
    assert "There is no space left for pass 2 in" in done.stdout
    assert "it continues from the newest complete pass" in done.stdout
    assert "Traceback" not in done.stdout
    listed = done.stdout.rpartition("job/output:")[2].split()
    assert {"pass-00000", "pass-00001", "done"} <= {*listed}
    assert not {"pass-00002", ".pass-00002.part"} & {*listed}


@pytest.mark.parametrize("disk", [100], indirect=True)
def test_data_that_does_not_fit_is_an_error_in_words(disk: Disk) -> None:
    done = run_on(disk, f"{_DATA} --ratings=30000")
    assert done.returncode == 2, done.stdout
    assert "There is no space left on the volume of job" in done.stdout
    assert "Traceback" not in done.stdout
