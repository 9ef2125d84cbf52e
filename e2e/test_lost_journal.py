"""The machine of a master is lost, and with it the end of its journal: what its workers remember makes up for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psutil

from e2e.conftest import wait_until


def test_an_epoch_that_only_workers_know_of(start_gated: Callable[..., Any], gates: Any) -> None:
    gates.hold("train")
    gates.hold("epoch-0")
    job = start_gated()
    gates.wait_for("train", 2)
    (journal,) = (job.folder / "journal").glob("journal-*.log")
    known = journal.stat().st_size
    gates.release("train")
    gates.wait_for("epoch-0")
    master = wait_until(lambda: job.processes().get("master"), "the master runs")
    assert isinstance(master, psutil.Process)
    # Held, so that it writes nothing while what it has not synced is taken away, as by a machine that breaks down.
    master.send_signal(signal.SIGSTOP)
    assert journal.stat().st_size > known
    os.truncate(journal, known)
    (job.folder / "machine").write_text("another")
    master.send_signal(signal.SIGKILL)
    gates.release("epoch-0")
    job.assert_exact(epochs=2, size=1437)
    assert [row["again"] for row in job.audit()["rows"] if row["dataset"] == "training"] == [0, 0]
    assert "Recovering the end of the journal" in (job.folder / "logs" / "master.log").read_text()
