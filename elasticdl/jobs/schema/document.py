"""A job as a YAML file, exactly: what is written reads back as the same job.

Sections hold the flags under their own names. The text of a value follows the grammar of its flag and no
other: YAML's own idea of what `on`, `012` or `1:30` mean never comes into it. Nothing is constructed from a
file but text, lists and mappings, and a duplicate or unknown key is an error with its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elasticdl.errors import UserError
from elasticdl.jobs.flags.flag import KINDS
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.flags.yaml_nesting import check_nesting
from elasticdl.jobs.schema.flag_index import LEAVES, NAMES, SECTIONS, Given

if TYPE_CHECKING:
    import yaml

_NULL = "tag:yaml.org,2002:null"
_LINE_ENDS = frozenset("\n\r\x85\u2028\u2029\ufeff")
_STANDARD = "tag:yaml.org,2002:"


def write(kind: str, values: Mapping[str, Any]) -> str:
    """The text of a job of that kind with these values of all its flags."""
    import yaml

    document: dict[str, Any] = {"kind": kind}
    for name, value in values.items():
        leaf = LEAVES[name]
        section = document.setdefault(leaf.section, {}) if leaf.section else document
        section[name] = leaf.flag.grammar.plain(value)
    text: str = yaml.dump(document, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=1000)
    return text


def _dumper() -> Any:
    """PyYAML writes the rarer ends of a line as themselves, and reads them back as spaces: escape them."""
    import yaml

    # Written in C, where PyYAML comes with that.
    dumper: Any = type("Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = '"' if _LINE_ENDS.intersection(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    dumper.add_representer(str, represent)
    return dumper


def read(text: str, *, source: str) -> tuple[str | None, dict[str, Given]]:
    """The kind of job in a file, if it says so, and the flags given there. Names all wrong keys at once."""
    import yaml

    try:
        check_nesting(text)
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        raise _broken(error, source) from None
    except yaml.YAMLError as error:
        raise UserError(f"{source} is not YAML: {error}") from None
    if root is None or root.tag == _NULL:
        return None, {}
    reader = _Reader(source)
    reader.read_root(root)
    if reader.problems:
        raise UserError("\n".join(reader.problems))
    return reader.kind, reader.given


class _Reader:
    """Walks the nodes of one file and collects what is given in it and what is wrong with it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.kind: str | None = None
        self.given: dict[str, Given] = {}
        self.problems: list[str] = []

    def read_root(self, root: yaml.Node) -> None:
        for key, node in self._items(root, "a job file"):
            if key == "kind":
                self._read_kind(node)
            elif key in SECTIONS:
                for name, value in self._items(node, f"section {key}"):
                    self._read_flag(key, name, value)
            else:
                self._read_flag("", key, node)

    def _read_kind(self, node: yaml.Node) -> None:
        kind = self._plain(node)
        if isinstance(kind, str) and kind in KINDS:
            self.kind = kind
        else:
            guess = did_you_mean(str(kind), KINDS)
            self._problem(node, f"{kind!r} is not a kind of job ({', '.join(KINDS)}).{guess}")

    def _read_flag(self, section: str, word: str, node: yaml.Node) -> None:
        name = NAMES.get(word)
        here = f"{section}.{word}" if section else word
        if name is None:
            known = [
                *(n for n, leaf in LEAVES.items() if leaf.section == section),
                *([] if section else SECTIONS),
            ]
            guess = did_you_mean(word, known) or did_you_mean(word, [*NAMES, *SECTIONS])
            self._problem(node, f"unknown key {here}.{guess}")
        elif LEAVES[name].section != section:
            place = (
                f"in section {LEAVES[name].section}" if LEAVES[name].section else "outside of all sections"
            )
            self._problem(node, f"{here} is at the wrong place: it belongs {place}.")
        elif node.tag != _NULL:
            self.given[word] = Given(raw=self._plain(node), where=f"{self._at(node)}: {here}")

    def _items(self, node: yaml.Node, what: str) -> list[tuple[str, yaml.Node]]:
        """The pairs of a mapping; none, and a problem, if it is something else."""
        import yaml

        if node.tag == _NULL:
            return []
        if not isinstance(node, yaml.MappingNode):
            self._problem(node, f"{what} must consist of lines `key: value`.")
            return []
        lines: dict[str, int] = {}
        items = []
        for key_node, value in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            line = key_node.start_mark.line + 1
            if key in lines:
                self._problem(key_node, f"{key} comes twice in {what}; the first is in line {lines[key]}.")
                continue
            lines[key] = line
            items.append((key, value))
        return items

    def _plain(self, node: yaml.Node, *, nested: bool = True) -> object:
        """Text, and lists and mappings of text: as deep as any flag goes, so no file unfolds forever."""
        import yaml

        if not node.tag.startswith(_STANDARD):
            self._problem(node, f"tags such as {node.tag} have no meaning here.")
            return ""
        if isinstance(node, yaml.ScalarNode):
            return node.value
        if isinstance(node, yaml.MappingNode):
            items = self._items(node, "this mapping")
            return {key: self._scalar(value) for key, value in items}
        if nested:
            return [self._plain(item, nested=False) for item in node.value]
        self._problem(node, "a list inside a list has no meaning here.")
        return ""

    def _scalar(self, node: yaml.Node) -> str:
        import yaml

        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        self._problem(node, "text or a number belongs here.")
        return ""

    def _at(self, node: yaml.Node) -> str:
        return f"{self.source}:{node.start_mark.line + 1}"

    def _problem(self, node: yaml.Node, message: str) -> None:
        self.problems.append(f"{self._at(node)}: {message}")


def _broken(error: yaml.MarkedYAMLError, source: str) -> UserError:
    mark = error.problem_mark or error.context_mark
    place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    what = ", ".join(part for part in (error.context, error.problem) if part)
    return UserError(f"{place}: this is not YAML: {what}.")
