"""Hooks of a PyTorch optimizer before its step, such as clipping gradients, where parameter servers make the step.

    def clip(*_):
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    optimizer.register_step_pre_hook(clip)

On parameter servers `optimizer.step` is never called: the hooks run here, and what they leave of the gradients is
pushed. Rows of tables are no parameters, but the handle of each layer that has a table is one: while hooks run, it has
the gradients of the batch's rows, so that a norm over the parameters of the model is that of all of them. Of its
values nothing is here, and a hook that computes with them gets NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from elasticdl.errors import UserError
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.torch import step_alone
from elasticdl.worker.torch.parameters import watch

# With the names of their tables.
Layers = Sequence[tuple[str, Any]]

_LOCAL = "train with --distribution_strategy=Local"


def pre_hooks(optimizer: Any) -> list[Any]:
    """Returns the hooks of all optimizers, and its own, in PyTorch's order."""
    return list(
        chain(
            torch_optimizer._global_optimizer_pre_hooks.values(),
            optimizer._optimizer_step_pre_hooks.values(),
        )
    )


def check_steps(optimizer: Any) -> None:
    """Raises `UserError` if something is to happen with a step that cannot where servers make it."""
    name = type(optimizer).__name__
    after = chain(
        optimizer._optimizer_step_post_hooks.values(), torch_optimizer._global_optimizer_post_hooks.values()
    )
    if any(hook is not step_alone for hook in after):
        raise UserError(
            f"The optimizer {name} has a hook behind its step (register_step_post_hook), and parameter servers make "
            "the step.",
            hint=f"Do it before the step (register_step_pre_hook), or in a callback; or {_LOCAL}.",
        )
    own = vars(optimizer).get("step")
    # Schedules put something around it that remembers that it was called.
    while own is not None and (hasattr(own, "_wrapped_by_lr_sched") or hasattr(own, "_with_counter")):
        own = own.__wrapped__
    if own is not None and own is not type(optimizer).step:
        raise UserError(
            f"The step of the optimizer {name} is replaced by another function, and parameter servers make the step.",
            hint="Change gradients with register_step_pre_hook, or write the optimizer in NumPy, as an "
            f"elasticdl.Optimizer; or {_LOCAL}.",
        )


def run_pre_hooks(
    optimizer: Any, layers: Layers, rows: Mapping[str, RowGradients], *, closely: bool
) -> dict[str, RowGradients]:
    """Runs the hooks on the gradients of parameters and of rows; returns what is left of the latter. `closely`: see
    `watch`.
    """
    hooks = pre_hooks(optimizer)
    if not hooks:
        return dict(rows)
    shown = _Shown(layers, rows)
    with shown:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        changes = watch({str(place): one for place, one in enumerate(parameters)}, closely=closely)
        for hook in hooks:
            if hook(optimizer, (optimizer,), {}) is not None:
                raise UserError(
                    f"A hook of the optimizer {type(optimizer).__name__} gives its step other arguments, and parameter "
                    "servers make the step.",
                    hint=f"Let it return nothing, or {_LOCAL}.",
                )
        if changes():
            raise UserError(
                f"A hook of the optimizer {type(optimizer).__name__} changes parameters, which parameter servers have.",
                hint=f"Change gradients instead, or {_LOCAL}.",
            )
    return shown.gradients


def step_with_rows(
    optimizer: Any, layers: Layers, rows: Mapping[str, RowGradients]
) -> dict[str, RowGradients]:
    """A step of the optimizer, whose hooks see the gradients of rows too. Returns what they leave of these."""
    if not rows or not pre_hooks(optimizer):
        optimizer.step()
        return dict(rows)
    shown = _Shown(layers, rows)
    # Behind all others: the step itself knows nothing of rows.
    last = optimizer.register_step_pre_hook(lambda *_: shown.hide())
    try:
        with shown:
            optimizer.step()
    finally:
        last.remove()
    return shown.gradients


class _Shown:
    """The gradients of rows by table, in their handles while hooks run."""

    def __init__(self, layers: Layers, gradients: Mapping[str, RowGradients]) -> None:
        """Maps gradients to layers. Of layers that share a table the first has the gradients."""
        first = dict(reversed(layers))
        self._handles = {table: first[table].handle for table in gradients}
        self._gradients = dict(gradients)
        self._empty: dict[str, Any] = {}

    def __enter__(self) -> None:
        for table, handle in self._handles.items():
            self._empty[table] = handle.data
            values = torch.from_numpy(self._gradients[table].values).to(handle.device)
            handle.data = torch.full((), float("nan"), device=handle.device).expand(values.shape)
            handle.grad = values

    def __exit__(self, *_: object) -> None:
        self.hide()

    def hide(self) -> None:
        """Takes back what hooks have left."""
        empty, self._empty = self._empty, {}
        for table, data in empty.items():
            handle = self._handles[table]
            left, handle.grad = handle.grad, None
            handle.data = data
            if left is None:
                del self._gradients[table]
            else:
                values = left.detach().cpu().contiguous().numpy()
                self._gradients[table] = RowGradients(ids=self._gradients[table].ids, values=values)

    @property
    def gradients(self) -> dict[str, RowGradients]:
        return self._gradients
