"""Credentials that authenticate the nodes of one job to each other across machines: a token and a certificate.

The certificate is for a name (`elasticdl-JOB`), not for an address, because pods change theirs; clients state the name
that they expect.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.wire.certificates import make_certificates


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
        """Returns the files by their names in the job's Secret and in its folder in the pods."""
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
