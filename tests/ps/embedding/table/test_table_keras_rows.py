"""Rows are updated as Keras's optimizer would update a variable that has an optimizer of its own."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Table, TableSpec
from elasticdl.wire import ps_pb2

IDS = np.array([5, -9, 1 << 50], np.int64)
WIDTH, STEPS = 4, 60


@pytest.mark.parametrize(
    "name", ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop", "Adadelta", "Adamax", "Nadam", "Ftrl"]
)
def test_the_same_values_though_rows_come_at_different_steps(name: str) -> None:
    spec = TableSpec(name="t", width=WIDTH, initializer=Initializer(kind="normal", options={"stddev": 1.0}))
    config = ps_pb2.OptimizerConfig(name=name, flavor="keras")
    table = Table(spec, make_optimizer(config), buckets=2)
    variable = tf.Variable if keras.__version__.startswith("2.") else keras.Variable
    variables = [variable(value) for value in table.gather(IDS)]
    theirs = [getattr(keras.optimizers, name)(learning_rate=0.01) for _ in IDS]
    for optimizer, own in zip(theirs, variables, strict=True):
        optimizer.build([own])
    chance = np.random.default_rng(3)
    for step in range(STEPS):
        rows = [row for row in range(len(IDS)) if step % (row + 1) == 0]
        gradients = np.asarray(chance.normal(size=(len(rows), WIDTH)), np.float32)
        table.update(IDS[rows], gradients, learning_rate=0.01)
        for row, gradient in zip(rows, gradients, strict=True):
            theirs[row].apply_gradients([(tf.constant(gradient), variables[row])])
    found = np.array([np.asarray(own.numpy()) for own in variables])
    np.testing.assert_allclose(table.gather(IDS), found, rtol=1e-5, atol=2e-6)
