"""Assembles the loop that trains, evaluates or predicts with a model definition.

Whatever needs NumPy is imported by this module and those below it, which is imported when the definition has been: the
framework brings NumPy along, and until then a worker that is to replace another has nothing to do with it.
"""

from __future__ import annotations

from elasticdl.data.dataset import open_reader
from elasticdl.data.reader import Reader
from elasticdl.errors import UserError
from elasticdl.jobs.sections.training import ALLREDUCE
from elasticdl.jobs.spec import JobSpec
from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.loop import Loop
from elasticdl.worker.master_link import MasterLink
from elasticdl.worker.trainer import Trainer
from elasticdl.worker.trainer_factory import make_trainer
from elasticdl.worker.training.training_loop import TrainingLoop


def make_loop(link: MasterLink, spec: JobSpec, token: str, definition: ModelDefinition) -> Loop:
    """Opens the data, makes the model, and tells the master how much there is to do."""
    wanted = {
        "train": (("training", spec.data.training_data), ("evaluation", spec.data.validation_data)),
        "evaluate": (("evaluation", spec.data.validation_data),),
        "predict": (("prediction", spec.data.prediction_data),),
    }[spec.kind]
    readers = {name: _open(definition, origin, spec) for name, origin in wanted if origin}
    for name, reader in readers.items():
        if len(reader) == 0:
            raise UserError(f"The {name} data at {reader.origin} has no samples.")
    served = spec.kind == "train" and bool(spec.nodes.num_ps)
    trainer = make_trainer(
        definition, move_embeddings=spec.training.move_embeddings_mib << 20 if served else 0
    )
    # The evaluation data first: the master starts nothing before it knows whether there is some.
    for name, reader in sorted(readers.items()):
        link.memory.announce(name, len(reader))
        link.call(link.stub.Announce, pb.AnnounceRequest(node=link.node, dataset=name, size=len(reader)))
    if spec.kind == "train":
        return _training_loop(trainer, spec)(
            link=link,
            spec=spec,
            trainer=trainer,
            training=readers["training"],
            validation=readers.get("evaluation"),
            token=token,
        )
    if spec.kind == "evaluate":
        from elasticdl.worker.scoring.evaluation_job import ScoringLoop

        return ScoringLoop(link=link, spec=spec, trainer=trainer, reader=readers["evaluation"])
    from elasticdl.worker.scoring.prediction import PredictionLoop

    return PredictionLoop(link=link, spec=spec, trainer=trainer, reader=readers["prediction"])


def _training_loop(trainer: Trainer, spec: JobSpec) -> type[TrainingLoop]:
    if spec.training.distribution_strategy != ALLREDUCE:
        return TrainingLoop
    if type(trainer).__module__ != "elasticdl.worker.torch.trainer":
        raise UserError(
            "AllreduceStrategy is for models in PyTorch; this definition makes one in Keras.",
            hint="Train it with --distribution_strategy=ParameterServerStrategy.",
        )
    from elasticdl.worker.torch.allreduce_loop import AllReduceLoop, check_tables

    check_tables(trainer)
    return AllReduceLoop


def _open(definition: ModelDefinition, origin: str, spec: JobSpec) -> Reader:
    params = spec.data.data_reader_params
    if definition.custom_data_reader is not None:
        from elasticdl.data.custom_reader import adapt_custom_reader

        made = definition.custom_data_reader(data_origin=origin, **params)
        if made is not None:
            return adapt_custom_reader(made, origin)
    return open_reader(origin, params)
