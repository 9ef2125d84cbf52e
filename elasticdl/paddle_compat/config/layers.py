"""The layers of `paddle.trainer_config_helpers`, built of operators of Paddle 2.6.

Parameters are named as in the original: `_` + layer + `.w0`, `.w1` … and `.wbias`. A layer without a name is called
`__FUNCTION_NUMBER__`, so the table of the first embedding is `___embedding_0__.w0`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.base.layer_helper import LayerHelper

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.paddle_compat.config.attributes import (
    BaseActivation,
    BasePoolingType,
    ExtraLayerAttribute,
    LinearActivation,
    MaxPooling,
    ParameterAttribute,
    SigmoidActivation,
    SoftmaxActivation,
    TanhActivation,
)
from elasticdl.paddle_compat.config.graph import LayerOutput, Value, current, replace_value

Layers = LayerOutput | Sequence[LayerOutput]
# Subtracted where a step is padding, so that it never is the largest.
_FAR = 1e9
# The number of gates of a recurrent cell.
_GATES = {"LSTM": 4, "GRU": 3}
_CELL_ACTIVATIONS = {"act": TanhActivation, "gate_act": SigmoidActivation, "state_act": TanhActivation}
# Attributes of the parts of `simple_lstm` and `simple_gru`, which are one operator here.
_LSTM_ATTRIBUTES = ("mat_param_attr", "bias_param_attr", "inner_param_attr", "mixed_layer_attr")
_GRU_ATTRIBUTES = (
    "mixed_param_attr",
    "mixed_bias_param_attr",
    "mixed_layer_attr",
    "gru_bias_attr",
    "gru_param_attr",
)


class ProgramBuilder:
    """Makes the parameters of a program."""

    def __init__(self, *, is_test: bool) -> None:
        self.is_test = is_test
        # By name; a parameter that two layers name is shared.
        self.parameters: dict[str, Any] = {}

    def weight(self, name: str, shape: list[int], attribute: ParameterAttribute | None) -> Any:
        attribute = attribute or ParameterAttribute()
        spread = 1.0 / math.sqrt(shape[0])
        if attribute.initial_max is not None and attribute.initial_min is not None:
            initializer = paddle.nn.initializer.Uniform(attribute.initial_min, attribute.initial_max)
        else:
            std = attribute.initial_std if attribute.initial_std is not None else spread
            initializer = paddle.nn.initializer.Normal(attribute.initial_mean or 0.0, std)
        return self._parameter(attribute.name or name, shape, initializer, attribute)

    def bias(self, name: str, size: int, attribute: ParameterAttribute | bool | None) -> Any:
        """Makes the bias of a layer. Returns None if it has none."""
        if attribute is False:
            return None
        given = attribute if isinstance(attribute, ParameterAttribute) else ParameterAttribute()
        initial = paddle.nn.initializer.Constant(0.0)
        if given.initial_std:
            initial = paddle.nn.initializer.Normal(given.initial_mean or 0.0, given.initial_std)
        return self._parameter(given.name or name, [size], initial, given)

    def _parameter(self, name: str, shape: list[int], initializer: Any, attribute: ParameterAttribute) -> Any:
        if name in self.parameters:
            known = self.parameters[name]
            if list(known.shape) != shape:
                raise UserError(
                    f"The parameter {name} is shared by layers of shapes {list(known.shape)} and {shape}."
                )
            return known
        decay = None
        if attribute.l2_rate is not None:
            decay = paddle.regularizer.L2Decay(attribute.l2_rate)
        elif attribute.l1_rate is not None:
            decay = paddle.regularizer.L1Decay(attribute.l1_rate)
        parameter = paddle.static.create_parameter(
            shape,
            "float32",
            attr=paddle.ParamAttr(
                name=name,
                initializer=initializer,
                regularizer=decay,
                learning_rate=1.0 if attribute.learning_rate is None else attribute.learning_rate,
                trainable=not attribute.is_static,
            ),
        )
        self.parameters[name] = parameter
        return parameter


# -- describing ----------------------------------------------------------------------------------------------


class Layer(LayerOutput):
    """A layer that configurations may add to another with `+`."""

    def __add__(self, other: LayerOutput) -> LayerOutput:
        return addto_layer(input=[self, other])


def _check_options(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    inert: Collection[str] = (),
) -> None:
    """Raises `UserError` for an option that does not exist, and for a value that changes what the original computes.

    `defaults` has options of the original that are supported with that value, None or False alone; those of `inert`
    change no result. Attributes without a dropout rate are accepted: all else that they say is inert.
    """
    for name, value in given.items():
        known: dict[str, Any] = {**(defaults or {}), "layer_attr": None}
        if name not in known and name not in inert:
            names = [*inspect.signature(function).parameters, *known, *inert]
            names = [each for each in names if each != "more"]
            raise UserError(f"{function.__name__} has no option {name}.{did_you_mean(name, names)}")
        if name in inert or value is None or value is False:
            continue
        if isinstance(value, ExtraLayerAttribute) and not value.drop_rate:
            continue
        default = known[name]
        if isinstance(default, type):
            if not isinstance(value, default):
                raise UserError(
                    f"{function.__name__} has no {name}={type(value).__name__}(): it is {default.__name__}."
                )
        elif default is None or isinstance(value, bool) or value != default:
            text = f"{type(value).__name__}(…)" if hasattr(value, "__dict__") else repr(value)
            raise UserError(f"{function.__name__}: {name}={text} is not supported: omit it.")


def _several(layers: Layers) -> list[LayerOutput]:
    return [layers] if isinstance(layers, (LayerOutput, MixedLayer)) else list(layers)


def _finished(layer: LayerOutput) -> LayerOutput:
    """Returns the output of a finished `with mixed_layer(…) as m`, or the layer itself."""
    if not isinstance(layer, MixedLayer):
        return layer
    if layer.layer is None:
        raise UserError(
            "A mixed_layer without an input is used before it has one.",
            hint="Write `with mixed_layer(…) as m:` and `m += PROJECTION` in it, or give it an input.",
        )
    return layer.layer


def _attributes(given: Any, count: int) -> list[ParameterAttribute | None]:
    if given is None:
        return [None] * count
    found = list(given) if isinstance(given, (list, tuple)) else [given] * count
    if len(found) != count:
        raise UserError(f"{len(found)} parameter attributes are given for {count} inputs.")
    return found


def _described(
    prefix: str,
    kind: str,
    name: str | None,
    size: int,
    parents: Sequence[LayerOutput],
    build: Callable[[ProgramBuilder, LayerOutput, Sequence[Value]], Value],
    *,
    is_cost: bool = False,
) -> LayerOutput:
    configuration = current()
    return configuration.add(
        Layer(
            name=name or configuration.next_name(prefix),
            kind=kind,
            size=size,
            parents=tuple(map(_finished, parents)),
            build=build,
            is_cost=is_cost,
        )
    )


def _dropped(builder: ProgramBuilder, tensor: Any, attribute: ExtraLayerAttribute | None) -> Any:
    rate = attribute.drop_rate if attribute else None
    return F.dropout(tensor, rate, training=not builder.is_test) if rate else tensor


def _activated(tensor: Any, activation: BaseActivation | None) -> Any:
    return activation.apply(tensor) if activation else tensor


def _dense(value: Value, layer: LayerOutput) -> Any:
    if value.is_ids or value.weights is not None:
        raise UserError(
            f"The layer {layer.name} ({layer.kind}) takes no ids; put an embedding_layer before it."
        )
    return value.tensor


def _check_sizes(layer: LayerOutput, values: Sequence[Value], *sizes: int) -> None:
    """Raises `UserError` unless all values are of one of the sizes: Paddle's operators would repeat smaller ones."""
    for value in values:
        if value.size not in sizes:
            wanted = " or ".join(map(str, sizes))
            raise UserError(
                f"The layer {layer.name} ({layer.kind}) takes inputs of size {wanted}, and one has {value.size}."
            )


