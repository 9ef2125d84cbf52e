"""What does not fit is named: features and model, labels and predictions, with their types and shapes."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.worker.definition import ModelDefinition, ProgramError
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Batch, Shard


def classify(labels: Any, predictions: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions)


def batch_of(features: Any, labels: Any) -> Batch:
    shard = Shard(lease_id=0, epoch=0, start=0, end=4)
    return Batch(shard=shard, position=4, atomic=False, last=True, size=4, features=features, labels=labels)


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., KerasTrainer]:
    def make(loss: Any = classify, eval_metrics_fn: Any = dict, model: Any = None) -> KerasTrainer:
        definition = make_definition(
            loss=loss, optimizer=lambda: tf.keras.optimizers.SGD(0.1), eval_metrics_fn=eval_metrics_fn
        )
        network = model or tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(5)])
        return KerasTrainer(definition=definition, model=network)

    return make


@pytest.mark.parametrize("action", ["train", "gradients", "evaluate"])
def test_labels_that_do_not_fit_the_loss(trainer: Callable[..., KerasTrainer], action: str) -> None:
    batch = batch_of(tf.zeros([4, 3]), tf.zeros([4, 2], tf.int64))
    with pytest.raises(UserError) as caught:
        getattr(trainer(), action)(batch)
    message = caught.value.message
    assert "The loss of test.definition.custom_model cannot take" in message
    assert "labels int64 [batch, 2] and predictions float32 [batch, 5]" in message
    assert "test_errors.py" in message
    assert "site-packages" not in message


def test_features_that_do_not_fit_the_model(trainer: Callable[..., KerasTrainer]) -> None:
    with pytest.raises(UserError) as caught:
        trainer().train(batch_of(tf.zeros([4, 7]), tf.zeros([4], tf.int64)))
    assert "cannot be applied to features float32 [batch, 7]" in caught.value.message


def test_features_that_do_not_fit_a_model_that_is_built_by_them(trainer: Callable[..., KerasTrainer]) -> None:
    class Model(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(5)

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs["words"])

    with pytest.raises(UserError, match=r"cannot be applied to features {image: float32 \[batch, 3\]}"):
        trainer(model=Model()).predict(batch_of({"image": tf.zeros([4, 3])}, None))


def test_label_that_the_loss_refuses_at_run_time(trainer: Callable[..., KerasTrainer]) -> None:
    with pytest.raises(ProgramError) as caught:
        trainer().train(batch_of(tf.zeros([4, 3]), tf.constant([0, 1, 2, 9])))
    message = caught.value.message
    assert "label value of 9" in message
    assert "float32 [batch, 3]" in message
    assert "node" not in message


def test_predictions_that_do_not_fit_a_metric(trainer: Callable[..., KerasTrainer]) -> None:
    def broken(labels: Any, predictions: Any) -> Any:
        return tf.reshape(predictions, [3, 3])

    with pytest.raises(UserError) as caught:
        trainer(eval_metrics_fn=lambda: {"acc": broken}).evaluate(
            batch_of(tf.zeros([4, 3]), tf.zeros([4], tf.int64))
        )
    assert "The metric acc" in caught.value.message


def test_loss_without_a_value(trainer: Callable[..., KerasTrainer]) -> None:
    with pytest.raises(UserError, match=r"The loss of test\.definition\.custom_model returns nothing"):
        trainer(loss=lambda labels, predictions: None).train(batch_of(tf.zeros([4, 3]), tf.zeros([4])))


def test_model_without_parameters(trainer: Callable[..., KerasTrainer]) -> None:
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Activation("relu")])
    with pytest.raises(UserError, match="no parameters to train"):
        trainer(model=model).train(batch_of(tf.zeros([4, 3]), tf.zeros([4], tf.int64)))


def test_feed_without_labels(trainer: Callable[..., KerasTrainer]) -> None:
    with pytest.raises(UserError, match="gives no labels"):
        trainer().evaluate(batch_of(tf.zeros([4, 3]), None))


def test_python_error_in_the_loss(trainer: Callable[..., KerasTrainer]) -> None:
    def loss(labels: Any, predictions: Any) -> Any:
        return labels["absent"]

    with pytest.raises(UserError) as caught:
        trainer(loss=loss).train(batch_of(tf.zeros([4, 3]), {"there": tf.zeros([4])}))
    assert "absent" in caught.value.message
    assert "labels {there: float32 [batch]}" in caught.value.message
