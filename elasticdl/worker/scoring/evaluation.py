"""A worker's part in an evaluation: shards of the validation data in, states of the metrics out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from elasticdl.data.reader import BadRange, Reader
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.jobs.spec import JobSpec
from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.master_link import MasterLink
from elasticdl.worker.reporter import to_wire
from elasticdl.worker.shard_source import LeasedShards
from elasticdl.worker.trainer import CallbackRunner, MetricStates, Trainer

DATASET = "evaluation"
# The metric of every evaluation; its last state is the number of samples.
LOSS = "loss"


class Evaluator:
    def __init__(self, link: MasterLink, spec: JobSpec, trainer: Trainer) -> None:
        self._link = link
        self._spec = spec
        self._trainer = trainer

    def work(
        self,
        directive: pb.Directive,
        reader: Reader,
        *,
        generation: int,
        callbacks: CallbackRunner,
        between: Callable[[], bool],
    ) -> None:
        """Evaluates shards for as long as there are some. Stops early when `between` says so."""
        self._trainer.take_metric_states()
        shards = LeasedShards(self._link, DATASET, generation=generation, wait=False)
        batches = self._trainer.batches(
            reader,
            shards,
            mode=Mode.EVALUATION,
            batch_size=self._spec.training.minibatch_size,
            max_bad_records=self._spec.data.max_bad_records,
        )
        bad: tuple[BadRange, ...] = ()
        for number, batch in enumerate(batches):
            callbacks.fire("on_test_batch_begin", number, {})
            if batch.size:
                self._trainer.evaluate(batch)
            callbacks.fire("on_test_batch_end", number, {})
            bad += batch.bad
            if batch.last:
                self._report(directive.evaluation, batch.shard.lease_id, bad)
                bad = ()
            if not between():
                shards.close()
                close = getattr(batches, "close", None)
                if close is not None:
                    close()
                return

    def _report(self, evaluation: int, lease_id: int, bad: tuple[BadRange, ...]) -> None:
        request = pb.ReportEvaluationRequest(
            node=self._link.node,
            evaluation=evaluation,
            lease_id=lease_id,
            states=[_state_to_wire(state) for state in self._trainer.take_metric_states()],
            bad_records=to_wire(bad, DATASET),
        )
        self._link.call(self._link.stub.ReportEvaluation, request)

    def finish(self, directive: pb.Directive, trainer: Trainer) -> bool:
        """Turns the added-up states into values, if this worker is the one to do it."""
        number = directive.evaluation_to_finish
        claim = pb.FinishEvaluationRequest(node=self._link.node, evaluation=number, claim=True)
        reply = self._link.call(self._link.stub.FinishEvaluation, claim)
        if not reply.yours:
            return False
        states = [_state_from_wire(state) for state in reply.states]
        self._check_samples(states)
        values = trainer.metric_values(states)
        self._link.call(
            self._link.stub.FinishEvaluation,
            pb.FinishEvaluationRequest(node=self._link.node, evaluation=number, metrics=values),
        )
        return True

    def _check_samples(self, states: Sequence[MetricStates]) -> None:
        """Raises `UserError` for metrics over no samples, which would be NaN."""
        counts = [state.arrays[-1] for state in states if state.name == LOSS]
        if counts and not any(np.any(count) for count in counts):
            raise UserError(
                f"No sample of {self._spec.data.validation_data} was evaluated: the feed gives none for any record.",
                hint="Yield a sample for each record in mode EVALUATION, too.",
            )


def _state_to_wire(state: MetricStates) -> pb.MetricState:
    return pb.MetricState(
        metric=state.name,
        states=[
            pb.Tensor(dtype=str(a.dtype), shape=list(a.shape), data=np.ascontiguousarray(a).tobytes())
            for a in state.arrays
        ],
    )


def _state_from_wire(state: pb.MetricState) -> MetricStates:
    return MetricStates(
        name=state.metric,
        arrays=tuple(np.frombuffer(t.data, dtype=t.dtype).reshape(list(t.shape)) for t in state.states),
    )
