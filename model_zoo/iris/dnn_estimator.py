"""Irises in a `tf.estimator` DNN, trained and evaluated with `train_and_evaluate`.

    elasticdl data make iris --file=data/iris.data
    elasticdl train --job_command="python -m model_zoo.iris.dnn_estimator" --need_tf_config=true \\
        --num_ps=1 --num_workers=1 --num_evaluator=1 --distribution_strategy=ParameterServerStrategy

It needs TensorFlow 2.15, the last with Estimators. `python -m model_zoo.iris.dnn_estimator` alone trains in one
process. The chief ends with a last evaluation, of the model that it has saved.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow as tf

from elasticai_api.common.data_shard_service import build_data_shard_service

from ..elastic_estimator import ElasticDataShardReportHook, KeepServedModelHook, ShardIndices

CATEGORY_CODE = {"Iris-setosa": 0, "Iris-versicolor": 1, "Iris-virginica": 2}
# Where the data is by default: in the volume of a pod, or in the folder of the command.
PLACES = ("/data/iris.data", "data/iris.data")
# Mean and spread of the four measures, in centimetres.
MEANS, SPREADS = [5.84, 3.05, 3.76, 1.20], [0.83, 0.43, 1.76, 0.76]
# Every fifth row is kept for the evaluation.
EVALUATED = 5

Row = tuple[list[float], int]


def read_rows(path: str) -> list[Row]:
    """Reads rows in an order that mixes the species, which are sorted in the file: the same in every process."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = [([float(cell) for cell in row[:4]], CATEGORY_CODE[row[4]]) for row in csv.reader(file) if row]
    random.Random(0).shuffle(rows)
    return rows


def train_input_fn(rows: list[Row], indices: Iterable[int], batch_size: int) -> tf.data.Dataset:
    def samples() -> Iterator[tuple[dict[str, list[float]], int]]:
        for index in indices:
            measures, label = rows[index]
            yield {"measures": measures}, label

    signature = ({"measures": tf.TensorSpec([4], tf.float32)}, tf.TensorSpec([], tf.int32))
    return tf.data.Dataset.from_generator(samples, output_signature=signature).batch(batch_size).prefetch(2)


def eval_input_fn(rows: list[Row]) -> tf.data.Dataset:
    measures, labels = zip(*rows, strict=True)
    return tf.data.Dataset.from_tensor_slices(({"measures": list(measures)}, list(labels))).batch(len(rows))


def make_estimator(config: tf.estimator.RunConfig) -> tf.estimator.Estimator:
    measures = tf.feature_column.numeric_column(
        "measures", shape=(4,), normalizer_fn=lambda values: (values - MEANS) / SPREADS
    )
    return tf.estimator.DNNClassifier(
        feature_columns=[measures],
        hidden_units=[16, 16],
        n_classes=len(CATEGORY_CODE),
        optimizer=lambda: tf.keras.optimizers.legacy.Adam(0.01),
        config=config,
    )


def main(arguments: argparse.Namespace) -> None:
    rows = read_rows(arguments.training_data)
    evaluated = rows[::EVALUATED]
    trained = [row for number, row in enumerate(rows) if number % EVALUATED]
    config = tf.estimator.RunConfig(
        model_dir=arguments.model_dir or str(Path(arguments.training_data).parent / "iris-ckpts"),
        tf_random_seed=1,
        # Enough that the evaluator still finds the one it has just chosen.
        keep_checkpoint_max=20,
        save_checkpoints_steps=arguments.checkpoint_steps,
        log_step_count_steps=100,
        # A worker waits for the chief to make the model; by default it would wait longer the higher its number is.
        experimental_max_worker_delay_secs=5,
    )
    hooks = []
    indices: Iterable[int] = ()
    if config.task_type in ("chief", "worker"):
        training_data_shard_svc = build_data_shard_service(
            batch_size=arguments.batch_size,
            num_epochs=arguments.num_epochs,
            dataset_size=len(trained),
            num_minibatches_per_shard=1,
            dataset_name="iris_training_data",
        )
        indices = ShardIndices(training_data_shard_svc, arguments.batch_size)
        hooks += [ElasticDataShardReportHook(indices), KeepServedModelHook(config)]
    tf.estimator.train_and_evaluate(
        make_estimator(config),
        tf.estimator.TrainSpec(lambda: train_input_fn(trained, indices, arguments.batch_size), hooks=hooks),
        tf.estimator.EvalSpec(
            lambda: eval_input_fn(evaluated),
            steps=None,
            # An evaluator that takes the place of a killed one finds a checkpoint there.
            start_delay_secs=0,
            throttle_secs=arguments.evaluation_seconds,
        ),
    )
    if config.is_chief:
        # In this process alone, whatever the cluster: an estimator that knows of servers would ask them.
        os.environ.pop("TF_CONFIG", None)
        alone = make_estimator(tf.estimator.RunConfig(model_dir=config.model_dir))
        metrics = alone.evaluate(lambda: eval_input_fn(evaluated), name="final")
        print(f"Final accuracy: {metrics['accuracy']:.4f} at step {metrics['global_step']}", flush=True)


def parse(words: list[str]) -> argparse.Namespace:
    found = os.environ.get("IRIS_DATA") or next(
        (place for place in PLACES if os.path.exists(place)), PLACES[0]
    )
    parser = argparse.ArgumentParser(prog="python -m model_zoo.iris.dnn_estimator")
    parser.add_argument(
        "--training_data", default=found, help="iris.data [default: $IRIS_DATA or %(default)s]"
    )
    parser.add_argument(
        "--model_dir", default="", help="for checkpoints [default: iris-ckpts beside the data]"
    )
    parser.add_argument("--batch_size", type=int, default=12)
    parser.add_argument("--num_epochs", type=int, default=100)
    parser.add_argument("--checkpoint_steps", type=int, default=100)
    parser.add_argument("--evaluation_seconds", type=int, default=5, help="at least, between two evaluations")
    arguments = parser.parse_args(words)
    if not os.path.exists(arguments.training_data):
        parser.error(
            f"there is no {arguments.training_data}; `elasticdl data make iris --file=data/iris.data`"
        )
    return arguments


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    main(parse(sys.argv[1:]))
