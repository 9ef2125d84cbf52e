"""Clicks in DeepCTR's DeepFM estimator, trained and evaluated with `train_and_evaluate`.

    elasticdl data make criteo-like --rows=2000 --output=data/criteo
    elasticdl train --need_tf_config=true --num_ps=1 --num_workers=1 --num_evaluator=1 \\
        --distribution_strategy=ParameterServerStrategy \\
        --job_command="python -m model_zoo.deepctr.deepfm_estimator --training_data=data/criteo/train \\
            --validation_data=data/criteo/test"

The data is text in the columns of Criteo's click logs: label, 13 numbers, 26 categories; separated by tabs as in the
logs, or by commas under a header as in DeepCTR's criteo_sample.txt. A path is a file or a folder of such files.
Checkpoints are written beside the data, in the folder ckpts. It needs TensorFlow 2.15 and deepctr.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow as tf

from elasticai_api.common.data_shard_service import build_data_shard_service

from ..elastic_estimator import ElasticDataShardReportHook, KeepServedModelHook, ShardIndices

NUMBERS = [f"I{number}" for number in range(1, 14)]
CATEGORIES = [f"C{number}" for number in range(1, 27)]
COLUMNS = 1 + len(NUMBERS) + len(CATEGORIES)
BUCKETS = 1000
DIMENSION = 4

Row = tuple[int, list[float], list[str]]


def read_rows(path: str) -> list[Row]:
    """All rows of a file or of the files of a folder, in the order of their names."""
    place = Path(path)
    files = (
        sorted(file for file in place.iterdir() if not file.name.startswith("."))
        if place.is_dir()
        else [place]
    )
    return [row for file in files for row in _rows_of(file)]


def _rows_of(file: Path) -> Iterator[Row]:
    with file.open(newline="", encoding="utf-8") as lines:
        first = lines.readline()
        lines.seek(0)
        reader = csv.reader(lines, delimiter="\t" if "\t" in first else ",")
        if first.startswith("label"):
            next(reader)
        for cells in reader:
            if len(cells) != COLUMNS:
                raise ValueError(
                    f"{file}, line {reader.line_num}: {len(cells)} columns in place of {COLUMNS}"
                )
            numbers = cells[1 : 1 + len(NUMBERS)]
            yield int(cells[0]), [_squeezed(cell) for cell in numbers], cells[1 + len(NUMBERS) :]


def _squeezed(cell: str) -> float:
    """Counts are spread over many magnitudes; a missing one is 0."""
    value = float(cell or 0)
    return math.copysign(math.log1p(abs(value)), value)


def train_input_fn(rows: list[Row], indices: Iterable[int], batch_size: int) -> tf.data.Dataset:
    def samples() -> Iterator[tuple[list[float], list[str], int]]:
        for index in indices:
            label, numbers, categories = rows[index]
            yield numbers, categories, label

    signature = (
        tf.TensorSpec([len(NUMBERS)], tf.float32),
        tf.TensorSpec([len(CATEGORIES)], tf.string),
        tf.TensorSpec([], tf.float32),
    )
    batches = tf.data.Dataset.from_generator(samples, output_signature=signature).batch(batch_size)
    return batches.map(_named).prefetch(2)


def eval_input_fn(rows: list[Row], batch_size: int) -> tf.data.Dataset:
    labels, numbers, categories = zip(*rows, strict=True)
    columns = (list(numbers), list(categories), [float(label) for label in labels])
    return tf.data.Dataset.from_tensor_slices(columns).batch(batch_size).map(_named)


def _named(
    numbers: tf.Tensor, categories: tf.Tensor, labels: tf.Tensor
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    named = {name: numbers[:, place] for place, name in enumerate(NUMBERS)}
    named.update({name: categories[:, place] for place, name in enumerate(CATEGORIES)})
    return named, labels


def make_estimator(config: tf.estimator.RunConfig, features: list[str]) -> tf.estimator.Estimator:
    # Imported here because it is slow: errors in the flags come first.
    from deepctr.estimator import DeepFMEstimator

    numbers = [tf.feature_column.numeric_column(name) for name in NUMBERS if name in features]
    categories = [
        tf.feature_column.categorical_column_with_hash_bucket(name, BUCKETS)
        for name in CATEGORIES
        if name in features
    ]
    return DeepFMEstimator(
        linear_feature_columns=[*numbers, *categories],
        dnn_feature_columns=[
            *numbers,
            *(tf.feature_column.embedding_column(column, DIMENSION) for column in categories),
        ],
        dnn_hidden_units=(64, 32),
        task="binary",
        config=config,
    )


def main(arguments: argparse.Namespace) -> None:
    config = tf.estimator.RunConfig(
        model_dir=arguments.model_dir or str(Path(arguments.training_data).parent / "ckpts"),
        tf_random_seed=1,
        # Enough that the evaluator still finds the one it has just chosen.
        keep_checkpoint_max=20,
        save_checkpoints_steps=arguments.checkpoint_steps,
        log_step_count_steps=50,
        # A worker waits for the chief to make the model; by default it would wait longer the higher its number is.
        experimental_max_worker_delay_secs=5,
    )
    trained = read_rows(arguments.training_data)
    evaluated = read_rows(arguments.validation_data)
    hooks = []
    indices: Iterable[int] = ()
    if config.task_type in ("chief", "worker"):
        shard_service = build_data_shard_service(
            batch_size=arguments.batch_size,
            num_epochs=arguments.num_epochs,
            dataset_size=len(trained),
            num_minibatches_per_shard=arguments.num_minibatches_per_shard,
            dataset_name="criteo_training_data",
        )
        indices = ShardIndices(shard_service, arguments.batch_size)
        hooks += [ElasticDataShardReportHook(indices), KeepServedModelHook(config)]
    tf.estimator.train_and_evaluate(
        make_estimator(config, arguments.features),
        tf.estimator.TrainSpec(lambda: train_input_fn(trained, indices, arguments.batch_size), hooks=hooks),
        tf.estimator.EvalSpec(
            lambda: eval_input_fn(evaluated, arguments.batch_size),
            steps=None,
            # An evaluator that takes the place of a killed one finds a checkpoint there.
            start_delay_secs=0,
            throttle_secs=arguments.evaluation_seconds,
        ),
    )
    if config.is_chief:
        # In this process alone, whatever the cluster: an estimator that knows of servers would ask them.
        os.environ.pop("TF_CONFIG", None)
        alone = make_estimator(tf.estimator.RunConfig(model_dir=config.model_dir), arguments.features)
        metrics = alone.evaluate(lambda: eval_input_fn(evaluated, arguments.batch_size), name="final")
        print(f"Final AUC: {metrics['AUC']:.4f} at step {metrics['global_step']}", flush=True)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m model_zoo.deepctr.deepfm_estimator")
    parser.add_argument("--training_data", required=True, help="a file or a folder")
    parser.add_argument("--validation_data", required=True, help="a file or a folder")
    parser.add_argument("--model_dir", default="", help="for checkpoints [default: ckpts beside the data]")
    parser.add_argument("--batch_size", type=int, default=20)
    parser.add_argument("--num_epochs", type=int, default=100)
    parser.add_argument("--num_minibatches_per_shard", type=int, default=5)
    parser.add_argument("--checkpoint_steps", type=int, default=100)
    parser.add_argument(
        "--evaluation_seconds", type=int, default=10, help="at least, between two evaluations"
    )
    parser.add_argument(
        "--features",
        type=lambda text: text.split(","),
        default=[*NUMBERS, *CATEGORIES],
        help="the columns to learn from, e.g. I1,I2,C3 [default: all]; fewer of them start sooner",
    )
    arguments = parser.parse_args(words)
    unknown = sorted({*arguments.features} - {*NUMBERS, *CATEGORIES})
    if unknown:
        parser.error(f"--features: there is no {unknown[0]}; they are I1 to I13 and C1 to C26")
    for name in ("training_data", "validation_data"):
        if not os.path.exists(getattr(arguments, name)):
            parser.error(f"--{name}: there is no {getattr(arguments, name)}")
    return arguments


if __name__ == "__main__":
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    main(parse(sys.argv[1:]))
