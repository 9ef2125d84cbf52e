"""Which cluster, and who we are there: read from the files that kubectl reads, or from the pod we run in.

The same rules as kubectl's: the files of $KUBECONFIG together (the first that says something counts), else
~/.kube/config; inside a pod without either, the pod's own service account. Credentials are files, texts or a program
that prints them (GKE, EKS and AKS work that way).
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticdl.jobs.errors import UserError
from elasticdl.jobs.nearest import did_you_mean

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The token in a pod is renewed when a good part of its life is over, which is an hour at least.
_TOKEN_SECONDS = 60.0
_DEFAULT_NAMESPACE = "default"
_EXEC_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))


@dataclass(frozen=True, kw_only=True)
class Access:
    """How to reach a cluster's API server."""

    server: str
    namespace: str
    tls: ssl.SSLContext
    server_name: str = ""
    identity: Identity
    # Inside a cluster there is no proxy to its own API server.
    inside: bool = False


@dataclass(kw_only=True)
class Identity:
    """What is sent with every request to say who asks."""

    token: str = ""
    token_file: Path | None = None
    basic: tuple[str, str] | None = None
    command: dict[str, Any] | None = None
    folder: Path = field(default_factory=Path)
    _read_at: float = -1e9

    def headers(self) -> dict[str, str]:
        if self.basic is not None:
            word = base64.b64encode(":".join(self.basic).encode()).decode()
            return {"Authorization": f"Basic {word}"}
        if self.token_file is not None and time.monotonic() - self._read_at > _TOKEN_SECONDS:
            self.token = _text_of(self.token_file).strip()
            self._read_at = time.monotonic()
        if self.command is not None and not self.token:
            self.token = _ask_program(self.command, self.folder)
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def renew(self) -> bool:
        """After a refusal: whether there may be something newer to try with."""
        self._read_at = -1e9
        if self.command is not None:
            self.token = ""
        return self.command is not None or self.token_file is not None


def find_access(
    *, namespace: str = "", context: str = "", environment: Mapping[str, str] | None = None
) -> Access:
    """Raises `UserError` if nothing says where a cluster is."""
    given = os.environ if environment is None else environment
    paths = _paths(given)
    if not paths:
        return _inside(given, namespace)
    found = [path for path in paths if path.is_file()]
    if not found:
        raise UserError(
            f"No cluster is known: there is no file {', '.join(map(str, paths))}.",
            hint="Name one with KUBECONFIG, as for kubectl; `kubectl cluster-info` shows whether it works.",
        )
    return _from_files(found, namespace=namespace, context=context)


def current_namespace(*, environment: Mapping[str, str] | None = None) -> str:
    """Where kubectl acts from here if no namespace is named. Asks nobody, and needs no cluster."""
    paths = _paths(os.environ if environment is None else environment)
    if not paths:
        named = _ACCOUNT / "namespace"
        return _text_of(named).strip() if named.exists() else _DEFAULT_NAMESPACE
    current, merged = _merged([path for path in paths if path.is_file()])
    chosen = merged["contexts"][current][1] if current in merged["contexts"] else {}
    return str(chosen.get("namespace") or _DEFAULT_NAMESPACE)


