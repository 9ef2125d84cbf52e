"""The state of a training as all members have it: a model, its optimizer, and how it goes from one to another.

Tensors travel as they are in memory, with a description in JSON; nothing is pickled.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import torch

from elasticai_api.errors import ElasticError
from elasticai_api.pytorch.group import Group, as_bytes


class Replica(Protocol):
    """The model of a member, as the team uses it."""

    def start(self, restore_from: str) -> None:
        """This is the first member of all: the state is this replica's own, or that of a checkpoint."""

    def parameters(self) -> list[Any]:
        """Returns the parameters that have gradients, in the same order in all members."""

    def buffers(self) -> list[Any]:
        """Returns the values that each member changes by itself while it computes, such as moving averages."""

    def read(self) -> tuple[dict[str, Any], Any]:
        """Everything: tensors by name, and the rest as values that JSON has."""

    def write(self, tensors: dict[str, Any], rest: Any) -> None: ...

    def apply(self) -> None:
        """Makes one step of the optimizer, with the gradients in `parameter.grad`."""


def send_state(group: Group, source: int, replica: Replica, *, take: bool) -> None:
    """Broadcasts the state of one member. All members call it; those with `take` get the state."""
    if group.rank == source:
        tensors, rest = replica.read()
        flat = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
        described = [[name, str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in flat.items()]
        text = torch.tensor(
            list(json.dumps({"tensors": described, "rest": rest}).encode()), dtype=torch.uint8
        )
        group.broadcast([torch.tensor([len(text)], dtype=torch.int64)], source)
        group.broadcast([text], source)
        group.broadcast([as_bytes(t) for t in flat.values() if t.numel()], source)
        return
    length = torch.zeros(1, dtype=torch.int64)
    group.broadcast([length], source)
    text = torch.zeros(int(length[0]), dtype=torch.uint8)
    group.broadcast([text], source)
    document = json.loads(bytes(text.tolist()))
    got = {
        name: torch.empty(shape, dtype=getattr(torch, dtype)) for name, dtype, shape in document["tensors"]
    }
    group.broadcast([as_bytes(t) for t in got.values() if t.numel()], source)
    if take:
        replica.write(got, document["rest"])


class ModuleReplica:
    """An `nn.Module` and a `torch.optim` optimizer, as a user's own program has them.

    What is trained is settled here, because members agree once on what they add up. It may be frozen later, and trained
    again: while it is frozen it has no gradient.
    """

    def __init__(self, model: Any, optimizer: Any) -> None:
        self._model = model
        self._optimizer = optimizer
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}

    def start(self, restore_from: str) -> None:
        return

    def parameters(self) -> list[Any]:
        return self._trained

    def buffers(self) -> list[Any]:
        return [b for b in self._model.buffers() if b.is_floating_point()]

    def apply(self) -> None:
        self._check_frozen()
        self._optimizer.step()

    def _check_frozen(self) -> None:
        """Raises if a frozen parameter is trained: its gradients are not summed, so it would differ between workers."""
        thawed = [name for name, p in self._frozen.items() if p.requires_grad]
        if thawed:
            raise ElasticError(
                f"{', '.join(thawed)}: frozen when the training began (requires_grad), and to be trained by now. What "
                "workers train together is settled before the first batch: let it be trained then, freeze it in the "
                "training function as long as it is to stay as it is, by controller.get_current_epoch() for example, "
                "and let it be trained when its time comes."
            )

    def read(self) -> tuple[dict[str, Any], Any]:
        tensors = {f"model/{name}": tensor for name, tensor in self._model.state_dict().items()}
        document = self._optimizer.state_dict()
        return tensors, {"optimizer": _take_out(document, "optimizer", tensors)}

    def write(self, tensors: dict[str, Any], rest: Any) -> None:
        own = self._model.state_dict()
        given = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
        if own.keys() != given.keys() or any(own[name].shape != t.shape for name, t in given.items()):
            raise ElasticError(
                "Another worker trains another model: its parameters are not those of this one."
            )
        self._model.load_state_dict(given)
        self._optimizer.load_state_dict(_put_back(rest["optimizer"], tensors))


_TENSOR, _TUPLE, _ITEMS = "tensor", "tuple", "items"


def _take_out(value: Any, path: str, tensors: dict[str, Any]) -> Any:
    """The value as JSON can say it, with its tensors put aside."""
    if isinstance(value, torch.Tensor):
        tensors[path] = value
        return {_TENSOR: path}
    if isinstance(value, dict):
        return {_ITEMS: [[k, _take_out(v, f"{path}/{k}", tensors)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {_TUPLE: [_take_out(v, f"{path}/{i}", tensors) for i, v in enumerate(value)]}
    if isinstance(value, list):
        return [_take_out(v, f"{path}/{i}", tensors) for i, v in enumerate(value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ElasticError(
        f"The optimizer's state has a {type(value).__name__} ({path}), which cannot be sent to others."
    )


def _put_back(value: Any, tensors: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_put_back(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensors[value[_TENSOR]]
    if _TUPLE in value:
        return tuple(_put_back(v, tensors) for v in value[_TUPLE])
    return {k: _put_back(v, tensors) for k, v in value[_ITEMS]}
