"""Volumes: folders of the machine, claims, ConfigMaps and Secrets, one or several."""

from __future__ import annotations

import pytest

from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections.volumes import Volume, VolumesGrammar

grammar = VolumesGrammar()
TWO = (
    Volume(host_path="/x y", mount_path="/data", sub_path="a/b"),
    Volume(claim_name="fileserver-claim", mount_path="/models"),
)


@pytest.mark.parametrize(
    "raw",
    [
        "host_path=/x y,mount_path=/data,sub_path=a/b;claim_name=fileserver-claim,mount_path=/models",
        "mount_path=/data, sub_path=a/b, host_path='/x y'; mount_path=/models, claim_name=fileserver-claim;",
        ["host_path=/x y,mount_path=/data,sub_path=a/b", "claim_name=fileserver-claim,mount_path=/models"],
        [
            {"host_path": "/x y", "mount_path": "/data", "sub_path": "a/b"},
            {"claim_name": "fileserver-claim", "mount_path": "/models"},
        ],
        TWO,
    ],
)
def test_all_ways_to_write_two_volumes(raw: object) -> None:
    assert grammar.parse(raw) == TWO
    assert grammar.parse(grammar.text(TWO)) == TWO
    assert grammar.parse(grammar.plain(TWO)) == TWO


@pytest.mark.parametrize(
    ("text", "volume", "source"),
    [
        ("config_map=c,mount_path=/c", Volume(config_map="c", mount_path="/c"), ("config_map", "c")),
        (
            "secret=s,mount_path=/s/key,sub_path=key,read_only=yes",
            Volume(secret="s", mount_path="/s/key", sub_path="key", read_only=True),
            ("secret", "s"),
        ),
        (
            "host_path=/x,mount_path=/y,read_only=false",
            Volume(host_path="/x", mount_path="/y"),
            ("host_path", "/x"),
        ),
    ],
)
def test_other_sources_and_read_only(text: str, volume: Volume, source: tuple[str, str]) -> None:
    assert grammar.parse(text) == (volume,)
    assert grammar.parse(grammar.text((volume,))) == (volume,)
    assert grammar.parse(grammar.plain((volume,))) == (volume,)
    assert volume.source == source


def test_empty_text_is_no_volume() -> None:
    assert grammar.parse("") == ()


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("host_path=/x", "needs mount_path"),
        ("mount_path=/x", "one of host_path, claim_name, config_map, secret"),
        ("mount_path=/x,host_path=/y,claim_name=c", "one of host_path, claim_name, config_map, secret"),
        ("mountpath=/x,host_path=/y", "Did you mean mount_path"),
        ("mount_path=x,host_path=/y", "mount_path must be an absolute path"),
        ("mount_path=/x,host_path=y", "host_path must be an absolute path"),
        ("mount_path=/x,host_path=/y,sub_path=../z", "sub_path must be a path inside"),
        ("mount_path=/x,host_path=/y,sub_path=/z", "sub_path must be a path inside"),
        ("mount_path=/x,claim_name=A_B", "name for Kubernetes"),
        ("mount_path=/x,host_path=/y;mount_path=/x,host_path=/z", "two volumes are mounted at /x"),
        ("mount_path=/x,host_path=/y,read_only=perhaps", "read_only: 'perhaps' is neither true nor false"),
        ("mount_path=/x,secret=A_B", "name for Kubernetes"),
        ("mount_path=/x/,host_path=/y;mount_path=/x,host_path=/z", "two volumes are mounted at /x"),
        ("mount_path=/x/../y,host_path=/y;mount_path=//y,host_path=/z", "two volumes are mounted at /y"),
        ("mount_path=/x:ro,host_path=/y", "mount_path must be a path without a colon, not '/x:ro'"),
        ("mount_path=/var/run/elasticdl/job,host_path=/y", "what the job itself needs is there"),
        ("mount_path=/var/run/elasticdl/job/,host_path=/y", "what the job itself needs is there"),
        ("mount_path=/var/run/elasticdl/job/tls.key,host_path=/y", "what the job itself needs is there"),
        ("mount_path=/var/run/elasticdl/notice,host_path=/y", "what the job itself needs is there"),
        ("mount_path=/var/lib/elasticdl,claim_name=c", "keeps its journal there.*--journal_dir"),
        ("mount_path=//var/lib/elasticdl/,claim_name=c", "keeps its journal there"),
        ("mount_path=/var/lib/elasticdl/journal,claim_name=c", "keeps its journal there"),
        ("/x:/y", "not of the form"),
    ],
)
def test_wrong_volumes(text: str, because: str) -> None:
    with pytest.raises(BadValue, match=because):
        grammar.parse(text)


@pytest.mark.parametrize("path", ["/var/lib/elasticdl-data", "/var/lib/mine", "/var/run/mine", "/var/lib"])
def test_places_beside_and_above_ours(path: str) -> None:
    (volume,) = grammar.parse(f"mount_path={path},claim_name=c")
    assert volume.mount_path == path
