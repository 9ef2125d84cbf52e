"""Embeddings for PyTorch whose rows are keyed by any int64 id, and made when they are first seen.

    rows = elasticdl.torch.Embedding(16)(ids)                          # (batch, 26) -> (batch, 26, 16)
    rows = elasticdl.torch.EmbeddingBag(16, mode="mean")(ids)          # (batch, 26) -> (batch, 16)

There is no number of rows to choose and no vocabulary to keep: ids may be hashes. In a job the rows are on the
parameter servers, or, with one worker alone, in that worker; the definition's optimizer trains them. Anywhere else, as
in a notebook, a layer has its rows to itself, and an optimizer made of the model's parameters trains them too:

    optimizer = torch.optim.Adagrad(model.parameters())                # then as always: backward(), step()

A layer may be used several times in a model. Several layers use one table if each is given the same `table`.

Rows are made while training only. Otherwise an id that was never trained has the values that its row would start with.
Those of a layer that is frozen (`layer.requires_grad_(False)`) stay as they are.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from elasticdl.data.feeds import batched
from elasticdl.errors import UserError
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.lookups import Declaration, LookupResult, Lookups, as_initializer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec, as_ids
from elasticdl.ps.embedding.unique_ids import sum_by, take_rows

__all__ = ["Embedding", "EmbeddingBag", "batched", "table_layers"]

log = logging.getLogger("elasticdl.torch")

_MODES = ("sum", "mean", "sqrtn")

# The consumer of the gradients of a lookup's rows.
Give = Callable[[Array], None]


class TableLayer(nn.Module):  # type: ignore[misc]
    """The common part of both layers: a table, and the way to its rows."""

    def __init__(
        self,
        embedding_dim: int,
        *,
        name: str = "",
        table: str = "",
        initializer: str | Mapping[str, Any] | Initializer = "uniform",
        seed: int = 0,
        admit_after: int = 1,
        expire_after: int = 0,
    ) -> None:
        """`name`: of the layer and of its table; its place in the model if it is given none. `table`: of a table that
        other layers use too. `initializer`: what rows start as (see `elasticdl.ps.embedding.initializers`).
        `admit_after`: sightings of an id after which it gets a row of its own. `expire_after`: steps after which a
        row that was not seen is forgotten; 0: never.
        """
        super().__init__()
        self.embedding_dim = embedding_dim
        self.declaration = Declaration(
            width=embedding_dim,
            name=name,
            table=table,
            initializer=as_initializer(initializer),
            seed=seed,
            admit_after=admit_after,
            expire_after=expire_after,
        )
        self.declaration.spec("embedding")
        # Without numbers of its own: by it an optimizer is known to be one for this layer.
        self.handle = nn.Parameter(torch.empty(0))
        self._joined: tuple[str, Lookups] | None = None
        self._alone: _Alone | None = None
        self._table = "embedding"

    def join(self, table: str, lookups: Lookups | None) -> None:
        """Rows come from there from now on; with None, from the layer itself."""
        self._table = table
        self._joined = None if lookups is None else (table, lookups)

    def extra_repr(self) -> str:
        given = self.declaration
        named = f", table={given.table!r}" if given.table else f", name={given.name!r}" if given.name else ""
        return f"{given.width}{named}, initializer={given.initializer.kind!r}"

    # -- looking up ------------------------------------------------------------------------------------------

    def _look_up(self, ids: Any) -> tuple[LookupResult, Give | None]:
        """The rows of the different ids; where the layer is trained, also what takes their gradients."""
        trains = self.training and torch.is_grad_enabled() and self.handle.requires_grad
        found, table, lookups = self._find(ids, create=trains)
        alone = self._alone if self._joined is None else None

        def give(gradients: Array) -> None:
            if alone is not None:
                alone.note_backward(self.handle)
            lookups.add(table, RowGradients(ids=found.ids, values=gradients))

        return found, give if trains else None

    def _rows(self, ids: Any) -> tuple[Any, Any]:
        """The rows of the different ids, and for each id, flat, which of them it is."""
        found, give = self._look_up(ids)
        array = found.rows if found.rows.flags.writeable else found.rows.copy()
        rows = torch.from_numpy(array).to(ids.device)
        if give is not None:
            taker = give

            def take(leaf: Any) -> None:
                taker(leaf.grad.detach().cpu().contiguous().numpy())
                leaf.grad = None

            rows.requires_grad_().register_post_accumulate_grad_hook(take)
        return rows, torch.from_numpy(found.inverse).to(ids.device)

    def _find(self, ids: Any, *, create: bool) -> tuple[LookupResult, str, Lookups]:
        if self._joined is not None:
            table, lookups = self._joined
        else:
            alone = self._own()
            table, lookups = alone.table, alone.lookups
            self.handle._elasticdl_layer = weakref.ref(self)
        given = as_ids(ids.detach().cpu().numpy(), what=table)
        return lookups.find(table, given, create=create), table, lookups

    # -- alone -----------------------------------------------------------------------------------------------

    def _own(self) -> _Alone:
        if self._alone is None:
            self._alone = _Alone(self.declaration.spec(self._table))
        return self._alone

    def get_extra_state(self) -> dict[str, Any]:
        """The rows, where the layer has them to itself: they belong to a model's state_dict then."""
        if self._joined is not None or self._alone is None:
            return {}
        ids, values = self._alone.tables.rows(self._alone.table)
        return {"ids": torch.from_numpy(ids), "values": torch.from_numpy(values)}

    def set_extra_state(self, state: Any) -> None:
        if not state:
            return
        self._alone = _Alone(self.declaration.spec(self._table))
        self._alone.tables.put(self._alone.table, state["ids"].numpy(), state["values"].numpy())


