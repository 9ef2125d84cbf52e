"""An evaluation of a snapshot: workers report states of metrics by shard, from which values are computed at the end.

Workers do not send predictions, nor values (a mean of AUCs is no AUC), but the states of their metrics over
one shard. States of disjoint samples add up element by element, so their sum is the state over the whole
data set, however it was divided and however often a worker died. The master adds; it has no framework,
so one worker turns the sum into values.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elasticdl.master.commands.evaluations import JournaledStates
from elasticdl.wire import master_pb2

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(kw_only=True)
class Evaluation:
    """An evaluation that is under way. Its number is that of the barrier of its snapshot."""

    number: int
    step: int
    # The epoch that ended with it, or -1.
    epoch: int
    states: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    # The worker that was given the sum to turn into values.
    finisher: str = ""

    @property
    def dataset(self) -> str:
        return f"evaluation-{self.number}"

    def add(self, states: JournaledStates) -> None:
        # Not before it is needed: a master is waited for when it starts.
        import numpy as np

        for name, arrays in states:
            decoded = [
                np.frombuffer(zlib.decompress(base64.b64decode(data)), dtype=dtype).reshape(shape)
                for dtype, shape, data in arrays
            ]
            sums = self.states.get(name)
            self.states[name] = (
                decoded if sums is None else [a + b for a, b in zip(sums, decoded, strict=True)]
            )

    def snapshot(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "step": self.step,
            "epoch": self.epoch,
            "finisher": self.finisher,
            "states": [
                (
                    name,
                    [(str(a.dtype), list(a.shape), _packed(a.tobytes())) for a in arrays],
                )
                for name, arrays in self.states.items()
            ],
        }

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> Evaluation:
        evaluation = cls(
            number=snapshot["number"],
            step=snapshot["step"],
            epoch=snapshot["epoch"],
            finisher=snapshot["finisher"],
        )
        evaluation.add(snapshot["states"])
        return evaluation


def _packed(data: bytes) -> str:
    # The states of an AUC are thousands of counts, most of them zero.
    return base64.b64encode(zlib.compress(data, 1)).decode()


def journaled(states: Iterable[master_pb2.MetricState]) -> JournaledStates:
    return [(s.metric, [(t.dtype, list(t.shape), _packed(t.data)) for t in s.states]) for s in states]


def to_wire(states: dict[str, list[NDArray[Any]]]) -> list[master_pb2.MetricState]:
    return [
        master_pb2.MetricState(
            metric=name,
            states=[
                master_pb2.Tensor(dtype=str(a.dtype), shape=list(a.shape), data=a.tobytes()) for a in arrays
            ],
        )
        for name, arrays in states.items()
    ]
