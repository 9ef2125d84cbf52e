"""MNIST with a subclass of Keras's Model, trained with a learning rate that sinks from epoch to epoch.

The data is that of `mnist_functional_api`.
"""

import tensorflow as tf


class Classifier(tf.keras.Model):
    def __init__(self, width: int = 32, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.expand = tf.keras.layers.Reshape((28, 28, 1))
        self.convolutions = [
            tf.keras.layers.Conv2D(width, 3, strides=2, activation="relu"),
            tf.keras.layers.Conv2D(2 * width, 3, strides=2, activation="relu"),
        ]
        self.normalize = tf.keras.layers.BatchNormalization()
        self.flatten = tf.keras.layers.Flatten()
        self.drop = tf.keras.layers.Dropout(0.25)
        self.classify = tf.keras.layers.Dense(10)

    def call(self, inputs, training=False):
        x = self.expand(inputs["image"])
        for convolution in self.convolutions:
            x = convolution(x)
        x = self.flatten(self.normalize(x, training=training))
        return self.classify(self.drop(x, training=training))

    def get_config(self):
        return {**super().get_config(), "width": self.width}


def custom_model(width: int = 32):
    return Classifier(width)


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
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, predictions)


def optimizer():
    return tf.keras.optimizers.Adam(0.001)


def callbacks():
    return [tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.8 if epoch else rate)]


def eval_metrics_fn():
    return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}
