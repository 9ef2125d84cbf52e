"""Volumes: folders of the machine and claims, one or several."""

from __future__ import annotations

import pytest

from elasticdl.jobs.pairs import BadValue
from elasticdl.jobs.volumes import Volume, VolumesGrammar

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


def test_none() -> None:
    assert grammar.parse("") == ()


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("host_path=/x", "needs mount_path"),
        ("mount_path=/x", "either host_path or claim_name"),
        ("mount_path=/x,host_path=/y,claim_name=c", "either host_path or claim_name"),
        ("mountpath=/x,host_path=/y", "Did you mean mount_path"),
        ("mount_path=x,host_path=/y", "mount_path must be an absolute path"),
        ("mount_path=/x,host_path=y", "host_path must be an absolute path"),
        ("mount_path=/x,host_path=/y,sub_path=../z", "sub_path must be a path inside"),
        ("mount_path=/x,host_path=/y,sub_path=/z", "sub_path must be a path inside"),
        ("mount_path=/x,claim_name=A_B", "name for Kubernetes"),
        ("mount_path=/x,host_path=/y;mount_path=/x,host_path=/z", "two volumes are mounted at /x"),
        ("/x:/y", "not of the form"),
    ],
)
def test_wrong_volumes(text: str, because: str) -> None:
    with pytest.raises(BadValue, match=because):
        grammar.parse(text)
