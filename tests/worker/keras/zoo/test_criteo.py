"""The click models of the zoo in Keras learn from made clicks what there is to learn, and can be exported."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from elasticdl.worker.trainer import Trainer
from tests.worker.clicks import (
    assert_learns,
    assert_learns_from_logs,
    assert_the_same_from_every_format,
    make,
    trainer_of,
)


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("clicks"))


def seeded(name: str) -> Trainer:
    tf.keras.utils.set_random_seed(0)
    return trainer_of(name)


@pytest.mark.parametrize(
    # Chance is 0.5. What is reached here is between 0.03 and 0.05 more.
    ("name", "goal"),
    [("keras_deepfm", 0.69), ("keras_wide_deep", 0.65), ("keras_dcn", 0.62), ("keras_xdeepfm", 0.65)],
)
def test_learns(name: str, goal: float, clicks: Path, tmp_path: Path) -> None:
    trainer = seeded(name)
    example = assert_learns(trainer, clicks, goal)
    trainer.export(tmp_path / "model", example)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    # Keras 3 has a function for it; before, features go by their names.
    if hasattr(loaded, "serve"):
        found = loaded.serve(example.features)
    else:
        (found,) = loaded.signatures["serving_default"](**example.features).values()
    (expected,) = trainer.predict(example).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["keras_deepfm", "keras_wide_deep", "keras_dcn", "keras_xdeepfm"])
def test_learns_from_rows_in_the_form_of_the_logs(name: str, tmp_path: Path) -> None:
    assert_learns_from_logs(seeded(name), tmp_path)


def test_rows_are_the_same_in_every_format(tmp_path: Path) -> None:
    assert_the_same_from_every_format(seeded("keras_deepfm"), tmp_path)
