"""Credential plugins: their input, their output, and the renewal of expired credentials."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError
from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name
from elasticdl.platforms.kubernetes.kubeconfig import Access, find_access

VERSION = "client.authentication.k8s.io/v1"
# Prints the next of its answers each time, the last one again and again, and saves its input.
PROGRAM = f"""#!{sys.executable}
import os, pathlib, sys
folder = pathlib.Path(__file__).parent
answers = sorted(folder.glob("answer-*"))
with open(folder / "asked", "a") as asked:
    print(sys.argv[1:], os.environ.get("MINE"), file=asked)
(folder / "input").write_text(os.environ["KUBERNETES_EXEC_INFO"])
print(answers[0].read_text())
if len(answers) > 1:
    answers[0].unlink()
"""


class Plugin:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "plugin"
        self.path.write_text(PROGRAM)
        self.path.chmod(0o755)

    def prints(self, *answers: dict[str, Any] | str) -> None:
        for number, answer in enumerate(answers):
            text = answer if isinstance(answer, str) else json.dumps({"kind": "ExecCredential", **answer})
            (self.folder / f"answer-{number}").write_text(text)

    def access(self, *, server: str = "https://here:6443", cluster: Any = None, **entry: Any) -> Access:
        said = {"apiVersion": VERSION, "command": "./plugin", **entry}
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
            "users": [{"name": "u", "user": {"exec": said}}],
        }
        path = self.folder / "config"
        path.write_text(yaml.safe_dump(document))
        return find_access(environment={"KUBECONFIG": str(path)})

    @property
    def asked(self) -> list[str]:
        file = self.folder / "asked"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def input(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "input").read_text()))


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def token(text: str) -> dict[str, Any]:
    return {"status": {"token": text, "expirationTimestamp": "2020-01-01T00:00:00Z"}}


# -- input and output ----------------------------------------------------------------------------------------


def test_plugin_is_called_once_with_arguments_and_variables(plugin: Plugin) -> None:
    plugin.prints(token("t"))
    identity = plugin.access(args=["get", 7], env=[{"name": "MINE", "value": "x"}]).identity
    for _ in range(2):
        assert identity.headers() == {"Authorization": "Bearer t"}
    assert plugin.asked == ["['get', '7'] x"]
    assert plugin.input == {"apiVersion": VERSION, "kind": "ExecCredential", "spec": {"interactive": False}}


def test_plugin_with_provide_cluster_info_receives_cluster(plugin: Plugin) -> None:
    plugin.prints(token("t"))
    authority = Credentials.make("j").ca_crt
    (plugin.folder / "ca.crt").write_text(authority)
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"certificate-authority": "ca.crt", "extensions": [extension]}
    plugin.access(cluster=cluster, provideClusterInfo=True).identity.headers()
    assert plugin.input["spec"]["cluster"] == {
        "server": "https://here:6443",
        "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
        "config": {"audience": "a"},
    }


@pytest.mark.parametrize(
    ("answer", "because"),
    [
        ("no JSON", "has printed no credentials"),
        ({}, "has printed no credentials"),
        ({"status": {}}, "neither a token nor a certificate with its key"),
        ({"status": {"clientCertificateData": "c"}}, "neither a token nor a certificate with its key"),
        ({"status": {"clientCertificateData": "c", "clientKeyData": "k"}}, "certificate .* cannot be used"),
    ],
)
def test_invalid_plugin_output_is_rejected(plugin: Plugin, answer: Any, because: str) -> None:
    plugin.prints(answer)
    with pytest.raises(UserError, match=because):
        plugin.access().identity.headers()


def test_one_that_fails(plugin: Plugin) -> None:
    plugin.path.write_text("#!/bin/sh\necho log in first >&2\nexit 3\n")
    with pytest.raises(UserError, match=r"plugin \./plugin failed: log in first"):
        plugin.access().identity.headers()


def test_one_that_may_not_be_run(plugin: Plugin) -> None:
    plugin.path.chmod(0o644)
    with pytest.raises(
        UserError, match=r"plugin \./plugin of this cluster cannot be started: Permission denied"
    ):
        plugin.access().identity.headers()


def test_missing_plugin_is_refused_with_install_hint(plugin: Plugin) -> None:
    entry = {"command": "no-such-plugin", "installHint": "Get it from your cloud."}
    with pytest.raises(UserError, match="no-such-plugin of this cluster is not installed") as refused:
        plugin.access(**entry).identity.headers()
    assert refused.value.hint == "Get it from your cloud."


@pytest.mark.parametrize(
    ("entry", "because"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1 are not supported"),
        ({"command": ""}, "has no command"),
    ],
)
def test_entries_that_cannot_be_used(plugin: Plugin, entry: dict[str, Any], because: str) -> None:
    with pytest.raises(UserError, match=because):
        plugin.access(**entry).identity.headers()


# -- what has expired ----------------------------------------------------------------------------------------


class Server:
    """Knows some tokens or certificates, one after the other, and answers all others with 401."""

    def __init__(self, *, accepts: str, tls: ssl.SSLContext | None = None) -> None:
        self.accepts = accepts
        self.heard: list[str] = []
        self._tls = tls

    def serve(self, access: Callable[[str], Access], scenario: Callable[[Cluster], Awaitable[None]]) -> None:
        async def main() -> None:
            server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self._tls)
            port = server.sockets[0].getsockname()[1]
            scheme = "https" if self._tls else "http"
            try:
                found = await asyncio.to_thread(access, f"{scheme}://127.0.0.1:{port}")
                async with Cluster(found, patience=0.0) as cluster:
                    await scenario(cluster)
            finally:
                server.close()

        asyncio.run(main())

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                lines = [line.partition(": ") for line in head.splitlines()]
                given = next((value for name, _, value in lines if name.lower() == "authorization"), "")
                peer = writer.get_extra_info("peercert")
                name = dict(pair for (pair,) in peer["subject"])["commonName"] if peer else ""
                self.heard.append(name or given.removeprefix("Bearer "))
                known = self.heard[-1] == self.accepts
                text = json.dumps({"metadata": {"name": "a"}} if known else {"message": "who are you?"})
                status = "200 OK" if known else "401 Unauthorized"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def ask(cluster: Cluster) -> None:
    assert (await cluster.get("Pod", "a")) is not None


async def read(cluster: Cluster) -> None:
    assert b"".join([piece async for piece in cluster.logs("a")])


@pytest.mark.parametrize("request_", [ask, read])
def test_expired_token_is_renewed(plugin: Plugin, request_: Callable[[Cluster], Awaitable[None]]) -> None:
    plugin.prints(token("first"), token("second"))
    server = Server(accepts="first")

    async def scenario(cluster: Cluster) -> None:
        await request_(cluster)
        server.accepts = "second"
        await request_(cluster)
        await request_(cluster)

    server.serve(lambda address: plugin.access(server=address), scenario)
    assert server.heard == ["first", "first", "second", "second"]
    assert len(plugin.asked) == 2


@pytest.mark.parametrize("request_", [ask, read])
def test_refusal_of_renewed_credentials_raises(
    plugin: Plugin, request_: Callable[[Cluster], Awaitable[None]]
) -> None:
    plugin.prints(token("t"))
    server = Server(accepts="other")

    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match="does not accept the credentials: who are you"):
            await request_(cluster)

    server.serve(lambda address: plugin.access(server=address), scenario)
    assert server.heard == ["t", "t"]


def certificate(name: str) -> tuple[str, str]:
    """And its key. It is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem).decode(), private.decode()


@pytest.fixture
def certificates() -> dict[str, tuple[str, str]]:
    return {name: certificate(name) for name in ("first", "second")}


def test_expired_plugin_certificate_is_renewed(
    plugin: Plugin, tmp_path: Path, certificates: dict[str, tuple[str, str]]
) -> None:
    """The newer one comes with a new connection."""
    plugin.prints(
        *(
            {"status": {"clientCertificateData": cert, "clientKeyData": key}}
            for cert, key in certificates.values()
        )
    )
    own = Credentials.make("server")
    for name, text in {**own.files(), "clients": "".join(cert for cert, _ in certificates.values())}.items():
        (tmp_path / name).write_text(text)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "clients"))
    tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    server = Server(accepts="first", tls=tls)
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": tls_name("server")}

    async def scenario(cluster: Cluster) -> None:
        await ask(cluster)
        server.accepts = "second"
        await ask(cluster)
        await ask(cluster)

    server.serve(lambda address: plugin.access(server=address, cluster=cluster), scenario)
    assert server.heard == ["first", "first", "second", "second"]
    assert len(plugin.asked) == 2
