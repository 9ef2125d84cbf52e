"""The dialect of a CSV file: given by the user, or detected from the first rows.

Keys of --data_reader_params: `sep` (one character, or comma, tab, semicolon, pipe, space, ctrl-a), `header`
(true, false, auto), `quote` (one character, or none), `encoding`, `ragged` (true, false). What is not given
is detected from the first rows of the first file, and holds for all files.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.data.files.data_file import Source, read_at
from elasticdl.errors import UserError

SEPARATORS = {
    "comma": ",",
    "tab": "\t",
    "\\t": "\t",
    "semicolon": ";",
    "pipe": "|",
    "space": " ",
    "ctrl-a": "\x01",
}
_SNIFF_BYTES = 64 << 10
_SNIFF_ROWS = 50
# The share of the first rows that must agree on the number of columns; one of them may be damaged.
_AGREEMENT = 0.9
_BOM = b"\xef\xbb\xbf"
# A line put behind each piece of text. Inside quotes that were never closed it becomes part of their row.
END = "\udcff\udcfe end \udcfe\udcff"


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The dialect of a CSV file."""

    sep: str = ","
    quote: str = '"'  # "" if quotes mean nothing
    encoding: str = "utf-8"
    header: bool = False
    ragged: bool = False
    names: tuple[str, ...] = ()
    width: int = 0

    def rows(self, lines: Iterator[str] | io.StringIO) -> Any:
        if self.quote:
            return csv.reader(lines, delimiter=self.sep, quotechar=self.quote)
        return csv.reader(lines, delimiter=self.sep, quoting=csv.QUOTE_NONE)


def next_row(reader: Any) -> tuple[list[str] | None, str]:
    """The next row, or why it is none; (None, "") at the end."""
    try:
        row: list[str] = next(reader)
    except StopIteration:
        return None, ""
    except csv.Error as error:
        return [], str(error)
    if row and END in row[-1]:
        if row == [END]:
            return None, ""
        return [], "a quote is opened in this row and never closed (quote=none if quotes mean nothing here)"
    return row, ""


def plain_rows(data: bytes, dialect: Dialect) -> Iterator[list[str]]:
    """The rows of some bytes, without those that cannot be read."""
    text = data.decode(dialect.encoding, "replace").replace("\x00", " ")
    reader = dialect.rows(io.StringIO(text, newline="\n"))
    while True:
        row, problem = next_row(reader)
        if row is None:
            return
        if row and not problem:
            yield row


def after_bom(file: int) -> int:
    """Returns the offset of the text: behind the byte order mark that some programs write first."""
    return len(_BOM) if read_at(file, len(_BOM), 0) == _BOM else 0


def dialect_of(source: Source, params: Mapping[str, str]) -> Dialect:
    """Returns the dialect of a file, as far as the parameters do not name it."""
    encoding = _encoding(params.get("encoding", "utf-8"))
    quote = _quote(params.get("quote", '"'))
    ragged = _truth("ragged", params.get("ragged", "false"))
    head, cut = _head(source)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{source.path} is UTF-16, which cannot be read.", hint="Convert it to UTF-8.")
    if b"\r" in head and b"\n" not in head:
        raise UserError(
            f"The lines of {source.path} end with carriage returns alone.",
            hint="Convert the line ends, for instance with tr '\\r' '\\n'.",
        )
    given = params.get("sep")
    sep = _separator(given) if given else _likely_separator(source.path, head, cut, quote, encoding)
    dialect = Dialect(sep=sep, quote=quote, encoding=encoding)
    rows = _first_rows(head, cut, dialect)
    wanted = params.get("header", "auto")
    header = _likely_header(rows) if wanted == "auto" else _truth("header", wanted, also="auto")
    return Dialect(
        sep=sep,
        quote=quote,
        encoding=encoding,
        header=header,
        ragged=ragged,
        names=tuple(rows[0]) if header and rows else (),
        width=len(rows[0]) if rows else 0,
    )


def _head(source: Source) -> tuple[bytes, bool]:
    """The first lines of the file, one at least, and whether there are more."""
    size = _SNIFF_BYTES
    with source.open() as file:
        begin = after_bom(file)
        while True:
            head = read_at(file, size, begin)
            if len(head) < size:
                return head, False
            if b"\n" in head:
                return head[: head.rfind(b"\n") + 1], True
            size *= 4


def _first_rows(head: bytes, cut: bool, dialect: Dialect) -> list[list[str]]:
    rows = []
    for row in plain_rows(head, dialect):
        rows.append(row)
        if len(rows) > _SNIFF_ROWS:
            break
    # The cut may have gone through quotes.
    return rows[:-1] if len(rows) > _SNIFF_ROWS or (cut and len(rows) > 1) else rows


def _likely_separator(path: Path, head: bytes, cut: bool, quote: str, encoding: str) -> str:
    """Returns the separator that splits the first rows into the same, largest number of columns."""
    if ".tsv" in path.suffixes or ".tab" in path.suffixes:
        return "\t"
    best, most = ",", 1
    for sep in (",", "\t", ";", "|", "\x01"):
        rows = _first_rows(head, cut, Dialect(sep=sep, quote=quote, encoding=encoding))
        (width, agreeing), *_ = Counter(map(len, rows)).most_common(1) or [(0, 0)]
        if width > most and agreeing >= _AGREEMENT * len(rows):
            best, most = sep, width
    return best


def _likely_header(rows: list[list[str]]) -> bool:
    """The first row has distinct names and no numbers, and there are numbers below it. A row of identifiers that is
    the only one is a header, too.
    """
    if not rows:
        return False
    names, *others = rows
    if not others:
        identifiers = [name.strip() for name in names]
        return len(set(identifiers)) == len(names) and all(name.isidentifier() for name in identifiers)
    named = all(name.strip() and not _is_number(name) for name in names) and len(set(names)) == len(names)
    return named and any(_is_number(cell) for row in others for cell in row)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _separator(value: str) -> str:
    sep = SEPARATORS.get(value.lower(), value)
    if len(sep) != 1 or not sep.isascii() or sep in '\r\n"':
        raise UserError(
            f"sep={value} is not a separator.",
            hint=f"Give one character, or one of {', '.join(name for name in SEPARATORS if len(name) > 2)}.",
        )
    return sep


def _quote(value: str) -> str:
    if value.lower() == "none":
        return ""
    if len(value) != 1 or not value.isascii():
        raise UserError(f"quote={value} is not a quote.", hint="Give one character, or none.")
    return value


def _encoding(value: str) -> str:
    probe = '\r\n",;|\t'
    try:
        name = codecs.lookup(value).name
    except LookupError:
        name = ""
    if name in ("utf-8", "utf-8-sig"):
        return "utf-8"
    # In these a byte of a longer character can look like a quote or a separator.
    if (
        name
        and not name.startswith(("iso2022", "hz", "utf-7"))
        and probe.encode(name) == probe.encode("ascii")
    ):
        return name
    raise UserError(
        f"encoding={value} cannot be read.",
        hint="Encodings that extend ASCII can: utf-8, latin-1, cp1252, gbk, … Convert others to UTF-8.",
    )


def _truth(key: str, value: str, *, also: str = "") -> bool:
    if value.lower() in ("true", "1", "yes"):
        return True
    if value.lower() in ("false", "0", "no"):
        return False
    raise UserError(f"{key}={value} is neither true nor false{f' nor {also}' if also else ''}.")
