"""A definition is imported from its zoo folder, with its own imports; errors are reported in its terms."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.extras import install_command
from elasticdl.worker.definition import ModelDefinition, load_definition

FUNCTIONS = """
def custom_model(): return "model"
def feed(dataset, mode, metadata): return dataset
def loss(labels, predictions): return 0
def optimizer(): return None
def eval_metrics_fn(): return {}
"""
REQUIRED = {name: name for name in ("feed", "loss", "optimizer", "eval_metrics_fn")}


@pytest.fixture
def zoo(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Writes a model zoo; what importing from it leaves in this process is taken away afterwards."""
    modules, path = set(sys.modules), list(sys.path)

    def write(**files: str) -> Path:
        for name, text in files.items():
            file = tmp_path / "zoo" / name.replace("__in__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.with_suffix(".py").write_text(text)
        return tmp_path / "zoo"

    yield write
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = path


def load(folder: Path, model_def: str, **names: Any) -> ModelDefinition:
    return load_definition(
        model_zoo=str(folder), model_def=model_def, names=REQUIRED | names, model_params={}
    )


def test_module_in_folder(zoo: Callable[..., Path]) -> None:
    folder = zoo(plain_defs__in__first=FUNCTIONS)
    definition = load(folder, "plain_defs.first.custom_model")
    assert definition.model() == "model"
    assert definition.path == folder / "plain_defs" / "first.py"


def test_module_straight_in_the_zoo(zoo: Callable[..., Path]) -> None:
    assert load(zoo(lonely_def=FUNCTIONS), "lonely_def.custom_model").model() == "model"


def test_imports_of_siblings(zoo: Callable[..., Path]) -> None:
    folder = zoo(
        siblings__in__common="VALUE = 3",
        siblings__in__relative=FUNCTIONS + "from . import common\ndef custom_model(): return common.VALUE",
        siblings__in__by_folder=FUNCTIONS
        + "from siblings.common import VALUE\ndef custom_model(): return VALUE",
    )
    assert load(folder, "siblings.relative.custom_model").model() == 3
    assert load(folder, "siblings.by_folder.custom_model").model() == 3


def test_imports_by_the_name_of_a_zoo_that_is_a_package(zoo: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo").rename(tmp_path / "zoo_of_ours")
    folder = tmp_path / "zoo_of_ours"
    (folder / "inner").mkdir()
    for name, text in {
        "__init__": "",
        "inner/__init__": "",
        "inner/common": "VALUE = 4",
        "inner/main": FUNCTIONS
        + "from zoo_of_ours.inner.common import VALUE\ndef custom_model(): return VALUE",
    }.items():
        (folder / f"{name}.py").write_text(text)
    before = list(sys.path)
    assert load(folder, "inner.main.custom_model").model() == 4
    # What else lies beside the zoo must not hide installed packages.
    assert [one for one in sys.path if one not in before] == [str(folder)]


def test_error_while_importing_shows_the_users_part_of_the_traceback(zoo: Callable[..., Path]) -> None:
    folder = zoo(
        broken__in__helper="def helper():\n    return 1 / 0\n",
        broken__in__main="from . import helper\nhelper.helper()",
    )
    with pytest.raises(UserError) as caught:
        load(folder, "broken.main.custom_model")
    text = str(caught.value)
    assert "ZeroDivisionError: division by zero" in text
    assert "broken/main.py" in text
    assert "broken/helper.py" in text
    assert "importlib" not in text
    assert "elasticdl/worker" not in text


def test_syntax_error_shows_the_line(zoo: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="def custom_model:") as caught:
        load(zoo(wrong__in__syntax="def custom_model:\n    pass"), "wrong.syntax.custom_model")
    assert "syntax.py" in str(caught.value)


def test_module_that_exits(zoo: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="cannot be imported"):
        load(zoo(leaving__in__main="raise SystemExit(3)"), "leaving.main.custom_model")


@pytest.mark.parametrize(
    ("model_def", "words"),
    [
        ("numbrs.one.custom_model", ["no folder numbrs", "Did you mean numbers_?"]),
        ("numbers_.onee.custom_model", ["no module onee.py", "Did you mean one?"]),
        ("custom_model", ["names no module"]),
    ],
)
def test_missing_module_or_function_is_named(
    zoo: Callable[..., Path], model_def: str, words: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        load(zoo(numbers___in__one=FUNCTIONS), model_def)
    assert all(word in str(caught.value) for word in words)


def test_missing_zoo(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model zoo folder"):
        load(tmp_path / "nowhere", "a.b.c")


def test_name_of_an_installed_package(zoo: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="installed package has the same name"):
        load(zoo(numpy__in__random=FUNCTIONS), "numpy.random.custom_model")


@pytest.mark.parametrize(
    ("package", "extra"), [("tensorflow", "keras"), ("torch", "torch"), ("keras", "keras")]
)
def test_framework_that_is_not_installed(
    zoo: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    class Hidden:
        """As if nothing of that name were installed."""

        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Hidden(), *sys.meta_path])
    with pytest.raises(UserError) as caught:
        load(zoo(needs__in__it=f"import {package}.layers\n{FUNCTIONS}"), "needs.it.custom_model")
    assert f"needs {package}, which is not installed" in caught.value.message
    assert caught.value.hint == install_command(extra)


def test_other_module_that_is_not_installed(zoo: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="no module not_installed") as caught:
        load(zoo(wants__in__more="import not_installed"), "wants.more.custom_model")
    assert "wants/more.py" in str(caught.value)
