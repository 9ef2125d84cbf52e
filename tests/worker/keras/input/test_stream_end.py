"""A stream of batches ends when it is closed, dropped, or when the shards fail; no thread of it stays behind."""

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from elasticdl.data.reader import Reader
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Shard

SHARDS = [Shard(lease_id=i, epoch=0, start=8 * i, end=8 * i + 8) for i in range(4)]


def traced(dataset: Any, *_: Any) -> Any:
    return dataset.map(lambda record: (record, record))


def in_python(dataset: Any, *_: Any) -> Any:
    records = list(dataset.as_numpy_iterator())
    return tf.data.Dataset.from_tensor_slices((records, records))


@pytest.fixture
def stream(
    make_definition: Callable[..., ModelDefinition], memory_reader: Callable[..., Reader]
) -> Callable[..., Any]:
    def make(shards: Any, feed: Any = traced) -> Any:
        trainer = KerasTrainer(definition=make_definition(feed=feed), model=tf.keras.Sequential())
        reader = memory_reader([b"x"] * 32)
        return trainer.batches(reader, shards, mode=Mode.TRAINING, batch_size=4, max_bad_records=0)

    return make


class Leases:
    """One shard, and then none until the test adds one."""

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[Shard]:
        yield SHARDS[0]
        self.waiting.set()
        self.go_on.wait()


@pytest.mark.parametrize("feed", [traced, in_python])
def test_close_while_another_thread_waits_for_a_shard(stream: Callable[..., Any], feed: Any) -> None:
    leases = Leases()
    batches = stream(leases, feed)
    got: list[int] = []
    got_all = threading.Event()

    def read() -> None:
        for batch in batches:
            got.append(batch.size)
            if batch.last:
                got_all.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert leases.waiting.wait(60)
    assert got_all.wait(60)
    batches.close()
    if feed is in_python:
        # There the reader itself waits for the shard.
        leases.go_on.set()
    reader.join(60)
    assert not reader.is_alive()
    assert got == [4, 4]
    leases.go_on.set()


@pytest.mark.parametrize("feed", [traced, in_python])
def test_closed_in_the_middle(stream: Callable[..., Any], feed: Any) -> None:
    batches = stream(SHARDS, feed)
    next(batches)
    batches.close()
    assert list(batches) == []
    batches.close()


def test_closed_before_it_began(stream: Callable[..., Any]) -> None:
    batches = stream(SHARDS)
    batches.close()
    assert list(batches) == []


def test_error_of_the_shards_reaches_the_reader(stream: Callable[..., Any]) -> None:
    def failing() -> Iterator[Shard]:
        yield SHARDS[0]
        raise ConnectionError("the master is gone")

    batches = stream(failing())
    assert [next(batches).position, next(batches).position] == [4, 8]
    with pytest.raises(ConnectionError, match="the master is gone"):
        next(batches)


def tasks() -> int:
    return len(list(Path("/proc/self/task").iterdir())) if Path("/proc/self/task").exists() else 0


def test_streams_leave_no_threads(stream: Callable[..., Any]) -> None:
    list(stream(SHARDS))
    before = tasks()
    for _ in range(10):
        list(stream(SHARDS))
        next(stream(SHARDS))
    gc.collect()
    # TensorFlow's own pools may have grown by a few; ten streams with several threads each would be far more.
    assert tasks() < before + 20


def shuffled(dataset: Any, *_: Any) -> Any:
    return traced(dataset.shuffle(4))


@pytest.mark.parametrize("feed", [traced, shuffled])
def test_dropped_while_a_graph_is_made(stream: Callable[..., Any], feed: Any) -> None:
    """Python may find at any moment that it is unreachable."""
    held = [stream(SHARDS, feed)]
    next(held[0])

    @tf.function  # type: ignore[untyped-decorator]
    def graph(value: Any) -> Any:
        held.clear()
        gc.collect()
        return value + 1

    assert int(graph(tf.constant(1))) == 2
    operations = [
        operation.type for operation in graph.get_concrete_function(tf.constant(1)).graph.get_operations()
    ]
    assert not [kind for kind in operations if "Queue" in kind]


PROGRAM = """
import sys
import tensorflow as tf
from elasticdl.data.reader import Reader
from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.trainer import KerasTrainer
from elasticdl.worker.trainer import Shard

class Lines(Reader):
    def __len__(self):
        return 4000
    def read(self, start, end):
        for index in range(start, end):
            yield str(index).encode()

def feed(dataset, mode, metadata):
    return dataset.map(lambda record: (tf.strings.to_number([record]), 1.0), num_parallel_calls=2)

def loss(labels, predictions):
    return tf.reduce_mean((tf.squeeze(predictions, 1) - labels) ** 2)

definition = ModelDefinition(
    name="a.b.c", path="c.py", model=None, feed=feed, loss=loss, eval_metrics_fn=dict,
    optimizer=lambda: tf.keras.optimizers.SGD(1e-9),
)
model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
trainer = KerasTrainer(definition=definition, model=model)
shards = [Shard(lease_id=i, epoch=0, start=100 * i, end=100 * i + 100) for i in range(40)]
streams = [
    trainer.batches(Lines(origin="x"), shards, mode=Mode.TRAINING, batch_size=8, max_bad_records=0)
    for _ in range(3)
]
for stream in streams:
    next(stream)
for batch in streams[0]:
    if batch.size:
        trainer.train(batch)
print("trained", flush=True)
"""


def test_process_ends_with_streams_still_open_and_one_thread_for_all(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {
        "ELASTICDL_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": str(Path(__file__).parents[4]),
        "PATH": "/usr/bin:/bin",
    }
    run = subprocess.run(
        [sys.executable, str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.stdout.strip() == "trained", run.stderr
    assert run.returncode == 0
