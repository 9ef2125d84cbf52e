"""The results of a benchmark: one line each, and a table on a terminal."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TextIO

_HEADINGS = ("benchmark", "case", "us", "peer", "compared", "target", "")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One measured claim. `passed` is None if there is no target."""

    benchmark: str
    case: str
    unit: str
    us: float
    peer: float | None = None
    # What is compared with the target: a ratio or a difference.
    compared: str = ""
    target: str = ""
    passed: bool | None = None
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        verdict = {True: "pass", False: "FAIL", None: ""}[self.passed]
        peer = "" if self.peer is None else f"{figure(self.peer)} {self.unit}"
        ours = f"{figure(self.us)} {self.unit}"
        return (self.benchmark, self.case, ours, peer, self.compared, self.target, verdict)


def at_least(result: Result, factor: float, *, target: bool = True) -> Result:
    """Returns the result with the target of at least so many times the peer (or only with the ratio)."""
    assert result.peer is not None
    ratio = result.us / result.peer
    verdict = {"target": f"≥ {factor:g}×", "passed": ratio >= factor} if target else {}
    return Result(**{**asdict(result), "compared": f"{ratio:.3g}×", **verdict})


def at_most_more(result: Result, limit: float) -> Result:
    """Returns the result with the target of at most so much above the peer."""
    more = result.us - (result.peer or 0.0)
    sign = "+" if result.peer is not None else ""
    return Result(
        **{
            **asdict(result),
            "compared": f"{more:{sign}.3g} {result.unit}",
            "target": f"≤ {sign}{limit:g} {result.unit}",
            "passed": more <= limit,
        }
    )


def figure(value: float) -> str:
    """Formats a number with three digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_line(result: Result, stream: TextIO = sys.stdout) -> None:
    """Prints one result as soon as it is measured."""
    cells = [cell for cell in result.cells() if cell]
    print(" | ".join(cells) + (f" | {result.note}" if result.note else ""), file=stream, flush=True)


def print_results(results: list[Result], stream: TextIO = sys.stdout) -> None:
    if not stream.isatty():
        for result in results:
            print_line(result, stream)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*_HEADINGS)
    for result in results:
        colour = {True: "green", False: "red", None: ""}[result.passed]
        table.add_row(*result.cells()[:-1], f"[{colour}]{result.cells()[-1]}[/]" if colour else "")
    console = Console(file=stream)
    console.print(table)
    for result in results:
        if result.note:
            console.print(f"{result.benchmark}, {result.case}: {result.note}", highlight=False)