def _mask_of(values: Sequence[Value], layer: LayerOutput) -> Any:
    """None for vectors. Raises `UserError` for both: Paddle's operators would take steps for samples."""
    masks = [each.mask for each in values if each.mask is not None]
    if masks and len(masks) != len(values):
        raise UserError(
            f"The layer {layer.name} ({layer.kind}) has inputs that are sequences and others that are not.",
            hint="Make them sequences with expand_layer, or vectors with pooling_layer, first_seq or last_seq.",
        )
    return masks[0] if masks else None


def _multiplied(value: Value, weight: Any) -> Any:
    """Input times weights, for vectors, sequences, ids (one-hot) and sparse vectors."""
    if value.weights is not None:
        rows = F.embedding(value.tensor, weight)
        return paddle.sum(rows * paddle.unsqueeze(value.weights, -1), axis=-2)
    if value.is_ids:
        return F.embedding(value.tensor, weight)
    return paddle.matmul(value.tensor, weight)


# -- layers --------------------------------------------------------------------------------------------------


def data_layer(
    name: str, size: int, height: int | None = None, width: int | None = None, **more: Any
) -> LayerOutput:
    """A slot of the data provider."""
    _check_options(data_layer, more, inert=("depth",))
    return current().add(Layer(name=name, kind="data", size=size))


