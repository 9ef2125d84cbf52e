"""The cluster and the account to use, read from the files that kubectl reads, or from the pod we run in.

The same rules as kubectl's: the files of $KUBECONFIG together (the first that says something counts), else
~/.kube/config; inside a pod without either, the pod's own service account. Credentials are files, texts or a program
that prints them (GKE, EKS and AKS work that way). A setting that kubectl supports and this client does not is an
error: requests would otherwise take another route, or use another identity, than the user has configured.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean

log = logging.getLogger("elasticdl.platforms")

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The token in a pod is renewed when a good part of its life is over, which is an hour at least.
_TOKEN_SECONDS = 60.0
_DEFAULT_NAMESPACE = "default"
_PLUGIN_SECONDS = 60.0
# Under this name a cluster's entry holds what only its plugin understands.
_PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"
_EXEC_VERSIONS = tuple(f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))
# Unsupported entries of a configuration, and their alternatives.
_NOT_HEEDED = {
    "cluster": {"proxy-url": "Name the proxy in the variable HTTPS_PROXY."},
    "user": dict.fromkeys(
        ("as", "as-uid", "as-groups", "as-user-extra"), "Choose a context whose user may do it by itself."
    ),
}


@dataclass(frozen=True, kw_only=True)
class Access:
    """The address of a cluster's API server, and how to authenticate there."""

    server: str
    namespace: str
    tls: ssl.SSLContext
    server_name: str = ""
    identity: Identity
    # Inside a cluster there is no proxy to its own API server.
    inside: bool = False


@dataclass(kw_only=True)
class Identity:
    """The credentials that are sent with every request."""

    token: str = ""
    token_file: Path | None = None
    basic: tuple[str, str] | None = None
    plugin: Plugin | None = None
    # A certificate comes with every connection that is made from now on, and not with those that there are.
    certified: bool = False
    _read_at: float = -1e9
    _asked: bool = False
    # Requests are made together, and a program that asks its user for a password should do so once.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def headers(self) -> dict[str, str]:
        if self.basic is not None:
            word = base64.b64encode(":".join(self.basic).encode()).decode()
            return {"Authorization": f"Basic {word}"}
        with self._lock:
            if self.token_file is not None and time.monotonic() - self._read_at > _TOKEN_SECONDS:
                self._read(self.token_file)
            if self.plugin is not None and not self._asked:
                self.token, self.certified = self.plugin.ask()
                self._asked = True
            return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def _read(self, file: Path) -> None:
        """Reads the credentials. After a failure the old ones, still valid for a while, are kept, and the next request
        reads again.
        """
        try:
            found = _text_of(file).strip()
        except UserError as error:
            if not self.token:
                raise
            log.warning("%s The token that was read before is used.", error)
            return
        if found or not self.token:
            self.token, self._read_at = found, time.monotonic()

    def renew(self) -> bool:
        """Renews credentials after a refusal. Returns whether they may be newer."""
        self._read_at = -1e9
        self._asked = False
        return self.plugin is not None or self.token_file is not None


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A program that prints credentials, as the entry of a user in kubectl's configuration describes it."""

    entry: Mapping[str, Any]
    # The folder that paths in the entry are relative to.
    folder: Path
    cluster: Mapping[str, Any]
    # Takes a certificate, if the program prints one.
    tls: ssl.SSLContext

    def ask(self) -> tuple[str, bool]:
        """The token, "" if there is none, and whether there is a certificate. At least one of them there is."""
        status = self._status()
        token = str(status.get("token") or "")
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if certificate and key:
            with tempfile.TemporaryDirectory() as drawer:
                files = Path(drawer, "certificate"), Path(drawer, "key")
                files[0].write_text(str(certificate))
                files[1].write_text(str(key))
                try:
                    self.tls.load_cert_chain(*files)
                except (OSError, ValueError) as error:
                    raise UserError(
                        f"The certificate of the credential plugin {self._name} cannot be used: {error}."
                    ) from error
        elif not token:
            raise UserError(
                f"The credential plugin {self._name} has printed neither a token nor a certificate with its key."
            )
        return token, bool(certificate and key)

    @property
    def _name(self) -> str:
        return str(self.entry.get("command") or "")

    def _status(self) -> dict[str, Any]:
        version = str(self.entry.get("apiVersion"))
        if version not in _EXEC_VERSIONS:
            raise UserError(
                f"Credential plugins of {version} are not supported, only {', '.join(_EXEC_VERSIONS)}."
            )
        if not self._name:
            raise UserError("The credential plugin of this cluster has no command.")
        spec: dict[str, Any] = {"interactive": False}
        if self.entry.get("provideClusterInfo"):
            spec["cluster"] = self.cluster
        asked = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        relative = os.sep in self._name and not os.path.isabs(self._name)
        variables = {str(pair["name"]): str(pair["value"]) for pair in self.entry.get("env") or []}
        try:
            done = subprocess.run(
                [
                    str(self.folder / self._name) if relative else self._name,
                    *map(str, self.entry.get("args") or []),
                ],
                env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=_PLUGIN_SECONDS,
            )
        except FileNotFoundError as error:
            hint = str(self.entry.get("installHint") or "")
            raise UserError(
                f"The credential plugin {self._name} of this cluster is not installed.", hint=hint
            ) from error
        except OSError as error:
            raise UserError(
                f"The credential plugin {self._name} of this cluster cannot be started: {error.strerror}."
            ) from error
        except subprocess.SubprocessError as error:
            words = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
            raise UserError(f"The credential plugin {self._name} failed: {words or error}") from error
        try:
            return dict(json.loads(done.stdout)["status"])
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"The credential plugin {self._name} has printed no credentials.") from error


