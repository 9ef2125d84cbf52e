"""Some epochs of a training with callbacks, in one worker alone or by parameter servers, for the tests that compare the
two.
"""

from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.model.model_store import LocalModel, Model
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.trainer import Batch, Trainer

EPOCHS = 4


def alone(trainer: Trainer) -> Model:
    return LocalModel(trainer, restore_from="", first_step=0)


def served(trainer: Trainer, addresses: list[str]) -> Model:
    client = ParameterClient(addresses, "token", "worker-0", generation=1, patience_seconds=60)
    return ServedModel(trainer, client, pull_every=1, restore_from="")


def train(trainer: Trainer, model: Model, batch: Batch) -> list[float]:
    """The losses of three batches an epoch, all of them the same batch."""
    model.prepare(batch)
    callbacks = trainer.callbacks(leader=True, epochs=EPOCHS)
    callbacks.fire("on_train_begin", {})
    losses = []
    for epoch in range(EPOCHS):
        callbacks.fire("on_epoch_begin", epoch, {})
        losses += [model.train(batch, position=batch.size, batches=1) for _ in range(3)]
        callbacks.fire("on_epoch_end", epoch, {})
    model.close()
    return losses
