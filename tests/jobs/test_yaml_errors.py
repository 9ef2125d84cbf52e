"""A wrong job file is refused with the line and the right word; nothing in it is executed or unfolded."""

from __future__ import annotations

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import from_yaml

GOOD = """\
kind: train
model:
  model_zoo: zoo
  model_def: a.b.c
data:
  training_data: data
"""


def refused(text: str) -> str:
    with pytest.raises(UserError) as caught:
        from_yaml(text, source="job.yaml")
    return caught.value.message


def test_a_file_by_hand() -> None:
    spec = from_yaml(GOOD + "nodes:\n  num_ps_pods: 2\n  envs: {A: 1, B: on, C: 1:30}\ncheckpoint:\n")
    assert spec.nodes.num_ps == 2
    assert spec.nodes.envs == {"A": "1", "B": "on", "C": "1:30"}


def test_values_follow_the_grammar_of_the_flag_and_not_yaml() -> None:
    spec = from_yaml(GOOD + "training:\n  num_epochs: 010\n  output: no\n  use_async: 'yes'\n")
    assert spec.training.num_epochs == 10
    assert spec.training.output == "no"
    assert spec.training.use_async is True


def test_null_in_yaml_means_default() -> None:
    assert from_yaml(GOOD + "nodes:\n  num_workers:\n  num_ps: null\n  envs: ~\n") == from_yaml(GOOD)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("nodes:\n  num_worker: 2\n", "job.yaml:8: unknown key nodes.num_worker. Did you mean num_workers?"),
        ("node:\n  num_workers: 2\n", "job.yaml:8: unknown key node. Did you mean nodes?"),
        ("num_workers: 2\n", "job.yaml:7: num_workers is at the wrong place: it belongs in section nodes."),
        ("nodes:\n  job_name: a\n", "job.yaml:8: nodes.job_name is at the wrong place: it belongs outside"),
        ("training:\n  num_workers: 2\n", "job.yaml:8: training.num_workers is at the wrong place"),
        ("nodes:\n  num_workers: two\n", "job.yaml:8: nodes.num_workers: 'two' is not a whole number."),
        (
            "nodes:\n  num_workers: 1\n  num_workers: 2\n",
            "job.yaml:9: num_workers comes twice in section nodes; ",
        ),
        ("model:\n  feed: x\n", "job.yaml:7: model comes twice in a job file; the first is in line 2."),
        ("nodes: 3\n", "job.yaml:7: section nodes must consist of lines `key: value`."),
        ("nodes:\n- num_workers: 3\n", "job.yaml:8: section nodes must consist of lines"),
        ("nodes:\n  num_ps: [1, 2]\n", "job.yaml:8: nodes.num_ps: ['1', '2'] is not a whole number."),
        ("nodes:\n  envs: {A: {B: 1}}\n", "job.yaml:8: text or a number belongs here."),
        ("nodes:\n  envs: {A: 1, A: 2}\n", "job.yaml:8: A comes twice in this mapping"),
        ("cluster:\n  volume: [[a]]\n", "job.yaml:8: a list inside a list has no meaning here."),
        ("nodes:\n  num_workers: !!python/name:os.system\n", "job.yaml:8: "),
        ("nodes:\n  envs: !mine {A: 1}\n", "job.yaml:8: tags such as !mine have no meaning here."),
        ("nodes:\n  num_workers: [\n", "job.yaml:9:1: this is not YAML: "),
        ("\tnodes: 1\n", "job.yaml:7:1: this is not YAML: "),
        ("---\nkind: train\n", "job.yaml:7:1: this is not YAML: "),
        ("? [a]\n: b\n", "job.yaml:8: unknown key ?."),
        ("<<: {kind: train}\n", "unknown key <<."),
    ],
)
def test_errors_have_their_line(more: str, message: str) -> None:
    assert message in refused(GOOD + more)


def test_all_wrong_keys_are_reported_at_once() -> None:
    lines = refused(GOOD + "nodes:\n  num_worker: 2\n  num_pss: 1\n").splitlines()
    assert [line.split(": ")[0] for line in lines] == ["job.yaml:8", "job.yaml:9"]


def test_the_kind() -> None:
    assert refused("") == "job.yaml: the key kind is missing (train, evaluate, predict)."
    assert "Did you mean train?" in refused("kind: trian\n")
    assert refused("- a\n- b\n") == "job.yaml:1: a job file must consist of lines `key: value`."
    assert "job.yaml:1" in refused("just text")


def test_control_characters() -> None:
    assert "not YAML" in refused("kind: \x00\n")


def test_a_file_that_would_unfold_for_ever() -> None:
    assert "text or a number belongs here" in refused(GOOD + "nodes: &n\n  envs:\n    A: *n\n")
    bomb = "".join(f"x{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9) if i else 'x'}]\n" for i in range(20))
    assert "unknown key x0" in refused(bomb)
