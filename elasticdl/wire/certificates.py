"""Certificates for the nodes of one job, which encrypt their connections across machines.

Each job gets its own certification authority, which signs one certificate and is then discarded: no second
certificate that the nodes of this job accept can ever be issued.

Elliptic curves (P-256): generating such a key takes a millisecond, and every TLS implementation supports the curve.
"""

from __future__ import annotations

import datetime
from typing import Any

from elasticdl.errors import UserError
from elasticdl.extras import install_command

# Longer than any job, so that none has to renew it.
_YEARS = 10
# The clock of a node may be behind that of the machine that the job was submitted from.
_CLOCK_SKEW = datetime.timedelta(days=1)
# By the extra that has the library.
_PLACES = {"kubernetes": "Kubernetes", "ssh": "several hosts"}


def make_certificates(name: str, *, extra: str = "kubernetes") -> tuple[str, str, str]:
    """Returns the certificate of a new authority, that of servers of this name, and the servers' key."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ModuleNotFoundError as error:
        raise UserError(
            f"Jobs on {_PLACES[extra]} need the package {error.name}.", hint=install_command(extra)
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