def find_access(
    *, namespace: str = "", context: str = "", environment: Mapping[str, str] | None = None
) -> Access:
    """Raises `UserError` if nothing says where a cluster is."""
    given = os.environ if environment is None else environment
    paths = _paths(given)
    if not paths:
        return inside_access(namespace=namespace, environment=given)
    found = _those_there(paths)
    if not found:
        raise UserError(
            f"No cluster is known: there is no file {', '.join(map(str, paths))}.",
            hint="Name one with KUBECONFIG, as for kubectl; `kubectl cluster-info` shows whether it works.",
        )
    return _from_files(found, namespace=namespace, context=context)


def current_namespace(*, environment: Mapping[str, str] | None = None) -> str:
    """Returns kubectl's current namespace. Sends no request and needs no cluster."""
    paths = _paths(os.environ if environment is None else environment)
    if not paths:
        named = _ACCOUNT / "namespace"
        return _text_of(named).strip() if named.exists() else _DEFAULT_NAMESPACE
    current, merged = _merged(_those_there(paths))
    chosen = merged["contexts"][current][1] if current in merged["contexts"] else {}
    return str(chosen.get("namespace") or _DEFAULT_NAMESPACE)


def _paths(environment: Mapping[str, str]) -> list[Path]:
    """The files that count, whether they are there or not. None: we are in a pod, and use its account."""
    paths = [Path(part).expanduser() for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    default = Path.home() / ".kube" / "config"
    if paths or (not _those_there([default]) and environment.get("KUBERNETES_SERVICE_HOST")):
        return paths
    return [default]


def _those_there(paths: list[Path]) -> list[Path]:
    """Avoids `Path`, which raises for paths in unreadable folders such as another user's home."""
    return [path for path in paths if os.path.isfile(path)]


def inside_access(*, namespace: str = "", environment: Mapping[str, str] | None = None) -> Access:
    """Returns the access of the account of this pod, and of nothing else. Raises `UserError` if there is none."""
    given = os.environ if environment is None else environment
    if not (host := given.get("KUBERNETES_SERVICE_HOST", "")):
        raise UserError("This is not in a pod: KUBERNETES_SERVICE_HOST is not set.")
    port = given.get("KUBERNETES_SERVICE_PORT", "443")
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


def with_token(access: Access, token: str) -> Access:
    """Returns the way to the same cluster for the user of a token, without the identity of `access`: its client
    certificate would be shown beside the token, and count before it.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = access.tls.check_hostname, access.tls.verify_mode
    authorities = b"".join(access.tls.get_ca_certs(binary_form=True))
    if authorities:
        tls.load_verify_locations(cadata=authorities)
    else:
        tls.load_default_certs()
    return replace(access, tls=tls, identity=Identity(token=token))


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
    for what, entry in (("cluster", cluster), ("user", user)):
        for key, hint in _NOT_HEEDED[what].items():
            if entry.get(key):
                raise UserError(
                    f"{where}: {key}, which the {what} {chosen.get(what)!r} has, is not supported.", hint=hint
                )
    tls = _context(cluster, cluster_path.parent, user, user_path.parent)
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        namespace=namespace or str(chosen.get("namespace") or _DEFAULT_NAMESPACE),
        tls=tls,
        server_name=str(cluster.get("tls-server-name") or ""),
        identity=_identity(
            user, user_path.parent, cluster=_plugin_cluster_info(cluster, cluster_path.parent), tls=tls
        ),
    )


def _entry(known: dict[str, tuple[Path, Any]], what: str, name: str, where: str) -> tuple[Path, Any]:
    if name not in known:
        raise UserError(f"{where}: there is no {what} {name!r}.{did_you_mean(name, known)}")
    return known[name]


def _read(path: Path) -> dict[str, Any]:
    # A master, which has its rights from its pod, comes here never, and need not load this.
    import yaml

    try:
        document = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise UserError(f"{path} is not a configuration of kubectl.")
    return document


def _plugin_cluster_info(cluster: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Returns what a credential plugin with `provideClusterInfo` receives about the cluster."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data")
    info = {name: cluster[name] for name in names if cluster.get(name)}
    file = cluster.get("certificate-authority")
    if file and "certificate-authority-data" not in info:
        info["certificate-authority-data"] = base64.b64encode(_text_of(folder / file).encode()).decode()
    for extension in cluster.get("extensions") or []:
        if extension.get("name") == _PLUGIN_EXTENSION:
            info["config"] = extension.get("extension")
    return info


def _identity(
    user: dict[str, Any], folder: Path, *, cluster: dict[str, Any], tls: ssl.SSLContext
) -> Identity:
    if user.get("tokenFile"):
        return Identity(token_file=folder / str(user["tokenFile"]))
    if user.get("token"):
        return Identity(token=str(user["token"]))
    if user.get("username"):
        return Identity(basic=(str(user["username"]), str(user.get("password") or "")))
    if user.get("exec"):
        return Identity(plugin=Plugin(entry=dict(user["exec"]), folder=folder, cluster=cluster, tls=tls))
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
        # The folder is readable by this user only.
        path.write_bytes(base64.b64decode(data))
        return path
    return folder / str(user[name]) if user.get(name) else None


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
