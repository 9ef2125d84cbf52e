"""The certificates of a cluster of our own, and a kubeconfig for each of its parts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.cluster.commands import run

_DAYS = "3650"


def write_certificates(folder: Path, *, server: str, addresses: list[str], nodes: list[str]) -> None:
    """`folder/pki/NAME.crt|key` for every part, signed by `ca`, and `folder/NAME.kubeconfig` for those that call."""
    pki = folder / "pki"
    pki.mkdir(parents=True, exist_ok=True)
    subject = ("-days", _DAYS, "-subj", "/CN=test-kubernetes")
    _openssl(
        pki, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", *subject
    )
    _openssl(pki, "genrsa", "-out", "sa.key", "2048")
    _openssl(pki, "rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
    names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    every = [*(f"IP:{address}" for address in addresses), *(f"DNS:{name}" for name in names)]
    _sign(pki, "apiserver", "/CN=kube-apiserver", ",".join(every))
    callers = {
        "admin": "/O=system:masters/CN=admin",
        "controller-manager": "/CN=system:kube-controller-manager",
        "scheduler": "/CN=system:kube-scheduler",
        "proxy": "/CN=system:kube-proxy",
        **{node: f"/O=system:nodes/CN=system:node:{node}" for node in nodes},
    }
    for name, who in callers.items():
        _sign(pki, name, who, ",".join([f"DNS:{name}", *(f"IP:{address}" for address in addresses)]))
        _write_kubeconfig(folder / f"{name}.kubeconfig", pki=pki, name=name, server=server)


def _sign(pki: Path, name: str, subject: str, names: str) -> None:
    extensions = pki / f"{name}.ext"
    extensions.write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
    key, request = ("-keyout", f"{name}.key"), ("-out", f"{name}.csr")
    _openssl(pki, "req", "-newkey", "rsa:2048", "-nodes", *key, *request, "-subj", subject)
    signer = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", _DAYS)
    out = ("-out", f"{name}.crt", "-extfile", extensions.name)
    _openssl(pki, "x509", "-req", "-in", f"{name}.csr", *signer, *out)


def _openssl(pki: Path, *words: str) -> None:
    run("openssl", *words, cwd=pki, stderr=subprocess.DEVNULL)


def _write_kubeconfig(path: Path, *, pki: Path, name: str, server: str) -> None:
    config = ("kubectl", "config", f"--kubeconfig={path}")
    quiet = {"stdout": subprocess.DEVNULL}
    authority = f"--certificate-authority={pki}/ca.crt"
    keys = (f"--client-certificate={pki}/{name}.crt", f"--client-key={pki}/{name}.key")
    run(*config, "set-cluster", "test", f"--server={server}", authority, "--embed-certs", **quiet)
    run(*config, "set-credentials", name, *keys, "--embed-certs", **quiet)
    run(*config, "set-context", "test", "--cluster=test", f"--user={name}", **quiet)
    run(*config, "use-context", "test", **quiet)
