"""Scalars for TensorBoard, written without TensorFlow.

The file is made, and what it takes to write it imported, with the first scalar: a job begins when its master does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elasticdl.data.formats.tfrecord_frames import TFRecordWriter
    from elasticdl.wire import event_pb2


class EventFile:
    """A file of scalars in a folder that `tensorboard --logdir` reads. A sink of scalars (`ScalarSink`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: TFRecordWriter | None = None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        from elasticdl.wire import event_pb2

        if self._writer is None:
            self._writer = self._open()
            self._write(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2"))
        summary = event_pb2.Summary(
            value=[event_pb2.SummaryValue(tag=tag, simple_value=value) for tag, value in values.items()]
        )
        self._write(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))

    def _open(self) -> TFRecordWriter:
        from elasticdl.data.files.atomic_file import disk_errors
        from elasticdl.data.formats.tfrecord_frames import TFRecordWriter

        with disk_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard takes any file with "tfevents" in its name, and orders them by the number behind it.
        return TFRecordWriter(
            self._folder / f"events.out.tfevents.{time.time_ns() // 1_000_000:013d}.elasticdl"
        )

    def _write(self, event: event_pb2.Event) -> None:
        assert self._writer is not None
        self._writer.write(event.SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
