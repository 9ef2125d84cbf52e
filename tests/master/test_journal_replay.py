"""A ledger whose process is killed: another process that replays its journal gives the very same answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticdl.master.journal import Journal
from elasticdl.master.ledger.ledger import DatasetSpec, Ledger

# Random work of five workers on two data sets; every answer is printed after it has been journaled.
MASTER = """
import dataclasses, json, random, sys
from elasticdl.master.journal import Journal
from elasticdl.master.ledger.ledger import DatasetSpec, Ledger, LedgerError

journal, dice, ledger = Journal(sys.argv[1]), random.Random(sys.argv[2]), Ledger()
requests = 0

def plain(result):
    if isinstance(result, list):
        return [plain(item) for item in result]
    return dataclasses.asdict(result) if dataclasses.is_dataclass(result) else result

def call(name, **arguments):
    result = getattr(ledger, name)(**arguments)
    journal.append({"do": name, "with": arguments})
    print(json.dumps(plain(result)), flush=True)

for name in ("one", "two"):
    spec = DatasetSpec(name=name, size=10**9, shard_size=64, batch_size=8, epochs=1, shuffle=True, seed=3)
    ledger.add(spec)
journal.compact(ledger.snapshot())
while True:
    requests += 1
    worker = f"worker-{dice.randrange(5)}"
    held = ledger.held_by(worker)
    kind = dice.random()
    if kind < 0.3 or not held:
        call("lease", dataset=dice.choice(["one", "two"]), worker=worker, count=2, request_id=requests)
    elif kind < 0.9:
        lease = dice.choice(held)
        position = dice.randint(lease.position, lease.end)
        call("progress", lease_id=lease.lease_id, position=position, batches=lease.batches + 1, worker=worker)
    elif kind < 0.95:
        lease = dice.choice(held)
        call("truncate", lease_id=lease.lease_id, worker=worker, end=dice.randint(lease.position, lease.end))
    else:
        call("release_worker", worker=worker)
    if requests % 211 == 0:
        journal.compact(ledger.snapshot())
        print("compacted", flush=True)
"""


def plain(result: Any) -> Any:
    return json.loads(json.dumps(result, default=vars))


@pytest.mark.parametrize(("seed", "answers"), [(1, 50), (2, 210), (3, 700)])
def test_another_process_gives_the_same_answers(tmp_path: Path, seed: int, answers: int) -> None:
    said: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", MASTER, str(tmp_path), str(seed)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            said.append(line)
            if len(said) == answers:
                child.kill()
                break
        said += child.stdout.read().splitlines(keepends=True)
    since = [line for line in said if line.endswith("\n")]
    if "compacted\n" in since:
        since = since[len(since) - since[::-1].index("compacted\n") :]
    with Journal(tmp_path) as journal:
        snapshot, records = journal.read()
        assert snapshot is not None
        ledger = Ledger.restore(snapshot)
        replayed = [plain(getattr(ledger, record["do"])(**record["with"])) for record in records]
    printed = [json.loads(line) for line in since]
    # It may have died between writing and telling: then the journal knows one answer more, or has been
    # compacted meanwhile, but nothing that was printed is unknown to it.
    assert replayed[: len(printed)] == printed or replayed == []
    assert len(replayed) <= len(printed) + 1
    assert ledger.check() == []
    assert ledger.datasets() == ["one", "two"]
    assert isinstance(ledger.spec("one"), DatasetSpec)
