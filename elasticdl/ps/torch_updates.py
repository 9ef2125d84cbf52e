"""The optimizers of PyTorch, as torch.optim computes them.

What sets them apart from Keras's of the same names: weight decay is added to the gradient except where it is
said to be decoupled, epsilon stands outside the root, the learning rate outside of momentum, and every
parameter counts its own steps: one that had no gradient in some batch is a step behind the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from elasticdl.ps.tensors import Array
from elasticdl.ps.update import MomentumProducts, Optimizer, Slots, approach, average

_COMMON: Mapping[str, float] = {"weight_decay": 0.0, "maximize": 0.0}


class TorchOptimizer(Optimizer):
    def slots(self, name: str, value: Array) -> Slots:
        return {**super().slots(name, value), "step": np.zeros((), np.int64)}

    def constants(
        self, slots: Slots, learning_rate: float, step: int, dtype: np.dtype[Any]
    ) -> tuple[float, ...]:
        slots["step"] += 1
        return self.step_constants(learning_rate, int(slots["step"]))

    def step_constants(self, learning_rate: float, step: int) -> tuple[float, ...]:
        """`constants`, for the parameter's own step."""
        return (learning_rate,)

    def decay(self, value: Array, grad: Array, learning_rate: float, out: Array, spare: Array) -> Array:
        weight_decay = self.options["weight_decay"]
        if self.options["maximize"]:
            grad = np.negative(grad, out=out)
        if weight_decay and self.options.get("decoupled_weight_decay"):
            np.multiply(value, 1 - learning_rate * weight_decay, out=value)
        elif weight_decay:
            np.multiply(value, weight_decay, out=spare)
            grad = np.add(grad, spare, out=out)
        return grad


def _average_square(slot: Array, grad: Array, rho: float, scratch: Array) -> None:
    """slot = rho * slot + (1 - rho) * grad²."""
    np.multiply(grad, grad, out=scratch)
    average(slot, scratch, rho, scratch)


class SGD(TorchOptimizer):
    """b = g at first, then momentum * b + (1 - dampening) g;  x -= lr * b.

    Nesterov: x -= lr * (g + momentum * b).
    """

    defaults: ClassVar[Mapping[str, float]] = {
        **_COMMON,
        "momentum": 0.0,
        "dampening": 0.0,
        "nesterov": 0.0,
    }

    def element_slots(self) -> Mapping[str, float]:
        return {"momentum": 0.0} if self.options["momentum"] else {}

    def step_constants(self, learning_rate: float, step: int) -> tuple[float, ...]:
        return learning_rate, 1.0 if step == 1 else 1.0 - self.options["dampening"]

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        learning_rate, gradient_share = constants
        momentum = self.options["momentum"]
        if momentum:
            buffer = slots["momentum"]
            np.multiply(buffer, momentum, out=buffer)
            np.multiply(grad, gradient_share, out=a)
            np.add(buffer, a, out=buffer)
            if self.options["nesterov"]:
                np.multiply(buffer, momentum, out=a)
                np.add(grad, a, out=a)
                grad = a
            else:
                grad = buffer
        np.multiply(grad, learning_rate, out=a)
        np.subtract(value, a, out=value)


class Adagrad(TorchOptimizer):
    """s += g²;  x -= lr / (1 + (t - 1) lr_decay) * g / (√s + ε)."""

    defaults: ClassVar[Mapping[str, float]] = {
        **_COMMON,
        "lr_decay": 0.0,
        "initial_accumulator_value": 0.0,
        "epsilon": 1e-10,
    }

    def element_slots(self) -> Mapping[str, float]:
        return {"accumulator": self.options["initial_accumulator_value"]}

    def step_constants(self, learning_rate: float, step: int) -> tuple[float, ...]:
        return (learning_rate / (1 + (step - 1) * self.options["lr_decay"]),)

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        (learning_rate,) = constants
        np.multiply(grad, grad, out=a)
        np.add(slots["accumulator"], a, out=slots["accumulator"])
        np.sqrt(slots["accumulator"], out=a)
        np.add(a, self.options["epsilon"], out=a)
        np.multiply(grad, learning_rate, out=b)
        np.divide(b, a, out=b)
        np.subtract(value, b, out=value)


