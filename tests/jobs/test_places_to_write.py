"""On a cluster what a job writes must go to a volume: a pod's own disk is seen by no other pod, and goes with it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from elasticdl.jobs.spec import JobSpec

Build = Callable[..., JobSpec]
Refused = Callable[..., str]

DATA = "host_path=/srv,mount_path=/data"


@pytest.mark.parametrize("flag", ["checkpoint_dir", "output", "journal_dir"])
@pytest.mark.parametrize(
    ("path", "volume"),
    [
        ("/tmp/x", ""),
        ("/tmp/x", DATA),
        ("relative", DATA),
        ("/database", DATA),
        ("/data/../tmp", DATA),
        ("/data/x", f"{DATA},read_only=true"),
        ("/data/x", "config_map=words,mount_path=/data"),
        ("/data/x", "secret=words,mount_path=/data"),
    ],
)
def test_a_path_off_every_volume(refused: Refused, flag: str, path: str, volume: str) -> None:
    words = refused(image_name="i", volume=volume or None, **{flag: path})
    assert f"--{flag}: no --volume that can be written is mounted at {path}" in words
    assert "Mount one (--volume)" in words


def test_predictions_outside_of_volumes_are_refused(refused: Refused) -> None:
    assert "--output: no --volume" in refused("predict", image_name="i", output="/tmp/out.csv")


@pytest.mark.parametrize("volume", [DATA, "claim_name=c,mount_path=/data/", "host_path=/,mount_path=/"])
@pytest.mark.parametrize("path", ["/data/x/y", "/data/x/", "/data"])
def test_a_path_on_one(job: Build, volume: str, path: str) -> None:
    job(image_name="i", volume=volume, checkpoint_dir=path, output=path, journal_dir=path)


def test_a_mount_among_the_fields_of_pods(job: Build, refused: Refused) -> None:
    def fields(**more: object) -> str:
        return json.dumps({"pod_spec": {"volumeMounts": [{"name": "n", "mountPath": "/mnt", **more}]}})

    job(image_name="i", output="/mnt/x", cluster_spec_json=fields())
    assert "--output: no --volume" in refused(
        image_name="i", output="/mnt/x", cluster_spec_json=fields(readOnly=True)
    )


def test_url_on_cluster_is_allowed_for_model_only(job: Build, refused: Refused) -> None:
    job(image_name="i", output="s3://b/model")
    assert "--checkpoint_dir: on Kubernetes s3://b/c" in refused(image_name="i", checkpoint_dir="s3://b/c")
    assert "not from s3://b/c" in refused(image_name="i", checkpoint_dir_for_init="s3://b/c")
    assert "--output: on Kubernetes" in refused("predict", image_name="i", output="s3://b/out.csv")


def test_on_this_machine_any_path_will_do(job: Build) -> None:
    job(checkpoint_dir="/tmp/x", output="out")
    job(checkpoint_dir="s3://b/c", output="s3://b/model")
