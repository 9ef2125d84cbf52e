"""The definition's optimizer: made for a model here, described to parameter servers, saved and loaded.

PyTorch's optimizers are made of a model's parameters, so `optimizer` of a definition may be written as

- `optimizer(parameters)`: is given the list of the model's parameters;
- `optimizer(model)`: is given the model, if the argument is called model, module, net or network or its
  annotation says Module;
- `optimizer()`: returns something to be called with the parameters, a class of torch.optim or a
  functools.partial of one, or one of the user's own (`elasticdl.Optimizer`).

Each may also return a pair, the second of which is a schedule of torch.optim.lr_scheduler (or a function that
makes one of the optimizer). Schedules are stepped once a batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.ps.embedding.custom_optimizer import Optimizer, to_config
from elasticdl.wire import ps_pb2
from elasticdl.worker.torch.compiler import defer_compiler
from elasticdl.worker.torch.custom_optimizer import CustomOptimizer, as_torch
from elasticdl.worker.torch.tensors import to_array

Array = NDArray[Any]

_MODEL_WORDS = ("model", "module", "net", "network")
_HOW = (
    "Write optimizer(parameters) returning an optimizer of torch.optim for them, e.g. "
    "torch.optim.Adam(parameters, lr=0.001), or that and a schedule of torch.optim.lr_scheduler."
)


def make_optimizer(function: Callable[..., Any], model: Any) -> tuple[Any, Any]:
    """The optimizer, and its schedule or None."""
    defer_compiler()
    parameters = list(model.parameters())
    needed = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 1:
        raise UserError(f"optimizer() needs {len(needed)} arguments, and is given one.", hint=_HOW)
    if needed:
        wants_model = needed[0].name in _MODEL_WORDS or "Module" in str(needed[0].annotation)
        made = function(model if wants_model else parameters)
    else:
        made = function()
    made, schedule = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if isinstance(made, type) and issubclass(made, Optimizer):
        made = made()
    if isinstance(made, Optimizer):
        made = as_torch(made, parameters)
    if callable(made) and not isinstance(made, torch.optim.Optimizer):
        made = made(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise UserError(f"optimizer() returns {type(made).__name__}, which is no optimizer.", hint=_HOW)
    known = {id(parameter) for parameter in parameters}
    if any(id(p) not in known for group in made.param_groups for p in group["params"]):
        raise UserError("optimizer() returns an optimizer of other parameters than the model's.", hint=_HOW)
    if isinstance(schedule, type) or (callable(schedule) and not hasattr(schedule, "step")):
        schedule = schedule(made)
    if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise UserError(
            "optimizer() returns ReduceLROnPlateau, which waits for metrics; schedules go by batches.",
            hint="Return elasticdl.worker.torch.callbacks.ReduceLROnPlateau from callbacks() instead.",
        )
    if schedule is not None and not hasattr(schedule, "step"):
        raise UserError(f"optimizer() returns {type(schedule).__name__}, which is no schedule.", hint=_HOW)
    return made, schedule


def held_by(optimizer: Any) -> set[int]:
    """The ids of the parameters that it changes: a definition may give it some of the model's only."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


# -- for parameter servers
# ---------------------------------------------------------------------------------------

_OPTIM = torch.optim
# The parameter servers' name of each optimizer, and its options: (theirs, PyTorch's).
_SERVED: dict[type, tuple[str, tuple[tuple[str, str], ...]]] = {
    _OPTIM.SGD: (
        "sgd",
        (
            ("momentum", "momentum"),
            ("dampening", "dampening"),
            ("nesterov", "nesterov"),
            ("weight_decay", "weight_decay"),
        ),
    ),
    _OPTIM.Adagrad: (
        "adagrad",
        (
            ("lr_decay", "lr_decay"),
            ("weight_decay", "weight_decay"),
            ("initial_accumulator_value", "initial_accumulator_value"),
            ("epsilon", "eps"),
        ),
    ),
    _OPTIM.Adam: ("adam", (("epsilon", "eps"), ("weight_decay", "weight_decay"), ("amsgrad", "amsgrad"))),
    _OPTIM.AdamW: ("adamw", (("epsilon", "eps"), ("weight_decay", "weight_decay"), ("amsgrad", "amsgrad"))),
    _OPTIM.RMSprop: (
        "rmsprop",
        (
            ("rho", "alpha"),
            ("epsilon", "eps"),
            ("momentum", "momentum"),
            ("centered", "centered"),
            ("weight_decay", "weight_decay"),
        ),
    ),
    _OPTIM.Adadelta: ("adadelta", (("rho", "rho"), ("epsilon", "eps"), ("weight_decay", "weight_decay"))),
    _OPTIM.Adamax: ("adamax", (("epsilon", "eps"), ("weight_decay", "weight_decay"))),
    _OPTIM.NAdam: (
        "nadam",
        (("epsilon", "eps"), ("weight_decay", "weight_decay"), ("momentum_decay", "momentum_decay")),
    ),
}
_NEAREST = {"ASGD": "SGD", "LBFGS": "SGD", "RAdam": "NAdam", "Rprop": "RMSprop", "SparseAdam": "Adam"}
# These say how PyTorch computes, not what.
_IMPLEMENTATION = {
    "foreach",
    "fused",
    "capturable",
    "differentiable",
    "params",
    "lr",
    "initial_lr",
    "param_names",
}


