"""Configurations that do not run are explained, with the line that is wrong and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.paddle_compat.config.helpers import names
from elasticdl.paddle_compat.config.loader import load_configuration, load_provider

PAGE = Path(__file__).resolve().parents[3] / "docs" / "paddle-kubernetes.md"
HEADER = "from paddle.trainer_config_helpers import *\n"


def refusal(folder: Path, text: str) -> str:
    config = folder / "trainer_config.py"
    config.write_text(text)
    with pytest.raises(UserError) as caught:
        load_configuration(config)
    return f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER + "embeding_layer()\n", ("config.py:2", "embeding_layer is not supported", "embedding_layer")),
        ("from paddle.trainer_config_helpers import fc_layr\n", ("trainer_config.py:1", "fc_layr", "fc_layer")),
        (HEADER + "import my_own_module\n", ("trainer_config.py:2", "my_own_module", "beside the configuration")),
        (HEADER + "print 'x'\n", ("trainer_config.py:2", "Python 2")),
        (HEADER + "1 / 0\n", ("trainer_config.py:2", "ZeroDivisionError")),
        (HEADER + "open('data/none.txt')\n", ("trainer_config.py:2", "data/none.txt")),
        (HEADER, ("has no outputs", "outputs(COST)")),
    ],
)  # fmt: skip
def test_mistake_is_named_with_its_line(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    said = refusal(tmp_path, text)
    for each in words:
        assert each in said


def test_missing_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none.py cannot be read"):
        load_configuration(tmp_path / "none.py")


def test_provider_without_its_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "trainer_config.py"
    sources = "define_py_data_sources2('train.list', None, module='no_provider', obj='process')\n"
    config.write_text(
        f"{HEADER}{sources}outputs(regression_cost(input=data_layer('x', 1), label=data_layer('y', 1)))\n"
    )
    configuration = load_configuration(config)
    with pytest.raises(UserError, match="no_provider"):
        load_provider(configuration, config)


def test_page_lists_the_layers() -> None:
    """The message about a layer that is not supported points to the page."""
    page = PAGE.read_text()
    supported = {name for name in names() if name[0].islower()} - {"xrange"}
    assert {name for name in supported if f"`{name}`" not in page} == set()
