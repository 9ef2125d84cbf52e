"""What is written as YAML reads back as the same job, whatever its values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.jobs.flags.grammar import (
    Boolean,
    Choice,
    FilePath,
    Grammar,
    Integer,
    Pairs,
    Pattern,
    Real,
    Text,
    is_url,
)
from elasticdl.jobs.schema import document
from elasticdl.jobs.schema.flag_index import LEAVES
from elasticdl.jobs.sections.egress import EgressGrammar, Target
from elasticdl.jobs.sections.env_secrets import SecretEnvs
from elasticdl.jobs.sections.hosts import HostsGrammar
from elasticdl.jobs.sections.priority import PriorityGrammar
from elasticdl.jobs.sections.reserved import same_place
from elasticdl.jobs.sections.resources import ResourcesGrammar
from elasticdl.jobs.sections.tracking import ServerAddress
from elasticdl.jobs.sections.volumes import Volume, VolumesGrammar
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml

QUANTITIES = st.from_regex("[0-9]{1,6}(Ki|Mi|Gi|M|k)?", fullmatch=True)
TEXT = st.text()
# What YAML would rather take for something else.
TRAPS = st.sampled_from(
    [
        "null",
        "~",
        "on",
        "No",
        "012",
        "1:30",
        "1e3",
        "0x1F",
        "- a",
        "a: b",
        "{a}",
        "#x",
        "!t",
        "&a",
        "*a",
        "\n",
        " x ",
    ]
)


def egress_target(address: object, port: int) -> Target:
    (target,) = EgressGrammar().parse(f"[{address}]:{port}" if port else str(address))
    return target


def values_of(grammar: Grammar[Any]) -> st.SearchStrategy[Any]:
    if isinstance(grammar, Boolean):
        return st.booleans()
    if isinstance(grammar, Integer):
        return st.integers(grammar.minimum, grammar.maximum)
    if isinstance(grammar, Real):
        return st.floats(grammar.minimum, allow_nan=False, allow_infinity=False)
    if isinstance(grammar, Choice):
        return st.sampled_from(grammar.choices)
    if isinstance(grammar, EgressGrammar):
        networks = st.ip_addresses(v=4, network="10.0.0.0/8") | st.ip_addresses(v=6, network="fd00::/8")
        return st.lists(
            st.builds(egress_target, networks, st.integers(0, 65535)), max_size=3, unique=True
        ).map(tuple)
    if isinstance(grammar, HostsGrammar):
        names = st.sampled_from(["gpu1", "bob@gpu-2.example", "10.0.0.7", "fd00::1", "on", "1e3"])
        return st.lists(names, max_size=3, unique=True).map(tuple)
    if isinstance(grammar, SecretEnvs):
        keys = st.from_regex(grammar.key_rule.pattern, fullmatch=True)
        return st.dictionaries(keys, st.sampled_from(["mine", "on", "a.b/key", "x/_.-"]), max_size=3)
    if isinstance(grammar, Pairs):
        keys = st.from_regex(grammar.key_rule.pattern, fullmatch=True)
        return st.dictionaries(keys, TEXT | TRAPS, max_size=3)
    if isinstance(grammar, PriorityGrammar):
        return st.sampled_from(["", "high", "high=0.5", "0.25"])
    if isinstance(grammar, ResourcesGrammar):
        names = st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"])
        return st.dictionaries(names, QUANTITIES).map(grammar.parse)
    if isinstance(grammar, Pattern):
        return st.sampled_from(["", "TEAM_.*", "A|B", "[A-Z]+: '#'"])
    if isinstance(grammar, VolumesGrammar):
        folders = TEXT.filter(lambda text: ":" not in text).map(lambda text: f"/{text}")
        paths = st.lists(folders, unique_by=same_place, max_size=3)
        return paths.map(lambda all_: tuple(Volume(host_path="/h", mount_path=path) for path in all_))
    assert isinstance(grammar, Text), grammar
    if isinstance(grammar, FilePath):
        # `~` is the home folder, and URLs are rejected.
        return (TEXT | TRAPS).filter(lambda text: not text.startswith("~") and not is_url(text))
    if isinstance(grammar, ServerAddress):
        return st.sampled_from(["", "http://127.0.0.1:5000", "https://[::1]/path?a=b#c", "http://host:"])
    if grammar.rule is None:
        return TEXT | TRAPS
    longest = grammar.rule.longest or 1000
    return st.from_regex(grammar.rule.pattern, fullmatch=True).filter(lambda text: len(text) <= longest)


# One flag of each grammar stands for the others that have the same.
DIFFERENT = {leaf.flag.grammar: leaf.name for leaf in LEAVES.values()}.values()


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_value_of_every_grammar(name: str) -> None:
    leaf = LEAVES[name]

    @settings(deadline=None, max_examples=50)
    @given(values_of(leaf.flag.grammar))
    def check(value: object) -> None:
        text = document.write("train", {name: value})
        kind, given_values = document.read(text, source="x")
        assert kind == "train"
        assert list(given_values) == [name]
        assert leaf.flag.grammar.parse(given_values[name].raw) == value
        # And the text that one would type behind the flag means the same.
        assert leaf.flag.grammar.parse(leaf.flag.grammar.text(value)) == value

    check()


@settings(deadline=None, max_examples=50)
@given(
    st.fixed_dictionaries(
        {
            "model_zoo": TEXT.filter(lambda text: text and not text.startswith("~") and not is_url(text)),
            "training_data": TEXT.filter(bool) | TRAPS,
            "num_workers": st.integers(1, 100),
            "grads_to_wait": st.integers(1, 5),
            "model_params": st.dictionaries(st.from_regex("[a-z]+", fullmatch=True), TEXT | TRAPS),
            "shuffle": st.booleans(),
            "stall_factor": st.floats(0, 1e9),
        }
    )
)
def test_whole_jobs(flags: dict[str, Any]) -> None:
    spec = JobSpec.build(model_def="a.b.c", name_suffix="x1", **flags)
    assert from_yaml(to_yaml(spec)) == spec


@pytest.mark.parametrize("kind", ["train", "evaluate", "predict"])
def test_a_file_is_complete(job: Callable[..., JobSpec], kind: str) -> None:
    """Nothing is left to a default that may change, or that may depend on something else."""
    _, given_values = document.read(to_yaml(job(kind)), source="x")
    assert set(given_values) == set(LEAVES)
