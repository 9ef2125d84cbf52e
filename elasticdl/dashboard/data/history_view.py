"""The history of one job in the shape in which a page shows it. Pure, of bounded size.

Entries are added as they come. Samples become series of at most `_MOST_POINTS` points: when there are more, every
second one of the past goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from elasticdl.jobs.history.entries import Entry, JobEvent, NodeChange, NodeState, Sample
from elasticdl.jobs.history.time_account import TimeAccount

_MOST_POINTS = 400
_MOST_EVENTS = 300
_MOST_FREQUENT = 100
_FREQUENT = ("epoch", "checkpoint", "evaluation")
# A job that runs for days replaces thousands of nodes; the oldest ended ones go first.
_MOST_NODES = 3000
_MOST_SPANS = 60


class HistoryView:
    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._events: deque[dict[str, Any]] = deque(maxlen=_MOST_EVENTS)
        # Apart: what happens at every epoch would push out what happened once.
        self._frequent: deque[dict[str, Any]] = deque(maxlen=_MOST_FREQUENT)
        self._nodes: dict[str, dict[str, Any]] = {}
        # Every so many samples one is kept.
        self._stride = 1
        self._count = 0
        self._is_last_provisional = False

    @property
    def is_empty(self) -> bool:
        return not self._samples

    @property
    def began(self) -> float | None:
        return self._samples[0].time if self._samples else None

    @property
    def account(self) -> TimeAccount | None:
        return self._samples[-1].account if self._samples else None

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if isinstance(entry, NodeChange):
                self._add_node(entry)
            elif isinstance(entry, JobEvent):
                self._add_event(entry.time, str(entry.event), entry.text)
            else:
                self._add_sample(entry)

    def series(self) -> dict[str, Any]:
        """Returns columns of equal length: the time, the step and the figures; None where there is no value."""
        names = sorted({name for sample in self._samples for name in sample.scalars})
        return {
            "time": [sample.time for sample in self._samples],
            "step": [sample.step for sample in self._samples],
            "done": [sample.samples_done for sample in self._samples],
            "rate": [sample.samples_per_second for sample in self._samples],
            "loss": [sample.loss for sample in self._samples],
            "workers": [sample.ready_workers for sample in self._samples],
            "desired": [sample.desired_workers for sample in self._samples],
            "servers": [sample.ready_servers for sample in self._samples],
            "scalars": {name: [sample.scalars.get(name) for sample in self._samples] for name in names},
        }

    def nodes(self) -> list[dict[str, Any]]:
        return list(self._nodes.values())

    def events(self) -> list[dict[str, Any]]:
        """The oldest first."""
        return sorted([*self._events, *self._frequent], key=lambda event: float(event["time"]))

    def _add_sample(self, sample: Sample) -> None:
        # The newest sample is always the last one, so that the figures of now are right.
        if self._is_last_provisional:
            self._samples.pop()
        self._samples.append(sample)
        self._count += 1
        self._is_last_provisional = self._count % self._stride != 0
        if len(self._samples) > _MOST_POINTS:
            self._samples = [*self._samples[:-1:2], self._samples[-1]]
            self._stride *= 2

    def _add_node(self, change: NodeChange) -> None:
        node = self._nodes.get(change.node)
        if node is None:
            if len(self._nodes) >= _MOST_NODES:
                self._forget_ended()
            node = self._nodes[change.node] = {"name": change.node, "role": change.role, "spans": []}
        node["state"] = str(change.state)
        node["reason"], node["message"] = change.reason, change.message
        node["spans"] = [*node["spans"], [change.time, str(change.state)]][-_MOST_SPANS:]
        if text := _sentence(change):
            self._add_event(change.time, "node", text)

    def _forget_ended(self) -> None:
        ended = [name for name, node in self._nodes.items() if node["state"] == NodeState.ENDED.value]
        for name in ended[: _MOST_NODES // 10]:
            del self._nodes[name]

    def _add_event(self, time: float, kind: str, text: str) -> None:
        events = self._frequent if kind in _FREQUENT else self._events
        events.append({"time": time, "kind": kind, "text": text})


def _sentence(change: NodeChange) -> str:
    why = f": {change.message}" if change.message else ""
    if change.state is NodeState.ENDED:
        ended = {
            "killed": "was killed",
            "completed": "has completed",
            "stopped": "was stopped",
            "error": "has failed",
            "out of memory": "ran out of memory",
            "cannot start": "cannot start",
        }.get(change.reason, "has ended")
        return f"{change.node} {ended}{why}."
    words = {
        NodeState.PENDING: "is requested",
        NodeState.STARTING: "has started",
        NodeState.WORKING: "has joined",
        NodeState.UNRESPONSIVE: "does not respond",
        NodeState.DRAINING: "drains",
    }[change.state]
    return f"{change.node} {words}{why}."
