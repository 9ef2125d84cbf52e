"""Dataclasses survive JSON, and a document of the wrong shape is refused with the path of the wrong value."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from elasticdl.jobs.json_codec import BadDocument, check_version, decode, encode, json_field


class Colour(str, enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    weight: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Whole:
    colour: Colour
    parts: tuple[Part, ...] = ()
    pair: tuple[int, float] = (0, 0.0)
    counts: Mapping[str, int] = field(default_factory=dict)
    note: str | None = None
    is_done: bool = json_field("done", default=False)


WHOLE = Whole(
    colour=Colour.BLUE,
    parts=(Part(name="a", weight=1.5), Part(name="b")),
    pair=(3, 0.25),
    counts={"worker": 2},
    is_done=True,
)


def test_dataclass_written_as_json_reads_back_equal() -> None:
    assert decode(Whole, json.loads(json.dumps(encode(WHOLE)))) == WHOLE


def test_field_with_key_is_written_under_the_key() -> None:
    assert encode(WHOLE)["done"] is True
    assert "is_done" not in encode(WHOLE)


def test_unknown_key_is_ignored() -> None:
    assert decode(Whole, {**encode(WHOLE), "of_a_newer_version": 1}) == WHOLE


def test_missing_key_takes_the_default() -> None:
    assert decode(Whole, {"colour": "red"}) == Whole(colour=Colour.RED)


def test_whole_number_is_accepted_for_a_real_one() -> None:
    assert decode(Part, {"name": "a", "weight": 2}).weight == 2.0


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "document: expected an object"),
        ({}, "document: colour is missing"),
        ({"colour": "green"}, "colour: 'green' is not one of red, blue"),
        (
            {"colour": "red", "parts": [{"name": "a"}, {"name": 7}]},
            r"parts\[1\].name: expected text, found 7",
        ),
        ({"colour": "red", "parts": {}}, "parts: expected a list"),
        ({"colour": "red", "pair": [1]}, "pair: expected 2 values, found 1"),
        ({"colour": "red", "counts": {"ps": True}}, "counts.ps: expected a whole number, found True"),
        ({"colour": "red", "counts": []}, "counts: expected an object"),
        ({"colour": "red", "done": 1}, "done: expected true or false"),
        ({"colour": "red", "note": 1.5}, "note: expected text"),
    ],
)
def test_wrong_value_is_refused_with_its_path(document: object, problem: str) -> None:
    with pytest.raises(BadDocument, match=problem):
        decode(Whole, document)


def test_version_up_to_the_newest_is_accepted() -> None:
    check_version({}, newest=1, what="status")
    check_version({"version": 2}, newest=2, what="status")


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        (3, "status has version 3, and this elasticdl reads versions up to 2"),
        ("1", "expected a number from 1"),
    ],
)
def test_version_unknown_is_refused_with_the_version(version: object, problem: str) -> None:
    with pytest.raises(BadDocument, match=problem):
        check_version({"version": version}, newest=2, what="status")
