"""For programs in TensorFlow: a session hook, a Keras callback, a tf.data source."""