class Embedding(TableLayer):
    """A row for each id: an int64 tensor of any shape, or a nested one (of layout torch.jagged)."""

    def forward(self, ids: Any) -> Any:
        if ids.is_nested:
            flat = self._looked_up(_jagged(ids).values())
            return torch.nested.nested_tensor_from_jagged(flat, _jagged(ids).offsets())
        return self._looked_up(ids)

    def _looked_up(self, ids: Any) -> Any:
        found, give = self._look_up(ids)
        if give is None:
            rows = _gathered(found, ids.device)
        else:
            # Autograd knows of rows only what passes through here: something has to ask for their gradients.
            rows = _Gather.apply(torch.empty(0, requires_grad=True), found, ids.device, give)
        return rows.reshape(*ids.shape, self.embedding_dim)


class EmbeddingBag(TableLayer):
    """One row for each bag of ids, combined from their rows: their sum, their mean, or their sum divided by the root of
    their number. With weights, w: the sum of w·row, divided by that of w ("mean"), or by the root of that of w²
    ("sqrtn").

    A bag without ids has zeros.
    """

    def __init__(self, embedding_dim: int, *, mode: str = "mean", **options: Any) -> None:
        """The options are those of `Embedding`."""
        if mode not in _MODES:
            raise UserError(f"EmbeddingBag has no mode {mode!r}.", hint=f"It has: {', '.join(_MODES)}.")
        super().__init__(embedding_dim, **options)
        self.mode = mode

    def forward(self, ids: Any, offsets: Any = None, weights: Any = None) -> Any:
        """Bags are the lines of a matrix; or all ids behind each other, with the place where each bag begins; or a
        nested tensor, or a list, of a bag's ids each. Weights have the form of the ids.
        """
        flat, starts, flat_weights = _bags(ids, offsets, weights)
        rows, inverse = self._rows(flat)
        if flat_weights is not None:
            flat_weights = flat_weights.to(rows.dtype)
        sizes = torch.diff(starts, append=starts.new_tensor([len(flat)]))
        sums = nn.functional.embedding_bag(inverse, rows, starts, mode="sum", per_sample_weights=flat_weights)
        if self.mode == "sum":
            return sums
        if flat_weights is None:
            total = sizes.to(rows.dtype)
        else:
            parts = flat_weights if self.mode == "mean" else flat_weights * flat_weights
            bag_of = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
            total = torch.zeros(len(sizes), dtype=rows.dtype, device=rows.device).index_add(0, bag_of, parts)
        # Without ids, or with weights that are all zero, there is nothing to share out. Seen to before the root is
        # taken: at zero it has no derivative.
        total = torch.where(total == 0, torch.ones_like(total), total)
        return sums / (total if self.mode == "mean" else total.sqrt()).unsqueeze(1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"


def table_layers(model: Any) -> list[tuple[str, TableLayer]]:
    """The layers of a model that have tables, each once, with their places in it."""
    return [
        (place or "embedding", module)
        for place, module in model.named_modules()
        if isinstance(module, TableLayer)
    ]


class _Gather(torch.autograd.Function):  # type: ignore[misc]
    """A row for each id; on the way back each id's sum of gradients, which goes where it is wanted without a detour."""

    @staticmethod
    def forward(context: Any, asking: Any, found: LookupResult, device: Any, give: Give) -> Any:
        context.found, context.give = found, give
        return _gathered(found, device)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Any) -> Any:
        found = context.found
        context.give(sum_by(found.inverse, gradient.float().contiguous().cpu().numpy(), len(found.ids)))
        return None, None, None, None


def _gathered(found: LookupResult, device: Any) -> Any:
    if device.type != "cpu":
        # The different ones alone make the way to the device.
        rows = torch.from_numpy(np.require(found.rows, requirements="W")).to(device)
        return rows.index_select(0, torch.from_numpy(found.inverse).to(device))
    # The default type may have been changed by a definition.
    out = torch.empty(len(found.inverse), found.rows.shape[1], dtype=torch.float32, device="cpu")
    take_rows(found.rows, found.inverse, out=out.numpy())
    return out


# -- bags ----------------------------------------------------------------------------------------------------


