"""Which nodes of a run are unresponsive; and a run whose nodes are frozen by a real SIGSTOP."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import pytest

from elasticdl.paddle_compat.cluster.data_job import DataJob
from elasticdl.paddle_compat.cluster.heartbeats import (
    HeartbeatMonitor,
    Observation,
    Unresponsive,
    stopped_descendant,
)
from elasticdl.paddle_compat.cluster.local import LocalRun
from elasticdl.paddle_compat.cluster.sources import Sizes
from elasticdl.paddle_compat.cluster.variables import Variables
from elasticdl.platforms.local.process_tree import ProcessState

# The first generation stops itself, or a process that it has started; its replacement ends at once.
_NODE = """
import os, signal, subprocess, sys
from functools import partial
from pathlib import Path

from elasticdl.paddle_compat.cluster.heartbeats import beat_file, start_beating
from elasticdl.paddle_compat.cluster.node import MEMBERS_FILE, OWN_UID
from elasticdl.platforms.local.process_tree import die_with_parent

uid = os.environ[OWN_UID]
start_beating(beat_file(Path(os.environ[MEMBERS_FILE]), uid), interval_seconds=0.02)
if uid.endswith("-0"):
    frozen = os.getpid()
    if sys.argv[1] == "trainer":
        command = [sys.executable, "-c", "import signal; signal.pause()"]
        started = partial(die_with_parent, os.getpid())
        frozen = subprocess.Popen(command, start_new_session=True, preexec_fn=started).pid
    os.kill(frozen, signal.SIGSTOP)
    signal.pause()
"""


def monitor() -> HeartbeatMonitor:
    return HeartbeatMonitor(timeout_seconds=30)


def steps(one: HeartbeatMonitor, last: float, **seen: int | None) -> list[Unresponsive]:
    """Looks every second with the same result, until a decision comes."""
    now = 0.0
    while now <= last:
        if found := one.check({1: Observation(**seen)}, now):
            return found
        now += 1.0
    return []


def test_node_without_heartbeat_is_unresponsive_after_the_timeout() -> None:
    assert not steps(monitor(), 29, beat=5)
    assert steps(monitor(), 30, beat=5) == [Unresponsive(number=1, seconds=30, reason="no heartbeat")]


def test_node_with_stopped_process_is_unresponsive_in_spite_of_its_heartbeat() -> None:
    watching = monitor()
    for now in range(30):
        assert not watching.check({1: Observation(beat=now, stopped=77)}, now)
    reason = "its process 77 is stopped"
    assert watching.check({1: Observation(beat=30, stopped=77)}, 30) == [
        Unresponsive(number=1, seconds=30, reason=reason)
    ]


def test_node_that_beats_is_never_unresponsive() -> None:
    watching = monitor()
    for now in range(100_000):
        assert not watching.check({1: Observation(beat=now)}, now)


def test_node_without_first_heartbeat_is_starting() -> None:
    assert not steps(monitor(), 1000, beat=None)


def test_process_that_continues_in_time_begins_again() -> None:
    watching = monitor()
    for now in range(100):
        stopped = None if now % 20 == 0 else 77
        assert not watching.check({1: Observation(beat=now, stopped=stopped)}, now)


def test_suspended_run_restarts_all_timers() -> None:
    watching = monitor()
    for now in range(20):
        assert not watching.check({1: Observation(beat=1, stopped=77)}, now)
    for now in range(3600, 3630):
        assert not watching.check({1: Observation(beat=1, stopped=77)}, now)
    assert watching.check({1: Observation(beat=1, stopped=77)}, 3630)


def test_replacement_of_a_node_has_timers_of_its_own() -> None:
    watching = monitor()
    for now in range(29):
        assert not watching.check({1: Observation(beat=5, stopped=77)}, now)
    watching.forget(1)
    for now in range(29, 59):
        assert not watching.check({1: Observation(beat=5, stopped=78)}, now)


def test_zero_timeout_never_decides() -> None:
    assert not steps(HeartbeatMonitor(timeout_seconds=0), 10_000, beat=1, stopped=77)


def test_stopped_process_belongs_to_the_node_that_it_descends_from() -> None:
    table = {
        10: ProcessState(1, "S"),
        11: ProcessState(10, "S"),
        12: ProcessState(11, "T"),
        20: ProcessState(1, "R"),
        # Of a debugger.
        21: ProcessState(20, "t"),
    }
    assert stopped_descendant(table, 10) == 12
    assert stopped_descendant(table, 20) is None
    assert stopped_descendant({}, 10) is None


@pytest.mark.parametrize("frozen", ["node", "trainer"])
def test_frozen_node_is_killed_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, frozen: str
) -> None:
    DataJob(out_dir=tmp_path / "job", split_count=2, sizes=Sizes(reviews=60, ratings=60)).run()
    variables = Variables(
        job_name="job",
        job_path=tmp_path,
        namespace="",
        config_dir="quick_start",
        nic="lo",
        port=7164,
        ports_num=1,
        ports_num_sparse=0,
        gradient_num=2,
    )
    run = LocalRun(
        variables=variables,
        words=[frozen],
        restarts=2,
        heartbeat_timeout_seconds=2.0,
        node_command=[sys.executable, "-c", _NODE],
    )
    with caplog.at_level(logging.WARNING):
        assert run.run("trainer_config.py") == 0
    lines = [record.getMessage() for record in caplog.records]
    for number in range(2):
        assert any(re.match(rf"Killing node {number}: unresponsive for \d+ s \(", line) for line in lines)
        assert any(line.startswith(f"Restarting node {number}: exit code 137") for line in lines)
