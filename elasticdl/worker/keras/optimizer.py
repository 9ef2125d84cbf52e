"""A Keras optimizer seen from outside: its settings for parameter servers, its learning rate, its memory.

There are three kinds: that of Keras 3, that of tf.keras 2.11 and later, and the legacy one before that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.ps.embedding.custom_optimizer import Optimizer, to_config
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.row_requests import squared_norm
from elasticdl.wire import ps_pb2
from elasticdl.worker.keras.custom_optimizer import CustomOptimizer
from elasticdl.worker.keras.errors import definition_error
from elasticdl.worker.keras.variable_values import read, stable_names, write_all
from elasticdl.worker.model.learning_rates import Rates

Array = NDArray[Any]

_OPTIONS = {
    "momentum": "momentum",
    "nesterov": "nesterov",
    "beta_1": "beta_1",
    "beta_2": "beta_2",
    "epsilon": "epsilon",
    "rho": "rho",
    "centered": "centered",
    "initial_accumulator_value": "initial_accumulator_value",
    "amsgrad": "amsgrad",
    "weight_decay": "weight_decay",
    "learning_rate_power": "learning_rate_power",
    "l1_regularization_strength": "l1",
    "l2_regularization_strength": "l2",
    "l2_shrinkage_regularization_strength": "l2_shrinkage",
    "beta": "beta",
}
# The worker does what these configure, or nothing does because it concerns only how Keras computes.
_ELSEWHERE = {
    "name",
    "learning_rate",
    "decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "jit_compile",
    "is_legacy_optimizer",
    "ema_momentum",
    "ema_overwrite_frequency",
}
# So small beside what is under the root, epsilon makes no difference in float32, there or behind the root.
_NOTHING = 1e-6
# Lists of variables, of names or of patterns, which differ between versions.
_EXEMPTED = "_exclude_from_weight_decay"


class KerasOptimizer:
    def __init__(self, make: Any, *, name: str) -> None:
        try:
            self.native = make()
        except UserError:
            raise
        except Exception as error:
            raise definition_error(f"The function optimizer of {name} failed", error) from error
        self._name = name
        self._built = False
        if isinstance(self.native, type) and issubclass(self.native, Optimizer):
            self.native = self.native()
        if isinstance(self.native, Optimizer):
            self.native = CustomOptimizer(self.native)
        if isinstance(self.native, str) or not hasattr(self.native, "apply_gradients"):
            raise UserError(
                f"The function optimizer of {name} returns a {type(self.native).__name__}.",
                hint="It must return a Keras optimizer, such as tf.keras.optimizers.Adam(0.001).",
            )
        self.rates = _OneRate(self.native)

    def build(self, variables: Sequence[Any]) -> None:
        """Makes the optimizer's variables beforehand: inside a function they could only be made once."""
        if self._built:
            return
        self._built = True
        if hasattr(self.native, "build"):
            self.native.build(variables)
        elif hasattr(self.native, "_create_all_weights"):
            self.native._create_all_weights(variables)

    # -- for parameter servers -------------------------------------------------------------------------------

    def config(self, variables: Mapping[str, Any]) -> ps_pb2.OptimizerConfig:
        """`UserError` names what the parameter servers cannot do."""
        self._check_constraints(variables)
        if isinstance(self.native, CustomOptimizer):
            return to_config(self.native.custom)
        kind = type(self.native).__name__
        settings = self.native.get_config()
        if _is_legacy(self.native) and _computes_otherwise(kind, settings):
            raise UserError(
                f"The optimizer of {self._name} is tf.keras.optimizers.legacy.{kind}, which with these settings "
                f"computes differently from tf.keras.optimizers.{kind}, and parameter servers and tables have only the "
                "latter.",
                hint=f"Use tf.keras.optimizers.{kind}, or train with --distribution_strategy=Local, without tables.",
            )
        config = ps_pb2.OptimizerConfig(name=kind.lower(), flavor="keras")
        for key, value in settings.items():
            if key in _ELSEWHERE:
                continue
            if key in _OPTIONS:
                if value is not None:
                    config.options[_OPTIONS[key]] = float(value)
            elif value not in (None, False):
                raise UserError(
                    f"The optimizer of {self._name} uses {key}={value}, which parameter servers do not know.",
                    hint="Leave it out, or train with --distribution_strategy=Local.",
                )
        exempted = [key for key, value in vars(self.native).items() if key.startswith(_EXEMPTED) and value]
        if exempted and config.options.get("weight_decay"):
            raise UserError(
                f"The optimizer of {self._name} exempts some parameters from weight decay.",
                hint="Parameter servers treat all alike: use --distribution_strategy=Local.",
            )
        make_optimizer(config)
        return config

    def _check_constraints(self, variables: Mapping[str, Any]) -> None:
        constrained = [name for name, variable in variables.items() if _constraint(variable)]
        if constrained:
            raise UserError(
                f"Parameters of {self._name} have constraints: {', '.join(constrained)}.",
                hint="Parameter servers do not keep constraints: use --distribution_strategy=Local.",
            )

    def clip(self, gradients: list[Any]) -> list[Any]:
        """Clips gradients as the optimizer would before it applies them, except gradients of single rows, which may
        come more than once. At most one of the three options is set.
        """
        norm = getattr(self.native, "clipnorm", None)
        overall = getattr(self.native, "global_clipnorm", None)
        value = getattr(self.native, "clipvalue", None)
        if norm:
            return [tf.clip_by_norm(gradient, norm) for gradient in gradients]
        if overall:
            clipped: list[Any] = tf.clip_by_global_norm(gradients, overall)[0]
            return clipped
        if value:
            return [tf.clip_by_value(gradient, -value, value) for gradient in gradients]
        return gradients

    def clip_arrays(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """The same for gradients that have left TensorFlow: those of tables, and with them all others."""
        norm = getattr(self.native, "clipnorm", None)
        overall = getattr(self.native, "global_clipnorm", None)
        value = getattr(self.native, "clipvalue", None)
        if norm:
            return {name: _scaled(array, norm, squared_norm([array])) for name, array in gradients.items()}
        if overall:
            total = squared_norm(gradients.values())
            return {name: _scaled(array, overall, total) for name, array in gradients.items()}
        if value:
            return {name: np.clip(array, -value, value) for name, array in gradients.items()}
        return dict(gradients)

    def learning_rate(self, step: int) -> float:
        rate = getattr(self.native, "_learning_rate", None)
        if rate is None:
            # Legacy optimizers keep it, whatever kind it is, under a name of its own.
            rate = self.native._get_hyper("learning_rate")
        if callable(rate) and not hasattr(rate, "assign"):
            rate = rate(step) if _is_schedule(rate) else rate()
        decay = getattr(self.native, "_initial_decay", 0.0)
        return float(np.asarray(rate)) / (1.0 + decay * step)

    # -- its memory ------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Array]:
        return {name: read(variable) for name, variable in self._variables().items()}

    def set_state(self, state: Mapping[str, Array]) -> None:
        write_all(self._variables(), state, what="The optimizer's state")

    def _variables(self) -> dict[str, Any]:
        own = self.native.variables
        variables = list(own() if callable(own) else own)
        rate = getattr(self.native, "_learning_rate", None)
        if hasattr(rate, "assign") and not any(one is rate for one in variables):
            # tf.keras does not count it among them, but a callback may have changed it.
            variables.append(rate)
        return dict(zip(stable_names(variables), variables, strict=True))


class _OneRate(Rates):
    """The rate as callbacks see it. A schedule instead of a number is nothing that they could change."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self.initial = self.read()

    def read(self) -> tuple[float, ...]:
        rate = self._rate()
        if rate is None or (callable(rate) and not hasattr(rate, "assign")):
            return ()
        return (float(rate.numpy() if hasattr(rate, "numpy") else rate),)

    def write(self, rates: tuple[float, ...]) -> None:
        for rate in rates:
            self._native.learning_rate = rate

    def _rate(self) -> Any:
        # Where losses are scaled, one optimizer is inside another.
        native = getattr(self._native, "inner_optimizer", self._native)
        rate = getattr(native, "_learning_rate", None)
        if rate is None and _is_legacy(native):
            rate = native._get_hyper("learning_rate")
        return rate


def _is_legacy(native: Any) -> bool:
    return hasattr(native, "_get_hyper")


def _computes_otherwise(kind: str, settings: Mapping[str, Any]) -> bool:
    """Whether one of before is another than that of the same name now."""
    if kind == "Nadam":
        # By another schedule of the momentum.
        return True
    if kind == "RMSprop":
        # Without momentum epsilon is behind the root.
        return not settings["momentum"]
    if kind == "Adagrad":
        return bool(settings["epsilon"] > _NOTHING * settings["initial_accumulator_value"])
    return False


def _is_schedule(rate: Any) -> bool:
    return any(base.__name__ == "LearningRateSchedule" for base in type(rate).__mro__)


def _scaled(array: Array, limit: float, squares: float) -> Array:
    """Scales an array down if a norm, of which this is the square, exceeds the limit."""
    if squares <= limit * limit:
        return array
    return np.multiply(array, limit / np.sqrt(squares), dtype=array.dtype)


def _constraint(variable: Any) -> Any:
    return getattr(variable, "constraint", None)
