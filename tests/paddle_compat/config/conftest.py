"""Programs of small configurations, run on a few samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

from elasticdl.paddle_compat.config.feed import PassData
from elasticdl.paddle_compat.config.loader import load_configuration
from elasticdl.paddle_compat.config.program import build_program
from elasticdl.paddle_compat.config.provider import InputType


@pytest.fixture
def static_mode() -> Iterator[None]:
    paddle.enable_static()
    yield
    paddle.disable_static()


class Computed:
    """What the layers of a configuration have computed for some samples, and the parameters they did it with."""

    def __init__(self, program: Any, fetched: Mapping[str, Any], scope: Any) -> None:
        self._fetched = fetched
        self.parameters = {name: np.array(scope.find_var(name).get_tensor()) for name in program.parameters}

    def __getitem__(self, layer: str) -> Any:
        return self._fetched[layer]


Compute = Callable[..., list[Computed]]


@pytest.fixture
def compute(static_mode: None, tmp_path: Path) -> Compute:
    """Runs the same program, with the same parameters, on each of several batches of samples."""

    def run(
        text: str, slots: Mapping[str, InputType], *batches: Sequence[Mapping[str, Any]]
    ) -> list[Computed]:
        config = tmp_path / "config.py"
        config.write_text(f"from paddle.trainer_config_helpers import *\n{text}\n")
        main, startup, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
        with (
            paddle.static.program_guard(main, startup),
            paddle.static.scope_guard(scope),
            paddle.utils.unique_name.guard(),
        ):
            startup.random_seed = 1
            program = build_program(load_configuration(config), slots)
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(startup)
            test = main.clone(for_test=True)
            found = []
            names = [name for name in program.values if name not in slots]
            wanted = [program.values[name].tensor for name in names] + [program.cost]
            for samples in batches:
                data = PassData(samples, slots)
                feed = data.feed(np.arange(data.count))
                values = executor.run(test, feed=feed, fetch_list=wanted)
                found.append(Computed(program, dict(zip([*names, "cost"], values, strict=True)), scope))
            return found

    return run
