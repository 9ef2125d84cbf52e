"""Embeddings for Paddle whose rows are keyed by any int64 id, and made when they are first seen.

    rows = elasticdl.paddle.Embedding(16)(ids)                         # (batch, 26) -> (batch, 26, 16)

There is no number of rows to choose and no vocabulary to keep: ids may be hashes. In a job the rows are on the
parameter servers, or, with one worker alone, in that worker; the definition's optimizer trains them. Anywhere else, as
in a notebook, a layer has its rows to itself, and `step` trains them with the rest of the model:

    optimizer = paddle.optimizer.Adagrad(0.05, parameters=model.parameters())
    loss.backward()
    elasticdl.paddle.step(optimizer)                                   # in the place of optimizer.step()
    optimizer.clear_grad()

A layer may be used several times in a model. Several layers use one table if each is given the same `table`.

Rows are made while training only. Otherwise an id that was never trained has the values that its row would start with.
Those of a layer that is frozen (`layer.handle.stop_gradient = True`) stay as they are.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
from paddle import nn

from elasticdl.data.feeds import batched
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.initializers import Initializer
from elasticdl.ps.embedding.lookups import Declaration, LookupResult, Lookups, as_initializer
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec, as_ids
from elasticdl.ps.embedding.unique_ids import sum_by, take_rows

__all__ = ["Embedding", "batched", "load_state", "state_of", "step", "table_layers"]

# The consumer of the gradients of a lookup's rows.
Give = Callable[[Array], None]


class Embedding(nn.Layer):  # type: ignore[misc]
    """A row for each id: an int64 tensor of any shape."""

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
        """Declares the table of a layer.

        Args:
            embedding_dim: Numbers of a row.
            name: Of the layer and of its table. Without one, the layer's place in the model is its name.
            table: Of a table that other layers use too.
            initializer: What rows start as (see `elasticdl.ps.embedding.initializers`): "uniform", "zeros", or
                {"kind": "normal", "stddev": 0.01}.
            seed: Of the first values of rows.
            admit_after: Sightings of an id after which it gets a row of its own.
            expire_after: Steps after which a row that was not seen is forgotten; 0: never.

        Raises:
            elasticdl.UserError: The initializer is unknown, or a number is out of range.

        Example:
            >>> users = elasticdl.paddle.Embedding(16, name="users")
            >>> users(paddle.to_tensor([[7, 1 << 40]])).shape
            [1, 2, 16]
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
        # Its number is not used. It shows whether an optimizer is for this layer.
        self.handle = self.create_parameter([1], default_initializer=nn.initializer.Constant(0.0))
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

    def forward(self, ids: Any) -> Any:
        trains = self.training and paddle.is_grad_enabled() and not self.handle.stop_gradient
        found, table, lookups = self._find(ids, create=trains)
        shape = [*ids.shape, self.embedding_dim]
        if not trains:
            return paddle.to_tensor(_gathered(found)).reshape(shape)

        def give(gradients: Array) -> None:
            lookups.add(table, RowGradients(ids=found.ids, values=gradients))

        # Autograd knows of rows only what passes through here: by the handle something asks for their gradients.
        return _Gather.apply(self.handle, found, give).reshape(shape)

    def _find(self, ids: Any, *, create: bool) -> tuple[LookupResult, str, Lookups]:
        if self._joined is not None:
            table, lookups = self._joined
        else:
            alone = self.own()
            table, lookups = alone.table, alone.lookups
            self.handle._elasticdl_layer = weakref.ref(self)
        given = as_ids(ids.numpy(), what=table)
        return lookups.find(table, given, create=create), table, lookups

    def own(self) -> _Alone:
        """Returns the table of a layer that is in no job."""
        if self._alone is None:
            self._alone = _Alone(self.declaration.spec(self._table))
        return self._alone

    def forget_own(self) -> None:
        """The rows are in a job's tables again."""
        self._alone = None


