"""Every way to end is reported with the right reason."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.platforms.local.host import Host
from elasticdl.platforms.platform import (
    EXIT_DEFINITION_ERROR,
    EXIT_OUT_OF_MEMORY,
    EndReason,
    NodePhase,
    NodeRequest,
)


@pytest.mark.parametrize(
    ("script", "reason", "exit_code", "message"),
    [
        ("exit 0", EndReason.COMPLETED, 0, ""),
        ("exit 1", EndReason.ERROR, 1, "exit code 1"),
        ("exit 255", EndReason.ERROR, 255, "exit code 255"),
        (f"exit {EXIT_OUT_OF_MEMORY}", EndReason.OUT_OF_MEMORY, 17, "an allocation of memory failed"),
        (f"exit {EXIT_DEFINITION_ERROR}", EndReason.ERROR, 18, "exit code 18"),
        ("kill -KILL $$", EndReason.KILLED, 137, "ended by SIGKILL"),
        ("kill -TERM $$", EndReason.KILLED, 143, "ended by SIGTERM"),
        ("kill -HUP $$", EndReason.KILLED, 129, "ended by SIGHUP"),
        ("sh -c 'kill -KILL $$'; exit $?", EndReason.KILLED, 137, "ended by SIGKILL"),
        ("sh -c 'kill -TERM $$'; exit $?", EndReason.KILLED, 143, "ended by SIGTERM"),
        ("ulimit -c 0; kill -SEGV $$", EndReason.ERROR, 139, "crashed with SIGSEGV"),
        ("ulimit -c 0; kill -ABRT $$", EndReason.ERROR, 134, "crashed with SIGABRT"),
    ],
)
def test_of_a_program(
    host: Host, node: Callable[..., NodeRequest], script: str, reason: EndReason, exit_code: int, message: str
) -> None:
    # The output would show in the message; shells announce signals there.
    host.spawn(node("worker-0", "sh", "-c", f"exec >/dev/null 2>&1; {script}"))
    status = host.wait("worker-0", 60)
    assert (status.reason, status.exit_code, status.message) == (reason, exit_code, message)
    assert status.phase is (NodePhase.SUCCEEDED if exit_code == 0 else NodePhase.FAILED)


def test_a_python_program_that_runs_out_of_memory(host: Host, node: Callable[..., NodeRequest]) -> None:
    program = f"""
try:
    bytearray(1 << 62)
except MemoryError:
    raise SystemExit({EXIT_OUT_OF_MEMORY})
"""
    host.spawn(node("worker-0", sys.executable, "-I", "-S", "-c", program))
    assert host.wait("worker-0", 60).reason is EndReason.OUT_OF_MEMORY


def test_a_command_that_does_not_exist(host: Host, node: Callable[..., NodeRequest]) -> None:
    status = host.spawn(node("worker-0", "trian", PATH="/bin:/usr/bin"))
    assert (status.phase, status.reason) == (NodePhase.FAILED, EndReason.CANNOT_START)
    assert status.message == "there is no command 'trian' in PATH (/bin:/usr/bin)"
    assert host.tail("worker-0") == [status.message]


def test_a_path_that_does_not_exist(host: Host, node: Callable[..., NodeRequest]) -> None:
    status = host.spawn(node("worker-0", "/no/such/python"))
    assert status.message == "there is no command '/no/such/python'"


def test_file_without_execute_permission_cannot_start(
    host: Host, node: Callable[..., NodeRequest], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("not to be run")
    status = host.spawn(node("worker-0", str(tmp_path / "notes.txt")))
    assert status.reason is EndReason.CANNOT_START
    assert "is not a program that may be run" in status.message


def test_a_script_without_its_interpreter(
    host: Host, node: Callable[..., NodeRequest], tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o700)
    status = host.spawn(node("worker-0", str(script)))
    assert "the interpreter named in its first line does not exist" in status.message


def test_a_command_that_is_too_long(host: Host, node: Callable[..., NodeRequest]) -> None:
    status = host.spawn(node("worker-0", "true", "x" * 4_000_000))
    assert status.reason is EndReason.CANNOT_START
    assert "Argument list too long" in status.message


def test_a_command_with_a_zero_byte(host: Host, node: Callable[..., NodeRequest]) -> None:
    assert host.spawn(node("worker-0", "tr\0ue")).reason is EndReason.CANNOT_START


@pytest.mark.parametrize("name", ["", "../worker", "a/b", ".hidden", "ä", "x" * 201, "a\n"])
def test_invalid_name_is_rejected(host: Host, node: Callable[..., NodeRequest], name: str) -> None:
    with pytest.raises(ValueError, match="is no name for a node"):
        host.spawn(node(name, "true"))
    assert host.spawn(node("worker-0", "sleep", "1000")).phase is NodePhase.RUNNING


def test_waiting_for_a_node_that_runs(host: Host, node: Callable[..., NodeRequest]) -> None:
    host.spawn(node("worker-0", "sleep", "1000"))
    with pytest.raises(TimeoutError):
        host.wait("worker-0", 0.01)
    with pytest.raises(KeyError):
        host.wait("worker-1", 0.01)
