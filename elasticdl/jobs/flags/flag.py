"""The metadata of a dataclass field, which define its flag.

Everything else that knows flags is derived from it: the options of the commands and their help, the keys of
the YAML file, the arguments of the Python API, and the reference in the documentation.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast, get_args

from elasticdl.jobs.flags.grammar import Grammar

JobKind = Literal["train", "evaluate", "predict"]
KINDS: tuple[JobKind, ...] = get_args(JobKind)
TRAIN: tuple[JobKind, ...] = ("train",)
EVALUATE: tuple[JobKind, ...] = ("train", "evaluate")
PREDICT: tuple[JobKind, ...] = ("predict",)

T = TypeVar("T")
_KEY = "elasticdl.flag"


class Topic(str, enum.Enum):
    """The headings of the help, in its order."""

    JOB = "Job"
    MODEL = "Model definition"
    COMMAND = "Job command (your own training program)"
    DATA = "Data"
    TRAINING = "Training"
    EXCHANGE = "Exchange of gradients"
    EVALUATION = "Evaluation"
    CHECKPOINT = "Checkpoints"
    TRACKING = "Experiment tracking"
    NODES = "Nodes"
    FAILURE = "Failures"
    RESOURCES = "Resources and priorities"
    CLUSTER = "Kubernetes"


@dataclass(frozen=True, kw_only=True)
class Flag:
    """The description of a flag besides its name and its default, which are the field's."""

    grammar: Grammar[Any]
    help: str
    topic: Topic
    aliases: tuple[str, ...] = ()
    # The commands that have a use for it. A job file may always contain it: one file serves several commands.
    kinds: tuple[JobKind, ...] = KINDS
    # How the default comes about where it depends on other flags (see `schema/defaults.py`).
    derived: str = ""


def flag(
    grammar: Grammar[T],
    default: T,
    help: str,  # noqa: A002 - the word that every command line tool has for it
    *,
    topic: Topic,
    aliases: tuple[str, ...] = (),
    kinds: tuple[JobKind, ...] = KINDS,
    derived: str = "",
) -> T:
    """A dataclass field that is a flag."""
    metadata = {
        _KEY: Flag(grammar=grammar, help=help, topic=topic, aliases=aliases, kinds=kinds, derived=derived)
    }
    # dataclasses refuses mutable defaults; a copy of the default for every object is what is meant.
    if isinstance(default, dict):
        return cast(T, dataclasses.field(default_factory=default.copy, metadata=metadata))
    return dataclasses.field(default=default, metadata=metadata)


def flags_of(section: type) -> dict[str, Flag]:
    """The flags of a dataclass by their names, in the order they are written there."""
    return {item.name: item.metadata[_KEY] for item in dataclasses.fields(section) if _KEY in item.metadata}
