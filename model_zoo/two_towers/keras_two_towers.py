"""A model with two inputs and two outputs: the digits' picture and how much ink is in each of its rows go in,
which digit it is and whether it is even come out.

The data is that of `digits`.
"""

import tensorflow as tf


def custom_model():
    image = tf.keras.Input((8, 8), name="image")
    ink = tf.keras.Input((8,), name="ink")
    seen = tf.keras.layers.Dense(64, activation="relu")(tf.keras.layers.Flatten()(image))
    summed = tf.keras.layers.Dense(16, activation="relu")(ink)
    both = tf.keras.layers.Concatenate()([seen, summed])
    return tf.keras.Model(
        inputs={"image": image, "ink": ink},
        outputs={
            "digit": tf.keras.layers.Dense(10, name="digit")(both),
            "even": tf.keras.layers.Dense(1, name="even")(both),
        },
    )


def feed(dataset, mode, metadata):
    features = {
        "image": tf.io.FixedLenFeature([8, 8], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record):
        example = tf.io.parse_single_example(record, features)
        image, digit = example["image"], example["label"]
        even = tf.cast(tf.equal(digit % 2, 0), tf.float32)
        return {"image": image, "ink": tf.reduce_sum(image, axis=1)}, {
            "digit": digit,
            "even": even[tf.newaxis],
        }

    return dataset.map(parse)


def loss(labels, predictions):
    digit = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels["digit"], logits=predictions["digit"]
    )
    even = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels["even"], logits=predictions["even"])
    return digit + tf.squeeze(even, axis=1)


def optimizer():
    return tf.keras.optimizers.Adam(0.003)


def eval_metrics_fn():
    return {
        "digit": {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()},
        "even": {"auc": tf.keras.metrics.AUC(from_logits=True)},
    }
