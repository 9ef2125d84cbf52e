"""Images written by ourselves: an archive of layers that are tar files already, which takes the time of copying them.

The archive is both an OCI layout and what `docker save` writes, so that containerd, kind, minikube, docker, podman and
buildah all take it. Nothing in it is compressed: on one machine that costs more time than it saves.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def write_image(
    path: Path,
    *,
    name: str,
    layers: Sequence[Path],
    config: dict[str, Any],
    left_out: Collection[Path] = (),
) -> None:
    """`left_out` are layers that the reader of the archive has already: only their digests are in it."""
    digests = [digest_of(layer) for layer in layers]
    settings = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
            # buildah counts them.
            "history": [{"created_by": layer.name} for layer in layers],
        }
    )
    rows = [
        _entry(_LAYER, digest, layer.stat().st_size) for digest, layer in zip(digests, layers, strict=True)
    ]
    about = _entry(_CONFIG, _digest(settings), len(settings))
    manifest = _json({"schemaVersion": 2, "mediaType": _MANIFEST, "config": about, "layers": rows})
    index = {
        **_entry(_MANIFEST, _digest(manifest), len(manifest)),
        "annotations": {
            "io.containerd.image.name": full_name(name),
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        },
    }
    saved = {
        "Config": _place(_digest(settings)),
        "RepoTags": [full_name(name)],
        "Layers": [_place(digest) for digest in digests],
    }
    part = path.with_name(path.name + ".part")
    with tarfile.open(part, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        for content in (settings, manifest):
            _add(tar, _place(_digest(content)), content)
        for digest, layer in zip(digests, layers, strict=True):
            if layer not in left_out:
                tar.add(layer, arcname=_place(digest))
        _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [index]}))
        _add(tar, "manifest.json", _json([saved]))
    part.rename(path)


def digest_of(layer: Path) -> str:
    """Kept beside the layer: reading a gigabyte again for each image would take longer than all else."""
    kept = layer.with_name(layer.name + ".sha256")
    if not kept.exists() or kept.stat().st_mtime < layer.stat().st_mtime:
        with layer.open("rb") as file:
            digest = hashlib.sha256()
            while part := file.read(1 << 20):
                digest.update(part)
        kept.write_text(digest.hexdigest())
    return kept.read_text()


def full_name(name: str) -> str:
    """As a node looks it up: with the registry that a name without one means."""
    first, _, rest = name.partition("/")
    if rest and (first == "localhost" or "." in first or ":" in first):
        return name
    return f"docker.io/{name}" if rest else f"docker.io/library/{name}"


def _entry(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def _place(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(document: Any) -> bytes:
    return json.dumps(document).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
