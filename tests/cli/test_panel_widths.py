"""The live display in terminals of several widths: names and states are whole, and a large job has room."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from elasticdl.catalog.job import NodeUsage
from elasticdl.cli.output.panel import StatusPanel
from elasticdl.jobs.json_codec import decode
from elasticdl.jobs.status import JobStatus, NodeReport, RunState, ServerReport

WIDTHS = (60, 80, 120)
WAITS = "waits: 0/3 nodes are available: 3 Insufficient memory"


def node(name: str, **changes: Any) -> NodeReport:
    fields = {"phase": "running", "joined": True, "shards": 1, "samples_per_second": 120.0}
    return decode(NodeReport, {"name": name, "role": name.split("-")[0], **fields, **changes})


def status(*nodes: NodeReport, **changes: Any) -> JobStatus:
    fields: dict[str, Any] = {
        "job": "digits-keras-cnn-631c44",
        "kind": "train",
        "program": "definition",
        "phase": "training",
        "start_time": 1000.0,
        "now": 1075.0,
        "epochs": 12,
        "samples_done": 6000,
        "samples_desired": 17_244,
        "samples_per_second": 240.0,
        "remaining_seconds": 47.0,
        "loss": 0.03715,
        "losses": tuple((step, 1 / step) for step in range(1, 100)),
        "nodes": nodes,
        "desired_nodes": {"worker": 2, "ps": 1},
    }
    return JobStatus(**{"state": RunState.RUNNING, **fields, **changes})


def lines(
    shown: JobStatus, *, width: int, height: int = 24, usage: dict[str, NodeUsage] | None = None
) -> list[str]:
    console = Console(record=True, width=width, height=height, file=io.StringIO(), force_terminal=True)
    console.print(StatusPanel(shown, usage=usage))
    return console.export_text().splitlines()


USAGE = {
    name: NodeUsage(
        cpu_cores=0.97, memory_bytes=612_000_000, gpu_memory_bytes=8_000_000_000, gpu_utilization=0.5
    )
    for name in ("ps-0", "worker-0", "worker-1")
}
SMALL = status(node("ps-0", samples_per_second=None), node("worker-0"), node("worker-1"))
LARGE = status(
    node("ps-0", samples_per_second=None),
    node("ps-1", samples_per_second=None),
    *(node(f"worker-{number}") for number in range(27)),
    node("worker-27", joined=False),
    node("worker-28", phase="pending", joined=False, message=WAITS.removeprefix("waits: ")),
    node("worker-29", draining=True),
)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shown", [SMALL, LARGE], ids=["small", "large"])
def test_lines_fit_the_terminal_and_are_as_long_as_each_other(width: int, shown: JobStatus) -> None:
    found = lines(shown, width=width, usage=USAGE)
    assert {len(line) for line in found} == {min(width, 100)}
    assert len(found) <= 24


@pytest.mark.parametrize("width", WIDTHS)
def test_names_and_states_are_whole_at_every_width(width: int) -> None:
    found = lines(SMALL, width=width, usage=USAGE)
    for name in ("ps-0", "worker-0", "worker-1"):
        (line,) = [line for line in found if line.strip("│ ").startswith(f"{name} ")]
        assert line.split()[2] == "working"
    assert "digits-keras-cnn-631c44 · training · 1:15" in found[0]


@pytest.mark.parametrize("width", range(40, 121, 4))
def test_states_are_whole_beside_the_figures_of_servers(width: int) -> None:
    took = {"per_second": 431.0, "p95": 0.0021}
    servers = [{"name": "ps-0", "rows": 12_345_678, "push": took, "pull": took}]
    shown = status(*SMALL.nodes, servers=tuple(decode(ServerReport, server) for server in servers))
    found = [line.strip("│ ").split() for line in lines(shown, width=width, usage=USAGE)]
    assert [line[:2] for line in found if line and line[0] in USAGE] == [[name, "working"] for name in USAGE]


@pytest.mark.parametrize("width", WIDTHS)
def test_state_longer_than_its_column_takes_several_lines(width: int) -> None:
    pending = node("worker-0", phase="pending", joined=False, message=WAITS.removeprefix("waits: "))
    found = lines(status(pending, node("worker-1")), width=width)
    # Behind the rule below the header; in front of it the same reason is what the job waits for.
    column = found[next(i for i, line in enumerate(found) if "──" in line and i) + 1 :]
    text = "".join(char for line in column for char in line if char.isalpha())
    assert "".join(filter(str.isalpha, WAITS)) in text


@pytest.mark.parametrize("width", WIDTHS)
def test_thirty_workers_are_grouped_by_role_and_state(width: int) -> None:
    found = [line.strip("│ ") for line in lines(LARGE, width=width)]
    (group,) = [line for line in found if line.startswith("27 workers")]
    assert group.split()[2] == "working"
    assert "3,240" in group.split()
    assert [line.split()[1] for line in found if line.startswith(("worker-27 ", "worker-29 "))] == [
        "starting",
        "leaving",
    ]


def test_nodes_are_listed_one_by_one_where_there_is_room() -> None:
    found = [line.strip("│ ") for line in lines(LARGE, width=80, height=60)]
    assert sum(line.startswith("worker-") for line in found) == 30


@pytest.mark.parametrize("width", WIDTHS)
def test_panel_summarizes_ended_nodes_in_one_sentence(width: int) -> None:
    ended = [node(f"worker-{number}", phase="failed", reason="killed") for number in range(40)]
    found = lines(status(*ended, node("worker-40")), width=width)
    text = " ".join(line.strip("│ ") for line in found)
    assert "ended: 40 (40 killed), the last worker-39 (killed)" in text
    assert len(found) <= 24


def test_few_ended_nodes_are_named_with_their_reasons() -> None:
    ended = [
        node("worker-0", phase="failed", reason="killed"),
        node("worker-1", phase="succeeded", reason="completed"),
    ]
    text = "\n".join(lines(status(*ended, node("worker-2")), width=80))
    assert "ended: worker-1 (completed), worker-0 (killed)" in text


def test_more_figures_are_shown_in_wider_terminals() -> None:
    def titles(width: int) -> list[str]:
        (header,) = [line for line in lines(SMALL, width=width, usage=USAGE) if " node " in line]
        return header.strip("│ ").split()

    assert titles(60) == ["node", "state", "samples/s", "cpu", "memory", "gpu"]
    assert titles(80) == ["node", "state", "samples/s", "cpu", "memory", "gpu", "gpu", "memory"]
    assert titles(40) == ["node", "state", "samples/s"]


def test_use_of_all_nodes_is_summed() -> None:
    text = "\n".join(lines(SMALL, width=80, usage=USAGE))
    assert "2.9 cores, 1.8 GB memory, GPU 50.0 %, 24.0 GB" in text


def test_long_job_name_gives_the_phase_a_line_of_its_own() -> None:
    name = "a" * 50
    found = lines(status(node("worker-0"), job=name), width=60)
    assert name in found[0]
    assert found[1].strip("│ ") == "training · 1:15"


@pytest.mark.parametrize(
    ("shown", "waits"),
    [
        (status(phase="", desired_nodes={}), "the master to start"),
        (status(node("worker-0", joined=False), phase="starting"), "worker-0 to start"),
        (
            status(*(node(f"worker-{n}", joined=False) for n in range(6)), phase="starting"),
            "worker-0, worker-1, worker-2, worker-3 and 2 more to start",
        ),
        (
            status(node("worker-0", phase="pending", joined=False, message="no room"), phase="training"),
            "worker-0 to start: no room",
        ),
        (status(node("ps-0"), phase="training"), "a worker to be started"),
        (status(node("worker-0"), phase="starting"), "a worker to open the data"),
        (status(node("worker-0"), node("worker-1", joined=False), phase="training"), ""),
        (status(node("worker-0", joined=False), state=RunState.STOPPING), ""),
    ],
)
def test_panel_says_what_the_job_waits_for(shown: JobStatus, waits: str) -> None:
    text = " ".join(line.strip("│ ") for line in lines(shown, width=120))
    assert (f"waiting for {waits} " in f"{text} ") if waits else ("waiting for" not in text)