class Adam(TorchOptimizer):
    """m += (1 - β₁)(g - m);  v = β₂ v + (1 - β₂) g²;  x -= lr / (1 - β₁ᵗ) * m / (√v / √(1 - β₂ᵗ) + ε).

    AMSGrad divides by the largest v so far.
    """

    defaults: ClassVar[Mapping[str, float]] = {
        **_COMMON,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-8,
        "amsgrad": 0.0,
        "decoupled_weight_decay": 0.0,
    }

    def element_slots(self) -> Mapping[str, float]:
        slots = {"momentum": 0.0, "velocity": 0.0}
        return {**slots, "velocity_hat": 0.0} if self.options["amsgrad"] else slots

    def step_constants(self, learning_rate: float, step: int) -> tuple[float, ...]:
        return (
            learning_rate / (1 - self.options["beta_1"] ** step),
            math.sqrt(1 - self.options["beta_2"] ** step),
        )

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        step_size, correction = constants
        velocity = slots["velocity"]
        approach(slots["momentum"], grad, 1 - self.options["beta_1"], a)
        _average_square(velocity, grad, self.options["beta_2"], a)
        if self.options["amsgrad"]:
            np.maximum(slots["velocity_hat"], velocity, out=slots["velocity_hat"])
            velocity = slots["velocity_hat"]
        np.sqrt(velocity, out=a)
        np.divide(a, correction, out=a)
        np.add(a, self.options["epsilon"], out=a)
        np.multiply(slots["momentum"], step_size, out=b)
        np.divide(b, a, out=b)
        np.subtract(value, b, out=value)


class AdamW(Adam):
    """Adam whose weight decay does not pass through the gradient: x *= 1 - lr * weight_decay."""

    defaults: ClassVar[Mapping[str, float]] = {
        **Adam.defaults,
        "weight_decay": 0.01,
        "decoupled_weight_decay": 1.0,
    }


