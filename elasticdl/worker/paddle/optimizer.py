"""The definition's optimizer: made for a model here, described to parameter servers, saved and loaded.

Paddle's optimizers are made of a model's parameters, so `optimizer` of a definition may be written as

- `optimizer(parameters)`: is given the list of the model's parameters;
- `optimizer(model)`: is given the model, if the argument is called model, layer, net or network or its annotation
  says Layer;
- `optimizer()`: returns something to be called with `parameters=`, a functools.partial of a class of
  paddle.optimizer for instance, or one of the user's own (`elasticdl.Optimizer`).

A schedule (paddle.optimizer.lr) is the learning rate of the optimizer, and is stepped once a batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle.base.framework import default_main_program
from paddle.base.layer_helper import LayerHelper

from elasticdl.errors import UserError
from elasticdl.ps.embedding.custom_optimizer import Optimizer, to_config
from elasticdl.wire import ps_pb2
from elasticdl.worker.paddle.custom_optimizer import CustomOptimizer, as_paddle
from elasticdl.worker.paddle.tensors import copy_into, to_array

Array = NDArray[Any]

_MODEL_WORDS = ("model", "layer", "net", "network")
_HOW = (
    "Write optimizer(parameters) returning an optimizer of paddle.optimizer for them, e.g. "
    "paddle.optimizer.Adam(0.001, parameters=parameters)."
)
_LOCAL = "train with --distribution_strategy=Local"


def make_optimizer(function: Callable[..., Any], model: Any) -> Any:
    parameters = list(model.parameters())
    needed = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 1:
        raise UserError(f"optimizer() needs {len(needed)} arguments, and is given one.", hint=_HOW)
    if needed:
        wants_model = needed[0].name in _MODEL_WORDS or "Layer" in str(needed[0].annotation)
        made = function(model if wants_model else parameters)
    else:
        made = function()
    if isinstance(made, type) and issubclass(made, Optimizer):
        made = made()
    if isinstance(made, Optimizer):
        made = as_paddle(made, parameters)
    if callable(made) and not isinstance(made, paddle.optimizer.Optimizer):
        made = made(parameters=parameters)
    if not isinstance(made, paddle.optimizer.Optimizer):
        raise UserError(f"optimizer() returns {type(made).__name__}, which is no optimizer.", hint=_HOW)
    known = {id(parameter) for parameter in parameters}
    if any(id(parameter) not in known for parameter in _parameters(made)):
        raise UserError("optimizer() returns an optimizer of other parameters than the model's.", hint=_HOW)
    if isinstance(made._learning_rate, paddle.optimizer.lr.ReduceOnPlateau):
        raise UserError(
            "optimizer() has the schedule ReduceOnPlateau, which waits for metrics; schedules go by batches.",
            hint="Return elasticdl.worker.paddle.callbacks.ReduceLROnPlateau from callbacks() instead.",
        )
    return made


def groups_of(optimizer: Any) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The parameters of each group, with its options; a definition may give an optimizer some of the model's only."""
    if optimizer._param_groups and isinstance(optimizer._param_groups[0], dict):
        for group in optimizer._param_groups:
            yield group["params"], {key: value for key, value in group.items() if key != "params"}
    else:
        yield list(optimizer._param_groups), {"grad_clip": optimizer._grad_clip}


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for parameters, _ in groups_of(optimizer) for parameter in parameters]


def held_by(optimizer: Any) -> set[int]:
    """The ids of the parameters that it changes."""
    return {id(parameter) for parameter in _parameters(optimizer)}


# -- for parameter servers -----------------------------------------------------------------------------------

