"""What a person sees of a running job: a live panel on a terminal, plain lines when the output goes
elsewhere.

A display is given the status documents of the master and decides what of them is worth showing. It takes no
decision about the job.
"""

from __future__ import annotations

import abc
import sys
import time
from typing import TYPE_CHECKING, Any

from elasticdl.cli.output.server_table import FIGURES, server_figures
from elasticdl.jobs.spec import JobSpec

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

# Plain lines: at least so long between two of them, unless there is news.
_LINE_SECONDS = 5.0
_NEWS_SECONDS = 1.0
# Of a command whose job did not come to its end because somebody stopped it: what shells say of Ctrl-C.
EXIT_INTERRUPTED = 130


class Display(abc.ABC):
    def __init__(self) -> None:
        self._remarked: set[str] = set()

    def _tell_remarks(self, status: dict[str, Any]) -> None:
        """What workers have told of the model: each once, when it is known."""
        for remark in status.get("remarks") or ():
            if remark not in self._remarked:
                self._remarked.add(remark)
                self.note(remark)

    @abc.abstractmethod
    def begin(self, spec: JobSpec, place: str) -> None: ...

    @abc.abstractmethod
    def show(self, status: dict[str, Any]) -> None: ...

    @abc.abstractmethod
    def note(self, text: str) -> None: ...

    @abc.abstractmethod
    def end(self, status: dict[str, Any], logs: str) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...


def make_display(*, quiet: bool) -> Display:
    if quiet:
        return _Silent()
    if sys.stdout.isatty():
        return _Panel()
    return _Lines()


class _Silent(Display):
    def begin(self, spec: JobSpec, place: str) -> None: ...

    def show(self, status: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self, status: dict[str, Any], logs: str) -> None: ...

    def close(self) -> None: ...


class _Lines(Display):
    """One line when something has changed, and every few seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._last = 0.0
        self._news: tuple[str, int] = ("", -1)
        self._evaluated: set[int] = set()
        self._nodes: dict[str, str] = {}

    def begin(self, spec: JobSpec, place: str) -> None:
        self.note(f"Job {spec.job_name}: {place}")

    def show(self, status: dict[str, Any]) -> None:
        self._tell_nodes(status)
        self._tell_remarks(status)
        # Not by their number: a job's record has the newest and the most telling only.
        for evaluation in status["evaluations"]:
            if evaluation["step"] not in self._evaluated:
                self.note(
                    f"Evaluation metrics[step={evaluation['step']}]: {format_metrics(evaluation['metrics'])}"
                )
        self._evaluated = {evaluation["step"] for evaluation in status["evaluations"]}
        news = (status["phase"], status["epoch"])
        quiet = time.monotonic() - self._last
        # Epochs of a small data set follow each other faster than anybody reads.
        if (
            quiet < (_LINE_SECONDS if news == self._news else _NEWS_SECONDS)
            and status["phase"] == self._news[0]
        ):
            return
        self._news, self._last = news, time.monotonic()
        self.note(one_line(status))

    def _tell_nodes(self, status: dict[str, Any]) -> None:
        for node in status["nodes"]:
            state = node_state(node)
            if self._nodes.get(node["name"]) != state:
                self._nodes[node["name"]] = state
                self.note(f"{node['name']}: {state}")

    def note(self, text: str) -> None:
        print(text, flush=True)

    def end(self, status: dict[str, Any], logs: str) -> None:
        self._tell_remarks(status)
        for line in final_lines(status, logs):
            self.note(line)

    def close(self) -> None: ...


class _Panel(Display):
    """A progress display that stays in place while notes scroll by above it."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        self._console: Console = Console()
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._started = False

    def begin(self, spec: JobSpec, place: str) -> None:
        self._console.print(f"[bold]Job {spec.job_name}[/bold]  [dim]{place}[/dim]", highlight=False)
        self._live.start()
        self._started = True

    def show(self, status: dict[str, Any]) -> None:
        self._tell_remarks(status)
        self._live.update(panel(status))

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def end(self, status: dict[str, Any], logs: str) -> None:
        self.close()
        self._tell_remarks(status)
        print_final(self._console, status, logs)

    def close(self) -> None:
        if self._started:
            self._live.stop()
            self._started = False


# -- the parts, shared with `elasticdl jobs status` ----------------------------------------------------------


def panel(status: dict[str, Any], *, figures: bool = True) -> RenderableType:
    """The whole state of a job as a block for a terminal; with `figures`, how its parameter servers do, too."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    total, done = status.get("samples_total") or 0, status.get("samples_done") or 0
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(total=total or 1, completed=done, width=40),
        Text(f"{100 * done / total:5.1f} %" if total else "", style="bold"),
        Text(time_left(status), style="dim"),
    )
    command = status.get("program") == "command"
    facts.add_row("epoch", f"{min(status['epoch'] + 1, status['epochs'])} of {status['epochs']}")
    facts.add_row("samples", f"{done:,} of {total:,}" if total else "…")
    facts.add_row("speed", f"{status['samples_per_second']:,.0f} samples/s, step {status['step']:,}")
    facts.add_row(
        "loss", f"{status['loss']:.5f} {sparkline(status['losses'])}" if status["loss"] is not None else "…"
    )
    if not command:
        facts.add_row("evaluation", last_evaluation(status) or "…")
    if without_effect(status):
        facts.add_row("note", Text(without_effect(status), style="yellow"))
    colour = {"failed": "red", "stopped": "yellow"}.get(status["state"], "cyan")
    return Panel(
        Group(bar, facts, _node_table(status["nodes"], (status.get("servers") or []) if figures else [])),
        title=f"{status['job']} · {status['phase']}",
        border_style=colour,
        title_align="left",
        width=86,
    )


def _node_table(nodes: list[dict[str, Any]], servers: list[dict[str, Any]]) -> Table:
    """A line a node; of parameter servers, if there are figures, with the most telling of them."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    shown.add_column("node")
    shown.add_column("state")
    for title in ("shards", *(FIGURES if servers else ())):
        shown.add_column(title, justify="right", no_wrap=True)
    figures = {server["name"]: server_figures(server) for server in servers}
    for node in nodes:
        state = node_state(node)
        style = "green" if state == "working" else "red" if "ended" in state else "yellow"
        shards = str(node["shards"]) if node["role"] in ("worker", "chief") else ""
        shown.add_row(node["name"], Text(state, style=style), shards, *figures.get(node["name"], ()))
    return shown