def _paths(environment: Mapping[str, str]) -> list[Path]:
    """The files that count, whether they are there or not. None: we are in a pod, and use its account."""
    paths = [Path(part).expanduser() for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    default = Path.home() / ".kube" / "config"
    if paths or (not default.exists() and environment.get("KUBERNETES_SERVICE_HOST")):
        return paths
    return [default]


def _inside(environment: Mapping[str, str], namespace: str) -> Access:
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not (_ACCOUNT / "token").exists():
        raise UserError(
            "This pod has no service account to ask the cluster with.",
            hint="Its automountServiceAccountToken must not be false.",
        )
    return Access(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace or _text_of(_ACCOUNT / "namespace").strip(),
        tls=ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt")),
        identity=Identity(token_file=_ACCOUNT / "token"),
        inside=True,
    )


def _merged(paths: list[Path]) -> tuple[str, dict[str, dict[str, tuple[Path, Any]]]]:
    """The name of the current context; the entries of each section by name, with the file that each is from."""
    merged: dict[str, dict[str, tuple[Path, Any]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = ""
    for path in paths:
        document = _read(path)
        current = current or str(document.get("current-context") or "")
        for section, known in merged.items():
            for entry in document.get(section) or []:
                known.setdefault(str(entry.get("name")), (path, entry.get(section[:-1]) or {}))
    return current, merged


def _from_files(paths: list[Path], *, namespace: str, context: str) -> Access:
    current, merged = _merged(paths)
    name = context or current
    where = ", ".join(map(str, paths))
    if not name:
        raise UserError(
            f"{where} does not say which cluster is meant (current-context).",
            hint="`kubectl config use-context NAME` chooses one.",
        )
    if name not in merged["contexts"]:
        raise UserError(f"{where}: there is no context {name!r}.{did_you_mean(name, merged['contexts'])}")
    _, chosen = merged["contexts"][name]
    cluster_path, cluster = _entry(merged["clusters"], "cluster", str(chosen.get("cluster")), where)
    user_path, user = (
        _entry(merged["users"], "user", str(chosen["user"]), where) if chosen.get("user") else (paths[0], {})
    )
    if not cluster.get("server"):
        raise UserError(f"{where}: the cluster {chosen.get('cluster')!r} has no server.")
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        namespace=namespace or str(chosen.get("namespace") or _DEFAULT_NAMESPACE),
        tls=_context(cluster, cluster_path.parent, user, user_path.parent),
        server_name=str(cluster.get("tls-server-name") or ""),
        identity=_identity(user, user_path.parent),
    )


def _entry(known: dict[str, tuple[Path, Any]], what: str, name: str, where: str) -> tuple[Path, Any]:
    if name not in known:
        raise UserError(f"{where}: there is no {what} {name!r}.{did_you_mean(name, known)}")
    return known[name]


def _read(path: Path) -> dict[str, Any]:
    # A master, which has its rights from its pod, comes here never, and need not load this.
    import yaml

    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise UserError(f"{path} is not a configuration of kubectl.")
    return document


def _identity(user: dict[str, Any], folder: Path) -> Identity:
    if user.get("tokenFile"):
        return Identity(token_file=folder / str(user["tokenFile"]))
    if user.get("token"):
        return Identity(token=str(user["token"]))
    if user.get("username"):
        return Identity(basic=(str(user["username"]), str(user.get("password") or "")))
    if user.get("exec"):
        return Identity(command=dict(user["exec"]), folder=folder)
    if user.get("auth-provider"):
        raise UserError(
            "This cluster is reached by an auth-provider, which kubectl has given up too.",
            hint="Use the exec plugin of your cloud; its documentation calls it a credential plugin.",
        )
    return Identity()


def _context(
    cluster: dict[str, Any], folder: Path, user: dict[str, Any], users_folder: Path
) -> ssl.SSLContext:
    try:
        data = cluster.get("certificate-authority-data")
        file = cluster.get("certificate-authority")
        tls = ssl.create_default_context(
            cadata=base64.b64decode(data).decode() if data else None,
            cafile=str(folder / file) if file and not data else None,
        )
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        with tempfile.TemporaryDirectory() as drawer:
            certificate = _file(user, "client-certificate", users_folder, Path(drawer))
            key = _file(user, "client-key", users_folder, Path(drawer))
            if certificate:
                tls.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise UserError(f"The certificates for this cluster cannot be used: {error}.") from error
    return tls


def _file(user: dict[str, Any], name: str, folder: Path, drawer: Path) -> Path | None:
    """OpenSSL reads these from files only."""
    if data := user.get(f"{name}-data"):
        path = drawer / name
        # Nobody else can look into the folder.
        path.write_bytes(base64.b64decode(data))
        return path
    return folder / str(user[name]) if user.get(name) else None


def _ask_program(command: dict[str, Any], folder: Path) -> str:
    version = str(command.get("apiVersion"))
    if version not in _EXEC_VERSIONS:
        raise UserError(
            f"Credential plugins of {version} are not supported, only {', '.join(_EXEC_VERSIONS)}."
        )
    program = str(command["command"])
    path = str(folder / program) if os.sep in program and not os.path.isabs(program) else program
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    try:
        done = subprocess.run(
            [path, *map(str, command.get("args") or [])],
            env={
                **os.environ,
                **{str(pair["name"]): str(pair["value"]) for pair in command.get("env") or []},
                "KUBERNETES_EXEC_INFO": json.dumps(asked),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=60,
        )
        return str(json.loads(done.stdout)["status"]["token"])
    except FileNotFoundError as error:
        hint = str(command.get("installHint") or "")
        raise UserError(
            f"The credential plugin {program} of this cluster is not installed.", hint=hint
        ) from error
    except subprocess.SubprocessError as error:
        words = getattr(error, "stderr", None) or b""
        raise UserError(
            f"The credential plugin {program} failed: {words.decode(errors='replace').strip()}"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"The credential plugin {program} has printed no token.") from error


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
