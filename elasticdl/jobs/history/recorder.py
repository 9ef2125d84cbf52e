"""Derives the history of a job from its status, read again and again. Pure: no clock, no file.

A status names every node that the job had of late, ended ones included, so none is missed between two readings. A
recorder may continue the history of an earlier one: nodes and the time account go on where the entries end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elasticdl.jobs.history.entries import Entry, EventKind, JobEvent, NodeChange, NodeState, Sample
from elasticdl.jobs.history.time_account import TimeAccount
from elasticdl.jobs.status import JobStatus, NodeReport

# Between two samples: at least this, and so much of the job's age that a job of a day has about 6,000.
_SAMPLE_SECONDS = 0.5
_SAMPLE_SHARE = 1 / 1000
# Between two statuses. A longer time passed without a master.
_GAP_SECONDS = 5.0
_TRAINERS = ("worker", "chief")
_LONGEST_TEXT = 500


class HistoryRecorder:
    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        """`entries`: the history so far, of an earlier recorder."""
        self._nodes: dict[str, tuple[NodeState, str]] = {}
        # The report that the states were derived from.
        self._seen: dict[str, tuple[object, ...]] = {}
        self._before: JobStatus | None = None
        self._account = TimeAccount()
        self._sampled: float | None = None
        self._began: float | None = None
        self._continues = False
        for entry in entries:
            self._continues = True
            self._began = entry.time if self._began is None else self._began
            if isinstance(entry, NodeChange):
                self._nodes[entry.node] = (entry.state, entry.reason)
            elif isinstance(entry, Sample):
                self._account = entry.account
                self._sampled = entry.time

    def observe(
        self, status: JobStatus, scalars: Mapping[str, float] | None = None, *, last: bool = False
    ) -> list[Entry]:
        """Returns what is new in this status. `last`: with a sample in any case."""
        before = self._before
        self._began = status.now if self._began is None else self._began
        if before is not None:
            self._account = self._account.after(before, status, most_seconds=_GAP_SECONDS)
        elif self._sampled is not None:
            away = max(status.now - self._sampled - _GAP_SECONDS, 0.0)
            self._account = TimeAccount(
                **{**vars(self._account), "master_away": self._account.master_away + away}
            )
        entries: list[Entry] = [*self._events(before, status), *self._changed_nodes(status)]
        self._before = status
        if last or self._is_sample_due(status.now):
            self._sampled = status.now
            entries.append(_sample(status, scalars or {}, self._account))
        return entries

    def _is_sample_due(self, now: float) -> bool:
        if self._sampled is None or self._began is None:
            return True
        interval = max(_SAMPLE_SECONDS, _SAMPLE_SHARE * (now - self._began))
        # A clock that was set back does not end the sampling.
        return not 0 <= now - self._sampled < 0.9 * interval

    def _changed_nodes(self, status: JobStatus) -> Iterable[NodeChange]:
        # Few of thousands of nodes have changed: the comparison is the fast path.
        seen = self._seen
        for node in status.nodes:
            mark = (
                node.phase,
                node.is_draining,
                node.has_joined,
                node.reason,
                node.unresponsive_since_seconds is not None,
            )
            if seen.get(node.name) == mark:
                continue
            seen[node.name] = mark
            state = NodeState.of(node)
            key = (state, node.reason if state is NodeState.ENDED else "")
            if self._nodes.get(node.name) != key:
                self._nodes[node.name] = key
                yield _change(node, state, status.now)

    def _events(self, before: JobStatus | None, now: JobStatus) -> Iterable[JobEvent]:
        def event(kind: EventKind, text: str) -> JobEvent:
            return JobEvent(time=now.now, event=kind, text=text[:_LONGEST_TEXT])

        if before is None:
            words = "The master has started again" if self._continues else "The job has started"
            yield event(EventKind.STATE, f"{words}.")
            return
        if now.state is not before.state:
            yield event(EventKind.STATE, f"The job has the state {now.state}. {now.message}".strip())
        for role, desired in now.desired_nodes.items():
            if (count := before.desired_nodes.get(role, 0)) != desired:
                yield event(
                    EventKind.SIZE, f"The desired number of {role} nodes goes from {count} to {desired}."
                )
        if now.model_generation > before.model_generation:
            place = f" to {now.checkpoint}" if now.checkpoint else " to the beginning"
            yield event(
                EventKind.ROLLBACK, f"Rolled back{place}: the only copy of a part of the model was lost."
            )
        elif now.epoch > before.epoch:
            yield event(EventKind.EPOCH, f"Epoch {now.epoch + 1} of {now.epochs} has begun.")
        if now.checkpoint and now.checkpoint != before.checkpoint:
            yield event(EventKind.CHECKPOINT, f"Checkpoint saved: {now.checkpoint}")
        known = {(one.step, one.epoch) for one in before.evaluations}
        for one in now.evaluations:
            if (one.step, one.epoch) not in known:
                metrics = ", ".join(f"{name} {value:.5g}" for name, value in one.metrics.items())
                yield event(EventKind.EVALUATION, f"Evaluation at step {one.step}: {metrics}")
        if now.non_finite_batches > before.non_finite_batches:
            count = now.non_finite_batches - before.non_finite_batches
            yield event(EventKind.WARNING, f"{count} batches had no effect: their gradients were not finite.")
        for remark in now.remarks[len(before.remarks) :]:
            yield event(EventKind.WARNING, remark)


def _change(node: NodeReport, state: NodeState, now: float) -> NodeChange:
    says_why = state in (NodeState.ENDED, NodeState.DRAINING, NodeState.PENDING)
    return NodeChange(
        time=now,
        node=node.name,
        role=node.role,
        state=state,
        reason=node.reason if state is NodeState.ENDED else "",
        message=node.message[:_LONGEST_TEXT] if says_why else "",
    )


def _sample(status: JobStatus, scalars: Mapping[str, float], account: TimeAccount) -> Sample:
    return Sample(
        time=round(status.now, 3),
        step=status.step,
        epoch=status.epoch,
        samples_done=status.samples_done,
        samples_per_second=round(status.samples_per_second, 2),
        loss=status.loss,
        ready_workers=sum(status.ready_nodes(role) for role in _TRAINERS),
        desired_workers=sum(status.desired_nodes.get(role, 0) for role in _TRAINERS),
        ready_servers=status.ready_nodes("ps"),
        scalars=dict(scalars),
        account=account.rounded(),
    )
