"""Dashes and underscores, equals signs and spaces, flags that may be given alone or several times."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    "words",
    [
        ["--num_workers=2"],
        ["--num-workers=2"],
        ["--num_workers", "2"],
        ["--num-workers", "2"],
        ["--num_workers=7", "--num-workers=2"],
    ],
)
def test_dashes_underscores_equals_and_spaces(elasticdl: Any, minimal: list[str], words: list[str]) -> None:
    assert elasticdl("train", *minimal, *words, "--dry-run").job["nodes"]["num_workers"] == 2


def test_both_names_of_a_flag(elasticdl: Any, minimal: list[str]) -> None:
    for word in ("--num_ps=2", "--num_ps_pods=2", "--num-ps-pods=2"):
        assert elasticdl("train", *minimal, word, "--dry_run").job["nodes"]["num_ps"] == 2


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["--shuffle"], True),
        (["--shuffle=false"], False),
        (["--shuffle", "off"], False),
        (["--shuffle=0"], False),
        (["--shuffle=1"], True),
        (["--shuffle", "--num_epochs=2"], True),
    ],
)
def test_boolean_flag_spelling_sets_value(
    elasticdl: Any, minimal: list[str], words: list[str], value: bool
) -> None:
    assert elasticdl("train", *minimal, *words, "--dry_run").job["data"]["shuffle"] is value


def test_pairs_and_volumes_add_up(elasticdl: Any, minimal: list[str]) -> None:
    job = elasticdl(
        "train",
        *minimal,
        "--envs=A=1,B=2",
        "--envs=C=3",
        "--volume=host_path=/a,mount_path=/a;host_path=/b,mount_path=/b",
        "--volume=host_path=/c,mount_path=/c",
        "--dry_run",
    ).job
    assert job["nodes"]["envs"] == {"A": "1", "B": "2", "C": "3"}
    assert [volume["mount_path"] for volume in job["cluster"]["volume"]] == ["/a", "/b", "/c"]
    twice = elasticdl("train", *minimal, "--envs=A=1", "--envs=A=2", "--dry_run")
    assert "--envs: A is given twice." in twice.err


def test_values_that_look_like_flags(elasticdl: Any, minimal: list[str]) -> None:
    result = elasticdl("train", *minimal, "--output", "--num_workers=2", "--dry_run")
    assert result.code == 2
    assert result.err == "error: --output has no value: the next word is --num_workers=2.\n"
    assert elasticdl("train", *minimal, "--output=-x", "--dry_run").job["training"]["output"] == "-x"
