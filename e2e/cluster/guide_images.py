"""The images of PaddlePaddle's Kubernetes guide: its own Dockerfiles, built by buildah on the layers of the tests.

What a Dockerfile adds is one layer; it is kept until the Dockerfile, the package or the layers below change. So a node
that has an image of the tests gets a few megabytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.archive import digest_of, write_image
from e2e.cluster.commands import run
from e2e.cluster.images import ROOT, Image, make_images
from e2e.cluster.package import make_wheel
from e2e.cluster.places import Cluster, load_images, own_folder

_BASE, _BUILT = "localhost/elasticdl-test:guide-base", "localhost/elasticdl-test:guide"


@dataclass(frozen=True, kw_only=True)
class _Guide:
    tag: str
    place: str
    framework: str


_GUIDES = (
    _Guide(tag="paddle:k8s_data", place="paddle/k8s_data", framework="light"),
    _Guide(tag="paddle:mypaddle", place="paddle/k8s_train", framework="paddle"),
)


def provide_guide_images(cluster: Cluster, repository: str) -> None:
    """Gives the nodes REPOSITORY/paddle:k8s_data and REPOSITORY/paddle:mypaddle."""
    with own_folder() as folder:
        wheel = make_wheel(folder)
        load_images(
            cluster, folder, [_make_image(folder, guide, wheel, repository=repository) for guide in _GUIDES]
        )


def _make_image(folder: Path, guide: _Guide, wheel: Path, *, repository: str) -> Image:
    (test_image,) = make_images(folder, frameworks=[guide.framework])
    place = ROOT / guide.place
    state = hashlib.sha256()
    for layer in test_image.base:
        state.update(digest_of(layer).encode())
    state.update(wheel.read_bytes())
    for path in _context_files(place):
        state.update(f"{path.name} {path.stat().st_mode}\n".encode() + path.read_bytes())
    name = guide.tag.replace(":", "-")
    layer = folder / f"guide-{name}-{state.hexdigest()[:12]}.tar"
    config = layer.with_suffix(".json")
    if not config.exists():
        for old in folder.glob(f"guide-{name}-*"):
            old.unlink()
        config.write_text(json.dumps(_build(place, wheel, test_image.base, layer)))
    return Image(
        name=f"{repository}/{guide.tag}",
        base=test_image.base,
        code=layer,
        config=json.loads(config.read_text()),
    )


def _context_files(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.is_file())


def _build(place: Path, wheel: Path, base: list[Path], layer: Path) -> dict[str, object]:
    """Writes the layer that the Dockerfile adds. Returns the configuration of the image."""
    with tempfile.TemporaryDirectory(dir=layer.parent) as made:
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
            words = ("--isolation=chroot", "--layers=false", f"--build-arg=BASE={_BASE}", f"--tag={_BUILT}")
            run("buildah", "build", "--quiet", "--pull-never", *words, context, **options)
            run("buildah", "push", "--quiet", _BUILT, f"docker-archive:{here}/built.tar", **options)
        finally:
            # Its mounts would keep the folder from being removed.
            subprocess.run(
                ["buildah", "rmi", "--all", "--force"], env=environment, capture_output=True, check=False
            )
            subprocess.run(["umount", f"{here}/images/overlay"], capture_output=True, check=False)
        return _take_top_layer(here / "built.tar", base, layer)


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
