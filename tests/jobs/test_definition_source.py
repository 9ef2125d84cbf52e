"""Definitions shipped as source: what they take along, and what is refused with its reason."""

from __future__ import annotations

import importlib.util
import linecache
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.definition_source import definition_of, ship_objects

Notebook = Callable[..., types.SimpleNamespace]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """Runs cells as a notebook does: in `__main__`, with their text known to linecache only."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    names: list[str] = []

    def run(*cells: str) -> types.SimpleNamespace:
        for cell in cells:
            name = f"<cell {len(names)}>"
            names.append(name)
            linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
            exec(compile(cell, name, "exec", dont_inherit=True), vars(main))
        return types.SimpleNamespace(**vars(main))

    yield run
    for name in names:
        del linecache.cache[name]


def _load(text: str, tmp_path: Path) -> Any:
    """The module as a worker has it: a file, in an interpreter that knows nothing of the notebook."""
    path = tmp_path / "shipped_definition.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("shipped_definition", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CELLS = (
    """
import math
import os.path
import xml.etree.ElementTree as tree
from collections import OrderedDict as Ordered
import email
import email.utils
SIZES = {"hidden": (4, 2), "rate": 0.5}
""",
    """
def double(value):
    return 2 * value


class Base:
    def name(self):
        return type(self).__name__
""",
    """
class Net(Base):
    kind = tree.Element("net").tag

    def __init__(self, hidden: int = SIZES["hidden"][0]):
        super().__init__()
        self.hidden = double(hidden)

    @property
    def area(self):
        return math.floor(self.hidden * SIZES["rate"])

    @staticmethod
    def join(*parts):
        return os.path.join(*parts), email.utils.quote("a"), Ordered(a=1)


def feed(dataset, mode, metadata):
    return dataset.map(lambda record: double(record))


def loss(labels, predictions):
    return sum(helper(label) for label in labels)


def helper(value):
    return value if value < 1 else loss([value - 1], None)


def unused():
    return undefined_anywhere
""",
)


def test_class_takes_along_what_it_uses(notebook: Notebook, tmp_path: Path) -> None:
    cells = notebook(*CELLS)
    definition = definition_of(cells.Net)
    module = _load(definition.text, tmp_path)
    net = module.Net(hidden=5)
    assert (net.hidden, net.area, net.name(), net.kind) == (10, 5, "Net", "net")
    assert module.Net.join("a", "b")[0] == "a/b"
    assert module.loss([0.5, 2], None) == 0.5
    assert "unused" not in definition.text
    assert definition.model_def == "shipped.definition.Net"
    assert definition.names == {}


def test_given_functions_replace_those_beside_the_model(notebook: Notebook, tmp_path: Path) -> None:
    cells = notebook(*CELLS, "def squares(labels, predictions):\n    return labels * labels\n")
    definition = definition_of(cells.Net, loss=cells.squares)
    module = _load(definition.text, tmp_path)
    assert definition.names == {"loss": "squares"}
    assert module.squares(3, None) == 9
    assert not hasattr(module, "loss")


def test_redefined_function_is_shipped_as_it_is_now(notebook: Notebook, tmp_path: Path) -> None:
    cells = notebook("def model():\n    return 1\n", "def model():\n    return 2\n")
    assert _load(definition_of(cells.model).text, tmp_path).model() == 2


def test_future_annotations_are_kept(notebook: Notebook, tmp_path: Path) -> None:
    cells = notebook(
        "from __future__ import annotations\ndef model(size: int | None = None):\n    return size\n"
    )
    module = _load(definition_of(cells.model).text, tmp_path)
    assert module.model.__annotations__ == {"size": "int | None"}


def test_function_of_this_file_that_is_no_installed_module(tmp_path: Path) -> None:
    definition = definition_of(_model_of_this_file)
    assert _load(definition.text, tmp_path)._model_of_this_file() == {"answer": 42}


_ANSWER = 42


def _model_of_this_file() -> dict[str, int]:
    return {"answer": _ANSWER}


def test_flags_name_the_shipped_module(notebook: Notebook, tmp_path: Path) -> None:
    cells = notebook(*CELLS)
    flags = ship_objects({"model": cells.Net, "loss": cells.loss, "num_workers": 2}, folder=tmp_path)
    assert flags["num_workers"] == 2
    assert (flags["model_def"], flags["loss"]) == ("shipped.definition.Net", "loss")
    text = (Path(flags["model_zoo"]) / "shipped" / "definition.py").read_text()
    assert "class Net(Base)" in text
    # The same text is at the same place, another one is not.
    assert (
        ship_objects({"model": cells.Net, "loss": cells.loss}, folder=tmp_path)["model_zoo"]
        == flags["model_zoo"]
    )
    assert ship_objects({"model": cells.Base}, folder=tmp_path)["model_zoo"] != flags["model_zoo"]


def test_flags_without_objects_stay(tmp_path: Path) -> None:
    flags = {"model_def": "digits.torch_cnn.custom_model", "loss": "cross_entropy"}
    assert ship_objects(flags, folder=tmp_path) == flags
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("model = lambda: 1", "model: a lambda has no name"),
        ("model = len", "model: len is built in and has no source"),
        ("model = [].append", "built in"),
        ("model = 'digits.cnn.custom_model'", "an object of type str"),
        ("import functools\nmodel = functools.partial(int, 1)", "an object of type partial"),
        ("class A:\n    def make(self): ...\nmodel = A().make", r"A\.make is a method bound to an object"),
        (
            "def outer(size):\n    def model():\n        return size\n    return model\nmodel = outer(3)",
            r"model is a closure over size",
        ),
        (
            "def outer(size):\n    class Net:\n        def build(self):\n            return size\n"
            "    return Net\nmodel = outer(3)",
            r"build is a closure over size",
        ),
        (
            "table = open('/dev/null')\ndef model():\n    return table",
            r"model \(model\) uses table, a TextIOWrapper",
        ),
        ("limit = float('inf')\ndef model():\n    return limit", "uses limit, a float"),
        ("def model():\n    return missing", "model uses missing, which is not defined"),
        (
            "def build():\n    return 1\nother = build\ndef model():\n    return other()",
            "uses other, which is build by another name",
        ),
    ],
)
def test_object_that_is_more_than_its_source_is_refused(notebook: Notebook, cell: str, words: str) -> None:
    cells = notebook(cell + "\n")
    with pytest.raises(UserError, match=words):
        definition_of(cells.model)


def test_function_without_source_text_is_refused() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def model():\n    return 1\n", namespace)
    with pytest.raises(UserError, match="there is no source text of model"):
        definition_of(namespace["model"])


def test_module_that_workers_cannot_import_is_refused(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_local_layers.py").write_text("SIZE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    cells = notebook("import my_local_layers\ndef model():\n    return my_local_layers.SIZE\n")
    with pytest.raises(UserError, match="my_local_layers, which is not installed"):
        definition_of(cells.model)


def test_model_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="model and model_def are given"):
        ship_objects({"model": _model_of_this_file, "model_def": "a.b.c"}, folder=tmp_path)
    with pytest.raises(UserError, match="loss: a function is given, but no model"):
        ship_objects({"loss": _model_of_this_file, "model_def": "a.b.c"}, folder=tmp_path)
