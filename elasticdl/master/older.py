"""The journals of older versions: what their records meant then, in the words of today.

A job may go on under another version than it was begun with. To replay a record is to come to the answers that were
given when it was written, so a command that has changed since is told to do what it did then. A master begins its
journal with a snapshot, and so all records behind one are of one version: that of the snapshot's *form*.
"""

from __future__ import annotations

from typing import Any

# Grows whenever a command comes to mean something else.
FORM = 2


def in_words_of_today(record: dict[str, Any], form: int) -> dict[str, Any]:
    """A record of a journal of that form."""
    arguments = record["with"]
    if form < 2 and record["do"] == "fail":
        # A worker that had failed lost its shards before it had ended.
        return {**record, "with": {**arguments, "at_once": True}}
    if form < 2 and record["do"] == "observe" and arguments.get("credit") is not None:
        # Of the shards of a worker that had ended only that of its last push was credited.
        return {**record, "with": {**arguments, "credit": {**arguments["credit"], "alone": True}}}
    return record
