"""The program of Paddle 2.6 that a configuration describes: layers, cost, optimizer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle

from elasticdl.errors import UserError
from elasticdl.paddle_compat.config.feed import MASK, WEIGHTS
from elasticdl.paddle_compat.config.graph import Configuration, LayerOutput, Settings, Value
from elasticdl.paddle_compat.config.layers import ProgramBuilder
from elasticdl.paddle_compat.config.provider import InputType, SlotKind

log = logging.getLogger("elasticdl.paddle")

# Paddle's parameter servers have rules for these alone.
_SERVER_RULES = ("sgd", "adam")


@dataclass(frozen=True, kw_only=True)
class Program:
    """`cost` is the mean over the samples of a batch; `error` is the rate of wrong classes, if there are classes.

    `values` are those of the layers, by name.
    """

    values: Mapping[str, Value]
    parameters: Mapping[str, Any]
    cost: Any
    total: Any
    error: Any | None

    @property
    def fetched(self) -> list[Any]:
        return [self.cost] if self.error is None else [self.cost, self.error]


def build_program(configuration: Configuration, slots: Mapping[str, InputType]) -> Program:
    """Adds the operators of a configuration to the default main program."""
    builder = ProgramBuilder(is_test=False)
    values: dict[int, Value] = {}
    for layer in configuration.reachable():
        if layer.kind == "data":
            values[id(layer)] = _input(layer, slots)
        else:
            values[id(layer)] = _built(builder, layer, [values[id(each)] for each in layer.parents])
    for layer in configuration.inputs:
        # Of `inputs(…)` alone; what the provider yields for them is fed, too.
        if id(layer) not in values:
            values[id(layer)] = _input(layer, slots)
    costs = [each for each in configuration.outputs if each.is_cost]
    if not costs:
        raise UserError("None of the outputs is a cost, such as classification_cost or regression_cost.")
    # The original sums over a batch: rates and clipping thresholds of configurations count on it.
    total = paddle.add_n([paddle.sum(values[id(each)].tensor) for each in costs])
    count = paddle.shape(values[id(costs[0])].tensor)[0]
    return Program(
        values={layer.name: values[id(layer)] for layer in configuration.reachable()},
        parameters=builder.parameters,
        cost=total / paddle.cast(count, "float32"),
        total=total,
        error=_error_rate(costs[0], values),
    )


def _built(builder: ProgramBuilder, layer: LayerOutput, inputs: Sequence[Value]) -> Value:
    assert layer.build is not None
    try:
        return layer.build(builder, layer, inputs)
    except UserError:
        raise
    except Exception as error:
        # Paddle's own messages begin with its call stack.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        summary = (line for line in lines if line.startswith("(") or "Error:" in line)
        reason = next(summary, lines[-1] if lines else type(error).__name__)
        raise UserError(f"The layer {layer.name} ({layer.kind}) does not fit its inputs: {reason}") from error


def _input(layer: LayerOutput, slots: Mapping[str, InputType]) -> Value:
    kind = slots[layer.name]
    name = layer.name
    # A layer of ids may have room for more than there are.
    if kind.dim > layer.size or (kind.dim != layer.size and kind.kind is not SlotKind.IDS):
        raise UserError(
            f"The data layer {name} has the size {layer.size}, and its slot of the data provider {kind.dim}."
        )
    if kind.kind is SlotKind.DENSE:
        shape = [None, None, kind.dim] if kind.is_sequence else [None, kind.dim]
        tensor = paddle.static.data(name, shape, "float32")
        mask = paddle.static.data(name + MASK, [None, None], "float32") if kind.is_sequence else None
        return Value(tensor=tensor, size=kind.dim, mask=mask)
    if kind.kind is SlotKind.IDS:
        tensor = paddle.static.data(name, [None, None] if kind.is_sequence else [None], "int64")
        mask = paddle.static.data(name + MASK, [None, None], "float32") if kind.is_sequence else None
        return Value(tensor=tensor, size=kind.dim, mask=mask, is_ids=True)
    if kind.is_sequence:
        raise UserError(f"The slot {name}: sequences of sparse vectors are not supported.")
    return Value(
        tensor=paddle.static.data(name, [None, None], "int64"),
        weights=paddle.static.data(name + WEIGHTS, [None, None], "float32"),
        size=kind.dim,
    )


def _error_rate(cost: LayerOutput, values: Mapping[int, Value]) -> Any | None:
    if len(cost.parents) < 2:
        return None
    found, label = (values[id(each)] for each in cost.parents[:2])
    if not label.is_ids or label.mask is not None:
        return None
    wrong = paddle.not_equal(paddle.argmax(found.tensor, axis=-1), label.tensor)
    return paddle.mean(paddle.cast(wrong, "float32"))


def add_penalty(total: Any, parameters: Mapping[str, Any], settings: Settings) -> Any:
    """Returns the cost with the regularization of each trainable parameter: its own, or that of the settings.

    For parameter servers: from their trainers' programs Paddle removes what an optimizer adds to gradients.
    """
    terms = [total]
    for parameter in parameters.values():
        decay = parameter.regularizer or _decay(settings)
        if decay is None or not parameter.trainable:
            continue
        if isinstance(decay, paddle.regularizer.L1Decay):
            terms.append(decay._coeff * paddle.sum(paddle.abs(parameter)))
        else:
            terms.append(0.5 * decay._coeff * paddle.sum(paddle.square(parameter)))
    return paddle.add_n(terms)


def _decay(settings: Settings) -> Any | None:
    if settings.regularization is None:
        return None
    rate = settings.regularization.rate
    l1 = type(settings.regularization).__name__.startswith("L1")
    return paddle.regularizer.L1Decay(rate) if l1 else paddle.regularizer.L2Decay(rate)


def make_optimizer(settings: Settings, *, on_servers: bool) -> Any:
    """Makes the optimizer. On servers, a rule that they lack is replaced with Adam."""
    method = settings.learning_method
    name = method.name if method else "momentum"
    options = dict(method.options) if method else {}
    if name == "momentum" and not options.get("momentum"):
        name = "sgd"
    if on_servers and name not in _SERVER_RULES:
        log.warning(
            "Replacing the rule %s with adam: Paddle's parameter servers have sgd and adam alone", name
        )
        name, options = "adam", {}
    common: dict[str, Any] = {"learning_rate": settings.learning_rate}
    if settings.regularization is not None and not on_servers:
        common["weight_decay"] = _decay(settings)
    if settings.gradient_clipping_threshold:
        common["grad_clip"] = paddle.nn.ClipGradByValue(settings.gradient_clipping_threshold)
    rules = {
        "sgd": paddle.optimizer.SGD,
        "momentum": paddle.optimizer.Momentum,
        "adam": paddle.optimizer.Adam,
        "adamax": paddle.optimizer.Adamax,
        "adagrad": paddle.optimizer.Adagrad,
        "rmsprop": paddle.optimizer.RMSProp,
        "adadelta": paddle.optimizer.Adadelta,
    }
    if name == "sgd":
        options = {}
    return rules[name](**common, **options)
