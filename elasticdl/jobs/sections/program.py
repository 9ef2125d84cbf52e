"""What a job runs, and on what data: the sections `model` and `data` of a job."""

# ruff: noqa: RUF009 - a flag is a dataclass field, created separately for every class

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elasticdl.jobs.flags.flag import EVALUATE, PREDICT, TRAIN, Topic, flag
from elasticdl.jobs.flags.grammar import Boolean, FilePath, Integer, Pairs, Text
from elasticdl.jobs.flags.names import ARGUMENT, FUNCTION, MODEL

# Of a job command: whose distributed runtime it uses.
Framework = Literal["tensorflow", "paddle", "plain"]

_NAME = Text(metavar="NAME", rule=FUNCTION, optional=False)
_DATA = Text(metavar="PATH", completes="file")


@dataclass(frozen=True, kw_only=True)
class ModelSection:
    """A model definition in a model zoo, or the command of a program with a loop of its own."""

    model_zoo: str = flag(
        FilePath(metavar="FOLDER", completes="dir"),
        "",
        "Folder with model definitions; elasticdl.zoo for those that come with elasticdl.",
        topic=Topic.MODEL,
    )
    model_def: str = flag(
        Text(metavar="folder.module.function", rule=MODEL),
        "",
        "The function that makes the model, by its place in the model zoo.",
        topic=Topic.MODEL,
    )
    model_params: dict[str, str] = flag(
        Pairs(key_rule=ARGUMENT),
        {},
        "Arguments for the function that makes the model.",
        topic=Topic.MODEL,
    )
    feed: str = flag(
        _NAME,
        "feed",
        "Function in the same module that turns records into features and labels.",
        topic=Topic.MODEL,
    )
    loss: str = flag(_NAME, "loss", "Function for the loss of a batch.", topic=Topic.MODEL, kinds=EVALUATE)
    optimizer: str = flag(
        _NAME, "optimizer", "Function that makes the optimizer.", topic=Topic.MODEL, kinds=TRAIN
    )
    callbacks: str = flag(
        _NAME,
        "callbacks",
        "Function that makes the callbacks; the module may do without.",
        topic=Topic.MODEL,
        kinds=TRAIN,
    )
    eval_metrics_fn: str = flag(
        _NAME,
        "eval_metrics_fn",
        "Function that makes the metrics of an evaluation.",
        topic=Topic.MODEL,
        kinds=EVALUATE,
    )
    custom_data_reader: str = flag(
        _NAME,
        "custom_data_reader",
        "Function that makes a reader for data of your own kind; the module may do without.",
        topic=Topic.MODEL,
    )
    prediction_outputs_processor: str = flag(
        _NAME,
        "PredictionOutputsProcessor",
        "Class that is given the predictions; the module may do without.",
        topic=Topic.MODEL,
        kinds=PREDICT,
    )
    job_command: str = flag(
        Text(metavar="COMMAND"),
        "",
        "Command that every worker runs in place of a model definition.",
        topic=Topic.COMMAND,
        kinds=TRAIN,
    )
    need_tf_config: bool = flag(
        Boolean(),
        False,
        "Give the nodes TF_CONFIG, as TensorFlow's Estimators want it.",
        topic=Topic.COMMAND,
        kinds=TRAIN,
    )
    public_client: bool = flag(
        Boolean(),
        True,
        "Serve data shards to the public elasticai_api package too, which has no token, on a second port.",
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
    """Where samples come from: a file, a folder, a pattern of files, or what a custom reader understands."""

    training_data: str = flag(
        _DATA, "", "Data to train on: a file, a folder, or a pattern.", topic=Topic.DATA, kinds=TRAIN
    )
    validation_data: str = flag(_DATA, "", "Data to evaluate on.", topic=Topic.DATA, kinds=EVALUATE)
    prediction_data: str = flag(_DATA, "", "Data to make predictions for.", topic=Topic.DATA, kinds=PREDICT)
    data_reader_params: dict[str, str] = flag(
        Pairs(key_rule=ARGUMENT), {}, "Options for the reader of the data.", topic=Topic.DATA
    )
    max_bad_records: int = flag(
        Integer(),
        0,
        "Corrupt samples to skip, and list in the audit, before the job fails.",
        topic=Topic.DATA,
    )
    shuffle: bool = flag(
        Boolean(), True, "Hand out the shards in another order every epoch.", topic=Topic.DATA, kinds=TRAIN
    )
    shuffle_seed: int = flag(
        Integer(), 0, "With the epoch, decides that order.", topic=Topic.DATA, kinds=TRAIN
    )
