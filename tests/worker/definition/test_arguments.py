"""--model_params are texts; the model function gets what it takes."""

from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.worker.trainer_factory import convert_arguments


def annotated(
    width: int,
    rate: float,
    deep: bool,
    name: str,
    sizes: list[int],
    limit: int | None = None,
    either: "float | str" = "x",
) -> None: ...


def defaulted(width=8, rate=0.5, deep=False, name="a", sizes=(1, 2), anything=None) -> None: ...  # type: ignore[no-untyped-def]


def bare(value) -> None: ...  # type: ignore[no-untyped-def]


def keywords(**more: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (annotated, {"width": "3", "rate": "3", "name": "3"}, {"width": 3, "rate": 3.0, "name": "3"}),
        (annotated, {"deep": "True"}, {"deep": True}),
        (annotated, {"deep": "0"}, {"deep": False}),
        (annotated, {"sizes": "1, 2,3"}, {"sizes": [1, 2, 3]}),
        (annotated, {"limit": "none"}, {"limit": None}),
        (annotated, {"limit": "4"}, {"limit": 4}),
        (annotated, {"either": "0.5"}, {"either": 0.5}),
        (defaulted, {"width": "3", "rate": "3", "deep": "yes"}, {"width": 3, "rate": 3.0, "deep": True}),
        (
            defaulted,
            {"name": "3", "sizes": "4,5", "anything": "1e-3"},
            {"name": "3", "sizes": (4, 5), "anything": 1e-3},
        ),
        (bare, {"value": "3"}, {"value": 3}),
        (bare, {"value": "three"}, {"value": "three"}),
        (keywords, {"value": "true"}, {"value": True}),
    ],
)
def test_text_is_converted_to_annotated_type(
    function: Any, given: dict[str, str], expected: dict[str, Any]
) -> None:
    converted = convert_arguments(function, given, name="f")
    assert converted == expected
    assert [type(value) for value in converted.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"width": "wide"}, "width=wide: not a whole number"),
        ({"deep": "maybe"}, "deep=maybe: neither true nor false"),
        ({"withd": "3"}, "f has no argument withd. Did you mean width?"),
    ],
)
def test_mismatching_argument_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(UserError) as caught:
        convert_arguments(annotated, given, name="f")
    assert words in str(caught.value)