class RMSprop(TorchOptimizer):
    """v = ρ v + (1 - ρ) g²;  d = g / (√v + ε), summed up with momentum if there is one;  x -= lr * d.

    Centered: the square of the average gradient is taken from v under the root. ρ is called alpha in PyTorch.
    """

    defaults: ClassVar[Mapping[str, float]] = {
        **_COMMON,
        "rho": 0.99,
        "momentum": 0.0,
        "epsilon": 1e-8,
        "centered": 0.0,
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
        _average_square(slots["velocity"], grad, rho, a)
        if self.options["centered"]:
            average = slots["average_gradient"]
            approach(average, grad, 1 - rho, a)
            np.multiply(average, average, out=a)
            np.subtract(slots["velocity"], a, out=a)
            np.sqrt(a, out=a)
        else:
            np.sqrt(slots["velocity"], out=a)
        np.add(a, self.options["epsilon"], out=a)
        np.divide(grad, a, out=b)
        if self.options["momentum"] > 0:
            np.multiply(slots["momentum"], self.options["momentum"], out=slots["momentum"])
            np.add(slots["momentum"], b, out=slots["momentum"])
            np.multiply(slots["momentum"], learning_rate, out=b)
        else:
            np.multiply(b, learning_rate, out=b)
        np.subtract(value, b, out=value)


class Adadelta(TorchOptimizer):
    """s = ρ s + (1 - ρ) g²;  d = g * √(u + ε) / √(s + ε);  u = ρ u + (1 - ρ) d²;  x -= lr * d."""

    defaults: ClassVar[Mapping[str, float]] = {**_COMMON, "rho": 0.9, "epsilon": 1e-6}

    def element_slots(self) -> Mapping[str, float]:
        return {"accumulated_grad": 0.0, "accumulated_delta": 0.0}

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        (learning_rate,) = constants
        rho, epsilon = self.options["rho"], self.options["epsilon"]
        _average_square(slots["accumulated_grad"], grad, rho, a)
        np.add(slots["accumulated_delta"], epsilon, out=b)
        np.sqrt(b, out=b)
        np.add(slots["accumulated_grad"], epsilon, out=a)
        np.sqrt(a, out=a)
        np.divide(b, a, out=b)
        np.multiply(b, grad, out=b)
        _average_square(slots["accumulated_delta"], b, rho, a)
        np.multiply(b, learning_rate, out=b)
        np.subtract(value, b, out=value)


class Adamax(TorchOptimizer):
    """m += (1 - β₁)(g - m);  u = max(β₂ u, |g| + ε);  x -= lr / (1 - β₁ᵗ) * m / u."""

    defaults: ClassVar[Mapping[str, float]] = {
        **_COMMON,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-8,
    }

    def element_slots(self) -> Mapping[str, float]:
        return {"momentum": 0.0, "norm": 0.0}

    def step_constants(self, learning_rate: float, step: int) -> tuple[float, ...]:
        return (learning_rate / (1 - self.options["beta_1"] ** step),)

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        (step_size,) = constants
        approach(slots["momentum"], grad, 1 - self.options["beta_1"], a)
        np.multiply(slots["norm"], self.options["beta_2"], out=slots["norm"])
        np.abs(grad, out=a)
        np.add(a, self.options["epsilon"], out=a)
        np.maximum(slots["norm"], a, out=slots["norm"])
        np.multiply(slots["momentum"], step_size, out=b)
        np.divide(b, slots["norm"], out=b)
        np.subtract(value, b, out=value)


class NAdam(TorchOptimizer):
    """Adam whose momentum looks one step ahead: μₜ = β₁ (1 - 0.96^(t momentum_decay) / 2), Pₜ = μ₁ ⋯ μₜ,

    x -= lr * ((1 - μₜ) g / (1 - Pₜ) + μₜ₊₁ m / (1 - Pₜ₊₁)) / (√(v / (1 - β₂ᵗ)) + ε).
    """

    defaults: ClassVar[Mapping[str, float]] = {
        **_COMMON,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-8,
        "momentum_decay": 0.004,
        "decoupled_weight_decay": 0.0,
    }

    def __init__(self, options: Mapping[str, float]) -> None:
        super().__init__(options)
        self._products = MomentumProducts(self.options["beta_1"], self.options["momentum_decay"])

    def element_slots(self) -> Mapping[str, float]:
        return {"momentum": 0.0, "velocity": 0.0}

    def step_constants(self, learning_rate: float, step: int) -> tuple[float, ...]:
        products = self._products
        return (
            learning_rate * (1 - products.momentum(step)) / (1 - products.product(step)),
            learning_rate * products.momentum(step + 1) / (1 - products.product(step + 1)),
            1 - self.options["beta_2"] ** step,
        )

    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        of_gradient, of_momentum, correction = constants
        approach(slots["momentum"], grad, 1 - self.options["beta_1"], a)
        _average_square(slots["velocity"], grad, self.options["beta_2"], a)
        np.multiply(grad, of_gradient, out=b)
        np.multiply(slots["momentum"], of_momentum, out=a)
        np.add(b, a, out=b)
        np.divide(slots["velocity"], correction, out=a)
        np.sqrt(a, out=a)
        np.add(a, self.options["epsilon"], out=a)
        np.divide(b, a, out=b)
        np.subtract(value, b, out=value)


RULES: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "adagrad": Adagrad,
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RMSprop,
    "adadelta": Adadelta,
    "adamax": Adamax,
    "nadam": NAdam,
}
