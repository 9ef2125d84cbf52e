"""The ssh command, and what its failures mean."""

from __future__ import annotations

import pytest

from elasticdl.platforms.ssh.launch import SshOptions, ssh_command, ssh_problem


def test_command_never_asks_and_shares_no_connection() -> None:
    words = ssh_command("alice@gpu1", SshOptions(python="/opt/my env/bin/python", config="hosts.conf"))
    assert words[:3] == ["ssh", "-F", "hosts.conf"]
    assert {"BatchMode=yes", "ControlMaster=no", "ControlPath=none"} <= set(words)
    assert words[words.index("--") + 1] == "alice@gpu1"
    assert words[-1].startswith("exec '/opt/my env/bin/python' -I -S -c ")


@pytest.mark.parametrize(
    ("exit_code", "said", "message", "hint"),
    [
        (255, "bob@h: Permission denied (publickey).", "Permission denied", "ssh-copy-id h"),
        (255, "Host key verification failed.", "Host key verification failed", "known_hosts"),
        (255, "ssh: connect to host h port 22: No route to host", "No route to host", "`ssh h true`"),
        (127, "sh: 1: exec: /p: not found", "no Python at /p", "--hosts_python"),
        (1, "SyntaxError: invalid syntax", "cannot run the agent: SyntaxError", ""),
    ],
)
def test_problem_is_named_by_exit_code_and_output(exit_code: int, said: str, message: str, hint: str) -> None:
    found = ssh_problem("h", exit_code=exit_code, said=f"Welcome!\n{said}\n\n", python="/p")
    assert message in found[0]
    assert hint in found[1]
