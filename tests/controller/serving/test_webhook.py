"""The certificate of the webhook: made once, served by all replicas, registered by the leader."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticdl.controller.serving.admission import PATH, review
from elasticdl.controller.serving.http_server import HttpServer
from elasticdl.controller.serving.webhook import NAME, SECRET_NAME, WebhookKeeper, server_context
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.kubeconfig import find_access
from tests.catalog.api_server import NAMESPACE, ApiServer
from tests.controller.builders import training_job

Reconcile = Callable[..., bool]
KIND = "validatingwebhookconfigurations"


@pytest.fixture
def reconcile(api: ApiServer, tmp_path: Path) -> Reconcile:
    path = api.kubeconfig(tmp_path / "config")

    def once(tls: ssl.SSLContext | None = None, *, is_leader: bool = True) -> bool:
        async def work() -> bool:
            access = find_access(environment={"KUBECONFIG": str(path)})
            async with Cluster(access, patience=1.0) as cluster:
                keeper = WebhookKeeper(cluster, tls or server_context(), is_leader=lambda: is_leader)
                return await keeper.reconcile()

        return asyncio.run(work())

    return once


@pytest.fixture
def configured(api: ApiServer) -> ApiServer:
    service = {"name": NAME, "namespace": NAMESPACE, "path": PATH}
    webhook = {"name": "trainingjobs.elasticdl.org", "clientConfig": {"service": service}}
    api.put(KIND, {"metadata": {"name": NAME}, "webhooks": [webhook]})
    return api


def authority(api: ApiServer) -> str:
    [webhook] = api.objects[KIND, NAME]["webhooks"]
    return base64.b64decode(webhook["clientConfig"]["caBundle"]).decode()


def test_api_server_that_trusts_the_registered_authority_gets_an_answer(
    configured: ApiServer, reconcile: Reconcile
) -> None:
    tls = server_context()
    assert reconcile(tls)
    with HttpServer(bind="127.0.0.1", port=0, posts={PATH: review}, tls=tls) as server:
        answer = ask(server.port, ssl.create_default_context(cadata=authority(configured)))
    assert answer["response"]["allowed"]


def ask(port: int, trust: ssl.SSLContext) -> Any:
    """As the API server does: by the name of the Service, at an address."""
    name = f"{NAME}.{NAMESPACE}.svc"
    body = json.dumps({"request": {"uid": "1", "object": training_job()}})
    connection = http.client.HTTPConnection(name)
    connection.sock = trust.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname=name)
    connection.request("POST", PATH, body)
    with connection.getresponse() as response:
        return json.loads(response.read())


def test_certificate_is_made_once(configured: ApiServer, reconcile: Reconcile) -> None:
    reconcile()
    secret = configured.objects["secrets", SECRET_NAME]
    reconcile()
    assert configured.objects["secrets", SECRET_NAME] == secret


def test_replica_that_does_not_lead_writes_nothing_and_serves_the_same_certificate(
    configured: ApiServer, reconcile: Reconcile
) -> None:
    assert not reconcile(is_leader=False)
    assert ("secrets", SECRET_NAME) not in configured.objects
    reconcile()
    asked = len(configured.asked)
    assert reconcile(is_leader=False)
    assert {method for method, _, _ in configured.asked[asked:]} == {"GET"}


def test_certificate_that_cannot_be_read_is_replaced(configured: ApiServer, reconcile: Reconcile) -> None:
    reconcile()
    before = authority(configured)
    configured.change("secrets", SECRET_NAME, {"data": {"tls.crt": base64.b64encode(b"spoiled").decode()}})
    assert reconcile()
    assert authority(configured) != before


def test_missing_configuration_is_reported(api: ApiServer, reconcile: Reconcile) -> None:
    with pytest.raises(UserError, match=f"no ValidatingWebhookConfiguration {NAME}"):
        reconcile()


def test_client_without_tls_is_dropped_and_others_are_answered(
    configured: ApiServer, reconcile: Reconcile
) -> None:
    tls = server_context()
    reconcile(tls)
    with HttpServer(bind="127.0.0.1", port=0, posts={PATH: review}, tls=tls) as server:
        with pytest.raises((OSError, http.client.HTTPException)):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/")
        trust = ssl.create_default_context(cadata=authority(configured))
        assert ask(server.port, trust)["response"]["allowed"]
