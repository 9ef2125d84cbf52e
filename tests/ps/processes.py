"""For tests: `python -m elasticdl.ps`, the real process, with a master played by the test."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from elasticdl.jobs.spec import JobSpec, to_yaml
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.buckets import first_map
from elasticdl.wire import master_pb2
from elasticdl.wire.channel import add_port, new_server, open_channel
from elasticdl.wire.master_pb2_grpc import MasterServicer, add_MasterServicer_to_server
from elasticdl.wire.ps_pb2_grpc import ParameterServerStub
from elasticdl.wire.reserved_ports import KeptPort
from elasticdl.wire.security import Security


class Master(MasterServicer):
    """Takes notes of who joins, and sends the directives that it is given."""

    def __init__(self, token: str, port: int = 0, *, security: Security | None = None, **job: Any) -> None:
        described = {
            "model_zoo": "zoo",
            "model_def": "m.m.custom_model",
            "training_data": "data",
            "num_workers": 2,
            "num_ps": 1,
        }
        spec = JobSpec.build(**{**described, **job})
        self._job_spec = to_yaml(spec)
        self.joined: queue.Queue[master_pb2.JoinRequest] = queue.Queue()
        self.failed: queue.Queue[master_pb2.FailRequest] = queue.Queue()
        self.watched = threading.Semaphore(0)
        self._wanted = threading.Condition()
        self._directive: master_pb2.Directive | None = None
        self._over = False
        self._server = new_server(token, threads=4)
        add_MasterServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.port = add_port(self._server, f"127.0.0.1:{port}", security=security)
        self._server.start()

    def Join(self, request: master_pb2.JoinRequest, context: Any) -> master_pb2.JoinReply:
        self.joined.put(request)
        return master_pb2.JoinReply(job_spec=self._job_spec)

    def Watch(self, request: master_pb2.WatchRequest, context: Any) -> Iterator[master_pb2.Directive]:
        sent = None
        self.watched.release()
        while True:
            with self._wanted:
                while not self._over and self._directive is sent:
                    self._wanted.wait()
                if self._over:
                    return
                sent = self._directive
            assert sent is not None
            yield sent

    def Fail(self, request: master_pb2.FailRequest, context: Any) -> master_pb2.FailReply:
        self.failed.put(request)
        return master_pb2.FailReply()

    def want(self, **fields: Any) -> None:
        """With the map of a single server, unless another one is given, or None."""
        fields = {"ps_map": first_map(1).to_wire(), **fields}
        with self._wanted:
            self._directive = master_pb2.Directive(**fields)
            self._wanted.notify_all()

    def stop(self) -> None:
        with self._wanted:
            self._over = True
            self._wanted.notify_all()
        self._server.stop(None).wait()


class Job:
    """One server process and its master."""

    def __init__(
        self,
        folder: Path,
        token: str,
        *,
        security: Security | None = None,
        job: Mapping[str, Any] | None = None,
        **environment: str,
    ) -> None:
        """`job`: more words of its description."""
        self.token = token
        self.security = security
        self.environment = environment
        self.token_file = folder / "token"
        self.token_file.write_text(token)
        # The master's, also while it is away.
        self._port = KeptPort()
        self.master = Master(token, self._port.number, security=security, **(job or {}))
        self.closing: list[Callable[[], Any]] = []
        self.process = self._start()
        self.request = self.master.joined.get(timeout=60)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "MASTER_ADDR": f"127.0.0.1:{self.master.port}",
            "ELASTICDL_TOKEN_FILE": str(self.token_file),
            "ELASTICDL_NODE": "ps-0",
            "WORKER_ID": "0",
            **self.environment,
        }
        return subprocess.Popen([sys.executable, "-m", "elasticdl.ps"], env=environment)

    def client(
        self, generation: int, stop: Callable[[], bool] = lambda: False, worker: str = "worker-0"
    ) -> ParameterClient:
        client = ParameterClient(
            [self.request.address],
            self.token,
            worker,
            generation=generation,
            stop=stop,
            patience_seconds=60,
        )
        self.closing.append(client.close)
        return client

    def stub(self) -> Any:
        channel = open_channel(self.request.address, self.token, security=self.security)
        self.closing.append(channel.close)
        return ParameterServerStub(channel)  # type: ignore[no-untyped-call]

    def restart_master(self) -> None:
        self.master.stop()
        self.master = Master(self.token, self._port.number)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for close in self.closing:
            close()
        self.master.stop()
        self._port.close()
