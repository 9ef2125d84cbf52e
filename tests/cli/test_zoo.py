"""`elasticdl zoo init` writes a Dockerfile for what is there, and never overwrites one that may have been edited."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from elasticdl import __version__


@pytest.fixture
def here(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which `zoo` is, as the current one."""
    monkeypatch.chdir(zoo.parent)
    return zoo.parent


def written(folder: Path) -> str:
    return (folder / "Dockerfile").read_text()


def test_a_folder_of_models(elasticdl: Any, here: Path) -> None:
    (here / "zoo").rename(here / "model_zoo")
    assert elasticdl("zoo", "init", "--model_zoo=model_zoo").code == 0
    text = written(here)
    assert text.startswith("#")
    assert "\nFROM python:3.11-slim\n" in text
    assert f"pip install --no-cache-dir 'elasticdl[kubernetes,dashboard]=={__version__}'\n" in text
    assert "\nCOPY model_zoo /model_zoo\n" in text
    assert text.endswith("WORKDIR /\nUSER 1000\n")
    assert "__pycache__" in (here / ".dockerignore").read_text()


def test_inside_of_the_model_zoo(elasticdl: Any, zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(zoo)
    assert elasticdl("zoo", "init").code == 0
    assert "\nCOPY . /model_zoo\n" in written(zoo)


def test_another_name_is_known_too(elasticdl: Any, here: Path) -> None:
    assert elasticdl("zoo", "init", "--model-zoo=zoo").code == 0
    assert "ln -s /model_zoo /zoo" in written(here)


def test_one_file(elasticdl: Any, here: Path) -> None:
    assert elasticdl("zoo", "init", "--model_zoo=zoo/digits/cnn.py").code == 0
    assert "\nCOPY zoo/digits/cnn.py /model_zoo/cnn.py\n" in written(here)


def test_requirements_come_before_the_models(elasticdl: Any, here: Path) -> None:
    (here / "zoo/requirements.txt").write_text("six\n")
    index = "--extra_pypi_index=http://localhost:3141/simple"
    assert elasticdl("zoo", "init", "--model_zoo=zoo", "--base_image=ours:1", index).code == 0
    text = written(here)
    assert "\nFROM ours:1\n" in text
    assert text.index("COPY zoo/requirements.txt") < text.index("COPY zoo /model_zoo")
    assert len(re.findall("--extra-index-url=http://localhost:3141/simple", text)) == 2


def test_packages_of_a_folder(elasticdl: Any, here: Path) -> None:
    (here / "dist").mkdir()
    (here / "dist/elasticdl-9-py3-none-any.whl").touch()
    assert elasticdl("zoo", "init", "--model_zoo=zoo", "--local_pkg_dir=dist").code == 0
    assert "\nCOPY dist/*.whl /tmp/packages/\n" in written(here)
    assert "==" not in written(here)


def test_files_outside_of_zoo_are_copied(elasticdl: Any, here: Path, tmp_path_factory: Any) -> None:
    away = tmp_path_factory.mktemp("away")
    (away / "elasticdl-9-py3-none-any.whl").write_text("wheel")
    (away / "pods.yaml").write_text("spec: {}")
    flags = [f"--local_pkg_dir={away}", f"--cluster_spec={away}/pods.yaml"]
    assert elasticdl("zoo", "init", "--model_zoo=zoo", *flags).code == 0
    assert "\nCOPY elasticdl_packages/*.whl /tmp/packages/\n" in written(here)
    assert (here / "elasticdl_packages/elasticdl-9-py3-none-any.whl").read_text() == "wheel"
    assert "\nCOPY pods.yaml /cluster_spec/pods.yaml\n" in written(here)
    assert (here / "pods.yaml").read_text() == "spec: {}"


def test_names_with_spaces(elasticdl: Any, here: Path) -> None:
    (here / "zoo").rename(here / "my zoo")
    assert elasticdl("zoo", "init", "--model_zoo=my zoo").code == 0
    assert '\nCOPY ["my zoo", "/model_zoo"]\n' in written(here)


def test_existing_dockerfile_stays_without_overwrite(elasticdl: Any, here: Path) -> None:
    (here / "Dockerfile").write_text("FROM mine\n")
    (here / ".dockerignore").write_text("mine\n")
    result = elasticdl("zoo", "init", "--model_zoo=zoo")
    assert result.code == 2
    assert "There is a Dockerfile already" in result.err
    assert written(here) == "FROM mine\n"
    assert elasticdl("zoo", "init", "--model_zoo=zoo", "--overwrite").code == 0
    assert "FROM python" in written(here)
    assert (here / ".dockerignore").read_text() == "mine\n"


def test_the_same_once_more_is_no_mistake(elasticdl: Any, here: Path, tmp_path_factory: Any) -> None:
    away = tmp_path_factory.mktemp("away")
    (away / "elasticdl-9-py3-none-any.whl").write_text("wheel")
    flags = ("--model_zoo=zoo", f"--local_pkg_dir={away}")
    assert "Dockerfile is written." in elasticdl("zoo", "init", *flags).out
    before = written(here)
    # What goes into the image may have changed all the same.
    (away / "elasticdl-9-py3-none-any.whl").write_text("a newer one")
    result = elasticdl("zoo", "init", *flags)
    assert result.code == 0, result.err
    assert "Dockerfile is there already, and as it would be written now." in result.out
    assert written(here) == before
    assert (here / "elasticdl_packages/elasticdl-9-py3-none-any.whl").read_text() == "a newer one"


def test_rejected_init_leaves_no_files(elasticdl: Any, here: Path, tmp_path_factory: Any) -> None:
    away = tmp_path_factory.mktemp("away")
    (away / "elasticdl-9-py3-none-any.whl").write_text("wheel")
    (away / "pods.yaml").write_text("spec: {}")
    (here / "Dockerfile").write_text("FROM mine\n")
    before = sorted(here.rglob("*"))
    flags = [f"--local_pkg_dir={away}", f"--cluster_spec={away}/pods.yaml"]
    assert elasticdl("zoo", "init", "--model_zoo=zoo", *flags).code == 2
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model_zoo=nowhere"], "There is no model zoo nowhere"),
        (["--model_zoo=.."], "is outside of"),
        (["--model_zoo=zoo", "--local_pkg_dir=zoo"], "There is no package (*.whl) in zoo"),
        (["--model_zoo=zoo", "--cluster_spec=none.yaml"], "There is no file none.yaml"),
        (["--model_zo=zoo"], "--model_zoo"),
    ],
)
def test_invalid_zoo_init_writes_no_dockerfile(
    elasticdl: Any, here: Path, flags: list[str], words: str
) -> None:
    result = elasticdl("zoo", "init", *flags)
    assert result.code == 2
    assert words in result.err
    assert not (here / "Dockerfile").exists()
