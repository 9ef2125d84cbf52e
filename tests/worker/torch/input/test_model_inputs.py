"""What of a sample goes into `forward`, and as which argument."""

from typing import Any

import pytest
import torch

from elasticdl.jobs.mode import Mode
from elasticdl.worker.torch.input.model_inputs import ModelInputs

ONE, TWO = torch.ones(2, 1), torch.zeros(2, 1)


def single(features: Any) -> Any: ...
def double(wide: Any, deep: Any) -> Any: ...
def optional(tokens: Any, mask: Any = None) -> Any: ...
def any_number(*features: Any) -> Any: ...


@pytest.mark.parametrize(
    ("forward", "features", "expected"),
    [
        (single, ONE, ((ONE,), {})),
        (single, (ONE, TWO), (((ONE, TWO),), {})),
        (single, {"a": ONE}, (({"a": ONE},), {})),
        (double, (ONE, TWO), ((ONE, TWO), {})),
        (double, [ONE, TWO], ((ONE, TWO), {})),
        (double, {"wide": ONE, "deep": TWO}, ((), {"wide": ONE, "deep": TWO})),
        (double, {"wide": ONE, "other": TWO}, (({"wide": ONE, "other": TWO},), {})),
        (optional, ONE, ((ONE,), {})),
        (optional, (ONE, TWO), ((ONE, TWO), {})),
        (any_number, (ONE, TWO, ONE), ((ONE, TWO, ONE), {})),
        (single, ["some", "text"], ((["some", "text"],), {})),
    ],
)
def test_features_become_arguments_of_forward(forward: Any, features: Any, expected: Any) -> None:
    assert ModelInputs(forward).arguments(features) == expected


PAIR, NAMED = (ONE, TWO), {"wide": ONE, "deep": TWO}


@pytest.mark.parametrize(
    ("forward", "batch", "features"),
    [
        (single, ONE, ONE),
        (single, NAMED, NAMED),
        (single, PAIR, ONE),
        (double, PAIR, PAIR),
        (double, NAMED, NAMED),
        (double, (PAIR, ONE), PAIR),
        (double, (NAMED, ONE), NAMED),
    ],
)
def test_samples_to_predict_with_and_without_labels(forward: Any, batch: Any, features: Any) -> None:
    assert ModelInputs(forward).split(Mode.PREDICTION)(batch)[0] is features


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.EVALUATION])
def test_samples_to_learn_from_are_pairs(mode: Mode) -> None:
    assert ModelInputs(double).split(mode)((ONE, TWO)) == (ONE, TWO)
