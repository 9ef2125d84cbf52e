"""Activations, poolings, parameter attributes and optimizers, as configurations name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticdl.errors import UserError


class BaseActivation:
    def apply(self, tensor: Any) -> Any:
        return tensor


class LinearActivation(BaseActivation):
    """Leaves values as they are."""


IdentityActivation = LinearActivation


class TanhActivation(BaseActivation):
    def apply(self, tensor: Any) -> Any:
        import paddle

        return paddle.tanh(tensor)


class SigmoidActivation(BaseActivation):
    def apply(self, tensor: Any) -> Any:
        import paddle

        return paddle.nn.functional.sigmoid(tensor)


class ReluActivation(BaseActivation):
    def apply(self, tensor: Any) -> Any:
        import paddle

        return paddle.nn.functional.relu(tensor)


class BReluActivation(BaseActivation):
    def apply(self, tensor: Any) -> Any:
        import paddle

        return paddle.clip(tensor, 0.0, 24.0)


class SoftmaxActivation(BaseActivation):
    def apply(self, tensor: Any) -> Any:
        import paddle

        return paddle.nn.functional.softmax(tensor, axis=-1)


class ExpActivation(BaseActivation):
    def apply(self, tensor: Any) -> Any:
        import paddle

        return paddle.exp(tensor)


class SquareActivation(BaseActivation):
    def apply(self, tensor: Any) -> Any:
        import paddle

        return paddle.square(tensor)


class BasePoolingType:
    kind = ""


class MaxPooling(BasePoolingType):
    kind = "max"


class AvgPooling(BasePoolingType):
    kind = "average"


class SumPooling(BasePoolingType):
    kind = "sum"


class SquareRootNPooling(BasePoolingType):
    kind = "squarerootn"


@dataclass(frozen=True, kw_only=True)
class ParameterAttribute:
    """`sparse_update` and `is_sparse` change nothing: Paddle 2.6 serves all of these parameters as dense tables."""

    name: str | None = None
    is_static: bool = False
    initial_std: float | None = None
    initial_mean: float | None = None
    initial_max: float | None = None
    initial_min: float | None = None
    l1_rate: float | None = None
    l2_rate: float | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    sparse_update: bool = False

    def __post_init__(self) -> None:
        if (self.initial_max is None) != (self.initial_min is None):
            raise UserError("A ParameterAttribute takes both initial_max and initial_min, or neither.")
        if self.momentum is not None:
            raise UserError(
                "ParameterAttribute: a momentum of single parameters is not supported.",
                hint="Set learning_method=MomentumOptimizer(…) in settings.",
            )
        if self.l1_rate is not None and self.l2_rate is not None:
            raise UserError("A ParameterAttribute takes l1_rate or l2_rate, not both.")


@dataclass(frozen=True, kw_only=True)
class ExtraLayerAttribute:
    drop_rate: float | None = None
    # This Paddle runs on CPUs.
    device: int | None = None
    error_clipping_threshold: float | None = None

    def __post_init__(self) -> None:
        if self.error_clipping_threshold:
            raise UserError(
                "ExtraLayerAttribute: error_clipping_threshold is not supported.",
                hint="Set gradient_clipping_threshold in settings.",
            )


ParamAttr = ParameterAttribute
ExtraAttr = ExtraLayerAttribute


@dataclass(frozen=True)
class L2Regularization:
    rate: float


@dataclass(frozen=True)
class L1Regularization:
    rate: float


class BaseSGDOptimizer:
    """`name` is that of the rule; Paddle's servers have `sgd` and `adam`."""

    name = ""

    def __init__(self, **options: Any) -> None:
        self.options = options


class MomentumOptimizer(BaseSGDOptimizer):
    name = "momentum"

    def __init__(self, momentum: float | None = None, sparse: bool = False) -> None:
        super().__init__(momentum=momentum or 0.0)


class AdamOptimizer(BaseSGDOptimizer):
    name = "adam"

    def __init__(self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        super().__init__(beta1=beta1, beta2=beta2, epsilon=epsilon)


class AdamaxOptimizer(BaseSGDOptimizer):
    name = "adamax"

    def __init__(self, beta1: float = 0.9, beta2: float = 0.999) -> None:
        super().__init__(beta1=beta1, beta2=beta2)


class AdaGradOptimizer(BaseSGDOptimizer):
    name = "adagrad"

    def __init__(self) -> None:
        super().__init__()


class RMSPropOptimizer(BaseSGDOptimizer):
    name = "rmsprop"

    def __init__(self, rho: float = 0.95, epsilon: float = 1e-6) -> None:
        super().__init__(rho=rho, epsilon=epsilon)


class AdaDeltaOptimizer(BaseSGDOptimizer):
    name = "adadelta"

    def __init__(self, rho: float = 0.95, epsilon: float = 1e-6) -> None:
        super().__init__(rho=rho, epsilon=epsilon)


@dataclass(frozen=True)
class ModelAverage:
    """Accepted; the saved parameters are those of the last step."""

    average_window: float
    max_average_window: int | None = None