def _bags(ids: Any, offsets: Any, weights: Any) -> tuple[Any, Any, Any]:
    """All ids behind each other, where each bag begins, and all weights."""
    if isinstance(ids, (list, tuple)):
        if offsets is not None:
            raise UserError("A list of bags has no offsets: each of its parts is a bag.")
        bags = [torch.as_tensor(bag, dtype=None if len(bag) else torch.int64).reshape(-1) for bag in ids]
        parts = [torch.as_tensor(part).reshape(-1) for part in weights] if weights is not None else None
        _check_sizes([len(bag) for bag in bags], [len(part) for part in parts] if parts is not None else None)
        flat = torch.cat(bags) if bags else torch.empty(0, dtype=torch.int64)
        return flat, _starts([len(bag) for bag in bags]), torch.cat(parts) if parts else None
    if ids.is_nested:
        sizes = [len(bag) for bag in ids.unbind()]
        parts = None if weights is None else list(weights.unbind())
        _check_sizes(sizes, [len(part) for part in parts] if parts is not None else None)
        flat = torch.cat(ids.unbind()) if sizes else ids.values()
        return flat, _starts(sizes).to(flat.device), torch.cat(parts) if parts else None
    if weights is not None and weights.shape != ids.shape:
        raise UserError(f"Weights have shape {list(weights.shape)}, ids {list(ids.shape)}.")
    flat_weights = None if weights is None else weights.reshape(-1)
    if ids.ndim == 2:
        if offsets is not None:
            raise UserError("A matrix of ids has no offsets: each of its lines is a bag.")
        number, length = ids.shape
        return ids.reshape(-1), torch.arange(number, device=ids.device) * length, flat_weights
    if ids.ndim != 1 or offsets is None:
        raise UserError(
            f"EmbeddingBag is given ids of shape {list(ids.shape)}.",
            hint="Give a matrix whose lines are bags, or ids behind each other and offsets, or a list of bags.",
        )
    starts = offsets.to(torch.int64)
    if len(starts) and (int(starts[0]) != 0 or bool((starts.diff() < 0).any()) or int(starts[-1]) > len(ids)):
        raise UserError("Offsets must begin with 0, never fall, and not go beyond the ids.")
    return ids, starts, flat_weights


def _starts(sizes: Sequence[int]) -> Any:
    ends = np.cumsum([0, *sizes])
    return torch.from_numpy(ends[:-1].astype(np.int64))


def _check_sizes(bags: list[int], weights: list[int] | None) -> None:
    if weights is not None and bags != weights:
        raise UserError("Weights do not have the form of the ids: bags are of other sizes.")


def _jagged(ids: Any) -> Any:
    if ids.layout != torch.jagged:
        raise UserError(
            "Embedding is given a nested tensor that is not jagged.",
            hint="Make it with layout=torch.jagged, or use EmbeddingBag.",
        )
    return ids


# -- a layer alone -------------------------------------------------------------------------------------------


class _Alone:
    """The table that a layer outside of any job has to itself."""

    def __init__(self, spec: TableSpec) -> None:
        from elasticdl.ps.storage.local_tables import LocalTables

        self.table = spec.name
        self.tables = LocalTables([spec])
        self.lookups = Lookups(self.tables)
        self._config: Any = None
        # How often the handle's gradient had been changed after the last backward.
        self._changes = 0
        self._warned = False

    def note_backward(self, handle: Any) -> None:
        # `zero_grad` takes the handle's gradient away, and means those of the rows too.
        if handle.grad is None:
            self.lookups.forget()
            handle.grad = torch.zeros_like(handle)
        self._changes = handle.grad._version

    def check_changes(self, handle: Any) -> None:
        """Warns once about changed gradients: a change of all gradients also changes the handle's empty one."""
        if handle.grad._version != self._changes and not self._warned:
            self._warned = True
            log.warning(
                "Gradients are changed between backward and step, as by clip_grad_norm_. Outside of a job those of the "
                "rows of %s are not among them, and stay as they are.",
                self.table,
            )

    def step(self, optimizer: Any, group: Mapping[str, Any]) -> None:
        from elasticdl.ps.embedding.optimizers import make_optimizer
        from elasticdl.worker.torch.optimizer import server_config

        config = server_config(optimizer, None)
        if config != self._config:
            self.tables.use_optimizer(make_optimizer(config))
            self._config = config
        self.tables.apply(self.lookups.take(), learning_rate=float(group["lr"]))


def step_alone(optimizer: Any, arguments: Any, keywords: Any) -> None:
    """Behind a step of any optimizer: one of the rows of layers alone that it is for."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            reference = getattr(parameter, "_elasticdl_layer", None)
            layer = reference() if reference is not None else None
            if layer is not None and layer._joined is None and parameter.grad is not None:
                layer._own().check_changes(parameter)
                layer._own().step(optimizer, group)


register_optimizer_step_post_hook(step_alone)
