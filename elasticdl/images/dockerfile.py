"""The Dockerfile of an image for jobs: elasticdl, what the model zoo needs, the model zoo.

What changes least comes first, so that after a change of a model only the last small layers are rebuilt and pushed.
Everything is compiled while building, for the user that the image runs as could not keep what Python compiles.

In the image
    /model_zoo        the model zoo, and the working folder is `/`: `--model_zoo=model_zoo` and
                      `python -m model_zoo.…` mean the same there as in the checkout
    /cluster_spec     the file of --cluster_spec
    user 1000         without rights; Kubernetes sees from the number that it is not root
"""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import UserError

BASE_IMAGE = "python:3.11-slim"
# Where files from elsewhere are copied to: an image is built of nothing but the files of one folder.
PACKAGES_FOLDER = "elasticdl_packages"
_IGNORED = ".git\n**/__pycache__\n"


@dataclass(frozen=True, kw_only=True)
class ImagePlan:
    """The content of an image. Paths are relative to the folder that it is built from."""

    model_zoo: str
    requirements: str
    packages: str
    cluster_spec: str
    base_image: str
    extra_pypi_index: str
    version: str


def dockerfile(plan: ImagePlan) -> str:
    index = f" --extra-index-url={plan.extra_pypi_index}" if plan.extra_pypi_index else ""
    pip = f"RUN python3 -m pip install --no-cache-dir{index}"
    parts = [
        "# Written by `elasticdl zoo init`. It is yours: change it as you like.\n"
        "# `elasticdl zoo build --image=NAME .` builds it.",
        f"FROM {plan.base_image}",
        # Debian's pip asks whether one means it; in an image one does.
        "ARG PIP_BREAK_SYSTEM_PACKAGES=1\nARG PIP_ROOT_USER_ACTION=ignore\nARG PIP_DISABLE_PIP_VERSION_CHECK=1",
    ]
    if plan.packages:
        parts.append(
            f"{_copy(f'{plan.packages}/*.whl', '/tmp/packages/')}\n"
            f"{pip} /tmp/packages/*.whl 'elasticdl[kubernetes,dashboard]' \\\n && rm -r /tmp/packages"
        )
    else:
        parts.append(f"{pip} 'elasticdl[kubernetes,dashboard]=={plan.version}'")
    if plan.requirements:
        parts.append(f"{_copy(plan.requirements, '/tmp/requirements.txt')}\n{pip} -r /tmp/requirements.txt")
    parts.append(
        "RUN id 1000 > /dev/null 2>&1 || useradd --uid 1000 elasticdl; "
        "mkdir -p /home/elasticdl && chown 1000 /home/elasticdl\n"
        "ENV HOME=/home/elasticdl PYTHONPATH=/ PYTHONUNBUFFERED=1"
    )
    name = Path(plan.model_zoo).name
    is_file = name.endswith(".py")
    target = f"/model_zoo/{name}" if is_file else "/model_zoo"
    also = (
        "" if is_file or name in ("", "model_zoo") else f" \\\n && ln -s /model_zoo {shlex.quote(f'/{name}')}"
    )
    parts.append(f"{_copy(plan.model_zoo, target)}\nRUN python3 -m compileall -q /model_zoo{also}")
    if plan.cluster_spec:
        parts.append(_copy(plan.cluster_spec, f"/cluster_spec/{Path(plan.cluster_spec).name}"))
    parts.append("WORKDIR /\nUSER 1000")
    return "\n\n".join(parts) + "\n"


def _copy(source: str, target: str) -> str:
    """Names with spaces need the longer form."""
    words = f"{source} {target}"
    return f"COPY {words}" if words.count(" ") == 1 else f"COPY {json.dumps([source, target])}"


def write_dockerfile(
    folder: Path,
    *,
    model_zoo: Path,
    base_image: str,
    extra_pypi_index: str,
    local_pkg_dir: Path | None,
    cluster_spec: Path | None,
    version: str,
    overwrite: bool,
) -> bool:
    """Writes the Dockerfile in the folder that the image will be built from, and copies there what lies elsewhere.
    False if it was there before, word for word.
    """
    path = folder / "Dockerfile"
    zoo = _inside(folder, model_zoo)
    needs = zoo / "requirements.txt" if (folder / zoo).is_dir() else zoo.parent / "requirements.txt"
    packages = _packages(folder, local_pkg_dir) if local_pkg_dir else _Brought()
    fields = _file(folder, cluster_spec) if cluster_spec else _Brought()
    plan = ImagePlan(
        model_zoo=zoo.as_posix(),
        requirements=needs.as_posix() if (folder / needs).is_file() else "",
        packages=packages.place,
        cluster_spec=fields.place,
        base_image=base_image,
        extra_pypi_index=extra_pypi_index,
        version=version,
    )
    text = dockerfile(plan)
    is_there = path.is_file() and path.read_bytes() == text.encode()
    if path.exists() and not is_there and not overwrite:
        raise UserError(
            f"There is a Dockerfile already: {path}.",
            hint="It may have been changed by hand. --overwrite replaces it.",
        )
    if packages.files:
        shutil.rmtree(folder / packages.place, ignore_errors=True)
        (folder / packages.place).mkdir()
    for brought in (packages, fields):
        for file in brought.files:
            shutil.copy2(file, folder / brought.place)
    if not is_there:
        path.write_text(text)
    ignored = folder / ".dockerignore"
    if not ignored.exists():
        ignored.write_text(_IGNORED)
    return not is_there


@dataclass(frozen=True, kw_only=True)
class _Brought:
    """The place of a dependency in the folder, and the files to copy there for it."""

    place: str = ""
    files: tuple[Path, ...] = ()


def _inside(folder: Path, model_zoo: Path) -> Path:
    place = folder / model_zoo
    if not place.exists():
        raise UserError(f"There is no model zoo {model_zoo}.", hint="--model_zoo names its folder.")
    if place.is_file() and place.suffix != ".py":
        raise UserError(f"{model_zoo} is no model zoo: neither a folder nor a Python file.")
    try:
        return place.resolve().relative_to(folder.resolve())
    except ValueError:
        raise UserError(
            f"The model zoo {model_zoo} is outside of {folder.resolve()}, of which the image is built.",
            hint="Run the command in a folder that contains the model zoo.",
        ) from None


def _packages(folder: Path, packages: Path) -> _Brought:
    wheels = tuple(sorted((folder / packages).glob("*.whl")))
    if not wheels:
        raise UserError(
            f"There is no package (*.whl) in {packages}.",
            hint="`pip wheel --no-deps --wheel-dir=DIR .` in a checkout of elasticdl makes one.",
        )
    try:
        return _Brought(place=(folder / packages).resolve().relative_to(folder.resolve()).as_posix())
    except ValueError:
        return _Brought(place=PACKAGES_FOLDER, files=wheels)


def _file(folder: Path, file: Path) -> _Brought:
    place = folder / file
    if not place.is_file():
        raise UserError(f"There is no file {file}.", hint="--cluster_spec names a YAML or JSON file.")
    try:
        return _Brought(place=place.resolve().relative_to(folder.resolve()).as_posix())
    except ValueError:
        return _Brought(place=file.name, files=(place,))
