"""CSV and its kin: a row is a list of strings, one a column.

Row boundaries can only be found from the start, because line breaks may stand inside quotes. The index
is built from blocks of a megabyte: one without quotes is counted by its line ends, with NumPy; in one with
quotes Python's own csv reader finds the rows, the same that reads them later. Blank lines are no rows.

A row is bad, and named by its offset, if it has another number of columns than the first (unless
`ragged=true`), if its bytes are no text in the given encoding, or if a quote is opened in it and never
closed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from elasticdl.data.files.data_file import Source, read_at
from elasticdl.data.files.multi_file import Damaged, DataFile
from elasticdl.data.files.record_index import MARK_BYTES, MARK_SAMPLES, FileIndex, IndexBuilder, index_of
from elasticdl.data.formats.csv_dialect import END, Dialect, after_bom, next_row, plain_rows
from elasticdl.errors import UserError

# Python's limit for a cell is 128 KiB, less than an image in base64.
_CELL_CHARACTERS = 16 << 20
# The replacement for bytes that are no text, and for NUL, which some versions of the csv module refuse.
_NO_TEXT = {chr(code) for code in range(0xDC00, 0xDD00)}
_NUL = "\udc00"


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """Some whole rows, as bytes of the file and as text."""

    first: int
    count: int
    offset: int
    behind: int  # the mark behind it
    data: bytes
    text: str
    clean: bool  # all of it is text


class CsvFile(DataFile):
    """A file of rows."""

    def __init__(self, source: Source, dialect: Dialect) -> None:
        self.path = source.path
        self._source = source
        self._dialect = dialect
        csv.field_size_limit(max(csv.field_size_limit(), _CELL_CHARACTERS))
        layout = f"csv 1 sep={dialect.sep!r} quote={dialect.quote!r} header={dialect.header}"
        self._index = index_of(source, layout, lambda file, size: scan(file, size, dialect))
        if dialect.header:
            self._check_header()

    def __len__(self) -> int:
        return self._index.count

    def read(self, start: int, end: int) -> Iterator[list[str]]:
        mark = self._index.mark_before(start)
        with self._source.open() as file:
            while start < end:
                piece = self._piece(file, mark, end)
                stop = min(end, piece.first + piece.count)
                rows = self._all_rows(piece)
                if rows is not None:
                    yield from rows[start - piece.first : stop - piece.first]
                else:
                    yield from self._row_by_row(piece, start, stop)
                start, mark = stop, piece.behind

    def _piece(self, file: int, mark: int, end: int) -> _Piece:
        """Reads the rows between some marks: about MARK_BYTES, so that memory does not grow with the range."""
        samples, offsets = self._index.samples, self._index.offsets
        first, offset = int(samples[mark]), int(offsets[mark])
        behind = mark + 1
        while behind < len(samples) and samples[behind] < end and offsets[behind] - offset < MARK_BYTES:
            behind += 1
        last = behind == len(samples)
        stop = self._source.size if last else int(offsets[behind])
        count = (len(self) if last else int(samples[behind])) - first
        data = read_at(file, stop - offset, offset)
        text, clean = self._text(data)
        return _Piece(
            first=first, count=count, offset=offset, behind=behind, data=data, text=text, clean=clean
        )

    def _all_rows(self, piece: _Piece) -> list[list[str]] | None:
        """The rows of a piece at once, or None if anything about one of them is wrong."""
        try:
            rows = [row for row in self._dialect.rows(io.StringIO(piece.text, newline="\n")) if row]
        except csv.Error:
            return None
        if not piece.clean or len(rows) != piece.count + 1 or rows.pop() != [END]:
            return None
        return rows if not self._width or set(map(len, rows)) == {self._width} else None

    def _row_by_row(self, piece: _Piece, start: int, end: int) -> Iterator[list[str]]:
        reader = self._dialect.rows(io.StringIO(piece.text, newline="\n"))
        sample = piece.first
        while sample < end:
            lines = reader.line_num
            row, problem = next_row(reader)
            if row is None:
                raise Damaged(
                    start=max(start, sample),
                    end=len(self),
                    where=self._source.where(piece.offset),
                    reason="there are fewer rows than before",
                )
            if not row and not problem:
                continue
            if sample >= start:
                problem = problem or self._problem(row, piece.clean)
                if problem:
                    offset = piece.offset + _line_offset(piece.data, lines)
                    raise Damaged(
                        start=sample, end=sample + 1, where=self._source.where(offset), reason=problem
                    )
                yield row
            sample += 1

    @property
    def _width(self) -> int:
        return 0 if self._dialect.ragged else self._dialect.width

    def _problem(self, row: list[str], clean: bool) -> str:
        if self._width and len(row) != self._width:
            return f"the row has {len(row)} columns, not {self._width}"
        if not clean and any(not _NO_TEXT.isdisjoint(cell) for cell in row):
            return "the row has bytes that are not text"
        return ""

    def _text(self, data: bytes) -> tuple[str, bool]:
        """The text and a last line that no file has; and whether all of it is text."""
        clean = b"\x00" not in data
        try:
            text = data.decode(self._dialect.encoding)
        except UnicodeDecodeError:
            clean = False
            text = data.decode(self._dialect.encoding, "surrogateescape")
        if not clean:
            text = text.replace("\x00", _NUL)
        return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{END}\n", clean

    def _check_header(self) -> None:
        with self._source.open() as file:
            begin = after_bom(file)
            data = read_at(file, max(1, self._first_offset() - begin), begin)
        names = next((row for row in plain_rows(data, self._dialect) if row), None)
        if names is not None and tuple(names) != self._dialect.names:
            raise UserError(
                f"The columns of {self.path} are {_listed(names)}, "
                f"those of the first file {_listed(self._dialect.names)}.",
                hint="All files of a data set must have the same columns. Without a header: header=false.",
            )

    def _first_offset(self) -> int:
        return int(self._index.offsets[0]) if len(self._index.offsets) else self._source.size


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def _line_offset(data: bytes, lines: int) -> int:
    """Returns the offset of the line that has so many before it."""
    offset = 0
    for _ in range(lines):
        offset = data.index(b"\n", offset) + 1
    return offset


# -- the index ---------------------------------------------------------------------------------------------


def scan(file: int, size: int, dialect: Dialect) -> FileIndex:
    builder = IndexBuilder()
    sample, offset = 0, after_bom(file)
    if dialect.header and offset < size:
        offset = _skip_row(file, size, offset, dialect)
    quote = dialect.quote.encode()
    while offset < size:
        block = read_at(file, MARK_BYTES, offset)
        # The csv module decides about repeated carriage returns.
        if (not quote or quote not in block) and b"\r\r" not in block:
            last = block.rfind(b"\n") + 1
            if last or offset + len(block) == size:
                # The last line of a file may end without a line end.
                block = block if offset + len(block) == size else block[:last]
                sample = _count_lines(block, sample, offset, builder)
                offset += len(block)
                continue
        sample, offset = _count_rows(file, size, sample, offset, offset + len(block), dialect, builder)
    return builder.finish(sample)


def _count_lines(block: bytes, sample: int, offset: int, builder: IndexBuilder) -> int:
    """Marks the rows of a block in which every line that is not blank is a row."""
    characters = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(characters == 10)
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts
    blank = (lengths == 0) | ((lengths == 1) & (characters[starts.clip(max=len(block) - 1)] == 13))
    rows = starts[~blank]
    if len(rows):
        builder.mark(sample, offset + int(rows[0]))
        for number in range(-sample % MARK_SAMPLES, len(rows), MARK_SAMPLES):
            builder.mark(sample + number, offset + int(rows[number]))
    return sample + len(rows)


def _count_rows(
    file: int, size: int, sample: int, offset: int, stop: int, dialect: Dialect, builder: IndexBuilder
) -> tuple[int, int]:
    """Marks rows with quotes in them, until one begins at or behind `stop`."""
    lines = _Lines(file, size, offset)
    reader = dialect.rows(iter(lines))
    while offset < stop:
        row, problem = next_row(reader)
        if row is None:
            return sample, size
        if row or problem:
            builder.mark(sample, offset)
            sample += 1
        offset = lines.offset
    return sample, offset


class _Lines:
    """The lines of a file from an offset on, and how far they were taken.

    As Latin-1: every byte is a character of it, and separators, quotes and line ends are the same in all
    encodings that are allowed.
    """

    def __init__(self, file: int, size: int, offset: int) -> None:
        self._file = file
        self._size = size
        self.offset = offset

    def __iter__(self) -> Iterator[str]:
        rest = b""
        at = self.offset
        while at < self._size:
            block = read_at(self._file, MARK_BYTES, at)
            at += len(block)
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                self.offset += len(line) + 1
                yield line.replace(b"\x00", b" ").decode("latin-1") + "\n"
        if rest:
            self.offset += len(rest)
            yield rest.replace(b"\x00", b" ").decode("latin-1") + "\n"
        yield END


def _skip_row(file: int, size: int, offset: int, dialect: Dialect) -> int:
    lines = _Lines(file, size, offset)
    for row in dialect.rows(iter(lines)):
        if row:
            break
    return lines.offset
