"""What is made for a job: a token of its own, and a certificate that only its own authority vouches for."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name


def handshake(folder: Path, shown: Credentials, believed: Credentials, name: str) -> None:
    """Both ends in memory; raises what the client thinks of the server."""
    for file, text in shown.files().items():
        (folder / file).write_text(text)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    client = ssl.create_default_context(cadata=believed.ca_crt)
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    ]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue


def test_certificate_is_valid_for_its_authority(tmp_path: Path) -> None:
    made = Credentials.make("mnist")
    handshake(tmp_path, made, made, "elasticdl-mnist")


def test_certificate_is_invalid_for_another_name(tmp_path: Path) -> None:
    made = Credentials.make("mnist")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(tmp_path, made, made, "elasticdl-iris")


def test_certificate_of_another_job_of_same_name_is_invalid(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, Credentials.make("mnist"), Credentials.make("mnist"), "elasticdl-mnist")


def test_longest_job_name_fits_a_certificate(tmp_path: Path) -> None:
    job = "a" * 53
    made = Credentials.make(job)
    handshake(tmp_path, made, made, tls_name(job))


def test_validity_tolerates_clocks_that_are_behind() -> None:
    now = datetime.datetime.now(datetime.timezone.utc)
    made = Credentials.make("mnist")
    for text in (made.ca_crt, made.tls_crt):
        certificate = x509.load_pem_x509_certificate(text.encode())
        assert certificate.not_valid_before_utc < now - datetime.timedelta(hours=23)
        assert certificate.not_valid_after_utc > now + datetime.timedelta(days=3600)
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"


def test_tokens_are_long_and_differ() -> None:
    tokens = {Credentials.make("mnist").token for _ in range(3)}
    assert len(tokens) == 3
    assert all(len(token) >= 40 for token in tokens)


def test_files_there_and_back() -> None:
    made = Credentials.make("mnist")
    assert sorted(made.files()) == ["ca.crt", "tls.crt", "tls.key", "token"]
    assert Credentials.of_files(made.files()) == made


def test_credentials_omit_key_of_authority() -> None:
    made = Credentials.make("mnist")
    assert sum(text.count("PRIVATE KEY-----") for text in made.files().values()) == 2  # begin and end of one
