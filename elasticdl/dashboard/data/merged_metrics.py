"""Metrics of several jobs as one document in Prometheus' text format, in which each metric comes in one block. Pure."""

from __future__ import annotations

from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HELP, _TYPE = "# HELP ", "# TYPE "


def merged_metrics(texts: Iterable[str]) -> str:
    """Each text has a line of help and one of the type before the samples of a metric."""
    blocks: dict[str, list[str]] = {}
    for text in texts:
        head, samples = "", blocks.setdefault("", [])
        for line in text.splitlines():
            if line.startswith(_HELP):
                head = line
            elif line.startswith(_TYPE):
                samples = blocks.setdefault(f"{head}\n{line}", [])
            else:
                samples.append(line)
    return "".join(f"{line}\n" for head, samples in blocks.items() if head for line in (head, *samples))
