"""TLS between the nodes of a job: the trusted authority, and the own certificate.

The environment decides. Where ELASTICDL_CA_FILE names the certificate of the job's own authority (on Kubernetes, and
with `--hosts`), every connection of the job is encrypted, and clients accept only a server with a certificate of that
authority for the name ELASTICDL_TLS_NAME. Servers show the one in ELASTICDL_CERT_FILE, whose key is in
ELASTICDL_KEY_FILE. Where the variable is missing (a job on one machine), connections stay on the loopback interface,
unencrypted.

TLS authenticates the server. The job's token authenticates the caller (`channel.py`).
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

CA_FILE = "ELASTICDL_CA_FILE"
TLS_NAME = "ELASTICDL_TLS_NAME"
CERT_FILE = "ELASTICDL_CERT_FILE"
KEY_FILE = "ELASTICDL_KEY_FILE"

# A handshake takes milliseconds; a server that is not there yet is nothing to wait for here.
_HANDSHAKE_SECONDS = 5.0


class NotTrusted(ValueError):
    """The server at an address is not of this job, or does not use the encryption that the environment demands."""


@dataclass(frozen=True, kw_only=True)
class Security:
    """The certificates of one job, as PEM."""

    ca: bytes
    name: str
    # Only where something is served.
    certificate: bytes = b""
    key: bytes = b""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> Security | None:
        """Returns the security of an environment; None: connections are not encrypted. Raises `ValueError` if variables
        are missing.
        """
        given = os.environ if environment is None else environment
        if not given.get(CA_FILE):
            return None
        if not given.get(TLS_NAME):
            raise ValueError(f"{CA_FILE} is set, but not {TLS_NAME}: the name that certificates must be for.")
        return cls(
            ca=_read(given, CA_FILE),
            name=given[TLS_NAME],
            certificate=_read(given, CERT_FILE) if given.get(CERT_FILE) else b"",
            key=_read(given, KEY_FILE) if given.get(KEY_FILE) else b"",
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(root_certificates=self.ca)

    def channel_options(self) -> tuple[tuple[str, str], ...]:
        # Addresses change; the name in the certificate does not.
        return (("grpc.ssl_target_name_override", self.name),)

    def server_credentials(self) -> grpc.ServerCredentials:
        if not self.certificate or not self.key:
            raise ValueError(
                f"{CA_FILE} is set, so servers need a certificate: {CERT_FILE} and {KEY_FILE} must name it and its key."
            )
        return grpc.ssl_server_credentials([(self.key, self.certificate)])

    def client_context(self) -> ssl.SSLContext:
        """Returns the TLS context of sockets of our own, without gRPC."""
        context = ssl.create_default_context(cadata=self.ca.decode())
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Python takes certificates from files only.
        descriptor, name = tempfile.mkstemp(prefix="elasticdl-")
        try:
            os.write(descriptor, self.key + b"\n" + self.certificate)
            context.load_cert_chain(name)
        finally:
            os.close(descriptor)
            Path(name).unlink()
        return context


def check_peer(address: str, *, security: Security | None = None) -> None:
    """Raises `NotTrusted` if the server at the address fails authentication. An address without a server passes.

    A channel retries a server with the wrong certificate forever, like one that is not there. So this
    check runs once, before the retries begin.
    """
    security = security or Security.of_environment()
    if security is None:
        return
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cadata=security.ca.decode())
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=_HANDSHAKE_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=security.name),
        ):
            return
    except ssl.SSLCertVerificationError as error:
        raise NotTrusted(
            f"The server at {address} is not {security.name}: {error.verify_message}. "
            f"Whom to believe is in the file that {CA_FILE} names."
        ) from error
    except ssl.SSLError as error:
        if error.reason == "WRONG_VERSION_NUMBER":
            raise NotTrusted(
                f"The server at {address} does not encrypt; {CA_FILE} says that it must."
            ) from error
    except OSError:
        # Not there yet, or just gone: connecting processes wait for it.
        return


def _read(environment: Mapping[str, str], variable: str) -> bytes:
    try:
        return Path(environment[variable]).read_bytes()
    except OSError as error:
        raise ValueError(f"{variable} is {environment[variable]}: {error.strerror}.") from error
