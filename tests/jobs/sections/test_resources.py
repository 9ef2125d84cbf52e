"""Resources in the grammar of Kubernetes: amounts, names, and requests within limits."""

from __future__ import annotations

from fractions import Fraction

import pytest

from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections.resources import (
    Quantity,
    Resources,
    ResourcesGrammar,
    grown_memory,
    most_memory,
)

parse = ResourcesGrammar().parse


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", Fraction(1)),
        ("0.3", Fraction(3, 10)),
        (".5", Fraction(1, 2)),
        ("250m", Fraction(1, 4)),
        ("100u", Fraction(1, 10000)),
        ("2k", Fraction(2000)),
        ("3M", Fraction(3 * 10**6)),
        ("1Ki", Fraction(1024)),
        ("2048Mi", Fraction(2048 * 2**20)),
        ("1.5Gi", Fraction(3 * 2**29)),
        ("1E", Fraction(10**18)),
        ("2e3", Fraction(2000)),
        ("2E-1", Fraction(1, 5)),
        ("7Ei", Fraction(7 * 2**60)),
    ],
)
def test_quantity_text_has_amount(text: str, amount: Fraction) -> None:
    assert Quantity(text=text).amount == amount


@pytest.mark.parametrize("text", ["", "x", "-1", "1MB", "1 Mi", "1mi", "1K", "1KI", "1ee3", "Mi", "1.2.3"])
def test_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(BadValue, match="not a quantity"):
        _ = Quantity(text=text).amount


def test_all_names() -> None:
    resources = parse("cpu=0.5,memory=2Gi,disk=10Gi,gpu=1,amd.com/gpu=2")
    assert {name: str(quantity) for name, quantity in resources.by_name().items()} == {
        "cpu": "0.5",
        "memory": "2Gi",
        "ephemeral-storage": "10Gi",
        "nvidia.com/gpu": "1",
        "amd.com/gpu": "2",
    }
    assert resources.cpu == Quantity(text="0.5")
    assert str(resources) == "cpu=0.5,memory=2Gi,ephemeral-storage=10Gi,nvidia.com/gpu=1,amd.com/gpu=2"
    assert parse(str(resources)) == resources
    assert parse(resources) == resources
    assert (
        parse({"cpu": 0.5, "memory": "2Gi", "ephemeral-storage": "10Gi", "gpu": 1, "amd.com/gpu": "2"})
        == resources
    )


def test_empty_text_is_empty_resources() -> None:
    assert parse("") == Resources()
    assert not parse("")


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("cpus=1", "Did you mean cpu"),
        ("mem=1Gi", "is not a resource"),
        ("memory=12MB", "did you mean 12Mi"),
        ("memory=12gb", "did you mean 12Gi"),
        ("memory=512m", "whole number of bytes"),
        ("gpu=0.5", "whole number of devices"),
        ("gpu=1,nvidia.com/gpu=1", "given twice"),
        ("disk=1Gi,ephemeral-storage=1Gi", "given twice"),
        ("cpu", "not of the form"),
        ("cpu=-1", "not a quantity"),
        ("-x/gpu=1", "is not a resource"),
    ],
)
def test_wrong_resources(text: str, because: str) -> None:
    with pytest.raises(BadValue, match=because):
        parse(text)


def test_a_request_beyond_its_limit() -> None:
    request, limit = parse("cpu=1500m,memory=1Gi,gpu=1"), parse("cpu=1,memory=1024Mi,gpu=2")
    assert request.beyond(limit) == [
        "cpu=1500m is more than its limit 1",
        "nvidia.com/gpu=1 differs from its limit 2; devices are not shared",
    ]
    assert parse("cpu=1").beyond(parse("cpu=1000m")) == []
    assert parse("cpu=1,memory=9Gi").beyond(parse("cpu=2")) == []


@pytest.mark.parametrize(
    ("request_", "limit", "tries"),
    [
        ("memory=1Gi", "memory=3Gi", ["1Gi", "2048Mi", "3Gi", "3Gi"]),
        ("memory=1000", "memory=5000", ["1000", "2000", "4000", "5000"]),
        ("memory=2Gi", "memory=2048Mi", ["2Gi", "2048Mi", "2048Mi", "2048Mi"]),
        ("memory=1Gi", "", ["1Gi", "2048Mi", "4096Mi", "4096Mi"]),
    ],
)
def test_memory_doubles_up_to_the_limit(request_: str, limit: str, tries: list[str]) -> None:
    found = [grown_memory(parse(request_), parse(limit), times=times) for times in range(4)]
    assert [(str(promised), str(most)) for promised, most in found] == [(text, text) for text in tries]


def test_memory_of_which_nothing_or_only_a_limit_is_said() -> None:
    for times in (0, 3):
        assert grown_memory(parse("cpu=1"), parse(""), times=times) == (None, None)
        limited = grown_memory(parse(""), parse("memory=1Gi"), times=times)
        assert limited == (None, Quantity(text="1Gi"))
    assert most_memory(parse("cpu=1"), parse("")) is None
