"""Resources add, subtract, multiply and compare exactly, in whole base units."""

from __future__ import annotations

import pytest

from elasticdl.jobs.sections.resources import GPU, Resources, ResourcesGrammar


def resources(text: str) -> Resources:
    return ResourcesGrammar().parse(text)


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("cpu=0.5", {"cpu": 500}),
        ("cpu=250m", {"cpu": 250}),
        ("cpu=2", {"cpu": 2000}),
        # Finer than Kubernetes counts.
        ("cpu=100u", {"cpu": 1}),
        ("cpu=0.0015", {"cpu": 2}),
        ("memory=2Gi", {"memory": 2 << 30}),
        ("memory=2G", {"memory": 2 * 10**9}),
        ("memory=1e3", {"memory": 1000}),
        ("disk=1Ki,gpu=3", {"ephemeral-storage": 1024, GPU: 3}),
        ("", {}),
    ],
)
def test_resources_are_read_as_base_units(text: str, units: dict[str, int]) -> None:
    assert resources(text).to_units() == units


def test_sum_has_every_resource_of_both() -> None:
    total = resources("cpu=0.1,memory=1Gi") + resources("cpu=0.2,gpu=1")
    assert total.to_units() == {"cpu": 300, "memory": 1 << 30, GPU: 1}
    assert str(total) == f"cpu=300m,memory=1024Mi,{GPU}=1"


def test_sum_is_exact_where_floats_are_not() -> None:
    tenth = resources("cpu=0.1")
    assert (tenth + tenth + tenth).is_same_amount(resources("cpu=0.3"))


def test_sum_with_zero_is_the_same_amount() -> None:
    some = resources("cpu=1,memory=2G,gpu=1")
    assert (some + Resources.zero()).is_same_amount(some)
    assert not Resources.zero()


def test_difference_of_equal_amounts_is_zero() -> None:
    assert resources("memory=1Gi,cpu=1") - resources("memory=1024Mi,cpu=1000m") == Resources.zero()


def test_difference_below_zero_is_refused_with_the_resource() -> None:
    with pytest.raises(ValueError, match=r"negative: memory -1, nvidia\.com/gpu -1"):
        resources("cpu=1,memory=9") - resources("cpu=1,memory=10,gpu=1")


def test_multiple_is_that_many_nodes() -> None:
    node = resources("cpu=250m,memory=100,gpu=2")
    assert (3 * node).to_units() == {"cpu": 750, "memory": 300, GPU: 6}
    assert node * 0 == Resources.zero()
    with pytest.raises(ValueError, match="negative"):
        node * -1


@pytest.mark.parametrize(
    ("request_text", "capacity", "fits"),
    [
        ("cpu=1,memory=1Gi", "cpu=1,memory=1Gi", True),
        ("cpu=1", "cpu=999m", False),
        ("cpu=1,gpu=1", "cpu=8", False),
        ("", "", True),
        ("cpu=0", "", True),
        ("memory=1G", "memory=1Gi,cpu=1", True),
        ("memory=1Gi", "memory=1G,cpu=1", False),
    ],
)
def test_request_fits_if_no_resource_exceeds_the_capacity(
    request_text: str, capacity: str, fits: bool
) -> None:
    assert resources(request_text).fits_into(resources(capacity)) is fits


def test_result_is_read_back_by_the_grammar() -> None:
    grammar = ResourcesGrammar()
    total = resources("cpu=1.5,memory=3,disk=1Mi,gpu=1") * 7
    assert grammar.parse(grammar.text(total)) == total
