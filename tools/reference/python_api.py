"""docs/reference/python-api.md: what users import, with signatures and docstrings.

The source is parsed and not imported, so that no framework is needed.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import elasticdl
from tools.reference.markdown import opening

ROOT = Path(__file__).resolve().parents[2]
_TEXT = """\
[Python API](../python-api.md) and [elasticai_api](../elasticai_api.md) are guides to these names, with programs that
run. Everything that is not on this page is internal and may change."""

# Not classes or functions: a type of constants, a version, and modules.
_SKIPPED = {"__version__", "jobs", "metrics"}
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Modules that programs import: all public classes and functions of each.
MODULES = (
    ("elasticdl.keras", "elasticdl/keras.py"),
    ("elasticdl.torch", "elasticdl/torch.py"),
    ("elasticdl.paddle", "elasticdl/paddle.py"),
    ("elasticai_api.common.data_shard_service", "elasticai_api/common/data_shard_service.py"),
    ("elasticai_api.io.recordio_reader", "elasticai_api/io/recordio_reader.py"),
    ("elasticai_api.pytorch.controller", "elasticai_api/pytorch/controller.py"),
    ("elasticai_api.pytorch.dataset", "elasticai_api/pytorch/dataset.py"),
    ("elasticai_api.tensorflow.callbacks", "elasticai_api/tensorflow/callbacks.py"),
    ("elasticai_api.tensorflow.dataset", "elasticai_api/tensorflow/dataset.py"),
    ("elasticai_api.tensorflow.hooks", "elasticai_api/tensorflow/hooks.py"),
    ("elasticai_api.paddle.callbacks", "elasticai_api/paddle/callbacks.py"),
    ("elasticai_api.paddle.dataset", "elasticai_api/paddle/dataset.py"),
    ("elasticai_api.paddle.fault_tolerance", "elasticai_api/paddle/fault_tolerance.py"),
    ("elasticai_api.transformers.trainer", "elasticai_api/transformers/trainer.py"),
    ("elasticai_api.lightning.callback", "elasticai_api/lightning/callback.py"),
    ("elasticai_api.errors", "elasticai_api/errors.py"),
)


def page() -> str:
    lines = opening("Python API reference", "the docstrings in the code", _TEXT)
    lines += ["## elasticdl", ""]
    for name, module in top_level():
        lines += _entry(_definition(module, name), f"elasticdl.{name}", level=3)
    for module_name, file in MODULES:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        lines += [f"## {module_name}", "", _summary(ast.get_docstring(tree) or ""), ""]
        public = _public(tree)
        for node in tree.body:
            if isinstance(node, _Definition) and node.name in public:
                lines += _entry(node, node.name, level=3)
    return "\n".join(lines)


def top_level() -> Iterator[tuple[str, Path]]:
    """Yields the classes and functions of `import elasticdl`, with the file of each."""
    for name in sorted(set(elasticdl.__all__) - _SKIPPED):
        place = elasticdl._PLACES[name].partition(":")[0]
        yield name, ROOT / f"{place.replace('.', '/')}.py"


def _public(tree: ast.Module) -> set[str]:
    names = {node.name for node in tree.body if isinstance(node, _Definition)}
    return {name for name in names if not name.startswith("_")}


def _definition(file: Path, name: str) -> _Definition:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, _Definition) and node.name == name:
            return node
    raise LookupError(f"{file} does not define {name}")


def _entry(node: _Definition, name: str, *, level: int) -> list[str]:
    lines = [f"{'#' * level} {name.rpartition('.')[2]}", "", "<!-- not run: a signature -->", "```python"]
    lines += [*_signature(node, name), "```", "", *_documentation(node)]
    if isinstance(node, ast.ClassDef):
        for member in node.body:
            if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) and not member.name.startswith(
                "_"
            ):
                lines += _member(member)
        lines.append("")
    return lines


def _member(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    kinds = {ast.unparse(each) for each in node.decorator_list}
    summary = _summary(ast.get_docstring(node) or "")
    if "property" in kinds or "cached_property" in kinds:
        returns = f": {ast.unparse(node.returns)}" if node.returns else ""
        return [f"- `{node.name}{returns}`{' – ' if summary else ''}{summary}"]
    arguments = _arguments(node, skip_self="staticmethod" not in kinds)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return [f"- `{node.name}({arguments}){returns}`{' – ' if summary else ''}{summary}"]


def _signature(node: _Definition, name: str) -> list[str]:
    if not isinstance(node, ast.ClassDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return _wrapped(f"{name}(", _argument_list(node, skip_self=False), f"){returns}")
    init = next(
        (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None
    )
    if init is not None:
        return _wrapped(f"class {name}(", _argument_list(init, skip_self=True), ")")
    fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
    is_dataclass = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    return (
        [f"class {name}", *(f"    {each}" for each in fields if not each.startswith("_"))]
        if is_dataclass
        else [f"class {name}"]
    )


def _wrapped(start: str, arguments: list[str], end: str) -> list[str]:
    line = f"{start}{', '.join(arguments)}{end}"
    if len(line) <= 96:
        return [line]
    return [start, *(f"    {each}," for each in arguments), end]


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, *, skip_self: bool) -> str:
    return ", ".join(_argument_list(node, skip_self=skip_self))


def _argument_list(node: ast.FunctionDef | ast.AsyncFunctionDef, *, skip_self: bool) -> list[str]:
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults)) + [*given.defaults]
    found = [_argument(each, default) for each, default in zip(plain, defaults, strict=True)]
    if skip_self:
        found = found[1:]
    if given.vararg:
        found.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        found.append("*")
    found += [
        _argument(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        found.append(f"**{_argument(given.kwarg, None)}")
    return found


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {ast.unparse(argument.annotation)}"
    if default is not None:
        text += (
            f" = {ast.unparse(default)}" if argument.annotation is not None else f"={ast.unparse(default)}"
        )
    return text


def _documentation(node: _Definition) -> list[str]:
    """The docstring in Markdown: sections as lists, examples as blocks."""
    text = ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        init = next(
            (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"),
            None,
        )
        more = ast.get_docstring(init) if init is not None else None
        text = f"{text}\n\n{more}" if more else text
    lines: list[str] = []
    for paragraph in re.split(r"\n\n+(?! )", text):
        lines += _paragraph(paragraph)
    return lines


def _paragraph(paragraph: str) -> list[str]:
    head, _, body = paragraph.partition("\n")
    if found := re.fullmatch(
        r"(Args|Attributes|Returns|Raises|Yields|Example|Examples|Failure modes)[:]?", head
    ):
        kept = inspect.cleandoc(f"\n{body}")
        if found[1].startswith("Example"):
            return ["<!-- not run: an excerpt -->", "```python", *kept.splitlines(), "```", ""]
        items = [" ".join(each.split()) for each in re.split(r"\n(?! )", kept)]
        if found[1] in ("Returns", "Yields", "Failure modes"):
            return [f"**{found[1]}:** {' '.join(items)}", ""]
        return [f"**{found[1]}:**", "", *(_item(each) for each in items), ""]
    if body.strip() and all(line.startswith("    ") or not line for line in paragraph.splitlines()):
        return [
            "<!-- not run: an excerpt -->",
            "```python",
            *inspect.cleandoc(f"\n{paragraph}").splitlines(),
            "```",
            "",
        ]
    return [" ".join(paragraph.split()), ""] if paragraph.strip() else []


def _item(text: str) -> str:
    name, colon, rest = text.partition(": ")
    return f"- `{name}`: {rest}" if colon and " " not in name.strip("*") else f"- {text}"


def _summary(docstring: str) -> str:
    return " ".join(docstring.partition("\n\n")[0].split())
