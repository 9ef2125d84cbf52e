"""What a cluster of our own runs: Debian's packages, and the Kubernetes programs that Debian has as source only.

The programs are unpacked from an archive where there is one: in the folder that ELASTICDL_TEST_KUBERNETES names, beside
this file, or in `../shared/kubernetes` beside the checkout. Otherwise they are compiled from Debian's source package
with Debian's Go, which takes some minutes once; so is the API server of an archive in which it crashes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from e2e.cluster.archive import write_image
from e2e.cluster.commands import run
from e2e.cluster.machine import check_is_root, check_may_isolate

VERSION = "1.20.2"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet")
# By the command that shows whether it is there.
PACKAGES = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "socat": "socat",
    "openssl": "openssl",
    "gcc": "gcc",
    "/usr/include/stdlib.h": "libc6-dev",
    "kubectl": "kubernetes-client",
    # All that `elasticdl zoo` builds images with.
    "buildah": "buildah",
    "podman": "podman",
    "dockerd": "docker.io",
    "debootstrap": "debootstrap",
}
# Of older archives.
_DEFECTIVE = "19e1a35aab0b3f85f7d0a00907507e2d646cdc642597049215e628a957dd4777"
PAUSE = "k8s.gcr.io/pause:3.2"
_HERE = Path(__file__).resolve().parent
# The first process of every pod: waits, and buries orphans.
_PAUSE_SOURCE = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void leave(int s) { _exit(0); }
static void bury(int s) { while (waitpid(-1, 0, WNOHANG) > 0); }
int main() { signal(SIGINT, leave); signal(SIGTERM, leave); signal(SIGCHLD, bury); for (;;) pause(); }
"""


def provide(home: Path) -> Path:
    """Everything installed and unpacked; returns the folder of the Kubernetes programs."""
    check_is_root()
    install(PACKAGES)
    check_may_isolate()
    folder = home / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    archive = _prebuilt()
    if archive and not all((folder / program).exists() for program in PROGRAMS):
        run("tar", "-C", folder, "-xJf", archive)
    missing = [name for name in PROGRAMS if not (folder / name).exists() or _is_defective(folder / name)]
    if missing:
        _compile(home / "source", folder, missing)
    if not (folder / "pause.tar").exists():
        source = folder / "pause.c"
        source.write_text(_PAUSE_SOURCE)
        run("gcc", "-O2", "-static", "-o", folder / "pause", source)
        layer = folder / "pause-layer.tar"
        run("tar", "-C", folder, "-cf", layer, "pause")
        write_image(folder / "pause.tar", name=PAUSE, layers=[layer], config={"Entrypoint": ["/pause"]})
    return folder


def install(packages: dict[str, str]) -> None:
    missing = [
        package
        for command, package in packages.items()
        if not shutil.which(command) and not Path(command).is_file()
    ]
    if missing:
        quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        run("apt-get", "update", "-qq")
        run(
            "apt-get",
            "install",
            "-y",
            "-qq",
            "--no-install-recommends",
            *missing,
            stdout=subprocess.DEVNULL,
            env=quiet,
        )


def _is_defective(program: Path) -> bool:
    """Whether it is an API server that was compiled without `_fit_map_iterator`."""
    if program.name != "kube-apiserver":
        return False
    return hashlib.sha256(program.read_bytes()).hexdigest() == _DEFECTIVE


def _prebuilt() -> Path | None:
    name = f"kubernetes-{VERSION}.tar.xz"
    named = os.environ.get("ELASTICDL_TEST_KUBERNETES")
    folders = [*([Path(named)] if named else []), _HERE, _HERE.parents[2] / "shared" / "kubernetes"]
    return next((folder / name for folder in folders if (folder / name).exists()), None)


# -- from source -----------------------------------------------------------------------------------------------


def _compile(source: Path, folder: Path, programs: Iterable[str]) -> None:
    install({"/usr/lib/go-1.19/bin/go": "golang-1.19-go", "dpkg-source": "dpkg-dev"})
    tree = source / "src/k8s.io/kubernetes"
    if not tree.exists():
        _fetch(source, tree)
    environment = {
        **os.environ,
        "PATH": f"/usr/lib/go-1.19/bin:{os.environ['PATH']}",
        "GO111MODULE": "off",
        "GOPATH": str(source),
        "GOCACHE": str(source / "cache"),
        "CGO_ENABLED": "0",
    }
    if not (tree / "pkg/generated/openapi/zz_generated.openapi.go").exists():
        _generate_openapi(source, tree, environment)
    packages = ("component-base/version", "client-go/pkg/version")
    values = {"Version": f"v{VERSION}", "Major": "1", "Minor": "20", "TreeState": "clean"}
    stamp = " ".join(
        f"-X k8s.io/kubernetes/vendor/k8s.io/{package}.git{key}={value}"
        for package in packages
        for key, value in values.items()
    )
    for program in programs:
        print(f"compiling {program}", flush=True)
        flags = ("-trimpath", "-ldflags", f"-s -w {stamp}")
        run("go", "build", *flags, "-o", folder / program, f"./cmd/{program}", cwd=tree, env=environment)


