"""The training, evaluation and checkpoints of a model: sections `training`, `evaluation`, `checkpoint` of a job."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.jobs.flags.flag import TRAIN, Topic, flag
from elasticdl.jobs.flags.grammar import Boolean, Choice, FilePath, Integer

LOCAL = "Local"
PARAMETER_SERVER = "ParameterServerStrategy"
ALLREDUCE = "AllreduceStrategy"

_FOLDER = FilePath(metavar="FOLDER", completes="dir", urls=True)


@dataclass(frozen=True, kw_only=True)
class TrainingSection:
    """Batches, epochs, and how several workers train one model."""

    minibatch_size: int = flag(Integer(minimum=1), 64, "Samples in a batch.", topic=Topic.TRAINING)
    num_minibatches_per_task: int = flag(
        Integer(minimum=1),
        8,
        "Batches in a shard, the unit of work leased to a worker.",
        topic=Topic.TRAINING,
    )
    num_epochs: int = flag(Integer(minimum=1), 1, "Number of epochs.", topic=Topic.TRAINING, kinds=TRAIN)
    max_step: int = flag(
        Integer(),
        0,
        "Stop after this many batches of all workers; 0: no limit.",
        topic=Topic.TRAINING,
        kinds=TRAIN,
    )
    distribution_strategy: str = flag(
        Choice(choices=(LOCAL, PARAMETER_SERVER, ALLREDUCE)),
        LOCAL,
        "How workers share one model.",
        topic=Topic.EXCHANGE,
        derived="ParameterServerStrategy with several workers or any parameter server, Local otherwise",
    )
    grads_to_wait: int = flag(
        Integer(minimum=1),
        1,
        "Gradients to combine into one update; more than 1: synchronous training.",
        topic=Topic.EXCHANGE,
        kinds=TRAIN,
    )
    use_async: bool = flag(
        Boolean(),
        True,
        "Apply every gradient when it arrives, whatever version it is based on.",
        topic=Topic.EXCHANGE,
        kinds=TRAIN,
        derived="true if grads_to_wait is 1",
    )
    lr_staleness_modulation: bool = flag(
        Boolean(),
        False,
        "Divide the learning rate by the number of versions that a gradient is behind.",
        topic=Topic.EXCHANGE,
        kinds=TRAIN,
    )
    sync_version_tolerance: int = flag(
        Integer(),
        0,
        "How many versions a gradient may be behind in synchronous training.",
        topic=Topic.EXCHANGE,
        kinds=TRAIN,
    )
    max_bad_gradients: int = flag(
        Integer(),
        0,
        "How many batches with non-finite gradients (NaN, infinity) to skip before the job fails.",
        topic=Topic.EXCHANGE,
        kinds=TRAIN,
    )
    get_model_steps: int = flag(
        Integer(minimum=1),
        1,
        "Batches between two pulls of the model from the parameter servers.",
        topic=Topic.EXCHANGE,
        kinds=TRAIN,
    )
    move_embeddings_mib: int = flag(
        Integer(),
        0,
        "Convert ordinary embeddings of at least this many MiB to tables on the parameter servers; 0: none.",
        topic=Topic.EXCHANGE,
        kinds=TRAIN,
    )
    row_transfer: str = flag(
        # As the parameter servers know them.
        Choice(choices=("float32", "float16", "bfloat16")),
        "float32",
        "Format of table rows and their gradients on the network; servers store and add float32.",
        topic=Topic.EXCHANGE,
        kinds=TRAIN,
    )
    log_loss_steps: int = flag(
        Integer(minimum=1),
        100,
        "Batches between two loss lines in a worker's log.",
        topic=Topic.TRAINING,
        kinds=TRAIN,
    )
    output: str = flag(
        FilePath(urls=True),
        "",
        "Path or URL for the finished model; with predict, for the predictions.",
        topic=Topic.TRAINING,
    )

    @property
    def asynchronous(self) -> bool:
        return self.use_async and self.grads_to_wait == 1


@dataclass(frozen=True, kw_only=True)
class EvaluationSection:
    """When to evaluate while training."""

    evaluation_steps: int = flag(
        Integer(),
        0,
        "Batches between two evaluations; 0: only after every epoch.",
        topic=Topic.EVALUATION,
        kinds=TRAIN,
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointSection:
    """The checkpoints that a job writes, and the one that it starts from."""

    checkpoint_dir: str = flag(
        _FOLDER,
        "",
        "Path or URL for checkpoints. Default: the folder of the job.",
        topic=Topic.CHECKPOINT,
        kinds=TRAIN,
    )
    checkpoint_steps: int = flag(
        Integer(),
        0,
        "Batches between two checkpoints; 0: one after every epoch.",
        topic=Topic.CHECKPOINT,
        kinds=TRAIN,
    )
    keep_checkpoint_max: int = flag(
        Integer(), 3, "Number of checkpoints to keep; 0: all.", topic=Topic.CHECKPOINT, kinds=TRAIN
    )
    checkpoint_increments: int = flag(
        Integer(),
        8,
        "How many consecutive checkpoints may store only the changed rows of tables; 0: all checkpoints are complete.",
        topic=Topic.CHECKPOINT,
        kinds=TRAIN,
    )
    checkpoint_dir_for_init: str = flag(
        _FOLDER, "", "Checkpoint or exported model to start from: a path or a URL.", topic=Topic.CHECKPOINT
    )
