"""The functions of `paddle.trainer_config_helpers` that are no layers, and the module's namespace."""

from __future__ import annotations

import inspect
import logging
from types import ModuleType
from typing import Any, cast

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.paddle_compat.config import attributes, layers
from elasticdl.paddle_compat.config import provider as providers
from elasticdl.paddle_compat.config.graph import DataSources, LayerOutput, Settings, current

log = logging.getLogger("elasticdl.paddle")

HELPERS, PROVIDERS = "paddle.trainer_config_helpers", "paddle.trainer.PyDataProvider2"
_ALGORITHMS = ("sgd", "async_sgd")
# Options of the original's settings that are accepted, with the values that leave a run of the original as it is.
_INERT_SETTINGS: dict[str, tuple[Any, ...]] = {
    "learning_rate_schedule": (None, "constant", "poly"),
    "learning_rate_decay_a": (None, 0),
    "learning_rate_decay_b": (None, 0),
    "learning_rate_args": (None, ""),
    "model_average": (None,),
    "average_window": (None, 0),
    "max_average_window": (None,),
    "do_average_in_cpu": (None, False, True),
}
# Layers of the original that do not exist here, and what comes closest to them in what they compute.
_NEAREST = {
    "bidirectional_gru": "simple_gru",
    "convex_comb_layer": "interpolation_layer",
    "conv_shift_layer": "context_projection",
    "crf_decoding_layer": "maxid_layer",
    "crf_layer": "classification_cost",
    "cross_entropy_with_selfnorm": "cross_entropy",
    "ctc_layer": "classification_cost",
    "dotmul_operator": "dotmul_projection",
    "gated_unit_layer": "fc_layer",
    "gru_group": "simple_gru",
    "gru_step_layer": "grumemory",
    "gru_unit": "simple_gru",
    "hsigmoid": "classification_cost",
    "huber_cost": "regression_cost",
    "linear_comb_layer": "interpolation_layer",
    "lstm_step_layer": "lstmemory",
    "lstmemory_group": "lstmemory",
    "lstmemory_unit": "lstmemory",
    "maxout_layer": "pooling_layer",
    "nce_layer": "classification_cost",
    "out_prod_layer": "cos_sim",
    "rank_cost": "regression_cost",
    "recurrent_group": "lstmemory",
    "recurrent_layer": "grumemory",
    "repeat_layer": "expand_layer",
    "sampling_id_layer": "maxid_layer",
    "scaling_projection": "scaling_layer",
    "selective_fc_layer": "fc_layer",
    "seq_concat_layer": "concat_layer",
    "simple_attention": "pooling_layer",
    "simple_gru2": "simple_gru",
    "smooth_l1_cost": "regression_cost",
    "tensor_layer": "fc_layer",
    "trans_layer": "trans_full_matrix_projection",
    "warp_ctc_layer": "classification_cost",
}


def settings(
    batch_size: int,
    learning_rate: float = 1e-3,
    learning_method: attributes.BaseSGDOptimizer | None = None,
    regularization: Any = None,
    gradient_clipping_threshold: float | None = None,
    algorithm: str = "sgd",
    is_async: bool = False,
    **more: Any,
) -> None:
    if algorithm not in _ALGORITHMS:
        raise UserError(
            f"settings: there is no algorithm {algorithm!r}.{did_you_mean(algorithm, _ALGORITHMS)}"
        )
    for name, value in more.items():
        if name not in _INERT_SETTINGS:
            names = [*inspect.signature(settings).parameters, *_INERT_SETTINGS]
            raise UserError(f"settings has no option {name}.{did_you_mean(name, names)}")
        if value not in _INERT_SETTINGS[name]:
            log.warning("settings: %s=%s has no effect", name, value)
    if regularization is not None and not isinstance(
        regularization, (attributes.L1Regularization, attributes.L2Regularization)
    ):
        raise UserError(
            f"settings: regularization takes one L1Regularization or L2Regularization, not {regularization!r}."
        )
    if learning_method is not None and not isinstance(learning_method, attributes.BaseSGDOptimizer):
        raise UserError(
            f"settings: learning_method takes an optimizer such as AdamOptimizer(), not {learning_method!r}."
        )
    if int(batch_size) < 1:
        raise UserError(f"settings: batch_size={batch_size} is not a number above 0.")
    current().settings = Settings(
        batch_size=int(batch_size),
        learning_rate=float(learning_rate),
        learning_method=learning_method,
        regularization=regularization,
        gradient_clipping_threshold=gradient_clipping_threshold,
        algorithm="async_sgd" if is_async else algorithm,
    )


