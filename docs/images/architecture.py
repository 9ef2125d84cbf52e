"""Draws the pictures of docs/architecture.md: the packages, and four paths through them.

    python docs/images/architecture.py

The package picture reads its layers from pyproject.toml, so it shows what import-linter enforces. The others
are sequence diagrams: one column a process, one arrow a call. All are plain SVG without fonts or scripts
from elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

FONT = "font-family='ui-sans-serif, system-ui, sans-serif'"
INK, LINE, PAPER, ACCENT = "#1f2937", "#94a3b8", "#ffffff", "#2563eb"
FILLS = ("#dbeafe", "#e0f2fe", "#dcfce7", "#fef9c3", "#fee2e2", "#ede9fe", "#f1f5f9")

PURPOSES = {
    "cli": "commands and terminal output",
    "dashboard": "the web page of jobs, and their metrics",
    "doctor": "what keeps jobs from running here",
    "controller": "TrainingJobs on Kubernetes",
    "simulator": "replays workloads through the planner",
    "paddle_compat": "Paddle's Kubernetes guide",
    "catalog": "jobs seen from outside",
    "master": "one a job: ledger, journal, nodes",
    "worker": "the loop around a model definition",
    "ps": "parameter servers and their client",
    "platforms": "start, stop and watch nodes",
    "images": "build container images",
    "data": "record formats and readers",
    "scheduling": "who gets how many nodes, where",
    "jobs": "JobSpec, JobStatus, job record",
    "wire": "messages, framing, authentication",
}


def text(x: float, y: float, words: str, *, size: int = 13, anchor: str = "middle", style: str = "") -> str:
    return (
        f"<text x='{x:.0f}' y='{y:.0f}' font-size='{size}' text-anchor='{anchor}' fill='{INK}' {style}>"
        f"{escape(words)}</text>"
    )


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f"<rect x='{x:.0f}' y='{y:.0f}' width='{width:.0f}' height='{height:.0f}' rx='8' fill='{fill}' "
        f"stroke='{LINE}'/>"
    )


def page(width: float, height: float, parts: list[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' {FONT}>"
        f"<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
        f"orient='auto-start-reverse'><path d='M0 0L8 4L0 8z' fill='{ACCENT}'/></marker></defs>"
        f"<rect width='100%' height='100%' fill='{PAPER}'/>"
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


# -- packages -------------------------------------------------------------------------------------------------


def layers() -> list[list[str]]:
    """Returns the package names of each layer, top first, as import-linter has them."""
    contracts = (ROOT / "pyproject.toml").read_text().split("[[tool.importlinter.contracts]]")
    contract = next(each for each in contracts if "Imports go downwards only" in each)
    block = re.search(r"^layers = \[\n(.*?)^\]", contract, re.DOTALL | re.MULTILINE)
    assert block, "pyproject.toml has no layers"
    found = re.findall(r'"([^"]+)"', block[1])
    return [[name.strip().removeprefix("elasticdl.") for name in row.split("|")] for row in found]


def packages() -> str:
    width, row, gap, parts = 860.0, 62.0, 10.0, []
    rows = layers()
    for number, names in enumerate(rows):
        y = 16 + number * (row + gap)
        each = (width - 32 - gap * (len(names) - 1)) / len(names)
        for place, name in enumerate(names):
            x = 16 + place * (each + gap)
            folder = ROOT / "elasticdl" / name
            subs = sorted(p.parent.name for p in folder.glob("*/__init__.py"))
            parts.append(box(x, y, each, row, FILLS[number % len(FILLS)]))
            parts.append(text(x + each / 2, y + 21, name, size=15, style="font-weight='600'"))
            parts.append(text(x + each / 2, y + 38, PURPOSES[name], size=12))
            if subs:
                parts.append(text(x + each / 2, y + 54, " · ".join(subs), size=10 if len(names) < 3 else 9))
    y = 16 + len(rows) * (row + gap) + 8
    parts.append(text(width / 2, y + 6, "A package imports only packages below it.", size=12))
    return page(width, y + 22, parts)


# -- sequence diagrams ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One arrow. `source` and `target` are columns; equal ones draw a note at that column."""

    source: int
    target: int
    words: str


