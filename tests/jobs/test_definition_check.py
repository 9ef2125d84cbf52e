"""A model definition is checked by its text, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.definition_check import check_definition, defined_names, locate
from elasticdl.jobs.spec import JobSpec

COMPLETE = """\
import os

def custom_model(): ...
def loss(labels, predictions): ...
def optimizer(): ...
def feed(dataset, mode, metadata): ...
def eval_metrics_fn(): ...
"""

Check = Callable[..., JobSpec]


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    folder = tmp_path / "zoo"
    (folder / "digits").mkdir(parents=True)
    (folder / "digits" / "cnn.py").write_text(COMPLETE)
    return folder


@pytest.fixture
def definition(zoo: Path, job: Check) -> Callable[..., JobSpec]:
    """A job whose model definition has that text."""

    def build(text: str | bytes, kind: str = "train", **flags: object) -> JobSpec:
        path = zoo / "digits" / "cnn.py"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return job(kind, **{"model_zoo": zoo, "model_def": "digits.cnn.custom_model", **flags})

    return build


def refused(spec: JobSpec) -> UserError:
    with pytest.raises(UserError) as caught:
        check_definition(spec)
    return caught.value


def test_a_complete_definition(definition: Check) -> None:
    check_definition(definition(COMPLETE))


def test_definition_is_checked_without_being_run(definition: Check) -> None:
    check_definition(definition(COMPLETE + "raise SystemExit('this was run')\n"))


def test_missing_functions_are_named_with_existing_ones(definition: Check, zoo: Path) -> None:
    error = refused(
        definition(COMPLETE.replace("def loss", "def losses").replace("def feed", "def dataset_fn"))
    )
    path = zoo / "digits" / "cnn.py"
    assert error.message.splitlines() == [
        f"{path} has no feed (--feed).",
        f"{path} has no loss (--loss). Did you mean losses?",
    ]
    assert error.hint == (
        "The functions and classes in it: custom_model, losses, optimizer, dataset_fn, eval_metrics_fn."
    )


def test_folder_named_like_a_framework_is_not_the_framework(
    definition: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkout" / "tf_keras" / "images").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "checkout")
    error = refused(definition("import tf_keras\n" + COMPLETE))
    assert "needs tf_keras, which is not installed" in error.message


def test_the_model_function(definition: Check) -> None:
    error = refused(definition(COMPLETE, model_def="digits.cnn.custom_modle"))
    assert "has no custom_modle (--model_def). Did you mean custom_model?" in error.message


def test_names_of_ones_own(definition: Check) -> None:
    check_definition(definition(COMPLETE.replace("def loss", "def my_loss"), loss="my_loss"))
    error = refused(definition(COMPLETE, callbacks="my_callbacks"))
    assert "has no my_callbacks (--callbacks)" in error.message


def test_each_kind_needs_what_it_uses(definition: Check) -> None:
    small = "def custom_model(): ...\ndef feed(d, m, md): ...\n"
    check_definition(definition(small, "predict"))
    assert "eval_metrics_fn" in refused(definition(small, "evaluate")).message
    check_definition(definition(COMPLETE.replace("def optimizer", "def no_optimizer"), "evaluate"))


def test_predictions_must_go_somewhere(definition: Check) -> None:
    assert "go nowhere" in refused(definition(COMPLETE, "predict", output="")).message
    processor = COMPLETE + "class PredictionOutputsProcessor: ...\n"
    check_definition(definition(processor, "predict", output=""))


@pytest.mark.parametrize(
    "way",
    [
        "from elsewhere import loss",
        "from elsewhere import something as loss",
        "import elsewhere as loss",
        "loss = make()",
        "loss: object = make()",
        "a, (loss, b) = make()",
        "if True:\n    def loss(): ...",
        "try:\n    import x\nexcept ImportError:\n    loss = None",
        "with x:\n    def loss(): ...",
        "async def loss(): ...",
        "class loss: ...",
        "for loss in x: ...",
    ],
)
def test_ways_to_define(definition: Check, way: str) -> None:
    text = COMPLETE.replace("def loss(labels, predictions): ...\n", f"{way}\n")
    check_definition(definition(text))


@pytest.mark.parametrize(
    "way", ["def f():\n    loss = 1", "class C:\n    loss = 1", "x.loss = 1", "print(loss)"]
)
def test_ways_not_to_define(definition: Check, way: str) -> None:
    text = COMPLETE.replace("def loss(labels, predictions): ...\n", f"{way}\n")
    assert "has no loss" in refused(definition(text)).message


def test_definition_with_dynamic_names_is_not_rejected(definition: Check) -> None:
    for text in ("from elsewhere import *\n", "def __getattr__(name): ...\n"):
        check_definition(definition(text))
        assert defined_names(definition(text)) is None
    assert "custom_model" in (defined_names(definition(COMPLETE)) or ())


def test_a_syntax_error_has_its_place(definition: Check, zoo: Path) -> None:
    error = refused(definition("x = 1\ndef loss(:\n"))
    assert error.message.startswith(f"{zoo / 'digits' / 'cnn.py'}:2: the module does not parse: ")
    assert "def loss(:" in error.message


@pytest.mark.parametrize("text", [b"x = 1\0", b"# \xff\xfe\nx = '\xff'\n"])
def test_unparsable_definition_is_rejected(definition: Check, text: bytes) -> None:
    assert "cnn.py" in refused(definition(text)).message


def test_no_such_zoo(job: Check, tmp_path: Path) -> None:
    assert "There is no model zoo folder" in refused(job(model_zoo=tmp_path / "none")).message


def test_no_such_folder_or_module(zoo: Path) -> None:
    with pytest.raises(UserError, match=r"no folder digit in .*Did you mean digits"):
        locate(str(zoo), "digit.cnn.custom_model")
    with pytest.raises(UserError, match=r"no module cmn.py in .*Did you mean cnn"):
        locate(str(zoo), "digits.cmn.custom_model")
    (zoo / "empty").mkdir()
    with pytest.raises(UserError, match="no Python file"):
        locate(str(zoo), "empty.cnn.custom_model")


def test_places_of_a_module(zoo: Path) -> None:
    assert locate(str(zoo), "digits.cnn.custom_model") == zoo / "digits" / "cnn.py"
    (zoo / "digits" / "deep").mkdir()
    (zoo / "digits" / "deep" / "__init__.py").write_text("")
    assert locate(str(zoo), "digits.deep.f") == zoo / "digits" / "deep" / "__init__.py"
    (zoo / "flat.py").write_text("")
    assert locate(str(zoo), "flat.f") == zoo / "flat.py"


def test_failing_import_is_reported_instead_of_missing_functions(
    definition: Callable[..., JobSpec],
) -> None:
    with pytest.raises(UserError, match=r"cnn.py imports not_to_be_found, which is not installed"):
        check_definition(definition("import os\nfrom not_to_be_found.models import net\n"))
