"""The optimizers of Keras, as tf.keras 2.15 and Keras 3 compute them.

What sets them apart from PyTorch's of the same names: weight decay never passes through the gradient, epsilon
often stands under the root, momentum contains the learning rate, and the step is counted by the optimizer and
not by the parameter. Powers of the betas are rounded to the parameter's dtype as Keras does: 1 - 0.999 is off
by one part in 100,000 in float32, and the first steps show it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from elasticdl.ps.tensors import Array
from elasticdl.ps.update import MomentumProducts, Optimizer, Slots, approach, average


class KerasOptimizer(Optimizer):
    def decay(self, value: Array, grad: Array, learning_rate: float, out: Array, spare: Array) -> Array:
        if self.options["weight_decay"]:
            np.multiply(value, self.options["weight_decay"], out=spare)
            np.multiply(spare, learning_rate, out=spare)
            np.subtract(value, spare, out=value)
        return grad

    def constants(
        self, slots: Slots, learning_rate: float, step: int, dtype: np.dtype[Any]
    ) -> tuple[float, ...]:
        return (learning_rate,)


def _one_minus_power(beta: float, step: int, dtype: np.dtype[Any]) -> float:
    return float(dtype.type(1) - np.power(dtype.type(beta), dtype.type(step)))


class SGD(KerasOptimizer):
    """v = momentum * v - lr * g;  x += v, or with Nesterov x += momentum * v - lr * g."""

    defaults: ClassVar[Mapping[str, float]] = {"momentum": 0.0, "nesterov": 0.0, "weight_decay": 0.0}

    def element_slots(self) -> Mapping[str, float]:
        return {"momentum": 0.0} if self.options["momentum"] else {}

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        (learning_rate,) = constants
        momentum = self.options["momentum"]
        np.multiply(grad, learning_rate, out=a)
        if not momentum:
            np.subtract(value, a, out=value)
            return
        velocity = slots["momentum"]
        np.multiply(velocity, momentum, out=velocity)
        np.subtract(velocity, a, out=velocity)
        if self.options["nesterov"]:
            np.multiply(velocity, momentum, out=b)
            np.subtract(b, a, out=b)
            np.add(value, b, out=value)
        else:
            np.add(value, velocity, out=value)


class Adagrad(KerasOptimizer):
    """s += g²;  x -= lr * g / √(s + ε)."""

    defaults: ClassVar[Mapping[str, float]] = {
        "initial_accumulator_value": 0.1,
        "epsilon": 1e-7,
        "weight_decay": 0.0,
    }

    def element_slots(self) -> Mapping[str, float]:
        return {"accumulator": self.options["initial_accumulator_value"]}

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        (learning_rate,) = constants
        accumulator = slots["accumulator"]
        np.multiply(grad, grad, out=a)
        np.add(accumulator, a, out=accumulator)
        np.add(accumulator, self.options["epsilon"], out=a)
        np.sqrt(a, out=a)
        np.multiply(grad, learning_rate, out=b)
        np.divide(b, a, out=b)
        np.subtract(value, b, out=value)


class Adam(KerasOptimizer):
    """m += (1 - β₁)(g - m);  v += (1 - β₂)(g² - v);  x -= lr * √(1 - β₂ᵗ) / (1 - β₁ᵗ) * m / (√v + ε).

    AMSGrad divides by the largest v so far.
    """

    defaults: ClassVar[Mapping[str, float]] = {
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-7,
        "amsgrad": 0.0,
        "weight_decay": 0.0,
    }

    def element_slots(self) -> Mapping[str, float]:
        slots = {"momentum": 0.0, "velocity": 0.0}
        return {**slots, "velocity_hat": 0.0} if self.options["amsgrad"] else slots

    def constants(
        self, slots: Slots, learning_rate: float, step: int, dtype: np.dtype[Any]
    ) -> tuple[float, ...]:
        first = _one_minus_power(self.options["beta_1"], step, dtype)
        second = _one_minus_power(self.options["beta_2"], step, dtype)
        return (learning_rate * math.sqrt(second) / first,)

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        (alpha,) = constants
        momentum, velocity = slots["momentum"], slots["velocity"]
        approach(momentum, grad, 1 - self.options["beta_1"], a)
        np.multiply(grad, grad, out=a)
        approach(velocity, a, 1 - self.options["beta_2"], a)
        if self.options["amsgrad"]:
            np.maximum(slots["velocity_hat"], velocity, out=slots["velocity_hat"])
            velocity = slots["velocity_hat"]
        np.sqrt(velocity, out=a)
        np.add(a, self.options["epsilon"], out=a)
        np.multiply(momentum, alpha, out=b)
        np.divide(b, a, out=b)
        np.subtract(value, b, out=value)


class AdamW(Adam):
    """Adam; in Keras only the usual weight decay is another."""

    defaults: ClassVar[Mapping[str, float]] = {**Adam.defaults, "weight_decay": 0.004}


class RMSprop(KerasOptimizer):
    """v = ρ v + (1 - ρ) g²;  x -= lr * g / √(v + ε), summed up with momentum if there is one.

    Centered: the square of the average gradient is taken from v under the root.
    """

    defaults: ClassVar[Mapping[str, float]] = {
        "rho": 0.9,
        "momentum": 0.0,
        "epsilon": 1e-7,
        "centered": 0.0,
        "weight_decay": 0.0,
    }

    def element_slots(self) -> Mapping[str, float]:
        slots = {"velocity": 0.0}
        if self.options["momentum"] > 0:
            slots["momentum"] = 0.0
        if self.options["centered"]:
            slots["average_gradient"] = 0.0
        return slots

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        (learning_rate,) = constants
        rho = self.options["rho"]
        np.multiply(grad, grad, out=a)
        average(slots["velocity"], a, rho, a)
        if self.options["centered"]:
            average(slots["average_gradient"], grad, rho, a)
            np.multiply(slots["average_gradient"], slots["average_gradient"], out=a)
            np.subtract(slots["velocity"], a, out=a)
            np.add(a, self.options["epsilon"], out=a)
        else:
            np.add(slots["velocity"], self.options["epsilon"], out=a)
        np.sqrt(a, out=a)
        np.multiply(grad, learning_rate, out=b)
        np.divide(b, a, out=b)
        if self.options["momentum"] > 0:
            np.multiply(slots["momentum"], self.options["momentum"], out=slots["momentum"])
            np.add(slots["momentum"], b, out=slots["momentum"])
            np.subtract(value, slots["momentum"], out=value)
        else:
            np.subtract(value, b, out=value)


class Adadelta(KerasOptimizer):
    """s = ρ s + (1 - ρ) g²;  d = g * √(u + ε) / √(s + ε);  u = ρ u + (1 - ρ) d²;  x -= lr * d."""

    defaults: ClassVar[Mapping[str, float]] = {"rho": 0.95, "epsilon": 1e-7, "weight_decay": 0.0}

    def element_slots(self) -> Mapping[str, float]:
        return {"accumulated_grad": 0.0, "accumulated_delta": 0.0}

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        (learning_rate,) = constants
        rho, epsilon = self.options["rho"], self.options["epsilon"]
        np.multiply(grad, grad, out=a)
        average(slots["accumulated_grad"], a, rho, a)
        np.add(slots["accumulated_delta"], epsilon, out=b)
        np.sqrt(b, out=b)
        np.multiply(b, grad, out=b)
        np.add(slots["accumulated_grad"], epsilon, out=a)
        np.sqrt(a, out=a)
        np.divide(b, a, out=b)
        np.multiply(b, b, out=a)
        average(slots["accumulated_delta"], a, rho, a)
        np.multiply(b, learning_rate, out=b)
        np.subtract(value, b, out=value)


class Adamax(KerasOptimizer):
    """m += (1 - β₁)(g - m);  u = max(β₂ u, |g|);  x -= lr * m / ((1 - β₁ᵗ)(u + ε))."""

    defaults: ClassVar[Mapping[str, float]] = {
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-7,
        "weight_decay": 0.0,
    }

    def element_slots(self) -> Mapping[str, float]:
        return {"momentum": 0.0, "norm": 0.0}

    def constants(
        self, slots: Slots, learning_rate: float, step: int, dtype: np.dtype[Any]
    ) -> tuple[float, ...]:
        return learning_rate, _one_minus_power(self.options["beta_1"], step, dtype)

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        learning_rate, correction = constants
        approach(slots["momentum"], grad, 1 - self.options["beta_1"], a)
        np.multiply(slots["norm"], self.options["beta_2"], out=slots["norm"])
        np.abs(grad, out=a)
        np.maximum(slots["norm"], a, out=slots["norm"])
        np.add(slots["norm"], self.options["epsilon"], out=a)
        np.multiply(a, correction, out=a)
        np.multiply(slots["momentum"], learning_rate, out=b)
        np.divide(b, a, out=b)
        np.subtract(value, b, out=value)


class Nadam(KerasOptimizer):
    """Adam whose momentum looks one step ahead: μₜ = β₁ (1 - 0.96ᵗ / 2), Pₜ = μ₁ ⋯ μₜ,

    x -= lr * (μₜ₊₁ m / (1 - Pₜ₊₁) + (1 - μₜ) g / (1 - Pₜ)) / (√(v / (1 - β₂ᵗ)) + ε).
    """

    defaults: ClassVar[Mapping[str, float]] = {
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-7,
        "weight_decay": 0.0,
    }

    def __init__(self, options: Mapping[str, float]) -> None:
        super().__init__(options)
        self._products = MomentumProducts(self.options["beta_1"], 1.0)

    def element_slots(self) -> Mapping[str, float]:
        return {"momentum": 0.0, "velocity": 0.0}

    def constants(
        self, slots: Slots, learning_rate: float, step: int, dtype: np.dtype[Any]
    ) -> tuple[float, ...]:
        products = self._products
        return (
            products.momentum(step + 1) / (1 - products.product(step + 1)) * learning_rate,
            (1 - products.momentum(step)) / (1 - products.product(step)) * learning_rate,
            _one_minus_power(self.options["beta_2"], step, dtype),
        )

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        of_momentum, of_gradient, correction = constants
        approach(slots["momentum"], grad, 1 - self.options["beta_1"], a)
        np.multiply(grad, grad, out=a)
        approach(slots["velocity"], a, 1 - self.options["beta_2"], a)
        np.multiply(slots["momentum"], of_momentum, out=b)
        np.multiply(grad, of_gradient, out=a)
        np.add(b, a, out=b)
        np.divide(slots["velocity"], correction, out=a)
        np.sqrt(a, out=a)
        np.add(a, self.options["epsilon"], out=a)
        np.divide(b, a, out=b)
        np.subtract(value, b, out=value)


class Ftrl(KerasOptimizer):
    """n' = n + g²;  z += g + 2 s x - (n'ᵖ - nᵖ) / lr * x;  x = (clip(z, ±l1) - z) / ((n'ᵖ + β) / lr + 2 l2).

    p is -learning_rate_power, s is l2_shrinkage.
    """

    defaults: ClassVar[Mapping[str, float]] = {
        "learning_rate_power": -0.5,
        "initial_accumulator_value": 0.1,
        "l1": 0.0,
        "l2": 0.0,
        "l2_shrinkage": 0.0,
        "beta": 0.0,
        "weight_decay": 0.0,
    }

    def element_slots(self) -> Mapping[str, float]:
        return {"accumulator": self.options["initial_accumulator_value"], "linear": 0.0}

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        (learning_rate,) = constants
        if learning_rate == 0:
            return  # the rule divides by it; nothing is what other optimizers do then
        accumulator, linear = slots["accumulator"], slots["linear"]
        l1 = self.options["l1"]
        self._power(accumulator, a)
        np.multiply(grad, grad, out=b)
        np.add(accumulator, b, out=accumulator)
        self._power(accumulator, b)
        np.subtract(b, a, out=a)
        np.divide(a, learning_rate, out=a)
        np.multiply(a, value, out=a)
        np.add(linear, grad, out=linear)
        np.subtract(linear, a, out=linear)
        if self.options["l2_shrinkage"]:
            np.multiply(value, 2 * self.options["l2_shrinkage"], out=a)
            np.add(linear, a, out=linear)
        np.divide(b, learning_rate, out=b)
        np.add(b, 2 * self.options["l2"] + self.options["beta"] / learning_rate, out=b)
        np.clip(linear, -l1, l1, out=a)
        np.subtract(a, linear, out=a)
        np.divide(a, b, out=value)

    def _power(self, base: Array, out: Array) -> None:
        if self.options["learning_rate_power"] == -0.5:
            np.sqrt(base, out=out)  # several times faster, and the usual case
        else:
            np.power(base, -self.options["learning_rate_power"], out=out)


RULES: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "adagrad": Adagrad,
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RMSprop,
    "adadelta": Adadelta,
    "adamax": Adamax,
    "nadam": Nadam,
    "ftrl": Ftrl,
}
