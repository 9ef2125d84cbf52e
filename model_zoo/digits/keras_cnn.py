"""A small convolutional network for scikit-learn's handwritten digits, in Keras.

    elasticdl data make digits --output=data/digits
    elasticdl train --model_zoo=model_zoo --model_def=digits.keras_cnn.custom_model \\
        --training_data=data/digits/train --validation_data=data/digits/test --num_epochs=5
"""

import tensorflow as tf


def custom_model(filters: int = 16, dropout: float = 0.1):
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1), name="image"),
            tf.keras.layers.Conv2D(filters, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(2 * filters, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(dropout),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def feed(dataset, mode, metadata):
    """Each record is a tf.train.Example: 8×8 pixels between 0 and 1, and which digit they show."""
    features = {
        "image": tf.io.FixedLenFeature([8, 8, 1], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record):
        example = tf.io.parse_single_example(record, features)
        return example["image"], example["label"]

    return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def loss(labels, predictions):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions)


def optimizer():
    return tf.keras.optimizers.Adam(0.002)


def eval_metrics_fn():
    return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}