class _Gather(paddle.autograd.PyLayer):  # type: ignore[misc]
    """A row for each id; on the way back each id's sum of gradients, which goes where it is wanted."""

    @staticmethod
    def forward(context: Any, asking: Any, found: LookupResult, give: Give) -> Any:
        context.found, context.give = found, give
        return paddle.to_tensor(_gathered(found))

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        found = context.found
        values = np.ascontiguousarray(gradient.numpy(), np.float32)
        context.give(sum_by(found.inverse, values, len(found.ids)))


def _gathered(found: LookupResult) -> Array:
    out = np.empty((len(found.inverse), found.rows.shape[1]), np.float32)
    take_rows(found.rows, found.inverse, out=out)
    return out


def table_layers(model: Any) -> list[tuple[str, Embedding]]:
    """Returns the layers of a model that have tables, each once, with their places in it."""
    return [
        (place or "embedding", layer)
        for place, layer in model.named_sublayers(include_self=True)
        if isinstance(layer, Embedding)
    ]


# -- outside of a job ----------------------------------------------------------------------------------------


class _Alone:
    """The table that a layer outside of any job has to itself."""

    def __init__(self, spec: TableSpec) -> None:
        from elasticdl.ps.storage.local_tables import LocalTables

        self.table = spec.name
        self.tables = LocalTables([spec])
        self.lookups = Lookups(self.tables)
        self._config: Any = None

    def step(self, optimizer: Any) -> None:
        from elasticdl.ps.embedding.optimizers import make_optimizer
        from elasticdl.worker.paddle.optimizer import server_config

        config = server_config(optimizer)
        if config != self._config:
            self.tables.use_optimizer(make_optimizer(config))
            self._config = config
        self.tables.apply(self.lookups.take(), learning_rate=float(optimizer.get_lr()))


def step(optimizer: Any) -> None:
    """Makes a step of an optimizer, and of the rows of the layers that it is for. For loops outside of a job.

    Args:
        optimizer: One of `paddle.optimizer`, made of the parameters of a model.

    Raises:
        elasticdl.UserError: The optimizer is one that rows cannot be trained with.

    Example:
        >>> loss.backward()
        >>> elasticdl.paddle.step(optimizer)
        >>> optimizer.clear_grad()
    """
    optimizer.step()
    for parameter in optimizer._parameter_list:
        for each in parameter["params"] if isinstance(parameter, dict) else (parameter,):
            reference = getattr(each, "_elasticdl_layer", None)
            layer = reference() if reference is not None else None
            if layer is not None and layer._joined is None:
                layer.own().step(optimizer)


def state_of(model: Any) -> dict[str, Any]:
    """Returns the values of a model, the rows of its tables among them, for `paddle.save`.

    Args:
        model: Any layer. Embeddings of this module in it must have their rows to themselves, as outside of a job.

    Returns:
        The `state_dict` of the model, in which an embedding has `NAME.ids` and `NAME.values`.

    Example:
        >>> paddle.save(elasticdl.paddle.state_of(model), "model.pdparams")
    """
    layers = table_layers(model)
    handles = {f"{place}.handle" for place, _ in layers} | {"handle"}
    state = {name: value for name, value in model.state_dict().items() if name not in handles}
    for place, layer in layers:
        ids, values = layer.own().tables.rows(layer.own().table)
        state[f"{place}.ids"], state[f"{place}.values"] = paddle.to_tensor(ids), paddle.to_tensor(values)
    return state


def load_state(model: Any, state: Mapping[str, Any]) -> None:
    """Gives a model the values that `state_of` or an export has written.

    Args:
        model: A model like the one that was saved.
        state: What `paddle.load` has read.

    Raises:
        KeyError: The rows of an embedding are not among the values.

    Example:
        >>> elasticdl.paddle.load_state(model, paddle.load("out/model.pdparams"))
    """
    left = dict(state)
    for place, layer in table_layers(model):
        ids, values = left.pop(f"{place}.ids"), left.pop(f"{place}.values")
        layer._alone = None
        layer.own().tables.put(layer.own().table, np.asarray(ids, np.int64), np.asarray(values, np.float32))
        left[f"{place}.handle"] = layer.handle
    model.set_state_dict(left)
