"""Where the dashboard listens, its link, and the files of the registry."""

from __future__ import annotations

import ssl
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from elasticdl.cli.dashboard import dashboard
from elasticdl.cli.main import main
from elasticdl.dashboard.registry import DashboardRegistry
from elasticdl.dashboard.server.dashboard_server import DashboardServer
from elasticdl.dashboard.settings import DashboardSettings
from elasticdl.errors import UserError
from tests.catalog.api_server import RUNNING, ApiServer
from tests.catalog.api_server import api as api
from tests.dashboard.client import Client
from tests.dashboard.stored_jobs import store_job

Serve = Callable[..., Client]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, signed by an authority of its own."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dashboard")])
    now = datetime.datetime.now(datetime.timezone.utc)
    document = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = tmp_path / "tls.crt", tmp_path / "tls.key"
    cert_path.write_bytes(document.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert_path, key_path


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_beyond_loopback_without_tls_is_refused(bind: str) -> None:
    with pytest.raises(UserError, match="needs TLS") as caught:
        DashboardSettings(bind=bind).check()
    assert "--tls_cert" in caught.value.hint


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.0.0.5", "localhost", "::1"])
def test_loopback_needs_no_tls(bind: str) -> None:
    DashboardSettings(bind=bind).check()


def test_half_of_a_key_pair_is_refused(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="belong together"):
        DashboardSettings(tls_cert=certificate[0]).check()
    with pytest.raises(UserError, match="there is no file"):
        DashboardSettings(tls_cert=certificate[0], tls_key=tmp_path / "missing").check()


def test_certificate_that_does_not_fit_its_key_is_refused(certificate: tuple[Path, Path], home: Path) -> None:
    settings = DashboardSettings(port=0, tls_cert=certificate[0], tls_key=certificate[0])
    with pytest.raises(UserError, match="cannot be used"):
        DashboardServer(settings, registry=DashboardRegistry(home))


def test_with_tls_on_all_addresses(serve: Serve, home: Path, certificate: tuple[Path, Path]) -> None:
    store_job(home, "one")
    cert, key = certificate
    plain = serve(bind="0.0.0.0", tls_cert=cert, tls_key=key)
    client = Client(
        f"https://127.0.0.1:{plain.port}/#/jobs?token={plain.token}",
        tls=ssl.create_default_context(cafile=cert),
    )
    assert client.get("/api/jobs").status == 200
    # Any address is a name of this server, but no name of a domain is.
    assert client.get("/api/jobs", Host=f"192.0.2.7:{client.port}").status == 200
    assert client.get("/api/jobs", Host=f"evil.example:{client.port}").status == 421
    cookie = client.send("POST", "/api/session", {**client.bearer, "X-ElasticDL-Dashboard": "1"}).headers[
        "Set-Cookie"
    ]
    assert cookie.endswith("; Secure")


def test_named_host_is_answered(serve: Serve) -> None:
    client = serve(host_names=("Jobs.example.org",), bind="127.0.0.1")
    # The link has that name, which the test cannot resolve.
    there = Client(f"http://127.0.0.1:{client.port}/#/jobs?token={client.token}")
    assert there.get("/api/jobs", Host=f"jobs.example.org:{client.port}").status == 200


def test_token_is_random_and_for_this_user_alone(tmp_path: Path) -> None:
    one, two = DashboardRegistry(tmp_path / "one"), DashboardRegistry(tmp_path / "two")
    assert len({one.token(), two.token()}) == 2
    assert one.token() == one.token()
    path = tmp_path / "one" / "dashboard.token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = one.token()
    assert one.token(is_new=True) != before
    path.chmod(0o644)
    with pytest.raises(UserError, match="can be read by other users"):
        one.token()


def test_link_is_there_as_long_as_a_dashboard_runs(home: Path) -> None:
    registry = DashboardRegistry(home)
    assert registry.link() is None
    server = DashboardServer(DashboardSettings(port=0), registry=registry)
    thread = threading.Thread(target=server.run)
    with registry.running(server.address):
        assert registry.link("one") == f"{server.address}/#/job/-/one?token={registry.token()}"
        assert (
            registry.link("one", namespace="ml") == f"{server.address}/#/job/ml/one?token={registry.token()}"
        )
        with registry.running("http://127.0.0.1:1"):
            assert registry.address() == server.address
    assert registry.link() is None
    thread.start()
    server.close()
    thread.join()


def test_port_that_is_taken(serve: Serve, home: Path) -> None:
    client = serve()
    with pytest.raises(UserError, match=f"cannot be served at 127.0.0.1:{client.port}"):
        DashboardServer(DashboardSettings(port=client.port), registry=DashboardRegistry(home))


def test_missing_packages_are_named_with_the_extra(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [
        name
        for name in sys.modules
        if name.startswith(("elasticdl.dashboard.server.dashboard_server", "uvicorn"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    # As Python finds a package that is not installed.
    monkeypatch.setattr(sys, "meta_path", [_Without("uvicorn"), *sys.meta_path])
    assert main(["dashboard"]) == 2
    output = capsys.readouterr().err
    assert "elasticdl[dashboard]" in output
    assert "pip install 'starlette>=" in output


class _Without:
    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == self._name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_command_without_a_dashboard_has_no_link(home: Path) -> None:
    result = CliRunner().invoke(dashboard, ["--show_link"])
    assert isinstance(result.exception, UserError)
    assert result.exception.message == "No dashboard runs."


def test_status_of_a_job_on_the_cluster_links_to_its_page(
    home: Path, api: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    api.submitted()
    api.master(**RUNNING)
    api.said(state="running")
    registry = DashboardRegistry(home)
    token = registry.token()
    with registry.running("http://127.0.0.1:1"):
        assert main(["jobs", "status", "job"]) == 0
    assert f"Page: http://127.0.0.1:1/#/job/lab/job?token={token}" in capsys.readouterr().out.splitlines()
    # Its own token opens nothing in a dashboard that asks the cluster.
    with registry.running("https://127.0.0.1:1", takes_token=False):
        assert main(["jobs", "status", "job"]) == 0
    assert "Page: https://127.0.0.1:1/#/job/lab/job" in capsys.readouterr().out.splitlines()
