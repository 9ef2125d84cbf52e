"""What all optimizers have in common: their options, their slots, and how one goes over a parameter.

A parameter is updated in place and block by block. Each rule is a handful of NumPy calls on blocks that stay
in the processor's cache, with a few scratch blocks for what lies in between; so an update costs one pass over
memory and allocates nothing, however large the parameter.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from elasticdl.ps.tensors import Array

# Elements. Five blocks of float32 are 640 KB, which fits the second-level cache of the machines we know; half
# or twice as many make no difference that can be measured, a tenth is slower by half.
BLOCK = 32_768

Slots = dict[str, Array]


class Optimizer(abc.ABC):
    """One rule with its options. Not thread-safe: the scratch blocks belong to the update that is running."""

    # Every option with the value it has if it is not given. Switches are 0 or 1.
    defaults: ClassVar[Mapping[str, float]] = {}

    def __init__(self, options: Mapping[str, float]) -> None:
        self.options = {**self.defaults, **options}
        self._scratch: dict[np.dtype[Any], tuple[Array, Array, Array]] = {}

    def slots(self, name: str, value: Array) -> Slots:
        """The arrays this optimizer remembers for a parameter, as they are before the first update."""
        return {slot: np.full_like(value, fill) for slot, fill in self.element_slots().items()}

    def apply(
        self, name: str, value: Array, grad: Array, slots: Slots, learning_rate: float, step: int
    ) -> None:
        """Updates a parameter and its slots in place. The first step is 1.

        All arrays are in C order and of one shape; the gradient is only read.
        """
        if value.dtype.kind != "f":
            raise ValueError(
                f"{name} is of {value.dtype.name}; only floating-point parameters can be trained"
            )
        grad = grad.astype(value.dtype, copy=False)
        constants = self.constants(slots, learning_rate, step, value.dtype)
        if value.dtype not in self._scratch:
            block = np.empty((3, BLOCK), value.dtype)
            self._scratch[value.dtype] = (block[0], block[1], block[2])
        first, second, third = self._scratch[value.dtype]
        flat = {slot: slots[slot].reshape(-1) for slot in self.element_slots()}
        values, grads = value.reshape(-1), grad.reshape(-1)
        for start in range(0, value.size, BLOCK):
            end = min(start + BLOCK, value.size)
            size = end - start
            block_value = values[start:end]
            self.update(
                block_value,
                self.decay(block_value, grads[start:end], learning_rate, third[:size], first[:size]),
                {slot: array[start:end] for slot, array in flat.items()},
                constants,
                first[:size],
                second[:size],
            )

    @abc.abstractmethod
    def element_slots(self) -> Mapping[str, float]:
        """The slots that have a number for every number of the parameter, and what these start as."""

    @abc.abstractmethod
    def constants(
        self, slots: Slots, learning_rate: float, step: int, dtype: np.dtype[Any]
    ) -> tuple[float, ...]:
        """What `update` needs beside arrays, the same for all blocks of one step."""

    @abc.abstractmethod
    def decay(self, value: Array, grad: Array, learning_rate: float, out: Array, spare: Array) -> Array:
        """Weight decay: changes the block's value, or gives another gradient, written into `out`."""

    @abc.abstractmethod
    def update(
        self, value: Array, grad: Array, slots: Slots, constants: tuple[float, ...], a: Array, b: Array
    ) -> None:
        """The rule, on one block. `a` and `b` are scratch blocks."""


def approach(slot: Array, target: Array, rate: float, scratch: Array) -> None:
    """slot += (target - slot) * rate; the target may be the scratch block."""
    np.subtract(target, slot, out=scratch)
    np.multiply(scratch, rate, out=scratch)
    np.add(slot, scratch, out=slot)


def average(slot: Array, target: Array, rho: float, scratch: Array) -> None:
    """slot = rho * slot + (1 - rho) * target; the target may be the scratch block."""
    np.multiply(target, 1 - rho, out=scratch)
    np.multiply(slot, rho, out=slot)
    np.add(slot, scratch, out=slot)


class MomentumProducts:
    """The products of the momenta of Nadam's first steps: momentum_1 * ... * momentum_t.

    A function of the step alone, so it is no slot; remembered because each takes the one before.
    """

    # Against 1 such a number is nothing, in any dtype, and all that follow it are smaller.
    _NOTHING = 1e-30

    def __init__(self, beta_1: float, decay: float) -> None:
        self._beta_1 = beta_1
        self._decay = decay
        self._products = [1.0]

    def momentum(self, step: int) -> float:
        return self._beta_1 * (1.0 - 0.5 * math.pow(0.96, step * self._decay))

    def product(self, step: int) -> float:
        while len(self._products) <= step:
            if self._products[-1] < self._NOTHING:
                return 0.0
            self._products.append(self._products[-1] * self.momentum(len(self._products)))
        return self._products[step]