def _fetch(source: Path, tree: Path) -> None:
    """The source package, from the archive that the machine is configured with."""
    lists = source / "apt"
    for inner in ("lists/partial", "archives/partial"):
        (lists / inner).mkdir(parents=True, exist_ok=True)
    candidates = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
    configured = next(path for path in candidates if path.exists())
    sources = lists / f"debian{configured.suffix}"
    text = (
        configured.read_text().replace("Types: deb\n", "Types: deb-src\n").replace("deb http", "deb-src http")
    )
    sources.write_text(text)
    options = [
        *("-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/dev/null"),
        *("-o", f"Dir::State::lists={lists}/lists", "-o", f"Dir::Cache={lists}"),
    ]
    run("apt-get", *options, "update", "-qq")
    run("apt-get", *options, "source", "-qq", "--download-only", "kubernetes", cwd=source)
    tree.parent.mkdir(parents=True, exist_ok=True)
    run("tar", "-xzf", next(source.glob("kubernetes_*.orig.tar.gz")), cwd=source)
    (source / f"kubernetes-{VERSION}").rename(tree)
    _fit_map_iterator(tree)


# Since Go 1.18 the caller of reflect.mapiterinit says where the iterator is. The source calls it as before, so that
# an API server compiled by a later Go crashes as soon as an object of a CustomResourceDefinition is created.
_OLD_ITERATOR = """//go:noescape
//go:linkname mapiterinit reflect.mapiterinit
func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer) *hiter
"""
_NEW_ITERATOR = """//go:noescape
//go:linkname initMapIterator reflect.mapiterinit
func initMapIterator(rtype unsafe.Pointer, m unsafe.Pointer, it *hiter)

func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer) *hiter {
	it := &hiter{}
	initMapIterator(rtype, m, it)
	return it
}
"""
_OLD_REST = "// rest fields are ignored"
# As in reflect/value.go of Go 1.19.
_NEW_REST = """t           unsafe.Pointer
	h           unsafe.Pointer
	buckets     unsafe.Pointer
	bptr        unsafe.Pointer
	overflow    *[]unsafe.Pointer
	oldoverflow *[]unsafe.Pointer
	startBucket uintptr
	offset      uint8
	wrapped     bool
	B           uint8
	i           uint8
	bucket      uintptr
	checkBucket uintptr"""


def _fit_map_iterator(tree: Path) -> None:
    file = tree / "vendor/github.com/modern-go/reflect2/unsafe_link.go"
    text = file.read_text()
    for old, new in ((_OLD_ITERATOR, _NEW_ITERATOR), (_OLD_REST, _NEW_REST)):
        if old not in text:
            raise SystemExit(f"{file} is not as expected: it lacks {old!r}")
        text = text.replace(old, new)
    file.write_text(text)


def _generate_openapi(source: Path, tree: Path, environment: dict[str, str]) -> None:
    """The one generated file that the source package leaves out."""
    generator = source / "openapi-gen"
    run(
        "go",
        "build",
        "-o",
        generator,
        "./vendor/k8s.io/kube-openapi/cmd/openapi-gen",
        cwd=tree,
        env=environment,
    )
    mark = "// +k8s:openapi-gen="
    left_out = (
        "_examples",
        "/testdata",
        "sample-",
        "code-generator",
        "/examples",
        "gengo",
        "kube-openapi/test",
    )
    found = set()
    for top in ("pkg", "cmd", "plugin", "vendor/k8s.io"):
        # -L: the staging packages in vendor/ are links.
        files = subprocess.run(
            ["find", "-L", top, "-name", "*.go"], cwd=tree, text=True, capture_output=True, check=True
        )
        for name in files.stdout.split():
            folder = str(Path(name).parent)
            if folder in found or any(word in folder for word in (*left_out, "kube-openapi/pkg/generators")):
                continue
            lines = (tree / name).read_text(errors="replace").splitlines()
            if any(line.strip().startswith(mark) for line in lines):
                found.add(folder)
    run(
        *(
            generator,
            "--logtostderr",
            "-i",
            ",".join(f"k8s.io/kubernetes/{folder}" for folder in sorted(found)),
        ),
        *("-p", "k8s.io/kubernetes/pkg/generated/openapi", "-O", "zz_generated.openapi"),
        *("-h", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt", "-r", source / "violations"),
        cwd=tree,
        env=environment,
    )
