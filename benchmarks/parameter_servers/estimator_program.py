"""The peer `TensorFlow`: the model as an Estimator, each process with its place in the cluster in TF_CONFIG.

Variables are on the parameter server. With `--unique` the worker fetches every distinct row once, as our workers do,
instead of a row for every id of the batch. Which is faster depends on the share of communication, so both are tried.
There are no checkpoints, summaries or evaluation.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.progress import Progress

v1 = tf.compat.v1


class Batches(tf.estimator.SessionRunHook):  # type: ignore[misc]
    def __init__(self, loss: Any, progress: Progress) -> None:
        self._loss = loss
        self._progress = progress

    def before_run(self, context: Any) -> Any:
        return tf.estimator.SessionRunArgs(self._loss)

    def after_run(self, context: Any, values: Any) -> None:
        self._progress.batch(float(values.results))


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    with v1.variable_scope("rows"):
        table = v1.get_variable(
            "table",
            (params["ids"], clicks.WIDTH),
            initializer=v1.random_uniform_initializer(-clicks.SPREAD, clicks.SPREAD),
        )
    ids = features["ids"]
    if params["unique"]:
        different, places = tf.unique(tf.reshape(ids, [-1]))
        rows = tf.gather(tf.nn.embedding_lookup(table, different), places)
        rows = tf.reshape(rows, [-1, clicks.CATEGORIES, clicks.WIDTH])
    else:
        rows = tf.nn.embedding_lookup(table, ids)
    flat = tf.concat([features["numbers"], tf.reshape(rows, [-1, clicks.CATEGORIES * clicks.WIDTH])], 1)
    flat.set_shape([None, clicks.NUMBERS + clicks.CATEGORIES * clicks.WIDTH])
    deep = flat
    for number, units in enumerate(params["layers"]):
        deep = v1.layers.dense(deep, units, activation=tf.nn.relu, name=f"deep-{number}")
    deep = v1.layers.dense(deep, 1, name="deep-out")
    together = tf.reduce_sum(rows, 1)
    pairs = 0.5 * tf.reduce_sum(together * together - tf.reduce_sum(rows * rows, 1), 1)
    logits = (v1.layers.dense(flat, 1, name="linear") + deep)[:, 0] + pairs
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    optimizer = v1.train.AdagradOptimizer(clicks.RATE, initial_accumulator_value=clicks.START)
    sizes = [int(np.prod(each.shape)) for each in v1.trainable_variables() if each is not table]
    assert sum(sizes) == clicks.dense_parameters(params["layers"]), sizes
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step()),
        training_hooks=[Batches(loss, params["progress"])],
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--size", choices=clicks.LAYERS, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--unique", action="store_true")
    arguments = parser.parse_args()
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    data = clicks.open_clicks(arguments.data)
    size = data.sizes.batch
    first = 0 if task["type"] == "chief" else data.sizes.batches // 2

    def batches() -> Iterator[Any]:
        for numbers, ids, labels in data.batches(first):
            yield {"numbers": numbers, "ids": ids}, labels

    def input_fn() -> Any:
        features = {
            "numbers": tf.TensorSpec((size, clicks.NUMBERS), tf.float32),
            "ids": tf.TensorSpec((size, clicks.CATEGORIES), tf.int64),
        }
        made = tf.data.Dataset.from_generator(
            batches, output_signature=(features, tf.TensorSpec((size,), tf.float32))
        )
        return made.prefetch(2)

    session = v1.ConfigProto(
        intra_op_parallelism_threads=arguments.threads, inter_op_parallelism_threads=arguments.threads
    )
    # Without nodes that the device filters exclude: a worker starts when it and the server are ready.
    if task["type"] != "ps":
        session.device_filters.extend(["/job:ps", f"/job:{task['type']}/task:{task['index']}"])
    config = tf.estimator.RunConfig(
        model_dir=tempfile.mkdtemp(
            prefix=f"{task['type']}-", dir=os.environ.get("ELASTICDL_BENCHMARK_MODELS")
        ),
        save_checkpoints_steps=None,
        save_checkpoints_secs=None,
        save_summary_steps=None,
        log_step_count_steps=None,
        session_config=session,
    )
    estimator = tf.estimator.Estimator(
        model_fn,
        config=config,
        params={
            "layers": clicks.LAYERS[arguments.size],
            "ids": data.sizes.ids,
            "unique": arguments.unique,
            "progress": Progress(f"{task['type']}-{task['index']}"),
        },
    )
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn, max_steps=1 << 40),
        tf.estimator.EvalSpec(input_fn, steps=1),
    )


if __name__ == "__main__":
    main()