_OPTIM = paddle.optimizer
# The parameter servers' name of each optimizer, and its options: (theirs, Paddle's).
_SERVED: dict[type, tuple[str, tuple[tuple[str, str], ...]]] = {
    _OPTIM.SGD: ("sgd", ()),
    _OPTIM.Momentum: ("sgd", (("momentum", "_momentum"), ("nesterov", "_use_nesterov"))),
    _OPTIM.Adagrad: (
        "adagrad",
        (("epsilon", "_epsilon"), ("initial_accumulator_value", "initial_accumulator_value")),
    ),
    _OPTIM.Adam: ("adam", (("beta_1", "_beta1"), ("beta_2", "_beta2"), ("epsilon", "_epsilon"))),
    _OPTIM.AdamW: ("adamw", (("beta_1", "_beta1"), ("beta_2", "_beta2"), ("epsilon", "_epsilon"))),
    _OPTIM.RMSProp: (
        "rmsprop",
        (
            ("rho", "_rho"),
            ("epsilon", "_epsilon"),
            ("momentum", "_momentum"),
            ("centered", "_centered"),
        ),
    ),
    _OPTIM.Adadelta: ("adadelta", (("rho", "_rho"), ("epsilon", "_epsilon"))),
    _OPTIM.Adamax: ("adamax", (("beta_1", "_beta1"), ("beta_2", "_beta2"), ("epsilon", "_epsilon"))),
}
_NEAREST = {"Lamb": "AdamW", "LBFGS": "SGD", "NAdam": "Adam", "RAdam": "Adam", "Rprop": "RMSProp"}


def server_config(optimizer: Any) -> ps_pb2.OptimizerConfig:
    """The optimizer as parameter servers run it; `UserError` if they cannot."""
    kind = type(optimizer)
    if kind not in _SERVED and not isinstance(optimizer, CustomOptimizer):
        names = ", ".join(sorted(served.__name__ for served in _SERVED))
        nearest = _NEAREST.get(kind.__name__) or ("Adam" if "Adam" in kind.__name__ else "SGD")
        raise UserError(
            f"Parameter servers have no optimizer {kind.__name__}; they have {names}.",
            hint=f"The nearest is paddle.optimizer.{nearest}; or write it in NumPy, as an elasticdl.Optimizer; or "
            f"{_LOCAL}.",
        )
    _check_alike(optimizer)
    if isinstance(optimizer, CustomOptimizer):
        return to_config(optimizer.custom)
    name, options = _SERVED[kind]
    values = {theirs: float(_number(getattr(optimizer, ours))) for theirs, ours in options}
    decay = _weight_decay(optimizer)
    if decay or kind is _OPTIM.AdamW:
        values["weight_decay"] = decay
    return ps_pb2.OptimizerConfig(name=name, flavor="paddle", options=values)


def _check_alike(optimizer: Any) -> None:
    """Raises `UserError` if parameters are to be treated differently, which servers do not."""
    groups = [options for _, options in groups_of(optimizer)]
    different = sorted({key for one in groups for key in one if one.get(key) != groups[0].get(key)})
    different = different or ["learning_rate"] * (groups[0].get("learning_rate", 1.0) != 1.0)
    if different:
        raise UserError(
            f"The optimizer has parameter groups that differ in {', '.join(different)}; parameter servers treat all "
            "parameters alike.",
            hint=f"Use one group, or {_LOCAL}.",
        )
    decay = _weight_decay(optimizer)
    for parameter in _parameters(optimizer):
        own = getattr(parameter, "regularizer", None)
        factor = getattr(parameter, "optimize_attr", {}).get("learning_rate", 1.0)
        if factor != 1.0 or (own is not None and _coefficient(own) != decay):
            what = "learning rate" if factor != 1.0 else "regularizer"
            raise UserError(
                f"The parameter {parameter.name} has a {what} of its own (ParamAttr); parameter servers treat all "
                "parameters alike.",
                hint=f"Omit it, or {_LOCAL}.",
            )
    if getattr(optimizer, "_apply_decay_param_fun", None) is not None:
        raise UserError(
            "AdamW has an apply_decay_param_fun; parameter servers treat all parameters alike.",
            hint=f"Omit it, or {_LOCAL}.",
        )
    if getattr(optimizer, "_rescale_grad", 1.0) != 1.0:
        raise UserError(
            "Momentum has a rescale_grad, which parameter servers do not have.",
            hint=f"Scale the loss instead, or {_LOCAL}.",
        )


