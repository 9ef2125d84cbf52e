"""`a=1,b=2`: what it means, how a comma gets into a value, and that it reads back what it writes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.jobs.flags.pairs import BadValue, format_pairs, parse_pairs


def parse(raw: object) -> dict[str, str]:
    return parse_pairs(raw, example="key=value")


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        (" a = 1 ; b = 2 ", {"a": "1", "b": "2"}),
        ("a=1,", {"a": "1"}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ('a="1,2",b=3', {"a": "1,2", "b": "3"}),
        ("a='1;2',b=3", {"a": "1;2", "b": "3"}),
        ('a="say \\"hi\\", twice"', {"a": 'say "hi", twice'}),
        ("a=don't,b=2", {"a": "don't", "b": "2"}),
        ('columns=["a","b"]; part="dt=20191011"', {"columns": '["a","b"]', "part": "dt=20191011"}),
        ("a=C:\\data,b=2", {"a": "C:\\data", "b": "2"}),
    ],
)
def test_pairs_are_parsed_from_text(text: str, pairs: dict[str, str]) -> None:
    assert parse(text) == pairs


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("a", "not of the form"),
        ("=1", "not of the form"),
        ("a=1,,b=2", "nothing between"),
        (",a=1", "nothing between"),
        ("a=1,a=2", "a is given twice"),
        ('a="1,b=2', "does not close"),
        ("a=[1,b=2", "does not close"),
        ("a=1,b", "'b' is not of the form"),
    ],
)
def test_invalid_pairs_are_rejected(text: str, because: str) -> None:
    with pytest.raises(BadValue, match=because):
        parse(text)


def test_values_of_a_script_become_the_text_that_one_would_type() -> None:
    assert parse({"a": 1, "b": 0.5, "c": True, "d": "x"}) == {"a": "1", "b": "0.5", "c": "true", "d": "x"}
    with pytest.raises(BadValue, match="a has the value"):
        parse({"a": [1]})


def test_several_texts_add_up() -> None:
    assert parse(["a=1", "b=2"]) == {"a": "1", "b": "2"}
    with pytest.raises(BadValue, match="twice"):
        parse(["a=1", "a=2"])


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"[A-Za-z_]\w*", fullmatch=True), st.text()))
def test_formatted_pairs_parse_back(pairs: dict[str, str]) -> None:
    assert parse(format_pairs(pairs)) == pairs


def test_list_of_names_and_values_is_refused() -> None:
    """As Kubernetes lists variables: `name` and `value` would become keys."""
    for entry in ({"name": "A", "value": "b"}, {"name": "A"}):
        with pytest.raises(BadValue, match="write a mapping of keys to values"):
            parse([entry])
    assert parse([{"A": "b"}, "C=d"]) == {"A": "b", "C": "d"}
