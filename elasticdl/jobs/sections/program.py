"""The program of a job and its data: the sections `model` and `data` of a job."""

# ruff: noqa: RUF009 - a flag is a dataclass field, created separately for every class

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elasticdl.jobs.flags.flag import EVALUATE, PREDICT, TRAIN, Topic, flag
from elasticdl.jobs.flags.grammar import Boolean, FilePath, Integer, Pairs, Text
from elasticdl.jobs.flags.names import ARGUMENT, FUNCTION, MODEL

# The distributed runtimes of job commands.
Framework = Literal["tensorflow", "paddle", "plain"]

_NAME = Text(metavar="NAME", rule=FUNCTION, optional=False)
_DATA = Text(metavar="PATH", completes="file")


@dataclass(frozen=True, kw_only=True)
class ModelSection:
    """A model definition in a model zoo, or the command of a program with a loop of its own."""

    model_zoo: str = flag(
        FilePath(metavar="FOLDER", completes="dir"),
        "",
        "Folder with model definitions; elasticdl.zoo: those installed with elasticdl.",
        topic=Topic.MODEL,
    )
    model_def: str = flag(
        Text(metavar="folder.module.function", rule=MODEL),
        "",
        "Function that returns the model, by its path in the model zoo.",
        topic=Topic.MODEL,
    )
    model_params: dict[str, str] = flag(
        Pairs(key_rule=ARGUMENT),
        {},
        "Arguments of the function that returns the model.",
        topic=Topic.MODEL,
    )
    feed: str = flag(
        _NAME,
        "feed",
        "Function in the same module that converts records to features and labels.",
        topic=Topic.MODEL,
    )
    loss: str = flag(_NAME, "loss", "Function for the loss of a batch.", topic=Topic.MODEL, kinds=EVALUATE)
    optimizer: str = flag(
        _NAME, "optimizer", "Function that returns the optimizer.", topic=Topic.MODEL, kinds=TRAIN
    )
    callbacks: str = flag(
        _NAME,
        "callbacks",
        "Function that returns the callbacks; optional.",
        topic=Topic.MODEL,
        kinds=TRAIN,
    )
    eval_metrics_fn: str = flag(
        _NAME,
        "eval_metrics_fn",
        "Function that returns the metrics of an evaluation.",
        topic=Topic.MODEL,
        kinds=EVALUATE,
    )
    custom_data_reader: str = flag(
        _NAME,
        "custom_data_reader",
        "Function that returns a reader for data in another format; optional.",
        topic=Topic.MODEL,
    )
    prediction_outputs_processor: str = flag(
        _NAME,
        "PredictionOutputsProcessor",
        "Class that receives the predictions; optional.",
        topic=Topic.MODEL,
        kinds=PREDICT,
    )
    job_command: str = flag(
        Text(metavar="COMMAND"),
        "",
        "Command that every worker runs instead of a model definition.",
        topic=Topic.COMMAND,
        kinds=TRAIN,
    )
    need_tf_config: bool = flag(
        Boolean(),
        False,
        "Set TF_CONFIG in all nodes, for TensorFlow's Estimators.",
        topic=Topic.COMMAND,
        kinds=TRAIN,
    )
    public_client: bool = flag(
        Boolean(),
        True,
        "Serve data shards on a second port, without a token, for the public elasticai_api package.",
        topic=Topic.COMMAND,
        kinds=TRAIN,
    )

    def framework(self, *, num_ps: int) -> Framework:
        """Whose variables the nodes of a job command get. Parameter servers without TF_CONFIG are Paddle's."""
        if not self.job_command:
            return "plain"
        if self.need_tf_config:
            return "tensorflow"
        return "paddle" if num_ps > 0 or "paddle" in self.job_command.lower() else "plain"


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """The source of samples: a file, a folder, a pattern of files, or an origin for a custom reader."""

    training_data: str = flag(
        _DATA, "", "Data to train on: a file, a folder, or a pattern.", topic=Topic.DATA, kinds=TRAIN
    )
    validation_data: str = flag(_DATA, "", "Data to evaluate on.", topic=Topic.DATA, kinds=EVALUATE)
    prediction_data: str = flag(_DATA, "", "Data to make predictions for.", topic=Topic.DATA, kinds=PREDICT)
    data_reader_params: dict[str, str] = flag(
        Pairs(key_rule=ARGUMENT), {}, "Options of the data reader.", topic=Topic.DATA
    )
    max_bad_records: int = flag(
        Integer(),
        0,
        "How many corrupt samples to skip and list in the audit before the job fails.",
        topic=Topic.DATA,
    )
    shuffle: bool = flag(
        Boolean(),
        True,
        "Lease the shards in a different order in every epoch.",
        topic=Topic.DATA,
        kinds=TRAIN,
    )
    shuffle_seed: int = flag(
        Integer(), 0, "Seed of this order, together with the epoch.", topic=Topic.DATA, kinds=TRAIN
    )
