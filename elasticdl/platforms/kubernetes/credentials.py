"""Credentials that authenticate the nodes of one job to each other across machines: a token and a certificate.

Each job gets its own certification authority, which signs one certificate and is then discarded: no second
certificate that the nodes of this job accept can ever be issued. The certificate is for a name (`elasticdl-JOB`), not
for an address, because pods change theirs; clients state the name that they expect.

Elliptic curves (P-256): generating such a key takes a millisecond, and every TLS implementation supports the curve.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.errors import UserError
from elasticdl.extras import install_command

# Longer than any job, so that none has to renew it.
_YEARS = 10
# The clock of a node may be behind that of the machine that the job was submitted from.
_CLOCK_SKEW = datetime.timedelta(days=1)


def tls_name(job_name: str) -> str:
    """The name that the servers of a job have a certificate for."""
    return f"elasticdl-{job_name}"


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """All as text, the last three as PEM."""

    token: str
    ca_crt: str
    tls_crt: str
    tls_key: str

    @classmethod
    def make(cls, job_name: str) -> Credentials:
        """New ones for a job. Raises `UserError` if the library for it is not installed."""
        ca_crt, tls_crt, tls_key = make_certificates(tls_name(job_name))
        return cls(token=secrets.token_urlsafe(32), ca_crt=ca_crt, tls_crt=tls_crt, tls_key=tls_key)

    def files(self) -> dict[str, str]:
        """By the names that they have in the job's Secret and in its folder in the pods."""
        return {
            "token": self.token,
            "ca.crt": self.ca_crt,
            "tls.crt": self.tls_crt,
            "tls.key": self.tls_key,
        }

    @classmethod
    def of_files(cls, files: Mapping[str, str]) -> Credentials:
        return cls(
            token=files["token"].strip(),
            ca_crt=files["ca.crt"],
            tls_crt=files["tls.crt"],
            tls_key=files["tls.key"],
        )


def make_certificates(name: str) -> tuple[str, str, str]:
    """Returns the certificate of a new authority, that of servers of this name, and the servers' key."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ModuleNotFoundError as error:
        raise UserError(
            f"Jobs on Kubernetes need the package {error.name}.", hint=install_command("kubernetes")
        ) from error

    def named(text: str) -> x509.Name:
        # The field has room for 64 letters. What is compared is the other name below.
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])

    now = datetime.datetime.now(datetime.timezone.utc)
    begin, end = now - _CLOCK_SKEW, now + datetime.timedelta(days=365 * _YEARS)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_key_name = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        x509.CertificateBuilder()
        .subject_name(named(f"{name} CA"))
        .issuer_name(named(f"{name} CA"))
        .public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(x509, authority=True), critical=True)
        .add_extension(ca_key_name, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(x509, authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_key_name), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return ca.public_bytes(pem).decode(), certificate.public_bytes(pem).decode(), private.decode()


def _key_usage(x509: Any, *, authority: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
