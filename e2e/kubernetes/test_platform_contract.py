"""Pods pass the contract that all platforms pass (`tests/platforms/test_contract.py`)."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.conftest import ROOT
from e2e.kubernetes.conftest import Kubectl
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes.client import Cluster, Document
from elasticdl.platforms.kubernetes.credentials import Credentials
from elasticdl.platforms.kubernetes.kubernetes_platform import KubernetesPlatform
from elasticdl.platforms.kubernetes.manifests import job_object, owned, secret
from elasticdl.platforms.platform import Platform


def _contract() -> dict[str, Any]:
    found = importlib.util.spec_from_file_location(
        "contract", ROOT / "tests" / "platforms" / "test_contract.py"
    )
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if name.startswith("test_") or name == "play"}


globals().update(_contract())


@pytest.fixture
def open_platform(kubectl: Kubectl) -> Iterator[Callable[[], Platform]]:
    spec = JobSpec.build(
        job_name="contract",
        image_name="elasticdl-test:light",
        image_pull_policy="Never",
        namespace=kubectl.namespace,
        model_zoo="z",
        model_def="a.b.c",
        training_data="/d",
    )

    async def begin() -> Document:
        async with Cluster.connect(namespace=kubectl.namespace) as cluster:
            owner = await cluster.create(job_object(spec))
            await cluster.create(owned(secret(spec, Credentials.make(spec.job_name)), owner))
            return owner

    owner = asyncio.run(begin())
    yield lambda: KubernetesPlatform(Cluster.connect(namespace=kubectl.namespace), spec, owner=owner)
    kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")