_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(points: list[list[float]], width: int = 30) -> str:
    """The course of the loss in one line."""
    values = [value for _, value in points if value == value and abs(value) != float("inf")]
    if len(values) < 2:
        return ""
    every = max(1, len(values) // width)
    means = [sum(values[i : i + every]) / len(values[i : i + every]) for i in range(0, len(values), every)]
    low, high = min(means), max(means)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in means)


def node_state(node: dict[str, Any]) -> str:
    if node["draining"] and node["phase"] == "running":
        # What it has done may be asked for still.
        return f"ended: {node['reason']}" if node["reason"] else "leaving"
    if node["phase"] == "running":
        # Not told by masters of before.
        if since := node.get("unheard_since"):
            return f"{'' if node['joined'] else 'starting, '}not heard of since {_moment(since)}"
        return "working" if node["joined"] else "starting"
    if node["phase"] == "pending":
        return f"waits: {node['message']}" if node["message"] else "starting"
    return f"ended: {node['reason']}" if node["reason"] else "ended"


def _moment(seconds: float) -> str:
    """It may have been yesterday."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def last_evaluation(status: dict[str, Any]) -> str:
    if not status.get("evaluations"):
        return ""
    newest = status["evaluations"][-1]
    return f"{format_metrics(newest['metrics'])} (step {newest['step']:,})"


def left_out(status: dict[str, Any]) -> str:
    """What to say of evaluations that are not listed, if there are some."""
    count = status.get("evaluations_left_out") or 0
    if not count:
        return ""
    return (
        f"{count:,} more evaluations are not listed: the job's record has room for the first, the newest, and those "
        "with the lowest and the highest value of each metric. The log of the master has them all."
    )


def format_metrics(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.5g}" for name, value in metrics.items())


def time_left(status: dict[str, Any]) -> str:
    seconds = status.get("seconds_left")
    if seconds is None or status["state"] != "running":
        return ""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} left" if hours else f"{minutes}:{seconds:02d} left"


def one_line(status: dict[str, Any]) -> str:
    total, done = status["samples_total"], status["samples_done"]
    working = sum(1 for node in status["nodes"] if node["role"] == "worker" and node_state(node) == "working")
    parts = [status["phase"]]
    # A program of the user's own may do without data of ours.
    if total or status.get("program") != "command":
        parts += [
            f"epoch {min(status['epoch'] + 1, status['epochs'])}/{status['epochs']}",
            f"{done:,}/{total:,} samples",
            f"{status['samples_per_second']:,.0f}/s",
            f"step {status['step']:,}",
        ]
    if status["loss"] is not None:
        parts.append(f"loss {status['loss']:.5f}")
    parts.append(f"{working} of {status['targets']['worker']} workers")
    if time_left(status):
        parts.append(time_left(status))
    return " | ".join(parts)


def without_effect(status: dict[str, Any]) -> str:
    """What to say of batches that were passed over, if there were any."""
    count = status.get("batches_without_effect") or 0
    if not count:
        return ""
    batches = "1 batch" if count == 1 else f"{count:,} batches"
    return f"{batches} had no effect: the gradients were not finite (--max_bad_gradients)."


def final_lines(status: dict[str, Any], logs: str) -> list[str]:
    """The end of a job: how it went, what it amounts to, where things are."""
    lines = []
    if status.get("traceback") and status["state"] == "failed":
        lines += [status["traceback"].rstrip()]
    if status.get("message"):
        lines.append(("error: " if status["state"] == "failed" else "") + status["message"])
    if status.get("audit") and (status["audit"]["rows"] or status["audit"].get("left_out")):
        # With the ledger behind it: at the end of a job there is time for that.
        from elasticdl.master.ledger.audit import Audit, render

        lines += ["", render(Audit.from_json(status["audit"])), ""]
    if without_effect(status):
        lines.append(without_effect(status))
    if status.get("evaluations"):
        lines.append(f"Evaluation: {last_evaluation(status)}")
    if status.get("output"):
        lines += status["output"].splitlines()
    # Of the others it is the one they started from, which the user has named.
    if status.get("checkpoint") and status.get("kind") == "train":
        lines.append(f"Checkpoint: {status['checkpoint']}")
    lines.append(f"Job {status['job']} has {status['state']}. Logs: {logs}")
    return lines


def print_final(console: Console, status: dict[str, Any], logs: str) -> None:
    colour = {"succeeded": "green", "failed": "red"}.get(status["state"], "yellow")
    *lines, last = final_lines(status, logs)
    for line in lines:
        style = "red" if line.startswith("error: ") else None
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)
    console.print(last, style=f"bold {colour}", highlight=False, markup=False, soft_wrap=True)
