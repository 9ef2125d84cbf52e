"""Records that cannot be read: named by file and place; an error, or skipped and listed as far as allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from e2e.conftest import wait_until
from e2e.plain import Bench, rows
from elasticdl.data.formats.recordio import RecordIOWriter

SIZE = 100
SERVERS = ("--num_workers=2", "--num_ps=1", "--num_minibatches_per_task=2")
OF_BYTES = (
    "    for row in dataset:\n",
    "    for record in dataset:\n        row = bytes(record).decode().split(',')\n",
)


def csv(bench: Bench) -> tuple[int, int]:
    """Two bad samples. Returns how many there are, and the offset of the first."""
    lines = rows(SIZE)
    lines[31], lines[32] = "30,70\n", "31,69,1,9,9\n"
    bench.data.write_text("".join(lines))
    return 2, len("".join(lines[:31]))


def recordio(bench: Bench) -> tuple[int, int]:
    """A chunk of ten samples with a wrong byte in it."""
    bench.definition(OF_BYTES)
    bench.data = bench.folder / "data.recordio"
    offsets = []
    with RecordIOWriter(bench.data, max_chunk_records=10) as writer:
        for line in rows(SIZE)[1:]:
            writer.write(line.strip().encode())
    content = bytearray(bench.data.read_bytes())
    magic = content[:4]
    at = content.find(magic)
    while at >= 0:
        offsets.append(at)
        at = content.find(magic, at + 1)
    assert len(offsets) == SIZE // 10
    content[(offsets[3] + offsets[4]) // 2 + 10] ^= 255
    bench.data.write_bytes(content)
    return 10, offsets[3]


Damage = Callable[[Bench], tuple[int, int]]


def test_corrupt_record_fails_the_job_by_default(bench: Bench) -> None:
    _, offset = csv(bench)
    bench.train().failed(
        f"Corrupt data: samples [30, 31) at {bench.data}",
        f"byte {offset}",
        "with --max_bad_records",
    )


@pytest.mark.parametrize("damage", [csv, recordio])
def test_allowed_corrupt_records_are_skipped_and_listed(bench: Bench, damage: Damage) -> None:
    count, offset = damage(bench)
    gate = bench.folder / "gate"
    gate.touch()
    bench.environment["ELASTICDL_TEST_GATE"] = str(gate)
    job = bench.start(
        *bench.training(*SERVERS, f"--max_bad_records={count}", "--num_epochs=2", "--job_name=skips")
    )
    # A worker killed in the middle changes nothing.
    reached = wait_until(lambda: list(bench.folder.glob("gate.reached-*")), "a worker trains")
    psutil.Process(int(reached[0].name.rsplit("-", 1)[1])).kill()
    gate.unlink()
    bench.finish(job).succeeded(
        "Skipped samples:", f"{bench.data}, ", f"byte {offset}", "Exact: every sample of every epoch"
    )
    audit = [line.split() for line in bench.run("jobs", "audit", "skips").output.splitlines()]
    lines = [line for line in audit if line[:1] == ["training"] and "/2" in line[1]]
    assert [(int(line[3]), int(line[5]), line[6]) for line in lines] == [(SIZE - count, count, "yes")] * 2


def test_more_corrupt_records_than_allowed_fail_the_job(bench: Bench) -> None:
    count, _ = recordio(bench)
    bench.train(*SERVERS, f"--max_bad_records={count - 1}").failed(
        f"{count} samples cannot be read, --max_bad_records allows {count - 1}", str(bench.data)
    )


def test_predictions_leave_corrupt_records_out(bench: Bench, plain_checkpoint: Path) -> None:
    csv(bench)
    output = bench.folder / "out.csv"
    bench.predict(plain_checkpoint, "--max_bad_records=2", f"--output={output}").succeeded("98 predictions")
    indices = [int(line.split(",")[0]) for line in output.read_text().splitlines()[1:]]
    assert indices == [*range(30), *range(32, SIZE)]
