"""The folders in a pod: those of the user, and ours (places to write, and what the job keeps secret).

The file system of an image is read-only, unless --read_only_root_filesystem=false: a program can write to volumes, to
/tmp and to its home folder.
"""

from __future__ import annotations

from typing import Any

from elasticdl.jobs.sections.reserved import HOME_FOLDER, SECRET_FOLDER, STATE_FOLDER, same_place
from elasticdl.jobs.sections.volumes import Volume
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes import naming

Document = dict[str, Any]

_SCRATCH = "/tmp"
# Readable for the group that all processes of the pod are in.
_SECRET_MODE = 0o440


def volumes_and_mounts(spec: JobSpec, *, serves: bool) -> tuple[list[Document], list[Document]]:
    """`serves`: it listens, and so has the job's certificate and key."""
    volumes: dict[tuple[str, str], Document] = {}
    mounts: list[Document] = []
    for given in spec.cluster.volume:
        volume = volumes.setdefault(given.source, {"name": f"volume-{len(volumes)}", **_source(given)})
        mount: Document = {"name": volume["name"], "mountPath": given.mount_path}
        if given.sub_path:
            mount["subPath"] = given.sub_path
        if given.read_only:
            mount["readOnly"] = True
        mounts.append(mount)
    places = {"secret": SECRET_FOLDER, "state": STATE_FOLDER, "scratch": _SCRATCH}
    if spec.cluster.read_only_root_filesystem:
        places["home"] = HOME_FOLDER
    ours = [_secret(spec, serves), *({"name": name, "emptyDir": {}} for name in places if name != "secret")]
    taken = {same_place(mount["mountPath"]) for mount in mounts}
    kept = [volume for volume in ours if places[volume["name"]] not in taken]
    mounts += [
        {
            "name": volume["name"],
            "mountPath": places[volume["name"]],
            **({"readOnly": True} if volume["name"] == "secret" else {}),
        }
        for volume in kept
    ]
    return [*volumes.values(), *kept], mounts


def _source(volume: Volume) -> Document:
    kind, value = volume.source
    if kind == "host_path":
        return {"hostPath": {"path": value}}
    if kind == "claim_name":
        return {"persistentVolumeClaim": {"claimName": value}}
    if kind == "config_map":
        return {"configMap": {"name": value}}
    return {"secret": {"secretName": value}}


def _secret(spec: JobSpec, serves: bool) -> Document:
    keys = ("token", "ca.crt", "tls.crt", "tls.key") if serves else ("token", "ca.crt")
    return {
        "name": "secret",
        "secret": {
            "secretName": naming.record_name(spec.job_name),
            "defaultMode": _SECRET_MODE,
            "items": [{"key": key, "path": key} for key in keys],
        },
    }