def group_options(optimizer: Any) -> list[dict[str, Any]]:
    """Returns the options of each group of parameters, without the learning rate."""
    return [
        {key: value for key, value in group.items() if key not in _IMPLEMENTATION}
        for group in optimizer.param_groups
    ]


def server_config(optimizer: Any, schedule: Any) -> ps_pb2.OptimizerConfig:
    """The optimizer as parameter servers run it."""
    kind = type(optimizer)
    if kind not in _SERVED and not isinstance(optimizer, CustomOptimizer):
        names = ", ".join(sorted(served.__name__ for served in _SERVED))
        nearest = _NEAREST.get(kind.__name__) or ("Adam" if "Adam" in kind.__name__ else "SGD")
        raise UserError(
            f"Parameter servers have no optimizer {kind.__name__}; they have {names}.",
            hint=f"The nearest is torch.optim.{nearest}; or write it in NumPy, as an elasticdl.Optimizer; or train "
            "with --distribution_strategy=Local.",
        )
    first, *others = group_options(optimizer)
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    for other, rate in zip(others, rates[1:], strict=True):
        different = [key for key, value in first.items() if other[key] != value]
        if different or rate != rates[0]:
            raise UserError(
                "The optimizer has parameter groups that differ in "
                f"{', '.join(different) or 'lr'}; parameter servers treat all parameters alike.",
                hint="Use one group, or train with --distribution_strategy=Local.",
            )
    if getattr(schedule, "cycle_momentum", False):
        raise UserError(
            f"{type(schedule).__name__} also changes the momentum, which parameter servers cannot.",
            hint="Make it with cycle_momentum=False, or train with --distribution_strategy=Local.",
        )
    if isinstance(optimizer, CustomOptimizer):
        return to_config(optimizer.custom)
    name, options = _SERVED[kind]
    values = {theirs: float(first[ours]) for theirs, ours in options}
    if "betas" in first:
        values["beta_1"], values["beta_2"] = (float(beta) for beta in first["betas"])
    for switch in ("maximize", "decoupled_weight_decay"):
        if first.get(switch):
            values[switch] = 1.0
    return ps_pb2.OptimizerConfig(name=name, flavor="torch", options=values)


def check_options(optimizer: Any, schedule: Any, *, sent: list[dict[str, Any]]) -> None:
    """Raises `UserError` if the optimizer is to do by now what servers do not: callbacks may change its groups of
    parameters, or add some, and servers get them once (`group_options`).
    """
    present = group_options(optimizer)
    if present == sent and len({float(group["lr"]) for group in optimizer.param_groups}) == 1:
        return
    # Groups that differ from each other.
    server_config(optimizer, schedule)
    changed = [key for key, value in sent[0].items() if present[0].get(key) != value]
    if changed:
        raise UserError(
            f"{', '.join(changed)} of the optimizer {type(optimizer).__name__} changes in the middle of the training; "
            "parameter servers have the options of its beginning.",
            hint="Change nothing but the learning rate, or train with --distribution_strategy=Local.",
        )


# -- for checkpoints
# ---------------------------------------------------------------------------------------------


