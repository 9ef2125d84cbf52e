"""The grammar of a flag's values: from text to a checked value, and back.

A grammar reads all three forms a value comes in (the text of a flag, a plain value out of YAML, a Python
object from a script) by the same rules, so that no way of writing a job accepts what another refuses.
"""

from __future__ import annotations

import abc
import math
import operator
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar, cast

from elasticdl.jobs.flags.nearest import nearest
from elasticdl.jobs.flags.pairs import BadValue, format_pairs, parse_pairs

T = TypeVar("T")

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
# A scheme has at least two letters: C:// is a drive.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://", re.ASCII)
# The rest of a URL after `pathlib.Path(url)`.
_URL_AS_PATH = re.compile(
    r"(s3a?|gs|gcs|hdfs|webhdfs|viewfs|abfss?|az|adl|oss|https?|ftp|file):/[^/]", re.I | re.ASCII
)
_YES = ("true", "1", "yes", "on")
_NO = ("false", "0", "no", "off")


class Grammar(abc.ABC, Generic[T]):
    """The rules of one kind of value."""

    metavar: str = "TEXT"
    choices: tuple[str, ...] = ()
    # Whether the flag may be given several times, its values adding up.
    repeatable: ClassVar[bool] = False
    # Completions for a shell.
    completes: Literal["", "file", "dir"] = ""

    @property
    def shape(self) -> str:
        """Returns the placeholder behind the flag in the help."""
        return "|".join(self.choices) or self.metavar

    @abc.abstractmethod
    def parse(self, raw: object) -> T:
        """The value, or `BadValue` that says what is wrong."""

    def plain(self, value: T) -> object:
        """The value as YAML shows it: text, numbers, lists and mappings of them."""
        return value

    def text(self, value: T) -> str:
        """The value as one would type it behind the flag."""
        return str(value)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A pattern that a whole text must match, and the words for it."""

    pattern: str
    words: str
    longest: int = 0

    def check(self, text: str) -> None:
        if not re.fullmatch(self.pattern, text):
            raise BadValue(f"{text!r} is not {self.words}")
        if self.longest and len(text) > self.longest:
            raise BadValue(f"{text!r} has {len(text)} characters, {self.longest} are allowed")


@dataclass(frozen=True, kw_only=True)
class Text(Grammar[str]):
    """Any text, or one that follows a rule. Empty text means that there is none, if there may be none."""

    metavar: str = "TEXT"
    completes: Literal["", "file", "dir"] = ""
    rule: Rule | None = None
    optional: bool = True

    def parse(self, raw: object) -> str:
        text = os.fspath(raw) if isinstance(raw, os.PathLike) else raw
        if not isinstance(text, str):
            raise BadValue(f"{raw!r} is not text")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadValue(f"{text!r} is not valid Unicode") from None
        if not text and not self.optional:
            raise BadValue("it is empty")
        if self.rule and text:
            self.rule.check(text)
        return text


@dataclass(frozen=True, kw_only=True)
class FilePath(Text):
    """A file or folder of a file system. `~` becomes the home folder. URLs are rejected, unless `urls`: a folder
    named after one would be created instead.
    """

    metavar: str = "PATH"
    completes: Literal["", "file", "dir"] = "file"
    urls: bool = False

    def parse(self, raw: object) -> str:
        text = super().parse(raw)
        if is_url(text):
            if self.urls:
                return text
            raise BadValue(f"{text!r} is a URL, but a path of a local or mounted file system is needed")
        if _URL_AS_PATH.match(text):
            raise BadValue(
                f"{text!r} is neither a URL, for lack of a slash (pathlib removes it), nor likely to be a path: "
                f"./{text} would be one"
            )
        return os.path.expanduser(text)


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


class Pattern(Grammar[str]):
    """A regular expression."""

    metavar = "PATTERN"

    def parse(self, raw: object) -> str:
        text = Text().parse(raw)
        try:
            re.compile(text)
        except re.error as error:
            raise BadValue(f"{text!r} is not a regular expression: {error}") from None
        return text


@dataclass(frozen=True, kw_only=True)
class Integer(Grammar[int]):
    minimum: int = 0
    maximum: int = 2**63 - 1  # what the messages between nodes can carry
    metavar = "N"

    def parse(self, raw: object) -> int:
        if isinstance(raw, str) and _WHOLE_NUMBER.fullmatch(raw.strip()):
            value = int(raw)
        elif hasattr(raw, "__index__") and not isinstance(raw, bool):
            value = operator.index(raw)
        else:
            raise BadValue(f"{raw!r} is not a whole number")
        _check_range(value, self.minimum, self.maximum)
        return value


class Real(Grammar[float]):
    minimum = 0.0
    metavar = "NUMBER"

    def parse(self, raw: object) -> float:
        text = isinstance(raw, str) and _NUMBER.fullmatch(raw.strip())
        number = hasattr(raw, "__float__") and not isinstance(raw, bool)
        if not text and not number:
            raise BadValue(f"{raw!r} is not a number")
        value = float(cast(float, raw))
        if not math.isfinite(value):
            raise BadValue(f"{raw!r} is not a finite number")
        _check_range(value, self.minimum, math.inf)
        return value

    def text(self, value: float) -> str:
        return repr(value).removesuffix(".0")


class Boolean(Grammar[bool]):
    choices = ("true", "false")

    def parse(self, raw: object) -> bool:
        if isinstance(raw, (str, bool, int)):
            word = str(raw).strip().lower()
            if word in _YES:
                return True
            if word in _NO:
                return False
        raise BadValue(f"{raw!r} is neither true nor false (nor 1/0, yes/no, on/off)")

    def text(self, value: bool) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, kw_only=True)
class Choice(Grammar[str]):
    """A choice of a few words; with `optional`, also none. `because`: why expected words are missing."""

    choices: tuple[str, ...]
    optional: bool = False
    because: str = ""

    def parse(self, raw: object) -> str:
        for word in ("", *self.choices) if self.optional else self.choices:
            if raw == word:
                return word
        match = nearest(str(raw), self.choices)
        guess = f"; did you mean {match}?" if match else ""
        reason = f": {self.because}" if self.because else ""
        one_of = "one of " if len(self.choices) > 1 else ""
        raise BadValue(f"{raw!r} is not {one_of}{', '.join(self.choices)}{guess}{reason}")


@dataclass(frozen=True, kw_only=True)
class Pairs(Grammar[dict[str, str]]):
    """`a=1,b=2`, in YAML a mapping."""

    metavar = "KEY=VALUE,..."
    key_rule: Rule
    repeatable: ClassVar[bool] = True

    def parse(self, raw: object) -> dict[str, str]:
        pairs = parse_pairs(raw, example="key=value")
        for key, value in pairs.items():
            self.key_rule.check(key)
            Text().parse(value)
        return pairs

    def plain(self, value: dict[str, str]) -> Mapping[str, str]:
        return dict(value)

    def text(self, value: dict[str, str]) -> str:
        return format_pairs(value)


def _check_range(value: float, minimum: float, maximum: float) -> None:
    if value < minimum:
        raise BadValue(f"{value} is less than {minimum}, the least allowed")
    if value > maximum:
        raise BadValue(f"{value} is more than {maximum}, the most allowed")
