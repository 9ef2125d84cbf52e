"""The formats of data sets: their names, how a file's format is detected, and the parameters of each.

A format comes from `format=` in --data_reader_params, or from the suffix of the file, or from its first
bytes. All files of a data set have the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.data.files.data_file import COMPRESSED_SUFFIXES, head_of
from elasticdl.data.files.file_listing import Listing
from elasticdl.data.format_parameters import nearest
from elasticdl.data.formats import idx, image_folder, parquet, recordio, tfrecord_frames
from elasticdl.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Format:
    name: str
    suffixes: tuple[str, ...]
    # Keys of --data_reader_params beside `format`, and what they mean.
    params: Mapping[str, str] = field(default_factory=dict)


FORMATS: dict[str, Format] = {
    known.name: known
    for known in (
        Format(name="recordio", suffixes=(".recordio", ".rio")),
        Format(name="tfrecord", suffixes=(".tfrecord", ".tfrecords", ".tfr")),
        Format(
            name="csv",
            suffixes=(".csv", ".tsv", ".tab"),
            params={
                "sep": "between columns: one character, or comma, tab, semicolon, pipe, space, ctrl-a",
                "header": "whether the first row holds the names of the columns: true, false, auto",
                "quote": "what cells with separators or line breaks stand in: one character, or none",
                "encoding": "of the text: utf-8, latin-1, gbk, …",
                "ragged": "whether rows may differ in their number of columns: true, false",
            },
        ),
        Format(
            name="parquet",
            suffixes=(".parquet", ".pq"),
            params={"columns": "the columns to read, like [a,b]; all if not given"},
        ),
        Format(
            name="images",
            suffixes=image_folder.SUFFIXES,
            params={
                "classes": "in the order of their numbers, like [cat,dog]; all folders, sorted, if missing"
            },
        ),
        Format(name="idx", suffixes=(".idx", ".idx1-ubyte", ".idx3-ubyte")),
    )
}
_SNIFF_BYTES = 4096


def format_of(listing: Listing, params: Mapping[str, str]) -> Format:
    """The format of all files of a listing."""
    if "format" in params:
        name = params["format"].lower()
        if name not in FORMATS:
            raise UserError(f"There is no format {params['format']!r}.", hint=nearest(name, FORMATS))
        return FORMATS[name]
    detected: dict[str, Path] = {}
    for path in listing.paths:
        name = _detect_format(path)
        if name:
            detected.setdefault(name, path)
    if not detected:
        raise UserError(f"{listing.origin} has no samples: {_count(listing)} empty.")
    if len(detected) > 1:
        (first, first_path), (second, second_path), *_ = detected.items()
        raise UserError(
            f"{listing.origin} holds files of several formats: "
            f"{first_path} is {first}, {second_path} is {second}.",
            hint="Put them in different folders, or name those to read with a pattern like 'FOLDER/*.csv'.",
        )
    return FORMATS[next(iter(detected))]


def check_params(chosen: Format, params: Mapping[str, str]) -> None:
    """Raises `UserError` for a key that the format does not know."""
    for key in params:
        if key == "format" or key in chosen.params:
            continue
        others = [known.name for known in FORMATS.values() if key in known.params]
        if others:
            raise UserError(
                f"The reader parameter {key!r} is for {' and '.join(others)}; this data is {chosen.name}.",
                hint=nearest(key, ("format", *chosen.params)),
            )
        raise UserError(
            f"The reader of {chosen.name} has no parameter {key!r}.",
            hint=nearest(key, ("format", *chosen.params)),
        )


def _count(listing: Listing) -> str:
    return "the file is" if len(listing.paths) == 1 else f"its {len(listing.paths)} files are"


def _detect_format(path: Path) -> str:
    """Returns the format of a file; "" if it is empty and has no known suffix."""
    suffix = path.suffix.lower()
    if suffix in COMPRESSED_SUFFIXES:
        suffix = path.with_suffix("").suffix.lower()
    for known in FORMATS.values():
        if suffix in known.suffixes:
            return known.name
    head = head_of(path, _SNIFF_BYTES)
    if not head:
        return ""
    if head.startswith(recordio.MAGIC):
        return "recordio"
    if head.startswith(parquet.MAGIC):
        return "parquet"
    if tfrecord_frames.record_length(head[:12]) is not None:
        return "tfrecord"
    if idx.is_idx(head):
        return "idx"
    if b"\x00" in head or not _is_text(head):
        if head.startswith(image_folder.SIGNATURES):
            return "images"
        raise UserError(
            f"Cannot tell the format of {path}.",
            hint=f"Name it with --data_reader_params=format=...: {', '.join(FORMATS)}. "
            "If the file is no data, move it out of the folder.",
        )
    return "csv"


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The head may end inside a character.
        return error.start >= len(head) - 3
    return True