def _weight_decay(optimizer: Any) -> float:
    if isinstance(optimizer, _OPTIM.AdamW):
        return float(_number(optimizer._weight_decay))
    if isinstance(optimizer, _OPTIM.Momentum) and optimizer._regularization_method == "l2_decay":
        return float(optimizer._regularization_coeff)
    return _coefficient(optimizer.regularization)


def _coefficient(regularization: Any) -> float:
    if regularization is None:
        return 0.0
    if isinstance(regularization, float):
        return regularization
    if isinstance(regularization, paddle.regularizer.L2Decay):
        return float(regularization._coeff)
    raise UserError(
        f"Parameter servers have no {type(regularization).__name__}; they have L2Decay.",
        hint=f"Add the term to the loss instead, or {_LOCAL}.",
    )


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, paddle.Tensor) else value


# -- for checkpoints -----------------------------------------------------------------------------------------


def slots(optimizer: Any, names: Mapping[int, str]) -> dict[str, Array]:
    """Returns the optimizer's slots as arrays; `names` has the name of each parameter with numbers by its id.

    kind/NAME tells which optimizer it is. slot/PARAMETER/NAME is a tensor of a parameter's; rate is the learning rate.
    """
    if isinstance(optimizer, _OPTIM.LBFGS):
        raise UserError(
            "LBFGS keeps lists of past steps, which cannot go into a checkpoint.",
            hint="Use another optimizer, or train without --checkpoint_steps.",
        )
    found: dict[str, Array] = {f"kind/{type(optimizer).__name__}": np.array(1)}
    ours = _names_by_paddles(optimizer, names)
    for slot, by_parameter in optimizer._accumulators.items():
        for parameter, tensor in by_parameter.items():
            if parameter in ours:
                found[f"slot/{ours[parameter]}/{slot}"] = to_array(tensor)
    if not isinstance(optimizer._learning_rate, paddle.optimizer.lr.LRScheduler):
        found["rate/"] = np.array(float(optimizer.get_lr()))
    return found


def load_slots(optimizer: Any, names: Mapping[int, str], state: Mapping[str, Array]) -> None:
    """The reverse. What the optimizer has learned since is forgotten."""
    ours = _names_by_paddles(optimizer, names)
    theirs = {name: parameter for parameter, name in ours.items()}
    wanted: list[tuple[str, str, Array]] = []
    for name, array in state.items():
        kind, _, rest = name.partition("/")
        if kind == "kind" and rest != type(optimizer).__name__:
            raise UserError(
                f"The checkpoint is of the optimizer {rest}, and the model definition has "
                f"{type(optimizer).__name__}."
            )
        if kind == "rate" and not isinstance(optimizer._learning_rate, paddle.optimizer.lr.LRScheduler):
            optimizer.set_lr(float(array))
        if kind == "slot":
            owner, _, slot = rest.rpartition("/")
            if owner not in theirs:
                raise UserError(
                    f"The saved optimizer has {owner}, which the one of the model definition has not."
                )
            wanted.append((theirs[owner], slot, array))
    _create_slots(optimizer, {parameter for parameter, _, _ in wanted})
    for parameter, slot, array in wanted:
        copy_into(optimizer._accumulators[slot][parameter], array)


def _create_slots(optimizer: Any, parameters: set[str]) -> None:
    """Paddle makes them with the first step of a parameter: here, those of the parameters that had one."""
    optimizer._accumulators.clear()
    optimizer._already_create_accumulater.clear()
    if isinstance(optimizer, CustomOptimizer):
        optimizer.create_slots(parameters)
        return
    if optimizer.helper is None:
        optimizer.helper = LayerHelper(type(optimizer).__name__)
    held = [each for each in _parameters(optimizer) if each.name in parameters]
    optimizer._create_accumulators(default_main_program().global_block(), held)


def _names_by_paddles(optimizer: Any, names: Mapping[int, str]) -> dict[str, str]:
    """Paddle's names of parameters, which count the layers of a process, with ours."""
    return {
        parameter.name: names[id(parameter)] for parameter in _parameters(optimizer) if id(parameter) in names
    }
