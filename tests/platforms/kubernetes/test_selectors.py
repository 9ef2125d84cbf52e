"""Label and field selectors as the API server reads them."""

from __future__ import annotations

import pytest

from elasticdl.platforms.kubernetes.selectors import (
    Requirement,
    Selector,
    absent,
    equal,
    exists,
    is_in,
    not_equal,
    not_in,
    selector_query,
)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"app": "elasticdl", "job": "j"}, "app=elasticdl,job=j"),
        ([equal("a", "b")], "a=b"),
        ([not_equal("a", "b")], "a!=b"),
        ([is_in("tier", "x", "y"), not_in("zone", "z")], "tier in (x,y),zone notin (z)"),
        ([exists("queue"), absent("paused")], "queue,!paused"),
    ],
)
def test_label_selector_is_rendered(labels: Selector, text: str) -> None:
    assert selector_query(labels, None) == {"labelSelector": text}


def test_field_selector_has_equality_and_inequality() -> None:
    fields = [equal("spec.nodeName", "n1"), not_equal("status.phase", "Failed")]
    assert selector_query(None, fields) == {"fieldSelector": "spec.nodeName=n1,status.phase!=Failed"}


def test_field_value_with_special_characters_is_escaped() -> None:
    assert selector_query(None, {"reason": "a,b=c\\"}) == {"fieldSelector": "reason=a\\,b\\=c\\\\"}


def test_empty_selector_sends_no_parameter() -> None:
    assert selector_query(None, {}) == {}


@pytest.mark.parametrize("requirement", [is_in("a", "b"), exists("a")])
def test_set_based_field_selector_raises(requirement: Requirement) -> None:
    with pytest.raises(ValueError, match="Field selectors know = and != only"):
        selector_query(None, [requirement])


def test_set_without_values_raises() -> None:
    with pytest.raises(ValueError, match="names no value"):
        is_in("a")