def slots(optimizer: Any, names: Mapping[int, str]) -> dict[str, Array]:
    """Returns the optimizer's slots as arrays; `names` has the name of each parameter with numbers by its id.

    kind/NAME tells which optimizer it is. slot/PARAMETER/NAME is a tensor and number/PARAMETER/NAME a number
    of a parameter's, group/N/NAME a number (or several) of a group of parameters, its learning rate among them.
    """
    found: dict[str, Array] = {f"kind/{type(optimizer).__name__}": np.array(1)}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if value is None or id(parameter) not in names:
                continue
            if isinstance(value, (tuple, list)) or not _is_numeric(value):
                raise UserError(
                    f"{type(optimizer).__name__} keeps {type(value).__name__} as its {key}, "
                    "which cannot go into a checkpoint.",
                    hint="Use another optimizer, or train without --checkpoint_steps.",
                )
            kind = "slot" if isinstance(value, torch.Tensor) else "number"
            found[f"{kind}/{names[id(parameter)]}/{key}"] = _array(value)
    for index, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key not in ("params", "param_names") and _is_numeric(value):
                found[f"group/{index}/{key}"] = _array(value)
    return found


def load_slots(optimizer: Any, names: Mapping[int, str], state: Mapping[str, Array]) -> dict[str, Array]:
    """The reverse, with everything in the types and on the devices the optimizer wants it. Returns what is of groups of
    parameters that this optimizer does not have: callbacks may be going to add them (`load_added`).
    """
    left: dict[str, Array] = {}
    document = optimizer.state_dict()
    numbers = {
        names[id(parameter)]: number
        for group, saved in zip(optimizer.param_groups, document["param_groups"], strict=True)
        for parameter, number in zip(group["params"], saved["params"], strict=True)
        if id(parameter) in names
    }
    restored: dict[int, dict[str, Any]] = {}
    for name, array in state.items():
        kind, _, rest = name.partition("/")
        if kind == "kind" and rest != type(optimizer).__name__:
            raise UserError(
                f"The checkpoint is of the optimizer {rest}, and the model definition has "
                f"{type(optimizer).__name__}."
            )
        owner, _, key = rest.rpartition("/")
        if kind in ("slot", "number"):
            if owner not in numbers:
                if owner not in names.values():
                    raise UserError(f"The saved optimizer has {owner}, which is no parameter of this model.")
                left[name] = array
                continue
            value = torch.from_numpy(np.array(array)) if kind == "slot" else np.asarray(array).item()
            restored.setdefault(numbers[owner], {})[key] = value
        elif kind == "group":
            index = int(owner)
            if index >= len(document["param_groups"]):
                left[name] = array
                continue
            group = document["param_groups"][index]
            if key in group:
                group[key] = _like(group[key], array)
    document["state"] = restored
    groups = optimizer.param_groups
    optimizer.load_state_dict(document)
    # It makes others; callbacks may have kept these.
    for group, loaded in zip(groups, optimizer.param_groups, strict=True):
        group.update(loaded)
    optimizer.param_groups = groups
    return left


def load_added(
    optimizer: Any, names: Mapping[int, str], left: Mapping[str, Array], *, scheduled: bool
) -> None:
    """Loads the rest of `load_slots`, after callbacks have replayed all past events. Raises `UserError` if they have
    not added its groups.
    """
    wanted = {}
    for name, array in left.items():
        kind, _, rest = name.partition("/")
        owner, _, key = rest.rpartition("/")
        added = kind == "group" and int(owner) < len(optimizer.param_groups)
        # Callbacks have set their rates by now. They do not know the schedule's changes from batch to batch.
        if not added or (key == "lr" and scheduled):
            wanted[name] = array
    missing = load_slots(optimizer, names, slots(optimizer, names) | wanted)
    if missing:
        owners = {
            name.split("/", 1)[1].rpartition("/")[0] for name in missing if not name.startswith("group/")
        }
        raise UserError(
            f"The saved optimizer has {', '.join(sorted(owners)) or 'more groups of parameters'}, which the one of "
            "the model definition has not.",
            hint="Callbacks that add a group of parameters must do so in on_train_begin, on_epoch_begin or "
            "on_epoch_end: these are repeated where a training continues.",
        )


def _is_numeric(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return bool(value) and all(_is_numeric(each) for each in value)
    return isinstance(value, (bool, int, float, torch.Tensor))


def _array(value: Any) -> Array:
    if isinstance(value, torch.Tensor):
        return to_array(value).copy()
    return np.array(value)


def _like(present: Any, array: Array) -> Any:
    """A saved value of the kind that is there now."""
    if isinstance(present, torch.Tensor):
        return torch.from_numpy(np.array(array)).to(present.dtype)
    if isinstance(present, (tuple, list)):
        return type(present)(array.tolist())
    return np.asarray(array).item()
