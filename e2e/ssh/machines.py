"""Machines with a real sshd: servers on this machine's loopback interface, or in network namespaces of their own.

The file system is the same for all, as a shared folder would be. Keys, configuration and known hosts are made for each
test, so that nothing of the user's is read or changed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from e2e.conftest import wait_until

_PORT = 2222
# Of their own namespaces, so it collides with nothing.
_NETWORK = "10.99.0"


def _run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


class SshHosts:
    """Servers by name, and the configuration of a client for them (`config`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = folder / "config"
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses: dict[str, tuple[str, int]] = {}
        for key in ("host_key", "user_key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key)
        shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
        self._known_hosts = folder / "known_hosts"
        self._known_hosts.touch()
        self.config.write_text("")
        if os.geteuid() == 0:
            # Where it drops its rights before a login.
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)

    def add(
        self, name: str, *, address: str = "127.0.0.1", port: int = 0, prefix: tuple[str, ...] = ()
    ) -> None:
        if not port:
            with socket.create_server((address, 0)) as free:
                port = free.getsockname()[1]
        settings = self._folder / f"{name}.sshd"
        settings.write_text(
            f"Port {port}\nListenAddress {address}\nHostKey {self._folder}/host_key\n"
            f"AuthorizedKeysFile {self._folder}/authorized_keys\nStrictModes no\nUsePAM no\nPidFile none\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
        )
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        log = self._folder / f"{name}.log"
        self._servers[name] = subprocess.Popen([*prefix, sshd, "-D", "-f", str(settings), "-E", str(log)])
        wait_until(lambda: log.exists() and "listening" in log.read_text(), f"the sshd of {name} listens")
        key = " ".join((self._folder / "host_key.pub").read_text().split()[:2])
        with self._known_hosts.open("a") as known:
            known.write(f"[{address}]:{port} {key}\n")
        self.configure(name, address=address, port=port)

    def configure(
        self, name: str, *, address: str, port: int, key: Path | None = None, alias: str = ""
    ) -> None:
        """Adds a host to the client's configuration. `alias`: the name that its key is known under."""
        self._addresses[name] = address, port
        key = key or self._folder / "user_key"
        alias = f" HostKeyAlias {alias}\n" if alias else ""
        with self.config.open("a") as config:
            config.write(
                f"Host {name}\n HostName {address}\n Port {port}\n IdentityFile {key}\n{alias}"
                f" IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {self._known_hosts}\n"
                " GlobalKnownHostsFile none\n StrictHostKeyChecking yes\n"
            )

    def configure_again(self, name: str, *, of: str, key: Path | None = None, alias: str = "") -> None:
        """The server of another name, with other settings of the client."""
        address, port = self._addresses[of]
        self.configure(name, address=address, port=port, key=key, alias=alias)

    def close(self) -> None:
        for server in self._servers.values():
            server.kill()
            server.wait()


@dataclass(frozen=True, kw_only=True)
class _Machine:
    process: subprocess.Popen[bytes]
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """A command that executes another one on this machine."""
        return ("nsenter", f"--target={self.process.pid}", "--net")


class Machines:
    """Network namespaces on one switch: the machine that submits, and hosts with an sshd. Needs root."""

    def __init__(self, folder: Path, hosts: tuple[str, ...]) -> None:
        self._namespaces: list[subprocess.Popen[bytes]] = []
        self.ssh = SshHosts(folder)
        self._switch = self._namespace()
        self._in_switch("ip", "link", "add", "switch", "type", "bridge")
        self._in_switch("ip", "link", "set", "switch", "up")
        self.submitter = self._machine(0)
        self._numbers = {host: number for number, host in enumerate(hosts, start=1)}
        for host, number in self._numbers.items():
            machine = self._machine(number)
            self.ssh.add(host, address=machine.address, port=_PORT, prefix=machine.prefix)

    def disconnect(self, host: str) -> None:
        """From now on no packet reaches the host, or leaves it."""
        self._in_switch("ip", "link", "set", f"port{self._numbers[host]}", "down")

    def close(self) -> None:
        self.ssh.close()
        for process in self._namespaces:
            process.kill()
            process.wait()

    def _machine(self, number: int) -> _Machine:
        machine = _Machine(process=self._namespace(), address=f"{_NETWORK}.{number + 1}")
        port, pid = f"port{number}", machine.process.pid
        self._in_switch("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", pid)
        self._in_switch("ip", "link", "set", port, "master", "switch", "up")
        _run(*machine.prefix, "ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _run(*machine.prefix, "ip", "link", "set", link, "up")
        return machine

    def _namespace(self) -> subprocess.Popen[bytes]:
        program = "import sys; print(flush=True); sys.stdin.read()"
        process = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-I", "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline(), "network namespaces need root"
        self._namespaces.append(process)
        return process

    def _in_switch(self, *command: object) -> None:
        _run("nsenter", f"--target={self._switch.pid}", "--net", *command)
