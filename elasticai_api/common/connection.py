"""Connections to the master of a job: encrypted where the job's environment says so.

On Kubernetes ELASTICDL_CA_FILE names the certificate of the job's own authority, and ELASTICDL_TLS_NAME the name that
the master has a certificate for; addresses change there. On one machine neither is set. The port for programs with the
public package is never encrypted: that package could not speak to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import grpc

from elasticai_api.common.constants import PodEnv
from elasticai_api.errors import MasterError


def open_channel(address: str, options: Sequence[tuple[str, int]]) -> grpc.Channel:
    """A channel to the port of the master that takes the job's token."""
    ca_file = os.environ.get(PodEnv.CA_FILE)
    if not ca_file:
        return grpc.insecure_channel(address, options=options)
    name = os.environ.get(PodEnv.TLS_NAME)
    if not name:
        raise MasterError(f"{PodEnv.CA_FILE} is set, but not {PodEnv.TLS_NAME}.")
    try:
        authority = Path(ca_file).read_bytes()
    except OSError as error:
        raise MasterError(f"{PodEnv.CA_FILE} is {ca_file}: {error.strerror}.") from error
    credentials = grpc.ssl_channel_credentials(root_certificates=authority)
    return grpc.secure_channel(
        address, credentials, options=(*options, ("grpc.ssl_target_name_override", name))
    )


def not_trusted(error: grpc.RpcError) -> bool:
    """The server has no certificate of this job: to try again, as with one that is away, would not help."""
    # gRPC has no code for it, and says it with the words of the library it encrypts with.
    return "CERTIFICATE_VERIFY_FAILED" in (error.details() or "")