def sequence(columns: list[tuple[str, str]], calls: list[Call], *, width: float = 860) -> str:
    """Draws columns (title, module) from left to right and calls from top to bottom."""
    step, top = width / len(columns), 84.0
    centre = [step * (number + 0.5) for number in range(len(columns))]
    bottom = top + 44 * len(calls) + 10
    parts = []
    for number, (title, module) in enumerate(columns):
        x = centre[number]
        parts.append(f"<line x1='{x:.0f}' y1='62' x2='{x:.0f}' y2='{bottom:.0f}' stroke='{LINE}'/>")
        parts.append(box(x - step * 0.46, 14, step * 0.92, 48, FILLS[number % len(FILLS)]))
        parts.append(text(x, 34, title, size=14, style="font-weight='600'"))
        parts.append(text(x, 52, module, size=10))
    for number, call in enumerate(calls):
        y = top + 44 * number + 18
        start, end = centre[call.source], centre[call.target]
        if call.source == call.target:
            half = min(step * 0.49, 118)
            parts.append(box(start - half, y - 14, 2 * half, 28, "#f8fafc"))
            parts.append(text(start, y + 4, call.words, size=11))
            continue
        inset = 4 if end > start else -4
        parts.append(
            f"<line x1='{start:.0f}' y1='{y:.0f}' x2='{end - inset:.0f}' y2='{y:.0f}' stroke='{ACCENT}' "
            f"stroke-width='1.5' marker-end='url(#tip)'/>"
        )
        parts.append(text((start + end) / 2, y - 6, call.words, size=11))
    return page(width, bottom + 16, parts)


def local_job() -> str:
    columns = [
        ("elasticdl train", "cli, catalog/local"),
        ("supervisor", "platforms/local"),
        ("master", "master"),
        ("parameter server", "ps/server"),
        ("worker", "worker"),
    ]
    calls = [
        Call(0, 0, "JobSpec, checks, job folder"),
        Call(0, 1, "start"),
        Call(1, 2, "fork"),
        Call(2, 2, "open or replay the journal"),
        Call(2, 1, "start nodes"),
        Call(1, 3, "fork"),
        Call(1, 4, "fork"),
        Call(4, 2, "join, watch directives"),
        Call(4, 2, "lease a shard"),
        Call(4, 3, "pull rows, push gradients"),
        Call(4, 2, "report progress"),
        Call(2, 2, "epoch over: checkpoint"),
        Call(4, 4, "export after the last epoch"),
        Call(2, 0, "final status and audit"),
        Call(0, 0, "exit 0 only if exact"),
    ]
    return sequence(columns, calls)


def cluster_job() -> str:
    columns = [
        ("elasticdl train", "cli, catalog/kubernetes"),
        ("API server", "Kubernetes"),
        ("master pod", "master/kubernetes"),
        ("node pods", "ps, worker"),
    ]
    calls = [
        Call(0, 1, "create job record, Secret, master pod"),
        Call(1, 2, "start the master pod"),
        Call(2, 1, "read JobSpec from the job record"),
        Call(2, 1, "create services and pods"),
        Call(1, 3, "start pods; addresses in variables"),
        Call(3, 2, "join with the job's token, over TLS"),
        Call(1, 2, "watch: pod deleted, preempted, lost"),
        Call(2, 1, "create the replacement (next number)"),
        Call(0, 1, "jobs scale: desired, generation"),
        Call(2, 1, "status, observedGeneration"),
        Call(2, 1, "final status and audit"),
        Call(0, 1, "delete the job record: all objects go"),
    ]
    return sequence(columns, calls)


def batch() -> str:
    columns = [
        ("trainer", "worker/keras, worker/torch"),
        ("prefetcher", "worker/model"),
        ("ps client", "ps/client"),
        ("primary", "ps/server, ps/storage"),
        ("backup", "ps/replication"),
    ]
    calls = [
        Call(1, 2, "unique ids of the next batch"),
        Call(2, 3, "pull rows by bucket"),
        Call(3, 1, "rows, bucket versions"),
        Call(0, 0, "forward, backward"),
        Call(0, 2, "gradients of this batch"),
        Call(2, 3, "push: sequence number, lease"),
        Call(3, 3, "apply optimizer once"),
        Call(3, 4, "replicate in order"),
        Call(4, 3, "acknowledge"),
        Call(3, 2, "acknowledge"),
        Call(2, 0, "progress may be reported"),
    ]
    return sequence(columns, calls)


def checkpoint() -> str:
    columns = [
        ("master", "master/checkpointing"),
        ("workers", "worker"),
        ("parameter servers", "ps/server, ps/checkpoint"),
        ("disk", "ps/checkpoint"),
    ]
    calls = [
        Call(0, 1, "directive: barrier"),
        Call(1, 1, "finish the batch, report"),
        Call(1, 0, "at the barrier"),
        Call(0, 2, "snapshot (copy-on-write)"),
        Call(0, 1, "directive: continue"),
        Call(2, 3, "write shares, checksums"),
        Call(2, 0, "files written"),
        Call(0, 3, "ledger, manifest, then rename"),
        Call(0, 0, "journal: checkpoint saved"),
        Call(0, 2, "release the snapshot"),
    ]
    return sequence(columns, calls)


def main() -> None:
    drawings = {
        "packages": packages(),
        "local-job": local_job(),
        "cluster-job": cluster_job(),
        "batch": batch(),
        "checkpoint": checkpoint(),
    }
    for name, drawing in drawings.items():
        (HERE / f"{name}.svg").write_text(drawing)


if __name__ == "__main__":
    main()
