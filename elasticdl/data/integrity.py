"""Reading a data set through, past whatever is damaged in it."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.data.reader import BadRange, BadRecords, Reader, Record
from elasticdl.errors import UserError


def records_and_damage(reader: Reader) -> Iterator[Record | BadRange]:
    """Every record in order, and a `BadRange` where some cannot be read."""
    position, size = 0, len(reader)
    while position < size:
        try:
            for record in reader.read(position, size):
                position += 1
                yield record
        except BadRecords as error:
            yield error.bad
            position = error.bad.end


def good_records(reader: Reader, *, max_bad_records: int, bad: list[BadRange]) -> Iterator[Record]:
    """Every record that can be read; the others are added to the list, up to so many samples."""
    count = 0
    for record in records_and_damage(reader):
        if not isinstance(record, BadRange):
            yield record
            continue
        bad.append(record)
        count += record.end - record.start
        if count > max_bad_records:
            # BadRecords would do where none is allowed; with a limit the user wants to know what was counted.
            if max_bad_records == 0:
                raise BadRecords(record)
            raise UserError(
                f"Corrupt data: {count} samples and more cannot be read, the last found: {record}.",
                hint=f"Repair the file, or raise --max_bad_records above {max_bad_records}.",
            )
