"""A SIGKILL is blamed on memory if, and only if, the kernel has just counted one of its own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from elasticdl.platforms.exit_reason import MemoryKills, judge
from elasticdl.platforms.platform import EndReason

# As the kernel writes them: control groups of version 2 and 1, and the machine as a whole.
EVENTS = "low 0\nhigh 0\nmax 31\noom {0}\noom_kill {0}\noom_group_kill 0\n"
OOM_CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {0}\n"
VMSTAT = "nr_free_pages 12345\noom_kill {0}\nnuma_hit 987\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "count"
    path.write_text(EVENTS.format(5))
    return path


def reason(memory_kills: MemoryKills, *, now: float, exit_code: int = -signal.SIGKILL) -> EndReason:
    return judge(exit_code=exit_code, stopped=False, memory_kills=memory_kills, now=now).reason


@pytest.mark.parametrize("text", [EVENTS, OOM_CONTROL, VMSTAT])
def test_a_risen_count_explains_a_kill(file: Path, text: str) -> None:
    file.write_text(text.format(5))
    kills = MemoryKills(files=(file,))
    assert reason(kills, now=0) is EndReason.KILLED
    file.write_text(text.format(6))
    assert reason(kills, now=1) is EndReason.OUT_OF_MEMORY


def test_one_count_explains_one_kill(file: Path) -> None:
    kills = MemoryKills(files=(file,))
    file.write_text(EVENTS.format(7))
    reasons = [reason(kills, now=1), reason(kills, now=2), reason(kills, now=3)]
    assert reasons == [EndReason.OUT_OF_MEMORY, EndReason.OUT_OF_MEMORY, EndReason.KILLED]


def test_an_old_count_explains_nothing(file: Path) -> None:
    kills = MemoryKills(files=(file,))
    file.write_text(EVENTS.format(6))
    kills.observe(1)
    assert reason(kills, now=100) is EndReason.KILLED


def test_a_shell_passes_the_kill_on(file: Path) -> None:
    kills = MemoryKills(files=(file,))
    file.write_text(EVENTS.format(6))
    assert reason(kills, now=1, exit_code=137) is EndReason.OUT_OF_MEMORY


@pytest.mark.parametrize("exit_code", [0, 1, -signal.SIGTERM, -signal.SIGSEGV])
def test_other_ends_have_other_reasons(file: Path, exit_code: int) -> None:
    kills = MemoryKills(files=(file,))
    file.write_text(EVENTS.format(6))
    assert reason(kills, now=1, exit_code=exit_code) is not EndReason.OUT_OF_MEMORY
    assert reason(kills, now=2) is EndReason.OUT_OF_MEMORY


def test_stopped_node_is_not_blamed_on_memory(file: Path) -> None:
    kills = MemoryKills(files=(file,))
    file.write_text(EVENTS.format(6))
    ending = judge(exit_code=-signal.SIGKILL, stopped=True, memory_kills=kills, now=1)
    assert ending.reason is EndReason.STOPPED


def test_the_first_file_that_can_be_read_counts(file: Path, tmp_path: Path) -> None:
    wide = tmp_path / "wide"
    wide.write_text(VMSTAT.format(100))
    kills = MemoryKills(files=(tmp_path / "missing", file, wide))
    wide.write_text(VMSTAT.format(200))
    assert reason(kills, now=1) is EndReason.KILLED
    file.write_text(EVENTS.format(6))
    assert reason(kills, now=2) is EndReason.OUT_OF_MEMORY


def test_without_any_count_a_kill_is_a_kill(tmp_path: Path) -> None:
    assert reason(MemoryKills(files=(tmp_path / "missing",)), now=1) is EndReason.KILLED


def test_this_machine_has_a_count() -> None:
    kills = MemoryKills()
    assert any("oom_kill " in file.read_text() for file in kills.files if file.exists())