def fc_layer(
    input: Layers,  # noqa: A002 - as configurations write it
    size: int,
    act: BaseActivation | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    inputs = _several(input)
    attributes = _attributes(param_attr, len(inputs))

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        mask = _mask_of(values, layer)
        total = None
        for index, (value, attribute) in enumerate(zip(values, attributes, strict=True)):
            weight = builder.weight(f"_{layer.name}.w{index}", [value.size, size], attribute)
            part = _multiplied(value, weight)
            total = part if total is None else total + part
        bias = builder.bias(f"_{layer.name}.wbias", size, bias_attr)
        total = total if bias is None else total + bias
        done = _dropped(builder, _activated(total, act or TanhActivation()), layer_attr)
        return Value(tensor=done, size=size, mask=mask)

    return _described("fc_layer", "fc", name, size, inputs, build)


def embedding_layer(
    input: LayerOutput,  # noqa: A002
    size: int,
    name: str | None = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        (value,) = values
        if not value.is_ids:
            raise UserError(f"The embedding {layer.name} needs ids, and {input.name} has none.")
        weight = builder.weight(f"_{layer.name}.w0", [value.size, size], param_attr)
        rows = F.embedding(value.tensor, weight)
        if value.mask is not None:
            rows = rows * paddle.unsqueeze(value.mask, -1)
        return Value(tensor=_dropped(builder, rows, layer_attr), size=size, mask=value.mask)

    return _described("embedding", "embedding", name, size, [input], build)


def concat_layer(
    input: Sequence[LayerOutput],  # noqa: A002
    act: BaseActivation | None = None,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
    bias_attr: Any = None,
) -> LayerOutput:
    _check_options(concat_layer, {"bias_attr": bias_attr}, defaults={"bias_attr": None})
    size = sum(each.size for each in input)

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        mask = _mask_of(values, layer)
        joined = paddle.concat([_dense(each, layer) for each in values], axis=-1)
        return Value(tensor=_dropped(builder, _activated(joined, act), layer_attr), size=size, mask=mask)

    return _described("concat", "concat", name, size, list(input), build)


def addto_layer(
    input: Layers,  # noqa: A002
    act: BaseActivation | None = None,
    name: str | None = None,
    bias_attr: Any = False,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    inputs = _several(input)

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        mask = _mask_of(values, layer)
        _check_sizes(layer, values, values[0].size)
        total = _dense(values[0], layer)
        for value in values[1:]:
            total = total + _dense(value, layer)
        bias = builder.bias(f"_{layer.name}.wbias", inputs[0].size, bias_attr or False)
        total = total if bias is None else total + bias
        done = _dropped(builder, _activated(total, act), layer_attr)
        return Value(tensor=done, size=inputs[0].size, mask=mask)

    return _described("addto", "addto", name, inputs[0].size, inputs, build)


def dropout_layer(input: LayerOutput, dropout_rate: float, name: str | None = None) -> LayerOutput:  # noqa: A002
    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        done = F.dropout(_dense(values[0], layer), dropout_rate, training=not builder.is_test)
        return replace_value(values[0], tensor=done)

    return _described("dropout", "dropout", name, input.size, [input], build)


def pooling_layer(
    input: LayerOutput,  # noqa: A002
    pooling_type: BasePoolingType | None = None,
    name: str | None = None,
    bias_attr: Any = None,
    layer_attr: ExtraLayerAttribute | None = None,
    **more: Any,
) -> LayerOutput:
    """A sequence becomes one vector."""
    unsupported: dict[str, Any] = {"bias_attr": None, "stride": -1}
    _check_options(pooling_layer, {"bias_attr": bias_attr, **more}, defaults=unsupported)
    kind = (pooling_type or MaxPooling()).kind

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        tensor = _sequence(values[0], layer)
        mask = paddle.unsqueeze(values[0].mask, -1)
        if kind == "max":
            pooled = paddle.max(tensor - (1.0 - mask) * _FAR, axis=1)
        else:
            pooled = paddle.sum(tensor * mask, axis=1)
            count = paddle.sum(mask, axis=1)
            if kind == "average":
                pooled = pooled / count
            elif kind == "squarerootn":
                pooled = pooled / paddle.sqrt(count)
        return Value(tensor=_dropped(builder, pooled, layer_attr), size=input.size)

    return _described("seq_pooling", "pooling", name, input.size, [input], build)


def _sequence(value: Value, layer: LayerOutput) -> Any:
    if value.mask is None:
        raise UserError(f"The layer {layer.name} ({layer.kind}) needs a sequence.")
    return _dense(value, layer)


def first_seq(input: LayerOutput, name: str | None = None, **more: Any) -> LayerOutput:  # noqa: A002
    _check_options(first_seq, more, defaults={"stride": -1})

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        return Value(tensor=_sequence(values[0], layer)[:, 0], size=input.size)

    return _described("first_seq", "first_seq", name, input.size, [input], build)


def last_seq(input: LayerOutput, name: str | None = None, **more: Any) -> LayerOutput:  # noqa: A002
    _check_options(last_seq, more, defaults={"stride": -1})

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        tensor, mask = _sequence(values[0], layer), values[0].mask
        # 1 at the last step: where the mask ends.
        following = paddle.concat([mask[:, 1:], paddle.zeros_like(mask[:, :1])], axis=1)
        return Value(
            tensor=paddle.sum(tensor * paddle.unsqueeze(mask - following, -1), axis=1), size=input.size
        )

    return _described("last_seq", "last_seq", name, input.size, [input], build)


def expand_layer(
    input: LayerOutput,  # noqa: A002
    expand_as: LayerOutput,
    name: str | None = None,
    **more: Any,
) -> LayerOutput:
    """A vector becomes the sequence that repeats it."""
    _check_options(expand_layer, more, defaults={"bias_attr": None})

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        if values[1].mask is None:
            raise UserError(f"The layer {layer.name} expands as {expand_as.name}, which is no sequence.")
        vector = paddle.unsqueeze(_dense(values[0], layer), 1)
        return Value(
            tensor=vector * paddle.unsqueeze(values[1].mask, -1), size=input.size, mask=values[1].mask
        )

    return _described("expand_layer", "expand", name, input.size, [input, expand_as], build)


def cos_sim(
    a: LayerOutput,
    b: LayerOutput,
    scale: float = 1,
    size: int = 1,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    _check_options(cos_sim, {"size": size, "layer_attr": layer_attr}, defaults={"size": 1})

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        mask = _mask_of(values, layer)
        _check_sizes(layer, values, values[0].size)
        left, right = (_dense(each, layer) for each in values)
        found = F.cosine_similarity(left, right, axis=-1)
        return Value(tensor=paddle.unsqueeze(found, -1) * float(scale), size=1, mask=mask)

    return _described("cos_sim", "cos", name, 1, [a, b], build)


def slope_intercept_layer(
    input: LayerOutput,  # noqa: A002
    name: str | None = None,
    slope: float = 1.0,
    intercept: float = 0.0,
) -> LayerOutput:
    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        return replace_value(values[0], tensor=_dense(values[0], layer) * slope + intercept)

    return _described("slope_intercept_layer", "slope_intercept", name, input.size, [input], build)


def scaling_layer(input: LayerOutput, weight: LayerOutput, name: str | None = None) -> LayerOutput:  # noqa: A002
    """Each row times its weight."""

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        # The order of the original, in which its inputs are counted.
        factor, value = values
        _mask_of(values, layer)
        _check_sizes(layer, [factor], 1)
        return replace_value(value, tensor=_dense(value, layer) * _dense(factor, layer))

    return _described("scaling_layer", "scaling", name, input.size, [weight, input], build)


def interpolation_layer(
    input: Sequence[LayerOutput],  # noqa: A002
    weight: LayerOutput,
    name: str | None = None,
) -> LayerOutput:
    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        _mask_of(values, layer)
        _check_sizes(layer, values[:1], 1)
        _check_sizes(layer, values[1:], values[1].size)
        share, first, second = (_dense(each, layer) for each in values)
        return replace_value(values[1], tensor=share * first + (1.0 - share) * second)

    return _described("interpolation_layer", "interpolation", name, input[0].size, [weight, *input], build)


def maxid_layer(input: LayerOutput, name: str | None = None, **more: Any) -> LayerOutput:  # noqa: A002
    _check_options(maxid_layer, more)

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        return Value(
            tensor=paddle.argmax(_dense(values[0], layer), axis=-1),
            size=input.size,
            mask=values[0].mask,
            is_ids=True,
        )

    return _described("maxid_layer", "maxid", name, input.size, [input], build)


# -- mixed layers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A summand of a mixed layer."""

    origin: LayerOutput
    size: int
    build: Callable[[ProgramBuilder, str, Value, int, LayerOutput], Any]


def full_matrix_projection(
    input: LayerOutput,  # noqa: A002
    size: int = 0,
    param_attr: ParameterAttribute | None = None,
) -> Projection:
    def build(builder: ProgramBuilder, name: str, value: Value, width: int, layer: LayerOutput) -> Any:
        return _multiplied(value, builder.weight(name, [value.size, width], param_attr))

    return Projection(origin=input, size=size, build=build)


def table_projection(
    input: LayerOutput,  # noqa: A002
    size: int = 0,
    param_attr: ParameterAttribute | None = None,
) -> Projection:
    return full_matrix_projection(input, size, param_attr)


def trans_full_matrix_projection(
    input: LayerOutput,  # noqa: A002
    size: int = 0,
    param_attr: ParameterAttribute | None = None,
) -> Projection:
    def build(builder: ProgramBuilder, name: str, value: Value, width: int, layer: LayerOutput) -> Any:
        weight = builder.weight(name, [width, value.size], param_attr)
        return paddle.matmul(_dense(value, layer), weight, transpose_y=True)

    return Projection(origin=input, size=size, build=build)


def identity_projection(input: LayerOutput, offset: int | None = None) -> Projection:  # noqa: A002
    def build(builder: ProgramBuilder, name: str, value: Value, width: int, layer: LayerOutput) -> Any:
        start = offset or 0
        if (offset is None and value.size != width) or start < 0 or start + width > value.size:
            raise UserError(
                f"An identity_projection of the layer {layer.name} takes {width} values from {start} on, of "
                f"{value.size}.",
                hint="Give it an offset to take some of the values.",
            )
        return _dense(value, layer)[..., start : start + width]

    return Projection(origin=input, size=input.size if offset is None else 0, build=build)


def dotmul_projection(
    input: LayerOutput,  # noqa: A002
    param_attr: ParameterAttribute | None = None,
) -> Projection:
    def build(builder: ProgramBuilder, name: str, value: Value, width: int, layer: LayerOutput) -> Any:
        _check_sizes(layer, [value], width)
        return _dense(value, layer) * builder.weight(name, [width], param_attr)

    return Projection(origin=input, size=input.size, build=build)


def context_projection(
    input: LayerOutput,  # noqa: A002
    context_len: int,
    context_start: int | None = None,
    padding_attr: Any = False,
) -> Projection:
    """Each step with its neighbours; zeros beyond the ends."""
    _check_options(context_projection, {"padding_attr": padding_attr}, defaults={"padding_attr": False})
    start = -(context_len // 2) if context_start is None else context_start

    def build(builder: ProgramBuilder, name: str, value: Value, width: int, layer: LayerOutput) -> Any:
        _check_sizes(layer, [replace_value(value, size=value.size * context_len)], width)
        tensor = _sequence(value, layer) * paddle.unsqueeze(value.mask, -1)
        before, after = max(0, -start), max(0, start + context_len - 1)
        # NLC has no mode of its own for one axis: pads the steps alone.
        padded = F.pad(tensor, [before, after], data_format="NLC")
        length = paddle.shape(tensor)[1]
        parts = []
        for index in range(context_len):
            begin = before + start + index
            parts.append(paddle.slice(padded, [1], [begin], [length + begin]))
        return paddle.concat(parts, axis=-1)

    return Projection(origin=input, size=input.size * context_len, build=build)


class MixedLayer:
    """`with mixed_layer(size=…) as m: m += projection`, and the layer afterwards."""

    def __init__(self, finish: Callable[[list[Projection]], LayerOutput]) -> None:
        self._finish = finish
        self._projections: list[Projection] = []
        self.layer: LayerOutput | None = None

    def __iadd__(self, projection: Projection) -> MixedLayer:
        self._projections.append(projection)
        return self

    def __enter__(self) -> MixedLayer:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is None:
            self.layer = self._finish(self._projections)

    def __getattr__(self, name: str) -> Any:
        layer = self.__dict__.get("layer")
        if layer is None:
            raise AttributeError(name)
        return getattr(layer, name)


def mixed_layer(
    size: int = 0,
    input: Any = None,  # noqa: A002
    name: str | None = None,
    act: BaseActivation | None = None,
    bias_attr: Any = False,
    layer_attr: ExtraLayerAttribute | None = None,
) -> Any:
    def finish(projections: list[Projection]) -> LayerOutput:
        width = size or next((each.size for each in projections if each.size), 0)
        if not width:
            raise UserError("A mixed_layer needs a size.")

        def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
            mask = _mask_of(values, layer)
            total = None
            for index, (each, value) in enumerate(zip(projections, values, strict=True)):
                part = each.build(builder, f"_{layer.name}.w{index}", value, width, layer)
                total = part if total is None else total + part
            bias = builder.bias(f"_{layer.name}.wbias", width, bias_attr or False)
            total = total if bias is None else total + bias
            done = _dropped(builder, _activated(total, act), layer_attr)
            return Value(tensor=done, size=width, mask=mask)

        return _described("mixed", "mixed", name, width, [each.origin for each in projections], build)

    if input is None:
        return MixedLayer(finish)
    return finish([input] if isinstance(input, Projection) else list(input))


# -- networks ------------------------------------------------------------------------------------------------


def sequence_conv_pool(
    input: LayerOutput,  # noqa: A002
    context_len: int,
    hidden_size: int,
    name: str | None = None,
    context_start: int | None = None,
    pool_type: BasePoolingType | None = None,
    context_proj_param_attr: Any = False,
    fc_param_attr: ParameterAttribute | None = None,
    fc_bias_attr: Any = None,
    fc_act: BaseActivation | None = None,
    context_proj_layer_name: str | None = None,
    fc_layer_name: str | None = None,
    context_attr: ExtraLayerAttribute | None = None,
    fc_attr: ExtraLayerAttribute | None = None,
    pool_attr: ExtraLayerAttribute | None = None,
    pool_bias_attr: Any = None,
) -> LayerOutput:
    """A convolution over steps, and its pooling."""
    name = name or current().next_name("sequence_conv_pooling")
    context = mixed_layer(
        name=context_proj_layer_name or f"{name}_conv_proj",
        size=input.size * context_len,
        input=context_projection(input, context_len, context_start, context_proj_param_attr),
        layer_attr=context_attr,
    )
    hidden = fc_layer(
        name=fc_layer_name or f"{name}_conv_fc",
        input=context,
        size=hidden_size,
        act=fc_act or TanhActivation(),
        param_attr=fc_param_attr,
        bias_attr=fc_bias_attr,
        layer_attr=fc_attr,
    )
    return pooling_layer(
        input=hidden, pooling_type=pool_type, name=name, bias_attr=pool_bias_attr, layer_attr=pool_attr
    )


text_conv_pool = sequence_conv_pool


def simple_lstm(
    input: LayerOutput,  # noqa: A002
    size: int,
    name: str | None = None,
    reverse: bool = False,
    lstm_cell_attr: ExtraLayerAttribute | None = None,
    **more: Any,
) -> LayerOutput:
    """A sequence of the states of an LSTM."""
    _check_options(simple_lstm, more, defaults={**_CELL_ACTIVATIONS, **dict.fromkeys(_LSTM_ATTRIBUTES)})

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        return _recurrent(
            builder, layer, values[0], size, cell="LSTM", reverse=reverse, attribute=lstm_cell_attr
        )

    return _described("simple_lstm", "lstmemory", name, size, [input], build)


def simple_gru(
    input: LayerOutput,  # noqa: A002
    size: int,
    name: str | None = None,
    reverse: bool = False,
    gru_layer_attr: ExtraLayerAttribute | None = None,
    **more: Any,
) -> LayerOutput:
    _check_options(
        simple_gru, more, defaults={**_CELL_ACTIVATIONS, **dict.fromkeys(_GRU_ATTRIBUTES)}, inert=("naive",)
    )

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        return _recurrent(
            builder, layer, values[0], size, cell="GRU", reverse=reverse, attribute=gru_layer_attr
        )

    return _described("simple_gru", "gated_recurrent", name, size, [input], build)


def lstmemory(
    input: LayerOutput,  # noqa: A002
    name: str | None = None,
    size: int | None = None,
    reverse: bool = False,
    param_attr: ParameterAttribute | None = None,
    bias_attr: ParameterAttribute | bool | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
    **more: Any,
) -> LayerOutput:
    """An LSTM whose input has the four gates of each step already, computed by the layer below. No peepholes."""
    _check_options(lstmemory, more, defaults=_CELL_ACTIVATIONS)
    _check_memory("lstmemory", "LSTM", input, size)

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        return _memory(builder, layer, values[0], "LSTM", reverse, param_attr, bias_attr, layer_attr)

    return _described("lstmemory", "lstmemory", name, _finished(input).size // 4, [input], build)


def grumemory(
    input: LayerOutput,  # noqa: A002
    name: str | None = None,
    size: int | None = None,
    reverse: bool = False,
    param_attr: ParameterAttribute | None = None,
    bias_attr: ParameterAttribute | bool | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
    **more: Any,
) -> LayerOutput:
    """A GRU whose input has the three gates of each step already, computed by the layer below."""
    _check_options(grumemory, more, defaults=_CELL_ACTIVATIONS)
    _check_memory("grumemory", "GRU", input, size)

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        return _memory(builder, layer, values[0], "GRU", reverse, param_attr, bias_attr, layer_attr)

    # The original counts these layers as `gru`.
    return _described("gru", "gated_recurrent", name, _finished(input).size // 3, [input], build)


def _check_memory(function: str, cell: str, below: LayerOutput, size: int | None) -> None:
    gates, below = _GATES[cell], _finished(below)
    if below.size % gates or (size is not None and size * gates != below.size):
        wanted = f"a multiple of {gates}" if size is None else f"{gates} × {size} = {gates * size}"
        raise UserError(
            f"{function} takes an input of size {wanted}, and {below.name} has {below.size}.",
            hint=f"Put a layer of {gates} times the size below it, or use simple_{cell.lower()}.",
        )


def _memory(
    builder: ProgramBuilder,
    layer: LayerOutput,
    value: Value,
    cell: str,
    reverse: bool,
    param_attr: ParameterAttribute | None,
    bias_attr: ParameterAttribute | bool | None,
    layer_attr: ExtraLayerAttribute | None,
) -> Value:
    width = value.size
    weight = builder.weight(f"_{layer.name}.w0", [width, layer.size], param_attr)
    bias = builder.bias(f"_{layer.name}.wbias", width, bias_attr)
    # Paddle's operator multiplies its input, too: here by the identity. Its kernel needs a gradient of all weights.
    identity, zeros = paddle.eye(width), paddle.zeros([width])
    identity.stop_gradient = zeros.stop_gradient = False
    weights = [identity, weight, zeros, zeros if bias is None else bias]
    tensor, lengths = _sequence(value, layer), _lengths(value)
    states = _recurrent_operator(_reversed(tensor, lengths) if reverse else tensor, lengths, weights, cell)
    if reverse:
        states = _reversed(states, lengths)
    states = states * paddle.unsqueeze(value.mask, -1)
    return Value(tensor=_dropped(builder, states, layer_attr), size=layer.size, mask=value.mask)


def _recurrent_operator(tensor: Any, lengths: Any, weights: list[Any], cell: str) -> Any:
    """The states of each step. `paddle.nn.LSTM` and `GRU` use the same operator, with parameters only."""
    helper = LayerHelper("rnn")
    width, size = weights[1].shape
    steps_first = paddle.transpose(tensor, [1, 0, 2])
    start = paddle.zeros([1, paddle.shape(tensor)[0], size])
    parts = 2 if cell == "LSTM" else 1
    out, *state = (helper.create_variable_for_type_inference("float32") for _ in range(1 + parts))
    reserve, dropout = (helper.create_variable_for_type_inference("uint8", True) for _ in range(2))
    helper.append_op(
        type="rnn",
        inputs={
            "Input": steps_first,
            "WeightList": weights,
            "PreState": [start] * parts,
            "SequenceLength": lengths,
        },
        outputs={"Out": out, "State": state, "Reserve": reserve, "DropoutState": dropout},
        attrs={
            "dropout_prob": 0.0,
            "is_bidirec": False,
            "input_size": width,
            "hidden_size": size,
            "num_layers": 1,
            "mode": cell,
            "is_test": False,
        },
    )
    return paddle.transpose(out, [1, 0, 2])


def bidirectional_lstm(
    input: LayerOutput,  # noqa: A002
    size: int,
    name: str | None = None,
    return_seq: bool = False,
    **more: Any,
) -> LayerOutput:
    cell = {**_CELL_ACTIVATIONS, **dict.fromkeys((*_LSTM_ATTRIBUTES, "lstm_cell_attr"))}
    both = {f"{way}_{option}": value for way in ("fwd", "bwd") for option, value in cell.items()}
    around = {
        "last_seq_attr": None,
        "first_seq_attr": None,
        "concat_attr": None,
        "concat_act": LinearActivation,
    }
    _check_options(bidirectional_lstm, more, defaults={**both, **around})
    name = name or current().next_name("bidirectional_lstm")
    forward = simple_lstm(input=input, size=size, name=f"{name}_fw")
    backward = simple_lstm(input=input, size=size, name=f"{name}_bw", reverse=True)
    if return_seq:
        return concat_layer(input=[forward, backward], name=name)
    return concat_layer(input=[last_seq(input=forward), first_seq(input=backward)], name=name)


def _recurrent(
    builder: ProgramBuilder,
    layer: LayerOutput,
    value: Value,
    size: int,
    *,
    cell: str,
    reverse: bool,
    attribute: ExtraLayerAttribute | None,
) -> Value:
    tensor = _sequence(value, layer)
    spread = 1.0 / math.sqrt(size)

    def named(part: str) -> Any:
        return paddle.ParamAttr(
            name=f"_{layer.name}.{part}", initializer=paddle.nn.initializer.Uniform(-spread, spread)
        )

    kind = paddle.nn.LSTM if cell == "LSTM" else paddle.nn.GRU
    made = kind(
        value.size,
        size,
        weight_ih_attr=named("w0"),
        weight_hh_attr=named("w1"),
        bias_ih_attr=named("wbias"),
        bias_hh_attr=named("wbias1"),
    )
    for parameter in made.parameters():
        builder.parameters[parameter.name] = parameter
    lengths = _lengths(value)
    states, _ = made(_reversed(tensor, lengths) if reverse else tensor, sequence_length=lengths)
    if reverse:
        states = _reversed(states, lengths)
    states = states * paddle.unsqueeze(value.mask, -1)
    return Value(tensor=_dropped(builder, states, attribute), size=size, mask=value.mask)


def _lengths(value: Value) -> Any:
    return paddle.cast(paddle.sum(value.mask, axis=1), "int32")


def _reversed(tensor: Any, lengths: Any) -> Any:
    """Each sequence backwards; its padding stays behind it."""
    lengths = paddle.cast(paddle.unsqueeze(lengths, -1), "int64")
    steps = paddle.unsqueeze(paddle.arange(paddle.shape(tensor)[1], dtype="int64"), 0)
    places = paddle.where(steps < lengths, lengths - 1 - steps, steps + paddle.zeros_like(lengths))
    return paddle.take_along_axis(tensor, paddle.unsqueeze(places, -1), axis=1)


# -- costs ---------------------------------------------------------------------------------------------------


def _summed(cost: Any, mask: Any, weight: Any, coeff: float) -> Value:
    """Per sample (a sequence sums over its steps), times its weight and the coefficient of the cost."""
    if mask is not None:
        cost = paddle.sum(cost * mask, axis=1)
    cost = paddle.reshape(cost, [-1, 1])
    cost = cost if weight is None else cost * weight
    return Value(tensor=cost if coeff == 1.0 else cost * float(coeff), size=1)


def _cost(
    prefix: str,
    name: str | None,
    parents: Sequence[LayerOutput],
    formula: Callable[[Value, Value, LayerOutput], Any],
    coeff: float,
) -> LayerOutput:
    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        found, label = values[:2]
        _dense(found, layer)
        if (found.mask is None) != (label.mask is None):
            raise UserError(
                f"The cost {layer.name} takes an input and a label that both are sequences, or neither."
            )
        weight = None
        if len(values) > 2:
            _check_sizes(layer, values[2:], 1)
            weight = _dense(values[2], layer)
        return _summed(formula(found, label, layer), found.mask, weight, coeff)

    return _described(prefix, "cost", name, 1, parents, build, is_cost=True)


def _with_weight(first: LayerOutput, second: LayerOutput, weight: LayerOutput | None) -> list[LayerOutput]:
    return [first, second] if weight is None else [first, second, weight]


def _cross_entropy(found: Value, label: Value, layer: LayerOutput) -> Any:
    if not label.is_ids:
        raise UserError(f"The cost {layer.name} needs a label of type integer_value.")
    if label.size > found.size:
        raise UserError(
            f"The cost {layer.name} has labels of {label.size} classes, and its input has {found.size} values."
        )
    share = paddle.take_along_axis(found.tensor, paddle.unsqueeze(label.tensor, -1), axis=-1)
    return -paddle.log(paddle.clip(paddle.squeeze(share, -1), min=1e-10))


def classification_cost(
    input: LayerOutput,  # noqa: A002
    label: LayerOutput,
    weight: LayerOutput | None = None,
    name: str | None = None,
    coeff: float = 1.0,
    **more: Any,
) -> LayerOutput:
    _check_options(classification_cost, more, inert=("evaluator", "top_k"))
    return _cost("cost", name, _with_weight(input, label, weight), _cross_entropy, coeff)


def cross_entropy(
    input: LayerOutput,  # noqa: A002
    label: LayerOutput,
    name: str | None = None,
    coeff: float = 1.0,
    weight: LayerOutput | None = None,
    **more: Any,
) -> LayerOutput:
    _check_options(cross_entropy, more)
    return _cost("cross_entropy", name, _with_weight(input, label, weight), _cross_entropy, coeff)


def _check_dense_label(label: Value, layer: LayerOutput, size: int) -> None:
    if label.is_ids or label.weights is not None:
        raise UserError(f"The cost {layer.name} needs a label of type dense_vector.")
    _check_sizes(layer, [label], size)


def square_error_cost(
    input: LayerOutput,  # noqa: A002
    label: LayerOutput,
    weight: LayerOutput | None = None,
    name: str | None = None,
    coeff: float = 1.0,
    **more: Any,
) -> LayerOutput:
    _check_options(square_error_cost, more)

    def formula(found: Value, wanted: Value, layer: LayerOutput) -> Any:
        _check_dense_label(wanted, layer, found.size)
        # Half of the square, as in the original.
        return 0.5 * paddle.sum(paddle.square(found.tensor - wanted.tensor), axis=-1)

    return _cost("square_error_cost", name, _with_weight(input, label, weight), formula, coeff)


regression_cost = square_error_cost
mse_cost = square_error_cost


def multi_binary_label_cross_entropy(
    input: LayerOutput,  # noqa: A002
    label: LayerOutput,
    name: str | None = None,
    coeff: float = 1.0,
    **more: Any,
) -> LayerOutput:
    _check_options(multi_binary_label_cross_entropy, more)

    def formula(found: Value, wanted: Value, layer: LayerOutput) -> Any:
        _check_dense_label(wanted, layer, found.size)
        return paddle.sum(F.binary_cross_entropy(found.tensor, wanted.tensor, reduction="none"), axis=-1)

    return _cost("multi_binary_label_cross_entropy", name, [input, label], formula, coeff)


def sum_cost(
    input: LayerOutput,  # noqa: A002
    name: str | None = None,
    coeff: float = 1.0,
    **more: Any,
) -> LayerOutput:
    _check_options(sum_cost, more)

    def build(builder: ProgramBuilder, layer: LayerOutput, values: Sequence[Value]) -> Value:
        return _summed(paddle.sum(_dense(values[0], layer), axis=-1), values[0].mask, None, coeff)

    return _described("sum_cost", "cost", name, 1, [input], build, is_cost=True)


__all__ = [
    "LinearActivation",
    "SigmoidActivation",
    "SoftmaxActivation",
    "addto_layer",
    "bidirectional_lstm",
    "classification_cost",
    "concat_layer",
    "context_projection",
    "cos_sim",
    "cross_entropy",
    "data_layer",
    "dotmul_projection",
    "dropout_layer",
    "embedding_layer",
    "expand_layer",
    "fc_layer",
    "first_seq",
    "full_matrix_projection",
    "grumemory",
    "identity_projection",
    "interpolation_layer",
    "last_seq",
    "lstmemory",
    "maxid_layer",
    "mixed_layer",
    "mse_cost",
    "multi_binary_label_cross_entropy",
    "pooling_layer",
    "regression_cost",
    "scaling_layer",
    "sequence_conv_pool",
    "simple_gru",
    "simple_lstm",
    "slope_intercept_layer",
    "square_error_cost",
    "sum_cost",
    "table_projection",
    "text_conv_pool",
    "trans_full_matrix_projection",
]
