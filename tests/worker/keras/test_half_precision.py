"""Embeddings with tables follow Keras's policy of types. `contract/` trains models in half precision."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elasticdl.keras

IDS = np.random.default_rng(0).integers(0, 30, (32, 3))


@pytest.fixture(params=["mixed_float16", "mixed_bfloat16", "float64"])
def policy(request: Any) -> Iterator[str]:
    tf.keras.mixed_precision.set_global_policy(request.param)
    yield request.param
    tf.keras.mixed_precision.set_global_policy("float32")


def test_embedding_output_has_dtype_of_policy(policy: str) -> None:
    layer = elasticdl.keras.Embedding(4)
    wanted = tf.keras.layers.Embedding(30, 4)(IDS).dtype
    assert layer(IDS).dtype == wanted
    assert layer(tf.RaggedTensor.from_tensor(IDS)).dtype == wanted
    assert elasticdl.keras.Embedding(4, dtype="float32")(IDS).dtype == tf.float32
