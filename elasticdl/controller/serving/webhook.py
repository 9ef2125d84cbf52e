"""The certificate of the admission webhook, and its entry in the API server's configuration.

The certificate is made by the leader, with an authority of its own that signs nothing else, and kept in a Secret, so
that all replicas serve with the same one. The leader writes the authority into the ValidatingWebhookConfiguration that
the manifest has created.

Failure modes
    No Secret or no right to it: the replica serves no TLS, the API server's calls fail, and by `failurePolicy: Ignore`
    TrainingJobs are stored unchecked; the controller reports the same problems in their status. A certificate that
    cannot be read, or ends within a month, is replaced.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import logging
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document
from elasticdl.wire.certificates import make_certificates

log = logging.getLogger("elasticdl.controller")

# The name of the Service in front of the replicas, and of the ValidatingWebhookConfiguration.
NAME = "training-job-controller"
SECRET_NAME = "training-job-controller-webhook"
CONFIGURATION = "ValidatingWebhookConfiguration"
_RENEW_BEFORE = datetime.timedelta(days=30)
_CONFLICT = 409


def server_context() -> ssl.SSLContext:
    """Without a certificate yet: until one is loaded, handshakes fail."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


class WebhookKeeper:
    """`cluster`: of the controller's namespace. `tls`: of the server; the certificate is loaded into it."""

    def __init__(
        self,
        cluster: Cluster,
        tls: ssl.SSLContext,
        *,
        is_leader: Callable[[], bool],
        poll_seconds: float = 2.0,
        refresh_seconds: float = 60.0,
    ) -> None:
        self._cluster = cluster
        self._tls = tls
        self._is_leader = is_leader
        self._poll_seconds, self._refresh_seconds = poll_seconds, refresh_seconds
        self._loaded: dict[str, str] = {}
        self._trouble = ""

    @property
    def tls_name(self) -> str:
        """Returns the name by which the API server calls the Service."""
        return f"{NAME}.{self._cluster.namespace}.svc"

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                is_done = await self.reconcile()
                self._trouble = ""
            except UserError as error:
                is_done = False
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    log.warning("Cannot set up the admission webhook: %s", error)
            await asyncio.sleep(self._refresh_seconds if is_done else self._poll_seconds)

    async def reconcile(self) -> bool:
        """Loads the certificate; as the leader, makes it and registers its authority. Returns whether it is loaded."""
        secret = await self._cluster.get("Secret", SECRET_NAME)
        files = files_of(secret)
        if not _is_valid(files, self.tls_name) and self._is_leader():
            files = await self._make(secret)
        if not files:
            return False
        if files != self._loaded:
            self._load(files)
        if self._is_leader():
            await self._register(files["ca.crt"])
        return True

    async def _make(self, secret: Document | None) -> dict[str, str]:
        ca_crt, tls_crt, tls_key = make_certificates(self.tls_name)
        files = {"ca.crt": ca_crt, "tls.crt": tls_crt, "tls.key": tls_key}
        metadata: Document = {
            "name": SECRET_NAME,
            "namespace": self._cluster.namespace,
            "labels": {"app": NAME},
        }
        if secret is not None:
            metadata["resourceVersion"] = secret["metadata"]["resourceVersion"]
        document: Document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": metadata,
            "data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()},
        }
        try:
            write = self._cluster.create if secret is None else self._cluster.replace
            await write(document)
        except ClusterError as error:
            if error.status != _CONFLICT:
                raise
            # Another replica has made one.
            return {}
        log.info("Creating the certificate of the admission webhook for %s", self.tls_name)
        return files

    def _load(self, files: dict[str, str]) -> None:
        # OpenSSL reads these from files only.
        try:
            with tempfile.TemporaryDirectory() as folder:
                certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
                certificate.write_text(files["tls.crt"])
                key.write_text(files["tls.key"])
                self._tls.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise UserError(f"The certificate in Secret {SECRET_NAME} cannot be used: {error}.") from error
        self._loaded = files

    async def _register(self, ca_crt: str) -> None:
        configuration = await self._cluster.get(CONFIGURATION, NAME)
        if configuration is None:
            raise UserError(
                f"There is no {CONFIGURATION} {NAME}.",
                hint="edl-controller.yaml has it. Without it, problems of TrainingJobs are in their status only.",
            )
        bundle = base64.b64encode(ca_crt.encode()).decode()
        webhooks = configuration.get("webhooks") or []
        if all(each["clientConfig"].get("caBundle") == bundle for each in webhooks):
            return
        changed = [
            {**each, "clientConfig": {**each["clientConfig"], "caBundle": bundle}} for each in webhooks
        ]
        await self._cluster.replace({**configuration, "kind": CONFIGURATION, "webhooks": changed})
        log.info("Registered the admission webhook for %s", self.tls_name)


def files_of(secret: Document | None) -> dict[str, str]:
    """The files in a Secret; nothing if one is missing or cannot be decoded."""
    data = (secret or {}).get("data") or {}
    try:
        return {name: base64.b64decode(data[name]).decode() for name in ("ca.crt", "tls.crt", "tls.key")}
    except (KeyError, ValueError):
        return {}


def _is_valid(files: dict[str, str], name: str) -> bool:
    """Whether the certificate can be read, is of this name, and does not end soon."""
    if not files:
        return False
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(files["tls.crt"].encode())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    end = certificate.not_valid_after_utc
    is_lasting = end > datetime.datetime.now(datetime.timezone.utc) + _RENEW_BEFORE
    return is_lasting and name in names.get_values_for_type(x509.DNSName)
