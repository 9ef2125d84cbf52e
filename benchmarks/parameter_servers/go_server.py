"""The peer `elasticdl 0.2.0rc3`: the parameter server of the original ElasticDL, a program in Go, and a client of it.

The package is installed without its dependencies into a folder beside the repository's environments when it is first
needed (requirements/go-server.txt). Only the server and the definitions of its messages are used: the package's own
client loops over ids in Python; this one does not, so that the server is compared. The server uses plain SGD, because
its Adagrad produces NaN in rows.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from benchmarks.masters import listens
from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.missing import Missing
from benchmarks.processes import DEADLINE, ROOT, free_port, running, tail, wait_until

FOLDER = ROOT / ".go-server"
_REQUIREMENTS = ROOT / "requirements" / "go-server.txt"
# The server exits outside of Kubernetes, without a token at a fixed path. So it
# gets a dummy token, in its own mount namespace. Nothing listens at the address; it only logs that.
_POD = """
run=$(readlink -f /var/run) && mount -t tmpfs tmpfs "$run" && cd "$run" &&
mkdir -p secrets/kubernetes.io/serviceaccount && echo none > secrets/kubernetes.io/serviceaccount/token &&
exec "$0" "$@"
"""
_TENSORFLOW = ("types", "tensor", "tensor_shape", "resource_handle")
_API_SERVER = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
_TABLE = "categories"
_LARGEST = 256 << 20


def installed() -> Path:
    """The folder of the package."""
    complete = FOLDER / ".installed"
    if not complete.exists():
        shutil.rmtree(FOLDER, ignore_errors=True)
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        install += ["--no-deps", "--target", str(FOLDER), "-r", str(_REQUIREMENTS)]
        try:
            subprocess.run(install, check=True, timeout=DEADLINE, capture_output=True)
            _generate(FOLDER)
        except subprocess.SubprocessError as error:
            output = getattr(error, "stderr", None) or str(error).encode()
            raise Missing(f"elasticdl 0.2.0rc3 cannot be installed: {output.decode()[-300:]}") from error
        binary = _binary()
        binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
        complete.touch()
    return FOLDER


def _binary() -> Path:
    return FOLDER / "elasticdl" / "go" / "bin" / "elasticdl_ps"


def _generate(folder: Path) -> None:
    """Returns the modules of its messages; those in the package need an old protobuf."""
    out = folder / "messages"
    out.mkdir()
    tensorflow = importlib.util.find_spec("tensorflow")
    if tensorflow is None or tensorflow.origin is None:
        raise Missing("the messages of elasticdl 0.2.0rc3 contain TensorFlow's, which is not installed")
    includes = (folder / "elasticdl" / "proto", Path(tensorflow.origin).parent / "include")
    command = [sys.executable, "-m", "grpc_tools.protoc", *(f"-I{path}" for path in includes)]
    command += [f"--python_out={out}", f"--grpc_python_out={out}", "elasticdl.proto"]
    # They contain messages of TensorFlow: importing TensorFlow for these would take seconds.
    command += [f"tensorflow/core/framework/{name}.proto" for name in _TENSORFLOW]
    subprocess.run(command, check=True, timeout=DEADLINE, capture_output=True)
    for package in ("tensorflow", "tensorflow/core", "tensorflow/core/framework"):
        (out / package / "__init__.py").touch()


@contextlib.contextmanager
def go_server(home: Path) -> Iterator[tuple[int, str]]:
    """Yields the id of the process, and its address."""
    installed()
    port = free_port()
    log = home / "go-server.log"
    options = {
        "opt_type": "SGD",
        "opt_args": f"learning_rate={clicks.PLAIN_RATE};momentum=0.0;nesterov=false;",
        "port": port,
        "use_async": "true",
        # It waits for the one in its arguments.
        "master_addr": "",
    }
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", _POD, str(_binary())]
    command += [f"-{name}={value}" for name, value in options.items()]
    if shutil.which("unshare") is None:
        raise Missing("the server of elasticdl 0.2.0rc3 needs `unshare` to be started outside of Kubernetes")
    with running(command, log=log, environment=_API_SERVER) as process:

        def ready() -> bool:
            if process.poll() is not None:
                raise Missing(f"the server of elasticdl 0.2.0rc3 does not run here: {tail(log)}")
            return listens(port)

        wait_until(ready, "the Go server listens", 60.0)
        yield process.pid, f"127.0.0.1:{port}"


class GoClient:
    """A client for the rows and dense parameters of one server, one call each."""

    def __init__(self, address: str) -> None:
        import grpc

        self._messages, stubs = _modules()
        options = [("grpc.max_send_message_length", _LARGEST), ("grpc.max_receive_message_length", _LARGEST)]
        self._stub = stubs.PserverStub(grpc.insecure_channel(address, options=options))
        self._version = -1

    def start(self, parameters: Mapping[str, NDArray[np.float32]]) -> None:
        """Declares the table; sends the parameters, if the server has none yet."""
        tables = self._messages.Model()
        tables.embedding_table_infos.add(name=_TABLE, dim=clicks.WIDTH, initializer="uniform", dtype=1)
        self._stub.push_embedding_table_infos(tables)
        model = self._messages.Model(version=0)
        for name, array in parameters.items():
            _put(model.dense_parameters[name], array)
        self._stub.push_model(model)

    def dense(self) -> dict[str, NDArray[np.float32]]:
        """Pulls the parameters that changed since the last call."""
        reply = self._stub.pull_dense_parameters(
            self._messages.PullDenseParametersRequest(version=self._version)
        )
        assert reply.initialized
        self._version = reply.version
        return {name: _array(tensor) for name, tensor in reply.dense_parameters.items()}

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        request = self._messages.PullEmbeddingVectorsRequest(name=_TABLE, ids=ids.tolist())
        return _array(self._stub.pull_embedding_vectors(request))

    def push(
        self,
        gradients: Mapping[str, NDArray[np.float32]],
        ids: NDArray[np.int64],
        rows: NDArray[np.float32],
    ) -> None:
        request = self._messages.PushGradientsRequest(learning_rate=clicks.PLAIN_RATE)
        request.gradients.version = self._version
        for name, array in gradients.items():
            _put(request.gradients.dense_parameters[name], array)
        table = request.gradients.embedding_tables[_TABLE]
        table.ids.extend(ids.tolist())
        _put(table.concat_tensors, rows)
        assert self._stub.push_gradients(request).accepted


def _modules() -> tuple[ModuleType, ModuleType]:
    sys.path.insert(0, str(FOLDER / "messages"))
    return importlib.import_module("elasticdl_pb2"), importlib.import_module("elasticdl_pb2_grpc")


def _put(message: object, array: NDArray[np.float32]) -> None:
    message.dtype = 1  # type: ignore[attr-defined] # float32
    message.tensor_content = array.tobytes()  # type: ignore[attr-defined]
    for length in array.shape:
        message.tensor_shape.dim.add(size=length)  # type: ignore[attr-defined]


def _array(message: object) -> NDArray[np.float32]:
    shape = [each.size for each in message.tensor_shape.dim]  # type: ignore[attr-defined]
    return np.frombuffer(message.tensor_content, np.float32).reshape(shape)  # type: ignore[attr-defined]
