"""`paddle train --local=1`: one trainer in a process of its own, on a configuration in the old style."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.arguments import PSERVER, TRAIN, parse
from elasticdl.paddle_compat.command.__main__ import main

PROVIDER = """
from paddle.trainer.PyDataProvider2 import *

TYPES = {"word": integer_value_sequence(40), "label": integer_value(2)}

@provider(input_types=TYPES, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, filename):
    with open(filename) as file:
        for line in file:
            label, *words = line.split()
            yield {"word": [int(word) for word in words], "label": int(label)}
"""
CONFIG = """
from paddle.trainer_config_helpers import *

define_py_data_sources2("train.list", "test.list", module="words", obj="process")
settings(batch_size=32, learning_rate=%s, learning_method=%s, regularization=L2Regularization(1e-5))
words = embedding_layer(input=data_layer(name="word", size=40), size=8)
output = fc_layer(input=%s, size=2, act=SoftmaxActivation())
outputs(classification_cost(input=output, label=data_layer(name="label", size=2)))
"""
ADAM = ("0.02", "AdamOptimizer()")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Texts of words below 20 are good, those of others are not; some words are mixed in."""
    random = np.random.default_rng(0)
    lines = []
    for number in range(600):
        label = number % 2
        words = random.integers(0, 20, random.integers(3, 9)) + 20 * label
        words[0] = random.integers(0, 40)
        lines.append(f"{label} {' '.join(map(str, words))}\n")
    (tmp_path / "train.txt").write_text("".join(lines[:480]))
    (tmp_path / "test.txt").write_text("".join(lines[480:]))
    (tmp_path / "train.list").write_text("train.txt\n")
    (tmp_path / "test.list").write_text("test.txt\n")
    (tmp_path / "words.py").write_text(PROVIDER)
    return tmp_path


def train(folder: Path, *words: str) -> tuple[int, str]:
    command = [
        sys.executable,
        "-m",
        "elasticdl.paddle_compat.command",
        "train",
        "--local=1",
        "--dot_period=0",
    ]
    done = subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("layer", "rate", "method"),
    [
        ("pooling_layer(words, pooling_type=AvgPooling())", *ADAM),
        ("text_conv_pool(words, context_len=3, hidden_size=8)", *ADAM),
        ("last_seq(simple_lstm(words, size=8))", *ADAM),
        ("bidirectional_lstm(words, size=8)", *ADAM),
        ("last_seq(simple_gru(words, size=8))", *ADAM),
        ("last_seq(lstmemory(fc_layer([words, lstmemory(fc_layer(words, size=32))], size=32)))", *ADAM),
        ("first_seq(grumemory(fc_layer(words, size=24), reverse=True))", *ADAM),
        ("pooling_layer(words, pooling_type=SumPooling())", "0.01", "RMSPropOptimizer()"),
        ("pooling_layer(words, pooling_type=SumPooling())", "0.002", "MomentumOptimizer(momentum=0.9)"),
    ],
)
def test_configuration_learns(folder: Path, layer: str, rate: str, method: str) -> None:
    (folder / "trainer_config.py").write_text(CONFIG % (rate, method, layer))
    code, log = train(folder, "--num_passes=4")
    assert code == 0, log
    costs = [float(cost) for cost in re.findall(r"Test samples=120 cost=([\d.e-]+)", log)]
    assert len(costs) == 4, log
    assert costs[-1] < 0.3, log
    assert (folder / "output/model/pass-00003/done").is_file()


def test_second_run_continues_and_start_pass_overrides(folder: Path) -> None:
    config = folder / "trainer_config.py"
    config.write_text(CONFIG % (*ADAM, "pooling_layer(words)"))
    assert train(folder, "--num_passes=2")[0] == 0
    code, log = train(folder, "--num_passes=3")
    assert code == 0, log
    assert re.findall(r"Pass=(\d) Test", log) == ["2"]
    code, log = train(folder, "--num_passes=3", "--start_pass=1")
    assert re.findall(r"Pass=(\d) Test", log) == ["1", "2"], log
    code, log = train(folder, "--num_passes=9", "--start_pass=7")
    assert code == 2
    assert "to start pass 7 from" in log


