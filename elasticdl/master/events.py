"""Scalars for TensorBoard, written without TensorFlow."""

from __future__ import annotations

import time
from pathlib import Path

from elasticdl.data.tfrecord_frames import TFRecordWriter
from elasticdl.wire import event_pb2


class EventFile:
    """One file of scalars in a folder that `tensorboard --logdir` reads."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard takes any file with "tfevents" in its name, and orders them by the number behind it.
        self._writer = TFRecordWriter(
            folder / f"events.out.tfevents.{time.time_ns() // 1_000_000:013d}.elasticdl"
        )
        self._write(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2"))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        summary = event_pb2.Summary(
            value=[event_pb2.SummaryValue(tag=tag, simple_value=value) for tag, value in values.items()]
        )
        self._write(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))

    def _write(self, event: event_pb2.Event) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
