"""The images of the tests: Debian with its Python, the packages of the environment that the tests run in, and our code.

Each is a pile of layers, the large ones below and kept between runs, so that after a change of the code only the top
one of a few megabytes is rebuilt and loaded again:

    code                elasticdl, elasticai_api, the command, /model_zoo, /example and the benchmarks, compiled
    keras|torch|paddle  a framework; `light` has none: it is for masters, parameter servers and plain programs
    packages            what elasticdl needs
    debian              the system, by debootstrap

Packages are taken from where they are installed already, with what is compiled beside them: no index is asked, and what
runs in pods is what runs in the tests of this machine. That wants the Python of the tests to be of Debian's version.
What elasticdl needs is compiled, as in images that `elasticdl zoo build` makes: environments of the tests are installed
without that, and in a pod every process would compile it again. Of a framework, which is large, what its import needs.
"""

from __future__ import annotations

import compileall
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from e2e.cluster.archive import digest_of, write_image
from e2e.cluster.commands import run
from e2e.cluster.programs import install

ROOT = Path(__file__).resolve().parents[2]
SUITE, PYTHON = "bookworm", (3, 11)
PACKAGES = "usr/local/lib/python3.11/dist-packages"
NAME = "elasticdl-test"
FRAMEWORKS: dict[str, list[str]] = {
    "light": [],
    "keras": ["tensorflow-cpu", "deepctr"],
    "torch": ["torch"],
    # It imports setuptools without requiring it.
    "paddle": ["paddlepaddle", "setuptools"],
}
# TensorFlow imports Keras only when it is first asked for.
_MODULES = {"keras": "tensorflow, keras", "torch": "torch", "paddle": "paddle, paddle.distributed.fleet"}
# Shared libraries of the system that a framework needs and Debian's smallest system lacks.
_LIBRARIES = {"paddle": ("libgomp.so.1",)}
# What only those need who compile against a package, or test it.
_LEFT_OUT = ("/include/", "/tests/", "torch/test/", "torch/bin/protoc", "clang/native/")
_NO_NEED = ("libclang", "scikit-learn")
_USER = 1000
_COMPILES = {"PYTHONDONTWRITEBYTECODE": "", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
CONFIG = {
    "User": str(_USER),
    "WorkingDir": "/",
    "Env": [
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "HOME=/home/elasticdl",
        "PYTHONPATH=/",
        "PYTHONUNBUFFERED=1",
        "PYTHONDONTWRITEBYTECODE=1",
        "TF_CPP_MIN_LOG_LEVEL=2",
    ],
}


@dataclass(frozen=True, kw_only=True)
class Image:
    name: str
    base: list[Path]
    code: Path
    config: dict[str, Any] = field(default_factory=lambda: CONFIG)

    @property
    def layers(self) -> list[Path]:
        return [*self.base, self.code]


def make_images(folder: Path, *, frameworks: Iterable[str], tag: str = "") -> list[Image]:
    """The layers that are missing; the images' names are `elasticdl-test:FRAMEWORK`, with a tag `-TAG` behind."""
    folder.mkdir(parents=True, exist_ok=True)
    code = code_layer(folder)
    images = []
    for framework in frameworks:
        base = [debian_layer(folder), packages_layer(folder)]
        if FRAMEWORKS[framework]:
            base.append(framework_layer(folder, framework))
        name = f"{NAME}:{framework}{tag and '-'}{tag}"
        images.append(Image(name=name, base=base, code=code))
    return images


def write_archive(image: Image, path: Path, *, left_out: Collection[Path] = ()) -> None:
    """`left_out` are layers that the reader of the archive has already."""
    write_image(path, name=image.name, layers=image.layers, config=image.config, left_out=left_out)


# -- layers ----------------------------------------------------------------------------------------------------


def debian_layer(folder: Path) -> Path:
    layer = folder / f"debian-{SUITE}.tar"
    if layer.exists():
        return layer
    install({"debootstrap": "debootstrap"})
    with tempfile.TemporaryDirectory(dir=folder) as made:
        root = Path(made) / "root"
        run("debootstrap", "--variant=minbase", "--include=python3", SUITE, root, stdout=sys.stderr)
        for unused in (
            "var/cache/apt",
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/locale",
            "usr/share/man",
        ):
            shutil.rmtree(root / unused)
            (root / unused).mkdir()
        # pip is to install into the system: it is the image's own.
        (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink(missing_ok=True)
        (root / "usr/bin/python").symlink_to("python3")
        with (root / "etc/passwd").open("a") as users, (root / "etc/group").open("a") as groups:
            users.write(f"elasticdl:x:{_USER}:{_USER}::/home/elasticdl:/bin/bash\n")
            groups.write(f"elasticdl:x:{_USER}:\n")
        home = root / "home/elasticdl"
        home.mkdir()
        os.chown(home, _USER, _USER)
        run("tar", "-C", root, "--numeric-owner", "--exclude=./dev/*", "-cf", layer.with_suffix(".part"), ".")
    return _keep(layer, "debian")


def packages_layer(folder: Path) -> Path:
    return _layer_of("packages", _closure([*_our_requirements(), "pip"]), folder)


def framework_layer(folder: Path, framework: str) -> Path:
    below = _closure([*_our_requirements(), "pip"])
    packages = _closure(FRAMEWORKS[framework]) - below
    return _layer_of(
        framework,
        packages,
        folder,
        imported=_MODULES[framework],
        libraries=_LIBRARIES.get(framework, ()),
    )


def code_layer(folder: Path) -> Path:
    """A few megabytes, rebuilt after each change."""
    places = {
        "elasticdl": PACKAGES,
        "elasticai_api": PACKAGES,
        "model_zoo": "",
        "benchmarks": "",
        "example": "",
    }
    state = hashlib.sha256()
    for top in places:
        for path in code_files(ROOT / top):
            state.update(f"{path}{path.stat().st_mtime_ns}{path.stat().st_size}".encode())
    layer = folder / f"code-{state.hexdigest()[:12]}.tar"
    if layer.exists():
        return layer
    with tempfile.TemporaryDirectory(dir=folder) as made:
        for top, place in places.items():
            target = Path(made) / place / top
            shutil.copytree(ROOT / top, target, ignore=shutil.ignore_patterns("__pycache__"))
            # The path that tracebacks show is that of the image.
            compileall.compile_dir(str(target), quiet=1, stripdir=made, prependdir="/")
        command = Path(made) / "usr/local/bin/elasticdl"
        command.parent.mkdir(parents=True)
        command.write_text(
            "#!/usr/bin/python3\nimport sys\nfrom elasticdl.cli.main import main\nsys.exit(main())\n"
        )
        command.chmod(0o755)
        for path in Path(made).rglob("*"):
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        with tarfile.open(layer.with_suffix(".part"), "w") as tar:
            for child in sorted(Path(made).iterdir()):
                tar.add(child, arcname=child.name, filter=_of_root)
    return _keep(layer, "code")


def _keep(layer: Path, name: str) -> Path:
    """What was written beside becomes the layer, and older ones of the name go."""
    for old in layer.parent.glob(f"{name}-*.tar*"):
        old.unlink()
    layer.with_suffix(".part").rename(layer)
    digest_of(layer)
    return layer


def code_files(top: Path) -> list[Path]:
    return sorted(path for path in top.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _of_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


# -- installed packages ----------------------------------------------------------------------------------------


def _our_requirements() -> list[str]:
    # Python 3.10 has none, but could not make the images either.
    import tomllib  # type: ignore[import-not-found]

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *extras.get("kubernetes", []), *extras.get("dashboard", [])]


def _closure(requirements: Iterable[str]) -> set[str]:
    """The names of the packages required, and of all that they require."""
    found: set[str] = set()
    ahead = [(Requirement(text), "") for text in requirements]
    while ahead:
        requirement, extra = ahead.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        if name in found or name in _NO_NEED:
            continue
        found.add(name)
        for text in importlib.metadata.distribution(name).requires or ():
            ahead += [(Requirement(text), each) for each in (requirement.extras or {""})]
    return found


def _layer_of(
    name: str, packages: set[str], folder: Path, *, imported: str = "", libraries: Iterable[str] = ()
) -> Path:
    if sys.version_info[:2] != PYTHON:
        raise SystemExit(f"The images of the tests need an environment of Python {PYTHON[0]}.{PYTHON[1]}.")
    # Older layers of the same versions are not compiled.
    versions = "compiled\n" + "".join(
        f"{each}=={importlib.metadata.version(each)}\n" for each in sorted(packages)
    )
    layer = folder / f"{name}-{hashlib.sha256(versions.encode()).hexdigest()[:12]}.tar"
    if not layer.exists():
        if imported:
            run(sys.executable, "-c", f"import {imported}", env={**os.environ, **_COMPILES})
        # Some packages list a file twice, and buildah takes no archive with such.
        files = {
            file.as_posix(): Path(str(file.locate()))
            for each in sorted(packages)
            for file in importlib.metadata.files(each) or ()
        }
        files = {inner: path for inner, path in files.items() if _wanted(inner) and path.exists()}
        if not imported:
            _compile(files.values())
        files |= {
            importlib.util.cache_from_source(inner): Path(importlib.util.cache_from_source(str(path)))
            for inner, path in files.items()
            if path.suffix == ".py"
        }
        with tarfile.open(layer.with_suffix(".part"), "w") as tar:
            for inner, path in files.items():
                if path.exists():
                    tar.add(path, arcname=f"{PACKAGES}/{inner}", filter=_of_root)
            for library in libraries:
                path = _library(library)
                tar.add(path.resolve(), arcname=str(path).lstrip("/"), filter=_of_root)
        _keep(layer, name)
    return layer


def _library(name: str) -> Path:
    """Where Debian has a shared library, which is where the image gets it."""
    found = sorted(Path("/usr/lib").glob(f"*-linux-gnu/{name}"))
    if not found:
        raise SystemExit(f"The images of the tests need {name} of this machine, which is not in /usr/lib.")
    return found[0]


def _wanted(inner: str) -> bool:
    return not inner.startswith("..") and not any(part in f"/{inner}" for part in _LEFT_OUT)


def _compile(paths: Iterable[Path]) -> None:
    """Beside the files, where they are installed. What is compiled already stays."""
    for path in paths:
        if path.suffix == ".py":
            compileall.compile_file(path, quiet=2)