def test_pass_of_another_configuration_is_refused(folder: Path) -> None:
    config = folder / "trainer_config.py"
    config.write_text(CONFIG % (*ADAM, "pooling_layer(words)"))
    assert train(folder, "--num_passes=1")[0] == 0
    config.write_text(config.read_text().replace("size=8", "size=6"))
    code, log = train(folder, "--num_passes=2")
    assert code == 2
    assert "320 values, but the configuration has (40, 6)" in log
    assert "another configuration" in log


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("train.list", "nothing.txt", "train.list names nothing.txt, which does not exist"),
        ("train.txt", "0 7 41\n", "The slot word has the id 41, but its type allows 0 to 39"),
        ("train.txt", "good 1 2\n", "words.py:11: ValueError"),
        ("train.txt", "", "no samples for train.list"),
    ],
)
def test_bad_data_is_named(folder: Path, file: str, text: str, message: str) -> None:
    (folder / "trainer_config.py").write_text(CONFIG % (*ADAM, "pooling_layer(words)"))
    (folder / file).write_text(text)
    code, log = train(folder, "--num_passes=1")
    assert code == 2
    assert message in log


def test_missing_test_list_is_named_before_a_pass_is_trained(folder: Path) -> None:
    (folder / "trainer_config.py").write_text(CONFIG % (*ADAM, "pooling_layer(words)"))
    (folder / "test.list").unlink()
    code, log = train(folder, "--num_passes=1")
    assert code == 2
    assert "test.list cannot be read" in log
    assert "Pass=0" not in log


@pytest.mark.parametrize(
    ("test_list", "message"),
    [
        ("None", "has NaN or infinite values after pass 0, which is not saved"),
        ("'test.list'", "cost of the test"),
    ],
)
def test_last_update_that_is_not_finite_is_not_saved(folder: Path, test_list: str, message: str) -> None:
    text = CONFIG % ("3e38", "MomentumOptimizer()", "pooling_layer(words)")
    text = text.replace("batch_size=32", "batch_size=480").replace('"test.list"', test_list)
    (folder / "trainer_config.py").write_text(text)
    code, log = train(folder, "--num_passes=1")
    assert code == 2, log
    assert message in log
    assert not (folder / "output").exists()


def test_folder_that_is_no_folder_is_named(folder: Path) -> None:
    (folder / "trainer_config.py").write_text(CONFIG % (*ADAM, "pooling_layer(words)"))
    (folder / "taken").write_text("")
    code, log = train(folder, "--num_passes=1", "--save_dir=taken/model")
    assert code == 2
    assert "Pass 0 cannot be saved in taken/model: Not a directory" in log


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num_passes", "--dot_period=1"], "--num_passes needs a value"),
        (["--save_dir"], "--save_dir needs a value"),
        (["--num_passes=²"], "takes a whole number of at least 1, not '²'"),
        (["--seed=" + "1" * 5000], "takes a whole number of at least 0, not '1111"),
        (["--start_pass=3", "--num_passes=3"], "--start_pass=3 is not below --num_passes=3"),
        (["--port=65535", "--ports_num=2"], "leaves no room for 2 servers"),
        (["--port=70000"], "leaves no room for 1 servers"),
    ],
)
def test_flag_that_cannot_be_meant_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(words, TRAIN, command="paddle train")
    assert message in caught.value.message


def test_switch_without_a_value_is_on() -> None:
    assert parse(["--use_gpu", "--local=off"], TRAIN, command="paddle train").given == {
        "use_gpu": "1",
        "local": "off",
    }


@pytest.mark.parametrize("command", ["train", "pserver"])
def test_help_lists_every_flag(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"train": TRAIN, "pserver": PSERVER}[command]
    assert main([command, "--help"]) == 0
    assert re.findall(r"^  --(\w+) ", capsys.readouterr().out, re.MULTILINE) == list(known)
