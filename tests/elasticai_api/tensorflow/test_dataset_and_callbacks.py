"""TensorFlow: sessions and Keras report their batches by themselves; records as a tf.data.Dataset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from elasticai_api.common.data_shard_service import (
    DataShardService,
    RecordIndexService,
    build_data_shard_service,
)
from elasticai_api.tensorflow.callbacks import ElasticDataShardReportCallback
from elasticai_api.tensorflow.hooks import ElasticDataShardReportHook


def _service(**more: Any) -> DataShardService:
    said = {"batch_size": 4, "num_epochs": 2, "dataset_size": 50, "num_minibatches_per_shard": 3}
    return build_data_shard_service(**{**said, "dataset_name": "d", **more})


def _batches(service: DataShardService) -> Any:
    def samples() -> Iterator[tuple[list[float], list[float]]]:
        while (shard := service.fetch_shard()) is not None:
            for index in range(shard.start, shard.end):
                yield [float(index)], [2.0 * index]

    row = tf.TensorSpec((1,), tf.float32)
    return tf.data.Dataset.from_generator(samples, output_signature=(row, row)).batch(service.batch_size)


def _left(service: DataShardService) -> Any:
    document = json.loads(service.get_shard_checkpoint())
    return document["todo"] + document["doing"]


def test_a_session(job: Any) -> None:
    service = _service()
    seen: list[float] = []
    with tf.Graph().as_default():
        step = tf.compat.v1.train.create_global_step()
        numbers, _ = tf.compat.v1.data.make_one_shot_iterator(_batches(service)).get_next()
        advance = tf.compat.v1.assign_add(step, 1)
        hook = ElasticDataShardReportHook(service)
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            while not session.should_stop():
                seen += session.run([numbers, advance])[0].reshape(-1).tolist()
    assert Counter(seen) == Counter([float(i) for i in range(50)] * 2)
    assert job.done("d") == 100


def test_an_estimator() -> None:
    service = _service()

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        scale = tf.compat.v1.get_variable("scale", (), initializer=tf.compat.v1.zeros_initializer())
        loss = tf.reduce_mean(tf.abs(labels - scale * features))
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1e-4)
        train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = tf.estimator.Estimator(model_fn)
    estimator.train(lambda: _batches(service), hooks=[ElasticDataShardReportHook(service)])
    assert _left(service) == []


@pytest.mark.parametrize(("steps_per_execution", "steps"), [(1, None), (5, 25)])
def test_keras_callback_reports_batches_of_fit(job: Any, steps_per_execution: int, steps: int | None) -> None:
    service = _service()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mae", steps_per_execution=steps_per_execution)
    callback = ElasticDataShardReportCallback(service)
    model.fit(_batches(service), callbacks=[callback], verbose=0, steps_per_epoch=steps)
    assert job.done("d") == 100


def test_keras_tells_of_its_loss(job: Any) -> None:
    service = _service()
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mae")
    model.fit(_batches(service), callbacks=[ElasticDataShardReportCallback(service)], verbose=0)
    assert job.do(lambda master: len(master.losses)) > 0


def test_tf_dataset_yields_records_of_every_epoch() -> None:
    service = RecordIndexService(batch_size=4, num_epochs=2, dataset_size=50, shuffle=True)
    records = service.get_tf_dataset()
    assert Counter(int(index) for index in records) == Counter(list(range(50)) * 2)


def test_records_as_files() -> None:
    files = [f"image-{number}.png" for number in range(50)]
    service = RecordIndexService(batch_size=4, dataset_size=50)
    assert [path.numpy().decode() for path in service.get_tf_dataset(files)] == files
