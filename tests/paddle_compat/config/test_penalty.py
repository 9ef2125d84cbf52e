"""On parameter servers the regularization is a part of the cost: Paddle removes what an optimizer adds to gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

from elasticdl.paddle_compat.config.loader import load_configuration
from elasticdl.paddle_compat.config.program import add_penalty, build_program, make_optimizer
from elasticdl.paddle_compat.config.provider import dense_vector

CONFIG = """
from paddle.trainer_config_helpers import *

settings(batch_size=2, learning_rate=0.5, regularization=%s)
x = data_layer("x", 3)
own = fc_layer(x, size=2, act=LinearActivation(), bias_attr=False, param_attr=%s)
outputs(sum_cost(own))
"""
X = np.ones([2, 3], np.float32)


def step(folder: Path, *texts: str, on_servers: bool) -> Any:
    """Returns by how much one step of SGD changes the weights."""
    config = folder / "config.py"
    config.write_text(CONFIG % texts)
    main, startup, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
    with (
        paddle.static.program_guard(main, startup),
        paddle.static.scope_guard(scope),
        paddle.utils.unique_name.guard(),
    ):
        startup.random_seed = 1
        configuration = load_configuration(config)
        program = build_program(configuration, {"x": dense_vector(3)})
        total = program.total
        if on_servers:
            total = add_penalty(total, program.parameters, configuration.settings)
        else:
            # Beside the regularization, an optimizer for servers is the same here.
            assert make_optimizer(configuration.settings, on_servers=True).regularization is None
        optimizer = make_optimizer(configuration.settings, on_servers=on_servers)
        if on_servers:
            # As Paddle's servers: without what an optimizer adds.
            for parameter in program.parameters.values():
                parameter.regularizer = None
        optimizer.minimize(total)
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        (name,) = program.parameters
        before = np.array(scope.find_var(name).get_tensor())
        (cost,) = executor.run(main, feed={"x": X}, fetch_list=[program.cost])
        after = np.array(scope.find_var(name).get_tensor())
        np.testing.assert_allclose(cost, (X @ before).sum() / len(X), rtol=1e-5)
        return after - before


@pytest.mark.usefixtures("static_mode")
@pytest.mark.parametrize(
    "texts",
    [
        ("None", "None"),
        ("L2Regularization(0.1)", "None"),
        ("L1Regularization(0.1)", "None"),
        ("L2Regularization(0.1)", "ParamAttr(l2_rate=0.3)"),
        ("None", "ParamAttr(l1_rate=0.3)"),
    ],
)
def test_step_on_servers_is_that_without_servers(tmp_path: Path, texts: tuple[str, str]) -> None:
    found = step(tmp_path, *texts, on_servers=True)
    np.testing.assert_allclose(found, step(tmp_path, *texts, on_servers=False), rtol=1e-5)
    plain = step(tmp_path, "None", "None", on_servers=False)
    assert np.allclose(found, plain) is (texts == ("None", "None"))
