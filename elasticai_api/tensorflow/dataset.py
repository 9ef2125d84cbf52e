"""Records of an elastic data set as a source for tf.data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import tensorflow as tf


class RecordIndexSource(Protocol):
    """Yields the indices of the records that this process trains on."""

    def record_index_gen(self) -> Iterator[int]: ...


def record_dataset(service: RecordIndexSource, record_files: Sequence[str] | None = None) -> tf.data.Dataset:
    """Returns the indices of records as they are fetched; with `record_files` the paths at these indices."""
    if record_files is None:
        return tf.data.Dataset.from_generator(
            service.record_index_gen, output_signature=tf.TensorSpec((), tf.int64)
        )
    files = list(record_files)

    def paths() -> Iterator[str]:
        return (files[index] for index in service.record_index_gen())

    return tf.data.Dataset.from_generator(paths, output_signature=tf.TensorSpec((), tf.string))
