"""The images of PaddlePaddle's Kubernetes guide: its own Dockerfiles, built on the layers of the tests.

What a Dockerfile adds is one layer; it is kept until the Dockerfile, the package or the layers below change. So a node
that has an image of the tests gets a few megabytes. buildah builds both images, and podman that of the nodes once more.
The two share a store: what is below is unpacked once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.archive import digest_of, write_image
from e2e.cluster.commands import run
from e2e.cluster.images import ROOT, Image, make_images
from e2e.cluster.package import make_wheel
from e2e.cluster.places import Cluster, load_images, own_folder

_BASE, _BUILT = "localhost/elasticdl-test:guide-base", "localhost/elasticdl-test:guide"
# Isolation by chroot is all that works in a container.
_BUILD = {
    "buildah": ("buildah", "build", "--quiet", "--pull-never", "--layers=false", "--isolation=chroot"),
    "podman": ("podman", "build", "--quiet", "--pull=never", "--layers=false", "--isolation=chroot"),
}


@dataclass(frozen=True, kw_only=True)
class _Guide:
    tag: str
    place: str
    framework: str
    # The image of the first has the tag, that of another one `TAG-TOOL`.
    tools: tuple[str, ...] = ("buildah",)

    def tag_by(self, tool: str) -> str:
        return self.tag if tool == self.tools[0] else f"{self.tag}-{tool}"


_GUIDES = (
    _Guide(tag="paddle:k8s_data", place="paddle/k8s_data", framework="light"),
    _Guide(tag="paddle:mypaddle", place="paddle/k8s_train", framework="paddle", tools=("buildah", "podman")),
)


def provide_guide_images(cluster: Cluster, repository: str) -> None:
    """Gives the nodes REPOSITORY/paddle:k8s_data, REPOSITORY/paddle:mypaddle and REPOSITORY/paddle:mypaddle-podman."""
    with own_folder() as folder:
        wheel = make_wheel(folder)
        images = [
            image for guide in _GUIDES for image in _make_images(folder, guide, wheel, repository=repository)
        ]
        load_images(cluster, folder, images)


def _make_images(folder: Path, guide: _Guide, wheel: Path, *, repository: str) -> list[Image]:
    (test_image,) = make_images(folder, frameworks=[guide.framework])
    place = ROOT / guide.place
    state = hashlib.sha256()
    for layer in test_image.base:
        state.update(digest_of(layer).encode())
    state.update(wheel.read_bytes())
    for path in _context_files(place):
        state.update(f"{path.name} {path.stat().st_mode}\n".encode() + path.read_bytes())
    layers = {
        tool: folder / f"guide-{guide.tag_by(tool).replace(':', '-')}-{state.hexdigest()[:12]}.tar"
        for tool in guide.tools
    }
    missing = {tool: layer for tool, layer in layers.items() if not _config_of(layer).exists()}
    if missing:
        for old in folder.glob(f"guide-{guide.tag.replace(':', '-')}-*"):
            if old.with_suffix(".tar") not in layers.values():
                old.unlink()
        _build(place, wheel, test_image.base, missing)
    return [
        Image(
            name=f"{repository}/{guide.tag_by(tool)}",
            base=test_image.base,
            code=layer,
            config=json.loads(_config_of(layer).read_text()),
        )
        for tool, layer in layers.items()
    ]


def _config_of(layer: Path) -> Path:
    """Where the configuration of the image is kept. Written when the layer is complete."""
    return layer.with_suffix(".json")


def _context_files(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.is_file())


def _build(place: Path, wheel: Path, base: list[Path], layers: Mapping[str, Path]) -> None:
    """Writes the layer that the Dockerfile adds, and the configuration of the image, for each tool."""
    with tempfile.TemporaryDirectory(dir=wheel.parents[1]) as made:
        here = Path(made)
        settings = here / "storage.conf"
        folders = f'graphroot = "{here}/images"\nrunroot = "{here}/run"\n'
        settings.write_text(f'[storage]\ndriver = "overlay"\n{folders}')
        environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(settings)}
        context = here / "context"
        (context / "dist").mkdir(parents=True)
        shutil.copy(wheel, context / "dist")
        for path in _context_files(place):
            shutil.copy(path, context)
        write_image(here / "base.tar", name=_BASE, layers=base, config={})
        options = {"env": environment, "stdout": subprocess.DEVNULL}
        try:
            run("buildah", "pull", "--quiet", f"docker-archive:{here}/base.tar", **options)
            for tool, layer in layers.items():
                built, archive = f"{_BUILT}-{tool}", here / f"{tool}.tar"
                run(*_BUILD[tool], f"--build-arg=BASE={_BASE}", f"--tag={built}", context, **options)
                run(tool, "push", "--quiet", built, f"docker-archive:{archive}", **options)
                config = _take_top_layer(archive, base, layer)
                _config_of(layer).write_text(json.dumps(config))
        finally:
            # Its mounts would keep the folder from being removed.
            subprocess.run(
                ["buildah", "rmi", "--all", "--force"], env=environment, capture_output=True, check=False
            )
            subprocess.run(["umount", f"{here}/images/overlay"], capture_output=True, check=False)


def _take_top_layer(archive: Path, base: list[Path], layer: Path) -> dict[str, object]:
    with tarfile.open(archive) as tar:

        def read(name: str) -> bytes:
            file = tar.extractfile(name)
            assert file is not None, name
            return file.read()

        manifest = json.loads(read("manifest.json"))[0]
        image = json.loads(read(manifest["Config"]))
        below = [f"sha256:{digest_of(each)}" for each in base]
        assert image["rootfs"]["diff_ids"][:-1] == below, (
            "the Dockerfile adds one layer to those of the tests"
        )
        layer.write_bytes(read(manifest["Layers"][-1]))
    return dict(image["config"])
