"""Input that is known to be wrong before a process is started: refused at once, in words, with what to do."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from e2e.plain import Bench, rows
from elasticdl.extras import install_command

# -- data ----------------------------------------------------------------------------------------------------


def test_data_that_is_not_there(bench: Bench) -> None:
    missing = bench.folder / "dat.csv"
    bench.train(f"--training_data={missing}").refused(
        f"--training_data: There is no file or folder {missing}", f"Did you mean {bench.data}?"
    )


def test_missing_validation_data_is_refused(bench: Bench) -> None:
    bench.train("--validation_data=nowhere/at/all").refused(
        "--validation_data: There is no file or folder", "nowhere", "hint: "
    )


def test_a_folder_without_data(bench: Bench) -> None:
    (bench.folder / "empty").mkdir()
    bench.train(f"--training_data={bench.folder}/empty").refused(
        f"The folder {bench.folder}/empty holds no data files", "hint: Give a file, a folder or a pattern"
    )


def test_a_file_without_samples(bench: Bench) -> None:
    bench.data.write_text("")
    bench.train().refused(f"--training_data: {bench.data} has no samples", "hint: ")


def test_less_data_than_a_batch_is_enough(bench: Bench) -> None:
    bench.data.write_text("".join(rows(3)))
    bench.train("--num_workers=2", "--num_ps=1", "--minibatch_size=64", "--job_name=small").succeeded(
        "Exact: every sample of every epoch is accounted for."
    )
    assert (
        "training    1/1        3     3              0        0  yes"
        in bench.run("jobs", "audit", "small").output
    )


# -- definitions ---------------------------------------------------------------------------------------------


def test_a_model_zoo_that_is_not_there(bench: Bench) -> None:
    bench.train(f"--model_zoo={bench.folder}/zo").refused(
        f"There is no model zoo folder {bench.folder}/zo", "hint: Give an existing folder"
    )


def test_a_folder_of_the_zoo_that_is_not_there(bench: Bench) -> None:
    bench.train("--model_def=plane.model.custom_model").refused(
        f"there is no folder plane in {bench.zoo}", "Did you mean plain?"
    )


def test_a_module_that_is_not_there(bench: Bench) -> None:
    bench.train("--model_def=plain.modle.custom_model").refused("no module modle.py", "Did you mean model?")


def test_a_model_function_that_is_not_there(bench: Bench) -> None:
    bench.train("--model_def=plain.model.custom_modl").refused(
        "model.py has no custom_modl (--model_def)", "Did you mean custom_model?"
    )


def test_functions_that_are_not_there(bench: Bench) -> None:
    bench.definition(("def loss", "def los"), ("def optimizer", "def adam"))
    bench.train().refused(
        "has no loss (--loss). Did you mean los?",
        "has no optimizer (--optimizer)",
        "hint: The functions and classes in it: custom_model, los, adam, feed, eval_metrics_fn.",
    )


def test_a_module_that_does_not_parse(bench: Bench) -> None:
    bench.definition(("def loss(labels", "def loss((labels"))
    line = bench.line_of("def loss((labels")
    bench.train().refused(f"plain/model.py:{line}: the module does not parse", "def loss((labels")


FRAMEWORKS = {
    "torch": ("import torch", "torch"),
    "tensorflow": ("import tensorflow as tf", "keras"),
    "keras": ("from keras import layers", "keras"),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_that_is_not_installed(bench: Bench, framework: str) -> None:
    statement, extra = FRAMEWORKS[framework]
    bench.definition(("import torch\n", f"{statement}\n"))
    # What `import` and `find_spec` do where a package is not installed.
    (bench.folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Bare:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'tensorflow', 'keras', 'tf_keras'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Bare())\n"
    )
    bench.environment["PYTHONPATH"] = str(bench.folder)
    bench.train().refused(f"needs {framework}, which is not installed", install_command(extra))


# -- checkpoints ---------------------------------------------------------------------------------------------


def test_a_checkpoint_that_is_not_there(bench: Bench) -> None:
    bench.train("--checkpoint_dir_for_init=nowhere").refused(
        "There is no checkpoint at nowhere: the path does not exist", "hint: Give the folder"
    )
    bench.train(f"--checkpoint_dir_for_init={bench.zoo}").refused(
        f"There is no checkpoint at {bench.zoo}: it has no manifest.json", "hint: Give the folder"
    )


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("manifest.json", "its manifest.json is damaged"),
        ("worker.edl", "worker.edl should have"),
    ],
)
def test_truncated_checkpoint_is_refused(bench: Bench, plain_checkpoint: Path, file: str, words: str) -> None:
    damaged = _copy(plain_checkpoint, bench.folder / "damaged")
    content = (damaged / file).read_bytes()
    (damaged / file).write_bytes(content[: len(content) // 2])
    bench.train(f"--checkpoint_dir_for_init={damaged}").refused(
        f"The checkpoint {damaged}", words, "hint: Start from an older one"
    )


def test_checkpoint_with_missing_file_is_refused(bench: Bench, plain_checkpoint: Path) -> None:
    damaged = _copy(plain_checkpoint, bench.folder / "damaged")
    (damaged / "worker.edl").unlink()
    bench.train(f"--checkpoint_dir_for_init={damaged}").refused("worker.edl", "is missing", str(damaged))


def _copy(checkpoints: Path, target: Path) -> Path:
    (version,) = checkpoints.glob("version-*")
    shutil.copytree(version, target)
    return target


# -- names, ports, flags -------------------------------------------------------------------------------------


def test_a_job_name_in_use(bench: Bench) -> None:
    gate = bench.folder / "gate"
    gate.touch()
    bench.environment["ELASTICDL_TEST_GATE"] = str(gate)
    running = bench.start(*bench.training("--job_name=mine"))
    try:
        from e2e.conftest import wait_until

        wait_until(lambda: list(bench.folder.glob("gate.reached-*")), "the job trains")
        second = bench.start(*bench.training("--job_name=mine"))
        output, _ = second.communicate()
        assert second.returncode == 2
        assert "The job name mine is in use" in output
        assert "running" in output
        assert "hint: " in output
    finally:
        gate.unlink()
    bench.finish(running).succeeded("Exact: every sample")
    # And then it is free.
    bench.train("--job_name=mine").succeeded("Exact: every sample")


def test_a_port_that_is_taken(bench: Bench) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        bench.train(f"--master_port={port}").refused(
            f"--master_port={port}: the port cannot be taken: Address already in use", "hint: Choose another"
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--num_epocs=3"], ["There is no flag --num_epocs", "Did you mean --num_epochs?"]),
        (["--distribution_strategy=Locl"], ["--distribution_strategy: 'Locl'", "did you mean Local?"]),
        (["--num_workers=many"], ["--num_workers: 'many' is not a whole number"]),
        (["--minibatch_size=0"], ["--minibatch_size: 0 is less than 1"]),
        (["--max_bad_records=-1"], ["--max_bad_records: -1 is less than 0"]),
        (["--job_name=a/b"], ["--job_name: 'a/b' is not a job name"]),
        (["--data_reader_params=x"], ["--data_reader_params: 'x' is not of the form key=value"]),
        (["--master_port=80000"], ["--master_port: 80000 is more than 65535"]),
        (["--evaluation_steps=5"], ["--evaluation_steps needs --validation_data"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_flags_that_cannot_be(bench: Bench, arguments: list[str], words: list[str]) -> None:
    bench.train(*arguments).refused(*words)


def test_unknown_command_is_rejected_with_suggestion(bench: Bench) -> None:
    bench.run("trian").refused("There is no command 'trian'. Did you mean train?")


# -- job files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("job_name: a\nmodel: {model_zoo: [\n", ["job.yaml:3:1: this is not YAML"]),
        ("job_name: a\nmodell: {}\n", ["job.yaml:2: unknown key modell. Did you mean model?"]),
        ("training:\n  num_epoch: 3\n", ["job.yaml:2: unknown key training.num_epoch", "mean num_epochs?"]),
        ("training: {num_epochs: many}\n", ["job.yaml:1: training.num_epochs: 'many' is not a whole number"]),
        ("training: 3\n", ["job.yaml:1: section training must consist of lines"]),
        ("job_name: a\njob_name: b\n", ["job.yaml:2: job_name comes twice", "the first is in line 1"]),
        ("[1, 2]\n", ["job.yaml:1: a job file must consist of lines"]),
    ],
    ids=["syntax", "section", "key", "type", "scalar", "twice", "list"],
)
def test_job_files_that_are_wrong(bench: Bench, text: str, words: list[str]) -> None:
    file = bench.folder / "job.yaml"
    file.write_text(text)
    bench.train("-f", str(file)).refused(*words)


def test_a_job_file_that_is_not_there(bench: Bench) -> None:
    bench.train("-f", "nothing.yaml").refused("The job file nothing.yaml cannot be read: No such file")
