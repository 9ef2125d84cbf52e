"""Every grammar takes its three forms (text, YAML, Python) and refuses the rest in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticdl.jobs.flags.grammar import Boolean, Choice, FilePath, Grammar, Integer, Pairs, Real, Text
from elasticdl.jobs.flags.names import ENVIRONMENT_VARIABLE, IMAGE, JOB_NAME, MODEL
from elasticdl.jobs.flags.pairs import BadValue

COLOUR = Choice(choices=("Red", "DarkGreen"))


@pytest.mark.parametrize("text", ["true", "True", "TRUE", "1", "yes", "on", " Yes ", True, 1])
def test_boolean_text_is_true(text: object) -> None:
    assert Boolean().parse(text) is True


@pytest.mark.parametrize("text", ["false", "False", "0", "no", "off", False, 0])
def test_boolean_text_is_false(text: object) -> None:
    assert Boolean().parse(text) is False


@pytest.mark.parametrize("text", ["", "maybe", "2", "t", "y", "None", 2, 1.0, None, []])
def test_invalid_boolean_is_rejected(text: object) -> None:
    with pytest.raises(BadValue, match="neither true nor false"):
        Boolean().parse(text)


@pytest.mark.parametrize(
    ("raw", "value"), [("0", 0), ("12", 12), (" 7 ", 7), ("+3", 3), (5, 5), (np.int64(9), 9), ("012", 12)]
)
def test_whole_numbers(raw: object, value: int) -> None:
    result = Integer().parse(raw)
    assert result == value
    assert type(result) is int


@pytest.mark.parametrize("raw", ["", "a", "1.0", "1e3", "1_000", "0x10", "१", 1.0, True, None, "9" * 5000])
def test_not_whole_numbers(raw: object) -> None:
    with pytest.raises(BadValue, match="not a whole number"):
        Integer().parse(raw)


def test_the_range_of_a_number() -> None:
    with pytest.raises(BadValue, match="-1 is less than 0"):
        Integer().parse("-1")
    with pytest.raises(BadValue, match="0 is less than 1"):
        Integer(minimum=1).parse(0)
    with pytest.raises(BadValue, match="70000 is more than 65535"):
        Integer(maximum=65535).parse("70000")
    with pytest.raises(BadValue, match="more than"):
        Integer().parse(2**63)
    with pytest.raises(BadValue, match=r"-0\.5 is less than 0"):
        Real().parse("-0.5")


@pytest.mark.parametrize(
    ("raw", "value"), [("20", 20.0), ("1.5", 1.5), (".5", 0.5), ("2e3", 2000.0), (3, 3.0)]
)
def test_number_is_parsed_from_every_form(raw: object, value: float) -> None:
    assert Real().parse(raw) == value


@pytest.mark.parametrize("raw", ["", "x", "nan", "inf", "1,5", True, None])
def test_not_numbers(raw: object) -> None:
    with pytest.raises(BadValue, match="not a number"):
        Real().parse(raw)


@pytest.mark.parametrize("raw", [float("nan"), float("inf"), "1e999"])
def test_numbers_without_end(raw: object) -> None:
    with pytest.raises(BadValue, match="not a finite number"):
        Real().parse(raw)


def test_wrong_choice_lists_the_right_ones_and_the_nearest() -> None:
    assert COLOUR.parse("Red") == "Red"
    with pytest.raises(BadValue, match="'darkgreen' is not one of Red, DarkGreen; did you mean DarkGreen"):
        COLOUR.parse("darkgreen")
    with pytest.raises(BadValue, match="not one of"):
        COLOUR.parse("")
    assert Choice(choices=("Red",), optional=True).parse("") == ""


def test_text_is_text() -> None:
    assert Text().parse("  any thing ") == "  any thing "
    assert Text().parse(Path("a/b")) == "a/b"
    for raw in (1, None, b"x", print, "\udcff"):
        with pytest.raises(BadValue):
            Text().parse(raw)


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        (
            Text(rule=JOB_NAME),
            ["a", "a-1", "test-mnist"],
            ["A", "1a", "a_b", "a-", "-a", "a.b", "a\n", "a" * 51],
        ),
        (Text(rule=MODEL), ["a.b", "a.b.c", "a.b.c.d"], ["a", "a.", ".b", "a/b.c", "a.b-c", "a.1"]),
        (
            Text(rule=IMAGE),
            ["elasticdl:1.0.0", "gcr.io/p/e:mnist", "localhost:5000/x", "x@sha256:" + "0" * 64],
            ["gcr.io/${P}/x", "a b", ":x", "x@sha256:0"],
        ),
        (Pairs(key_rule=ENVIRONMENT_VARIABLE), ["A=1", "a.b=2"], ["1A=1", "a b=1"]),
    ],
)
def test_grammar_accepts_valid_and_rejects_invalid_text(
    grammar: Grammar[object], right: list[str], wrong: list[str]
) -> None:
    for text in right:
        grammar.parse(text)
    for text in wrong:
        with pytest.raises(BadValue):
            grammar.parse(text)


def test_text_that_must_be_there() -> None:
    assert Text(rule=JOB_NAME).parse("") == ""
    with pytest.raises(BadValue, match="empty"):
        Text(optional=False).parse("")


@pytest.mark.parametrize("raw", ["s3://bucket/x", "gs://b", "hdfs://host:9000/x", "file:///data", "S3://b"])
def test_urls_are_paths_only_where_allowed(raw: str) -> None:
    with pytest.raises(BadValue, match="is a URL"):
        FilePath().parse(raw)
    assert FilePath(urls=True).parse(raw) == raw


@pytest.mark.parametrize(
    "raw", ["a/b", "/a", "a:b", "C://x", "C:/x", "out//x", "./s3:/x", "data:/x", "s3:x", ""]
)
def test_paths_are_kept(raw: str) -> None:
    assert FilePath().parse(raw) == raw


@pytest.mark.parametrize("raw", [Path("s3://bucket/x"), "gs:/b", "S3:/b/c", Path("hdfs://host:9000/x")])
@pytest.mark.parametrize("urls", [False, True])
def test_urls_that_pathlib_has_shortened_are_rejected(raw: object, urls: bool) -> None:
    with pytest.raises(BadValue, match="for lack of a slash"):
        FilePath(urls=urls).parse(raw)


def test_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    assert FilePath().parse("~/out") == "/home/anna/out"
    assert FilePath().parse("out/~x") == "out/~x"
