"""Handwritten digits in a JAX training loop, whose batches come from the ledger of the job.

    elasticdl train --job_command="python -m model_zoo.digits.jax_loop" --num_workers=1 --job_name=digits-jax

`python -m model_zoo.digits.jax_loop` alone does the same without a job. The parameters are saved before their batches
are reported: a process that takes over finds in them everything that counts as done.
"""

import argparse
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from elasticai_api.common.data_shard_service import build_data_shard_service

TRAINED = 1437
# Batches between two times that the parameters are saved and their batches are reported.
EVERY = 10


def make_parameters():
    first, second = jax.random.split(jax.random.key(0))
    return {
        "hidden": jax.random.normal(first, (64, 64)) * 0.1,
        "hidden_bias": jnp.zeros(64),
        "output": jax.random.normal(second, (64, 10)) * 0.1,
        "output_bias": jnp.zeros(10),
    }


def logits(parameters, images):
    hidden = jax.nn.relu(images @ parameters["hidden"] + parameters["hidden_bias"])
    return hidden @ parameters["output"] + parameters["output_bias"]


def mean_loss(parameters, images, digits):
    scores = jax.nn.log_softmax(logits(parameters, images))
    return -jnp.mean(jnp.take_along_axis(scores, digits[:, None], axis=1))


@jax.jit
def step(parameters, images, digits):
    loss, gradients = jax.value_and_grad(mean_loss)(parameters, images, digits)
    return jax.tree.map(lambda value, gradient: value - 0.3 * gradient, parameters, gradients), loss


def save(parameters, path):
    """Whole or not at all: the process may be killed while it writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".new-{os.getpid()}.npz")
    np.savez(new, **parameters)
    new.replace(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="out/digits-jax.npz", help="where to save it")
    parser.add_argument("--num_epochs", type=int, default=10)
    arguments = parser.parse_args()

    pixels, labels = load_digits(return_X_y=True)
    images, digits = (pixels / 16).astype(np.float32), labels.astype(np.int32)
    path = Path(arguments.model)
    parameters = make_parameters()
    if path.exists():
        parameters = {name: jnp.asarray(value) for name, value in np.load(path).items()}
        print(f"Goes on from {path}", flush=True)

    service = build_data_shard_service(
        batch_size=32,
        num_epochs=arguments.num_epochs,
        dataset_size=TRAINED,
        shuffle_shards=True,
        num_minibatches_per_shard=4,
        dataset_name="digits",
    )
    sizes: list[int] = []

    def keep():
        save(parameters, path)
        for size in sizes:
            service.report_batch_done(size)
        sizes.clear()

    for epoch in service.epochs():
        for indices in epoch.batches(report=False):
            parameters, loss = step(parameters, images[indices], digits[indices])
            sizes.append(len(indices))
            if len(sizes) == EVERY:
                keep()
        keep()
        print(f"epoch {epoch.number} loss {loss:.4f}", flush=True)
    found = logits(parameters, images[TRAINED:]).argmax(axis=1)
    print(f"Final accuracy: {(found == digits[TRAINED:]).mean():.4f}", flush=True)


if __name__ == "__main__":
    main()
