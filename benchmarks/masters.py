"""The two masters that are compared: ours, and the local master of the `dlrover` package.

Ours is the process that every job has (`python -m elasticdl.master`), with its journal on disk, its token and its gRPC
service. Only its host is a fake: it acknowledges requests to start nodes and starts none, and clients of a benchmark
join as these nodes. DLRover's master is started as its documentation says, in an environment of its own that is created
when it is first needed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import DEADLINE, ROOT, Stuck, free_port, running, tail, wait_until
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.local.messages import (
    Changed,
    Done,
    ListNodes,
    Nodes,
    Start,
    Stop,
    Watch,
    decode,
    encode,
)
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus

# The local master imports its `k8s` extra, too; it does not declare protobuf at all.
_DLROVER = ("dlrover[k8s]==0.6.1", "grpcio", "protobuf")
_DLROVER_ENVIRONMENT = ROOT / ".venv-dlrover"
# As `make .public-client` creates it.
_PUBLIC_PACKAGE = ROOT / ".public-client"


@dataclass(frozen=True, kw_only=True)
class RunningMaster:
    address: str
    pid: int
    folder: Path
    # Start of its process, by time.monotonic().
    started: float
    # The address for programs with the public package, in jobs with job commands.
    public_address: str = ""
    # Of a master with a server.
    host: ServerHost | None = None


class _IdleHost(socketserver.ThreadingUnixStreamServer):
    """The socket at which a master requests nodes. Acknowledges every request and starts nothing."""

    daemon_threads = True

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                request = decode(line)
                if isinstance(request, (Start, Stop)):
                    self.wfile.write(encode(Done(id=request.id)))
                elif isinstance(request, ListNodes):
                    self.wfile.write(encode(Nodes(id=request.id, nodes=())))

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), self.Handler)


class ServerHost(socketserver.ThreadingUnixStreamServer):
    """The socket at which a master requests nodes: starts parameter servers, and reports workers as running.

    `kill` reports the end of workers, as the host does when processes were killed. `started` has the names of all
    workers that the master has requested.
    """

    daemon_threads = True

    class Handler(socketserver.StreamRequestHandler):
        server: ServerHost

        def handle(self) -> None:
            for line in self.rfile:
                request = decode(line)
                if isinstance(request, Start):
                    self.server.start(request.node)
                    self._answer(Done(id=request.id))
                elif isinstance(request, Stop):
                    self._answer(Done(id=request.id))
                elif isinstance(request, ListNodes):
                    self._answer(Nodes(id=request.id, nodes=tuple(self.server.statuses.values())))
                elif isinstance(request, Watch):
                    self.server.watch(request.id, self)

        def _answer(self, message: Done | Nodes | Changed) -> None:
            self.wfile.write(encode(message))

        def tell(self, message: Changed) -> None:
            self._answer(message)

    def __init__(self, path: Path, log_folder: Path) -> None:
        self.statuses: dict[str, NodeStatus] = {}
        self.watchers: list[tuple[int, ServerHost.Handler]] = []
        self.started: list[str] = []
        self._log_folder = log_folder
        self._processes = contextlib.ExitStack()
        super().__init__(str(path), self.Handler)

    def start(self, node: NodeRequest) -> None:
        self.statuses[node.name] = NodeStatus(name=node.name, role=node.role, phase=NodePhase.RUNNING)
        if node.role != "ps":
            self.started.append(node.name)
            return
        log = self._log_folder / f"{node.name}.log"
        self._processes.enter_context(running(list(node.command), log=log, environment=node.environment))

    def watch(self, number: int, handler: Handler) -> None:
        self.watchers.append((number, handler))

    def kill(self, names: list[str]) -> None:
        for name in names:
            status = NodeStatus(
                name=name,
                role="worker",
                phase=NodePhase.FAILED,
                reason=EndReason.KILLED,
                exit_code=128 + signal.SIGKILL,
            )
            self.statuses[name] = status
            for number, watcher in self.watchers:
                watcher.tell(Changed(id=number, node=status, pid=None))

    def server_close(self) -> None:
        self._processes.close()
        super().server_close()


class ProgramHost(ServerHost):
    """Reports workers as running, as the host does: programs do not report it themselves."""

    def start(self, node: NodeRequest) -> None:
        super().start(node)
        for number, watcher in self.watchers:
            watcher.tell(Changed(id=number, node=self.statuses[node.name], pid=None))

    def watch(self, number: int, handler: ServerHost.Handler) -> None:
        super().watch(number, handler)
        for status in self.statuses.copy().values():
            handler.tell(Changed(id=number, node=status, pid=None))


@contextlib.contextmanager
def our_master(
    home: Path, *, workers: int, shard_size: int, batches: int = 1, has_server: bool = False
) -> Iterator[RunningMaster]:
    """The master of a job with so many workers, which the caller simulates; the server is simulated or started."""
    spec = JobSpec.build(
        job_name="benchmark",
        model_zoo="zoo",
        model_def="any.model.custom_model",
        training_data="data",
        distribution_strategy="ParameterServerStrategy",
        num_workers=workers,
        num_ps=1,
        minibatch_size=shard_size // batches,
        num_minibatches_per_task=batches,
    )
    with _our_master(home, spec, has_server=has_server) as master:
        yield master


@contextlib.contextmanager
def our_program_master(home: Path, *, workers: int) -> Iterator[RunningMaster]:
    """The master of a job whose workers are programs with their own loops, which the caller simulates."""
    spec = JobSpec.build(job_name="benchmark", job_command="a program", num_workers=workers)
    with _our_master(home, spec) as master:
        yield master


@contextlib.contextmanager
def _our_master(home: Path, spec: JobSpec, *, has_server: bool = False) -> Iterator[RunningMaster]:
    folder = JobStore(home).create(spec)
    address = folder.master_address_path
    log = folder.log_path("master")
    with contextlib.ExitStack() as stack:
        host: _IdleHost | ServerHost
        if spec.program == "command":
            host = stack.enter_context(ProgramHost(folder.socket_path(), folder.logs_path))
        elif has_server:
            host = stack.enter_context(ServerHost(folder.socket_path(), folder.logs_path))
        else:
            host = stack.enter_context(_IdleHost(folder.socket_path()))
        threading.Thread(target=host.serve_forever, daemon=True).start()
        stack.callback(host.shutdown)
        environment = {
            "ELASTICDL_JOB_DIR": str(folder.path),
            "ELASTICDL_HOST_SOCKET": str(folder.socket_path()),
            "ELASTICDL_MASTER_PORT": str(free_port()),
            "ELASTICDL_PUBLIC_PORT": str(free_port()),
        }
        started = time.monotonic()
        process = stack.enter_context(
            running([sys.executable, "-m", "elasticdl.master"], log=log, environment=environment)
        )
        wait_until(lambda: folder.master_address() or _gone(process, log), "our master listens")
        yield RunningMaster(
            address=address.read_text().strip(),
            pid=process.pid,
            folder=folder.path,
            started=started,
            public_address=f"127.0.0.1:{environment['ELASTICDL_PUBLIC_PORT']}",
            host=host if isinstance(host, ServerHost) else None,
        )
    folder.release()


@contextlib.contextmanager
def dlrover_master(home: Path) -> Iterator[RunningMaster]:
    port = free_port()
    log = home / "dlrover.log"
    command = [str(dlrover_python()), "-m", "dlrover.python.master.main"]
    arguments = {
        "job_name": "benchmark",
        "namespace": "default",
        "platform": "local",
        "port": str(port),
        "node_num": "1",
        "service_type": "grpc",
    }
    for name, value in arguments.items():
        command += [f"--{name}", value]
    started = time.monotonic()
    with running(command, log=log, cwd=home) as process:
        wait_until(lambda: listens(port) or _gone(process, log), "DLRover's master listens")
        yield RunningMaster(address=f"127.0.0.1:{port}", pid=process.pid, folder=home, started=started)


def dlrover_python() -> Path:
    """The interpreter of an environment with DLRover."""
    python = _DLROVER_ENVIRONMENT / "bin" / "python"
    complete = _DLROVER_ENVIRONMENT / ".installed"
    if not complete.exists():
        shutil.rmtree(_DLROVER_ENVIRONMENT, ignore_errors=True)
        venv.create(_DLROVER_ENVIRONMENT, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *_DLROVER]
        subprocess.run(install, check=True, timeout=10 * DEADLINE)
        complete.touch()
    return python


def public_package() -> Path:
    """The folder with only the public `elasticai_api`."""
    if not (_PUBLIC_PACKAGE / "elasticai_api").is_dir():
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        install += ["--target", str(_PUBLIC_PACKAGE), "-r", str(ROOT / "requirements" / "public-client.txt")]
        subprocess.run(install, check=True, timeout=DEADLINE)
    return _PUBLIC_PACKAGE


def listens(port: int) -> bool:
    # From the kernel's table, because a connection would be the server's first client.
    wanted = f"{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):
            continue
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[1].endswith(f":{wanted}"):
                return True
    return False


def _gone(process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise Stuck(f"{process.args!r} ended with {process.returncode}:\n{tail(log)}")
    return False
