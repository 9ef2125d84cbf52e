"""Lists of pairs in one line of text, `a=1,b=2`: the form that several flags share.

Commas separate pairs, and so do semicolons. A value that contains either is put in quotes; inside brackets
they separate nothing, so that `columns=["a","b"]; part="dt=20191011"` is two pairs and not four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_QUOTES = "\"'"
_OPENING, _CLOSING = "([{", ")]}"
# A quote elsewhere is an apostrophe.
_BEFORE_A_QUOTE = "=,;:([{ \t"
_NEEDS_QUOTES = set("\"'\\,;()[]{}")


class BadValue(ValueError):
    """An invalid value, with a reason that can follow the name of a flag."""


def split_outside(text: str, separators: str) -> list[str]:
    """The pieces between separators that are neither in quotes nor in brackets, without space around them.

    A separator at the very end is allowed; an empty piece elsewhere is not.
    """
    pieces: list[str] = []
    quote, depth, start = "", 0, 0
    escaped = False
    for position, letter in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif letter == "\\" and quote == '"':
                escaped = True
            elif letter == quote:
                quote = ""
        elif letter in _QUOTES and (position == 0 or text[position - 1] in _BEFORE_A_QUOTE):
            quote = letter
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth = max(0, depth - 1)
        elif letter in separators and depth == 0:
            pieces.append(text[start:position].strip())
            start = position + 1
    if quote:
        raise BadValue(f"{text!r} opens a quote ({quote}) and does not close it")
    if depth:
        raise BadValue(f"{text!r} opens a bracket and does not close it; put the value in quotes")
    last = text[start:].strip()
    if last:
        pieces.append(last)
    if "" in pieces:
        raise BadValue(f"{text!r} has nothing between two separators")
    return pieces


def parse_pairs(raw: object, *, example: str) -> dict[str, str]:
    """Pairs from one text, from several of them, or from a mapping. No key may come twice."""
    if isinstance(raw, str):
        pairs = [_pair(piece, example) for piece in split_outside(raw, ",;")]
    elif isinstance(raw, Mapping):
        pairs = [(str(key), scalar_text(value, str(key))) for key, value in raw.items()]
    elif isinstance(raw, Sequence):
        for part in raw:
            # As Kubernetes lists variables: `name` and `value` are no keys of this flag.
            if isinstance(part, Mapping) and {"name", "value"} & part.keys():
                raise BadValue(
                    f"{dict(part)!r} is not of the form {example}; write a mapping of keys to values"
                )
        pairs = [pair for part in raw for pair in parse_pairs(part, example=example).items()]
    else:
        raise BadValue(f"{raw!r} is not a list of pairs such as {example}")
    result: dict[str, str] = {}
    for key, value in pairs:
        if key in result:
            raise BadValue(f"{key} is given twice")
        result[key] = value
    return result


def format_pairs(pairs: Mapping[str, str]) -> str:
    """The text that `parse_pairs` reads back as these pairs."""
    return ",".join(f"{key}={_quoted(value)}" for key, value in pairs.items())


def scalar_text(value: object, name: str) -> str:
    """The text of a plain Python value as one would type it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    raise BadValue(f"{name} has the value {value!r}, which is neither text nor a number")


def _pair(piece: str, example: str) -> tuple[str, str]:
    key, equals, value = piece.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key:
        raise BadValue(f"{piece!r} is not of the form {example}")
    return key, _unquoted(value)


def _unquoted(value: str) -> str:
    if len(value) < 2 or value[0] not in _QUOTES or value[-1] != value[0]:
        return value
    inside = value[1:-1]
    if value[0] == "'":
        return inside
    result, escaped = [], False
    for letter in inside:
        if letter == "\\" and not escaped:
            escaped = True
            continue
        # Only a quote and the backslash itself need the backslash: `C:\data` keeps its own.
        result.append("\\" + letter if escaped and letter not in '"\\' else letter)
        escaped = False
    return "".join(result)


def _quoted(value: str) -> str:
    if value == value.strip() and value[:1] not in _QUOTES and not _NEEDS_QUOTES.intersection(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
