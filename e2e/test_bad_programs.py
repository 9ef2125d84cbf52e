"""Model definitions that cannot work, as only running them shows: the job ends with the program's own error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from e2e.plain import Bench

# Faults of the program are retried, as they may pass; here they do not.
ONCE = ("--relaunch_on_worker_failure=0", "--max_shard_retries=0")


def test_a_module_that_imports_what_is_not_there(bench: Bench) -> None:
    bench.definition(("import torch\n", "import torch\nimport no_such_thing\n"))
    bench.train("--num_workers=2", "--num_ps=1").failed(
        "The module plain.model cannot be imported: there is no module no_such_thing",
        f'File "{bench.zoo}/plain/model.py", line {bench.line_of("import no_such_thing")}',
        "Install what provides no_such_thing",
    )


def test_error_of_model_function_fails_the_job(bench: Bench) -> None:
    bench.definition(("    torch.manual_seed(0)", "    raise RuntimeError('my own words')"))
    bench.train().failed("custom_model failed", "in custom_model", "RuntimeError: my own words")


# -- shapes --------------------------------------------------------------------------------------------------


def test_predictions_that_do_not_fit_the_loss(bench: Bench) -> None:
    bench.definition(("cross_entropy(predictions, labels)", "mse_loss(predictions, labels[:3].float())"))
    bench.train("--num_workers=2", "--num_ps=1").failed(
        "The loss does not fit labels int64[8] and predictions float32[8, 2]"
    )


def test_features_that_do_not_fit_the_model(bench: Bench) -> None:
    bench.definition(("Linear(2, 2)", "Linear(3, 2)"))
    bench.train(*ONCE).failed("The model fails on features float32[8, 2]", "8x2 and 3x2")


def test_keras_predictions_that_do_not_fit_the_loss(bench: Bench) -> None:
    bench.environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
    (bench.zoo / "plain" / "model.py").write_text(
        "import tensorflow as tf\n"
        "def custom_model():\n"
        "    return tf.keras.Sequential([tf.keras.layers.Dense(5)])\n"
        "def loss(labels, predictions):\n"
        "    return tf.keras.losses.mean_squared_error(labels, predictions)\n"
        "def optimizer():\n"
        "    return tf.keras.optimizers.SGD()\n"
        "def feed(dataset, mode, metadata):\n"
        "    def one(*row):\n"
        "        values = tf.strings.to_number(tf.reshape(row, [-1]))\n"
        "        return tf.stack([values[0], values[1]]), tf.stack([values[2]] * 3)\n"
        "    return dataset.map(one)\n"
        "def eval_metrics_fn():\n"
        "    return {'error': tf.keras.metrics.MeanSquaredError()}\n"
    )
    bench.train(*ONCE).failed("loss", "float32 [batch, 3]", "float32 [batch, 5]", "in loss")


# -- checkpoints ---------------------------------------------------------------------------------------------

OTHER = ("torch.nn.Linear(2, 2)", "torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))")


@pytest.mark.parametrize("nodes", [(), ("--num_workers=1", "--num_ps=2")], ids=["local", "servers"])
def test_training_from_a_checkpoint_of_another_model(
    bench: Bench, plain_checkpoint: Path, nodes: tuple[str, ...]
) -> None:
    bench.definition(OTHER)
    bench.train(f"--checkpoint_dir_for_init={plain_checkpoint}", *nodes).failed(
        f"The checkpoint {plain_checkpoint}/version-13 is of another model (--model_def=plain.model.custom_model)",
        # Of several servers the first to answer tells of its part.
        ".weight",
        "or another --checkpoint_dir_for_init",
    )


def test_prediction_with_another_model(bench: Bench, plain_checkpoint: Path) -> None:
    bench.definition(OTHER)
    bench.predict(plain_checkpoint, f"--output={bench.folder}/out.csv").failed(
        f"The checkpoint {plain_checkpoint}/version-13 is of another model", "0.weight is missing"
    )


@pytest.mark.parametrize("nodes", [(), ("--num_workers=1", "--num_ps=1")], ids=["local", "servers"])
def test_a_checkpoint_with_a_wrong_bit(bench: Bench, plain_checkpoint: Path, nodes: tuple[str, ...]) -> None:
    damaged = bench.folder / "damaged"
    shutil.copytree(plain_checkpoint / "version-13", damaged)
    content = bytearray((damaged / "worker.edl").read_bytes())
    content[len(content) // 2] ^= 255
    (damaged / "worker.edl").write_bytes(content)
    bench.train(f"--checkpoint_dir_for_init={damaged}", *nodes).failed(
        f"{damaged}/worker.edl is damaged", "start from an older checkpoint"
    )


def test_a_checkpoint_with_a_damaged_ledger(bench: Bench, plain_checkpoint: Path) -> None:
    damaged = bench.folder / "damaged"
    shutil.copytree(plain_checkpoint / "version-13", damaged)
    (damaged / "ledger.json").write_text('{"datasets": [')
    document = (damaged / "manifest.json").read_text()
    # The ledger counts only for the data it was made with.
    data = plain_checkpoint.parent / "data.csv"
    assert str(data) in document
    bench.train(f"--checkpoint_dir_for_init={damaged}", f"--training_data={data}", "--num_epochs=2").failed(
        f"The checkpoint {damaged} is damaged: its ledger.json cannot be read",
        "or start from an older checkpoint",
    )


# -- readers and processors ----------------------------------------------------------------------------------

READER = """

class Mine:
    def __len__(self):
        return 20

    def read(self, start, end):
        for i in range(start, {end}):
            {fault}
            yield [str(i), "1", "0"]


def custom_data_reader(data_origin, records_per_task=None, **kwargs):
    {opening}
"""


def _reader(*, end: str = "end", fault: str = "pass", opening: str = "return Mine()") -> str:
    return READER.format(end=end, fault=fault, opening=opening)


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        (_reader(opening="raise OSError('the warehouse is closed')"), ["OSError: the warehouse is closed"]),
        (_reader(fault="1 / (i - 10)"), ["ZeroDivisionError", "in read"]),
        (_reader(end="min(end, 15)"), ["read(0, 20) of Mine gave 15 instead of 20 records", "len()"]),
    ],
    ids=["opening", "reading", "too-few"],
)
def test_readers_of_the_definition_that_fail(bench: Bench, reader: str, words: list[str]) -> None:
    bench.definition(more=reader)
    bench.train(*ONCE).failed(*words)


PROCESSOR = "\n\nclass PredictionOutputsProcessor:\n    "


@pytest.mark.parametrize(
    ("processor", "words"),
    [
        ("def process(self, predictions, worker_id):\n        raise OSError('out of paper')\n",
         ["OSError: out of paper", "in process"]),
        ("pass\n", ["has no method process", "process(self, predictions, worker_id)"]),
    ],
    ids=["raises", "lacks-process"],
)  # fmt: skip
def test_processors_of_predictions_that_fail(
    bench: Bench, plain_checkpoint: Path, processor: str, words: list[str]
) -> None:
    bench.definition(more=PROCESSOR + processor)
    bench.predict(plain_checkpoint, *ONCE).failed(*words)
