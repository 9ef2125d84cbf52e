"""What a person gets to read who mistyped something: one line, the right word, exit code 2, no traceback."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "There is no command 'trian'. Did you mean train?"),
        (["xyzzy"], "There is no command 'xyzzy'."),
        (["train", "--num_worker=2"], "There is no flag --num_worker. Did you mean --num_workers?"),
        (["train", "--num-worker", "2"], "There is no flag --num_worker. Did you mean --num_workers?"),
        (["train", "--dryrun"], "There is no flag --dryrun. Did you mean --dry_run?"),
        (["train", "--xyzzy"], "There is no flag --xyzzy."),
        (["train", "-num_workers=2"], "Flags begin with two dashes: --num_workers"),
        (["train", "num_workers=2"], "Flags begin with two dashes: --num_workers=2"),
        (["train", "-x"], "There is no flag -x."),
        (["evaluate", "--num_epochs=2"], "--num_epochs is a flag of train, not of evaluate."),
        (["train", "--prediction_data=x"], "--prediction_data is a flag of predict, not of train."),
        (["predict", "--loss=x"], "--loss is a flag of train and evaluate, not of predict."),
        (["completion", "bsh"], "Did you mean bash?"),
        (["data", "mak"], "make"),
        (["jobs", "lst"], "list"),
        (["--verson"], "--version"),
        (["train", "--num_workers"], "requires an argument"),
        (["train", "surplus"], "surplus"),
    ],
)
def test_mistyped_words(elasticdl: Any, words: list[str], message: str) -> None:
    result = elasticdl(*words)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert message in result.err
    assert "Traceback" not in result.err


def test_wrong_values_are_reported_together(elasticdl: Any, minimal: list[str]) -> None:
    result = elasticdl(
        "train", *minimal, "--distribution_strategy=parameterserver", "--num_epochs=-1", "--shuffle=maybe"
    )
    assert result.code == 2
    assert result.err.splitlines() == [
        "error: 3 things are wrong with this job:",
        "  - --shuffle: 'maybe' is neither true nor false (nor 1/0, yes/no, on/off).",
        "  - --num_epochs: -1 is less than 1, the least allowed.",
        "  - --distribution_strategy: 'parameterserver' is not one of Local, ParameterServerStrategy, "
        "AllreduceStrategy; did you mean ParameterServerStrategy?",
        "hint: `elasticdl train --help` explains every flag.",
    ]


def test_a_job_without_anything(elasticdl: Any) -> None:
    result = elasticdl("train")
    assert result.code == 2
    for name in ("--model_zoo", "--model_def", "--training_data"):
        assert f"{name} is missing" in result.err
