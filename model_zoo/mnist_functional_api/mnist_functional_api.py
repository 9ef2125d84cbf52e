"""MNIST with a model of Keras's functional API.

The records are tf.train.Examples with `image` (28×28 float32, 0 to 255) and `label`:

    elasticdl data make mnist --source=FOLDER_WITH_THE_FOUR_FILES --output=data/mnist
"""

import tensorflow as tf


def custom_model():
    image = tf.keras.Input((28, 28), name="image")
    x = tf.keras.layers.Reshape((28, 28, 1))(image)
    x = tf.keras.layers.Conv2D(32, 3, activation="relu")(x)
    x = tf.keras.layers.Conv2D(64, 3, activation="relu")(x)
    x = tf.keras.layers.BatchNormalization()(x)
    x = tf.keras.layers.MaxPooling2D()(x)
    x = tf.keras.layers.Dropout(0.25)(x)
    x = tf.keras.layers.Flatten()(x)
    return tf.keras.Model(inputs=image, outputs=tf.keras.layers.Dense(10)(x), name="mnist")


def feed(dataset, mode, metadata):
    features = {
        "image": tf.io.FixedLenFeature([28, 28], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record):
        example = tf.io.parse_single_example(record, features)
        return {"image": example["image"] / 255.0}, example["label"]

    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def loss(labels, predictions):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions)


def optimizer():
    return tf.keras.optimizers.SGD(0.1)


def eval_metrics_fn():
    return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}