def define_py_data_sources2(
    train_list: str | None,
    test_list: str | None,
    module: str,
    obj: str,
    args: dict[str, Any] | None = None,
) -> None:
    current().sources = DataSources(
        train_list=train_list, test_list=test_list, module=str(module), obj=str(obj), args=args or {}
    )


def get_config_arg(name: str, type: Any = str, default: Any = None) -> Any:  # noqa: A002 - as in configurations
    text = current().arguments.get(name)
    if text is None:
        return default
    if type is bool:
        return text.lower() in ("1", "true", "yes", "on")
    try:
        return type(text)
    except ValueError as error:
        raise UserError(f"--config_args: {name}={text!r} is not of type {type.__name__}.") from error


def outputs(*given: Any) -> None:
    for each in given:
        current().outputs += [each] if isinstance(each, LayerOutput) else list(each)


def inputs(*given: Any) -> None:
    """The order of the slots of a data provider that has them in a list."""
    for each in given:
        current().named_inputs += [each] if isinstance(each, LayerOutput) else list(each)


def _evaluator(*given: Any, **options: Any) -> None:
    """The error rate of a classification is always reported."""


def names() -> dict[str, Any]:
    """Returns the names that `from paddle.trainer_config_helpers import *` imports."""
    public = {name: value for name, value in vars(attributes).items() if name[0].isupper() and name != "Any"}
    public.update({name: getattr(layers, name) for name in layers.__all__})
    for function in (settings, define_py_data_sources2, get_config_arg, outputs, inputs):
        public[function.__name__] = function
    for evaluator in ("classification_error", "auc", "sum", "precision_recall", "value_printer"):
        public[f"{evaluator}_evaluator"] = _evaluator
    public["xrange"] = range
    return public


def unsupported(name: str) -> UserError:
    close = f" The nearest is {_NEAREST[name]}." if name in _NEAREST else did_you_mean(name, names())
    layer = name in _NEAREST or name.endswith(("_layer", "_cost", "_projection", "_pool", "_operator"))
    return UserError(
        f"{name} is not supported{f' as a layer of {HELPERS}' if layer else ''}.{close}",
        hint="docs/paddle-kubernetes.md lists the layers; a fleet program of Paddle 2.6 can use all of Paddle's.",
    )


class _OldModule(ModuleType):
    """Says what is nearest to a name that it does not have."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unsupported(name)


def modules() -> dict[str, ModuleType]:
    """The old modules, for `sys.modules` while a configuration is loaded."""
    helpers = _OldModule(HELPERS)
    vars(helpers).update(names())
    slots = _OldModule(PROVIDERS)
    vars(slots).update({name: value for name, value in vars(providers).items() if not name.startswith("_")})
    trainer = ModuleType("paddle.trainer")
    # A package, whose other modules do not exist.
    cast(Any, trainer).__path__ = []
    cast(Any, trainer).PyDataProvider2 = slots
    found: dict[str, ModuleType] = {HELPERS: helpers, "paddle.trainer": trainer, PROVIDERS: slots}
    for part in ("layers", "networks", "activations", "poolings", "attrs", "optimizers", "data_sources"):
        found[f"{HELPERS}.{part}"] = helpers
    cast(Any, helpers).__path__ = []
    return found
