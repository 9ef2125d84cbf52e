"""The controller of TrainingJobs from its manifest, with the images of the tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from e2e.conftest import wait_until
from e2e.kubernetes.conftest import MANIFESTS, Kubectl

NAMESPACE, NAME = "paddlecloud", "training-job-controller"
IMAGE = "elasticdl-test:light"


def controller_manifest(image: str = IMAGE) -> str:
    """The manifest with another image, as a user edits it."""
    text = (MANIFESTS / "edl-controller.yaml").read_text()
    assert "image: elasticdl:controller" in text
    return text.replace("image: elasticdl:controller", f"image: {image}")


@contextlib.contextmanager
def installed_controller() -> Iterator[Kubectl]:
    """Installs the controller and removes it again; yields kubectl in its namespace. The definitions stay."""
    everywhere = Kubectl(namespace="default")
    everywhere("apply", f"--filename={MANIFESTS / 'trainingjob-crd.yaml'}")
    everywhere("wait", "--for=condition=Established", "crd/trainingjobs.elasticdl.org", "--timeout=30s")
    everywhere("create", "namespace", NAMESPACE)
    kubectl = Kubectl(namespace=NAMESPACE)
    try:
        kubectl("create", "--filename=-", text=controller_manifest())
        kubectl("rollout", "status", f"deployment/{NAME}", "--timeout=90s")
        yield kubectl
    finally:
        kubectl("delete", "--filename=-", "--wait=false", text=controller_manifest())
        everywhere("delete", "namespace", NAMESPACE)


def pods(kubectl: Kubectl) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in kubectl.list("pods", f"app={NAME}"))


def log_of(kubectl: Kubectl, pod: str) -> str:
    return kubectl("logs", pod)


def leader(kubectl: Kubectl) -> str:
    """The pod that the Lease names."""
    holder = kubectl("get", "lease", NAME, "--output=jsonpath={.spec.holderIdentity}")
    return next((pod for pod in pods(kubectl) if holder.startswith(pod)), "")


def wait_for_leader(kubectl: Kubectl) -> str:
    return str(wait_until(lambda: leader(kubectl), "a controller leads"))
