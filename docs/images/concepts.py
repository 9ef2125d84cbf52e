"""Draws the pictures of docs/pictures.md: how a job is made, and what happens in it, in the style of architecture.py.

    python docs/images/concepts.py

Plain SVG without fonts or scripts from elsewhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from architecture import ACCENT, FILLS, HERE, INK, LINE, Call, box, page, sequence, text

RED, GREY = "#fecaca", "#f1f5f9"
# Of a place: idle, or a job.
COLOUR_OF = {".": "#ffffff", "A": "#93c5fd", "B": "#fcd34d", "C": "#c4b5fd"}


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f"<line x1='{x1:.0f}' y1='{y1:.0f}' x2='{x2:.0f}' y2='{y2:.0f}' stroke='{ACCENT}' stroke-width='1.5' "
        f"marker-end='url(#tip)'/>"
    )


def titled(x: float, y: float, width: float, height: float, fill: str, title: str, *lines: str) -> list[str]:
    parts = [
        box(x, y, width, height, fill),
        text(x + width / 2, y + 21, title, size=14, style="font-weight='600'"),
    ]
    return [
        *parts,
        *(text(x + width / 2, y + 39 + 15 * number, line, size=11) for number, line in enumerate(lines)),
    ]


def job_anatomy() -> str:
    """The processes of a job, and what each holds."""
    parts = titled(20, 20, 160, 74, FILLS[0], "elasticdl train", "flags, file or Python", "→ one JobSpec")
    parts += titled(
        330,
        20,
        220,
        90,
        FILLS[3],
        "master",
        "ledger: done, leased, to do",
        "journal: written before replies",
        "starts and replaces nodes",
    )
    parts += titled(680, 20, 160, 74, FILLS[6], "platform", "processes here,", "or pods on Kubernetes")
    for number in range(3):
        parts += titled(
            120 + 210 * number,
            190,
            180,
            62,
            FILLS[2],
            f"worker-{number}",
            "leases shards, trains",
            "your model or program",
        )
    for number in range(2):
        parts += titled(
            220 + 220 * number,
            330,
            190,
            62,
            FILLS[5],
            f"ps-{number}",
            "tables, dense parameters,",
            "optimizer state; replicas",
        )
    parts += titled(680, 330, 160, 62, FILLS[1], "storage", "data, checkpoints,", "exported models")
    parts += [arrow(180, 57, 326, 57), arrow(550, 57, 676, 57)]
    parts += [arrow(210 + 210 * number, 188, 380 + 60 * number, 114) for number in range(3)]
    for number in range(3):
        parts += [arrow(210 + 210 * number, 254, 315 + 220 * server, 326) for server in range(2)]
    parts += [arrow(632, 361, 676, 361)]
    parts += [text(235, 150, "lease, report", size=11), text(205, 300, "pull, push", size=11)]
    return page(860, 412, parts)


def shard_life() -> str:
    """A shard whose worker is killed in the middle of it."""
    columns = [("master", "ledger and journal"), ("worker-0", "killed"), ("worker-1", "goes on")]
    calls = [
        Call(1, 0, "asks for work"),
        Call(0, 0, "journal: lease of [0, 512) to worker-0"),
        Call(0, 1, "shard [0, 512)"),
        Call(1, 0, "done up to 320"),
        Call(0, 0, "journal: [0, 320) is done"),
        Call(1, 1, "killed"),
        Call(0, 0, "requeue [320, 512), at the front"),
        Call(2, 0, "asks for work"),
        Call(0, 2, "shard [320, 512)"),
        Call(2, 0, "done"),
        Call(0, 0, "audit: 512 samples, each once"),
    ]
    return sequence(columns, calls)


def replica_handover() -> str:
    """A parameter server with replicas is killed."""
    columns = [
        ("worker", "client"),
        ("ps-0", "primary of bucket 7"),
        ("ps-1", "backup of bucket 7"),
        ("master", "bucket map"),
    ]
    calls = [
        Call(0, 1, "push 41"),
        Call(1, 2, "replicate 41"),
        Call(2, 1, "applied"),
        Call(1, 0, "acknowledged"),
        Call(1, 1, "killed"),
        Call(0, 1, "push 42: no reply"),
        Call(3, 3, "map 2: ps-1 is primary"),
        Call(3, 2, "promote bucket 7"),
        Call(0, 2, "push 42 again, same number"),
        Call(2, 0, "acknowledged, applied once"),
        Call(3, 3, "start ps-2, copy bucket 7 to it"),
    ]
    return sequence(columns, calls)


def planner_decision() -> str:
    """Machines before and after a job of a higher priority is submitted."""
    parts = [
        text(210, 26, "Before: A trains with 8, B with 4", size=14, style="font-weight='600'"),
        text(650, 26, "After: C needs 3 of a higher priority", size=14, style="font-weight='600'"),
    ]
    before = ("AAAA", "AAAA", "BBBB")
    after = ("AAAA", "ACCC", "BBBB")
    for left, rows in ((20, before), (460, after)):
        for number, row in enumerate(rows):
            y = 44 + 66 * number
            parts += [box(left, y, 380, 54, GREY), text(left + 44, y + 32, f"node-{number}", size=12)]
            for place, job in enumerate(row):
                x = left + 92 + 70 * place
                parts.append(box(x, y + 9, 60, 36, COLOUR_OF[job]))
                if job != ".":
                    parts.append(text(x + 30, y + 32, job, size=14, style="font-weight='600'"))
    parts.append(arrow(404, 136, 456, 136))
    lines = [
        "A: Shrinks from 8 to 5: makes room for job C.",
        "B: Keeps 4: it is at its minimum.",
        "C: Starts with 3 of 3 to 6: all role groups fit.",
    ]
    parts += [text(20, 264 + 22 * number, line, size=13, anchor="start") for number, line in enumerate(lines)]
    return page(860, 326, parts)


def cluster_timeline() -> str:
    """Eight places over time: jobs come, shrink, grow and go, and a machine is lost."""
    width, left, top, row = 760.0, 80.0, 40.0, 24.0
    # (from, to, number of places) of each job; the rest is idle.
    spans = {
        "A": [(0, 2, 8), (2, 5, 4), (5, 6, 2), (6, 8, 4), (8, 10, 0)],
        "B": [(2, 5, 4), (5, 8, 2), (8, 10, 4)],
        "C": [(6, 8, 2), (8, 10, 4)],
    }
    parts = [
        text(left - 12, top + row * (number + 0.7), str(8 - number), size=11, anchor="end")
        for number in range(8)
    ]
    for moment in range(10):
        x, y = left + moment * width / 10, top + 8 * row
        for job, pieces in spans.items():
            count = next((size for start, end, size in pieces if start <= moment < end), 0)
            for _ in range(count):
                y -= row
                parts.append(
                    f"<rect x='{x:.0f}' y='{y:.0f}' width='{width / 10 - 1:.0f}' height='{row - 1:.0f}' "
                    f"fill='{COLOUR_OF[job]}'/>"
                )
    parts.append(
        f"<rect x='{left:.0f}' y='{top:.0f}' width='{width:.0f}' height='{8 * row:.0f}' fill='none' stroke='{LINE}'/>"
    )
    x = left + 5 * width / 10
    parts.append(
        f"<rect x='{x:.0f}' y='{top:.0f}' width='{width / 10:.0f}' height='{4 * row:.0f}' fill='{RED}' "
        f"stroke='{LINE}'/>"
    )
    notes = (
        (0, "A takes all"),
        (2, "B comes: A shrinks"),
        (5, "machine lost"),
        (6, "C comes"),
        (8, "A is done"),
    )
    for moment, words in notes:
        place = left + moment * width / 10
        parts.append(
            f"<line x1='{place:.0f}' y1='{top - 8:.0f}' x2='{place:.0f}' y2='{top + 8 * row + 6:.0f}' "
            f"stroke='{INK}' stroke-dasharray='3 3'/>"
        )
        parts.append(text(place + 4, top - 12, words, size=11, anchor="start"))
    for number, job in enumerate(spans):
        parts += [box(left + 110 * number, top + 8 * row + 18, 20, 16, COLOUR_OF[job])]
        parts += [text(left + 28 + 110 * number, top + 8 * row + 31, f"job {job}", size=12, anchor="start")]
    parts.append(text(left + 340, top + 8 * row + 31, "time →", size=12, anchor="start"))
    return page(860, top + 8 * row + 48, parts)


def main() -> None:
    for draw in (job_anatomy, shard_life, replica_handover, planner_decision, cluster_timeline):
        (HERE / f"{draw.__name__.replace('_', '-')}.svg").write_text(draw())


if __name__ == "__main__":
    main()
