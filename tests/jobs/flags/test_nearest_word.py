"""A wrong word is answered with the right one."""

from __future__ import annotations

import pytest

from elasticdl.jobs.flags.nearest import did_you_mean, nearest
from elasticdl.jobs.schema.flag_index import NAMES


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("num_worker", "num_workers"),
        ("workers", "num_workers"),
        ("NUM-WORKERS", "num_workers"),
        ("batch_size", "minibatch_size"),
        ("epochs", "num_epochs"),
        ("model-zo", "model_zoo"),
        ("checkpoint_step", "checkpoint_steps"),
        ("num_ps_pod", "num_ps_pods"),
    ],
)
def test_a_typing_error_finds_its_flag(typed: str, meant: str) -> None:
    assert nearest(typed, NAMES) == meant


def test_unlike_word_gets_no_suggestion() -> None:
    assert nearest("xyzzy", NAMES) is None
    assert did_you_mean("xyzzy", NAMES) == ""


def test_the_sentence_has_its_prefix() -> None:
    assert did_you_mean("num_worker", NAMES, prefix="--") == " Did you mean --num_workers?"
