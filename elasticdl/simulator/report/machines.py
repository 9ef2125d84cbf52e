"""A picture of machines and what runs on them: one row per machine, one box per job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticdl.scheduling.cluster import ClusterState
from elasticdl.simulator.report.charts import WIDTH
from elasticdl.simulator.report.drawing import Box, Drawing, Label, series_colour
from elasticdl.simulator.workload import CPU, GPU

_MOST_ROWS = 60
_LEFT = 150.0


def machine_chart(state: ClusterState, *, title: str) -> Drawing:
    """Returns the machines with the share of CPUs (GPUs, where there are any) that each job and everyone else hold."""
    resource = GPU if any(machine.allocatable.get(GPU, 0) for machine in state.machines) else CPU
    machines = [machine for machine in state.machines if machine.allocatable.get(resource, 0)][:_MOST_ROWS]
    row = 20.0 if len(machines) <= 30 else 11.0
    jobs = sorted({pod.job_key for pod in state.pods if pod.job_key is not None})
    colours = {job: series_colour(number) for number, job in enumerate(jobs)}
    drawing = Drawing(width=WIDTH, height=76 + row * len(machines) + 12, title=title)
    drawing.shapes.append(Label(x=8, y=20, text=title, size=14, bold=True))
    _legend(drawing, [*((job.partition("/")[2], colours[job]) for job in jobs), ("others", "muted")])
    span = WIDTH - _LEFT - 20
    held = _held(state, resource)
    for number, machine in enumerate(machines):
        y = 66 + row * number
        total = machine.allocatable[resource]
        name = machine.name + ("" if machine.is_ready else " (not ready)")
        drawing.shapes.append(
            Label(x=_LEFT - 8, y=y + row * 0.7, text=name[-22:], size=min(12, row - 1), anchor="end")
        )
        drawing.shapes.append(Box(x=_LEFT, y=y, width=span, height=row - 3, colour="grid"))
        x = _LEFT
        for job, used in sorted(held.get(machine.name, {}).items()):
            width = span * used / total
            text = f"{job or 'others'}: {_amount(used, resource)} of {_amount(total, resource)} on {machine.name}"
            drawing.shapes.append(
                Box(
                    x=x,
                    y=y,
                    width=max(width - 1, 0.5),
                    height=row - 3,
                    colour=colours.get(job, "muted"),
                    hint=text,
                )
            )
            x += width
    return drawing


def _legend(drawing: Drawing, names: Sequence[tuple[str, str]]) -> None:
    x = 8.0
    for name, colour in names:
        drawing.shapes.append(Box(x=x, y=35, width=10, height=10, colour=colour))
        drawing.shapes.append(Label(x=x + 15, y=45, text=name, size=12))
        x += 15 + 7.5 * len(name) + 16


def _held(state: ClusterState, resource: str) -> Mapping[str, Mapping[str, int]]:
    held: dict[str, dict[str, int]] = {}
    for pod in state.pods:
        if pod.machine is None or not pod.occupies_resources:
            continue
        owners = held.setdefault(pod.machine, {})
        owner = pod.job_key or ""
        owners[owner] = owners.get(owner, 0) + pod.requests.get(resource, 0)
    return held


def _amount(value: int, resource: str) -> str:
    return f"{value / 1000:g} CPUs" if resource == CPU else f"{value} GPUs"
