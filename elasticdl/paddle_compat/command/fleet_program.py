"""The program of a configuration for Paddle's parameter servers, the same in servers and trainers.

Three things of Paddle 2.6 shape it. Its synchronous mode does not work without a communicator that it no longer makes,
so the mode is always asynchronous and the trainers meet at a barrier after each batch if the configuration's algorithm
is `sgd`. Its executor pushes gradients but pulls no dense parameters; `Parameters.pull` does. And its client keeps
dense gradients until it has those of 13 batches, adds them up and sends the sum; `_PUSH_FLAGS` lets it send each.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.distributed import fleet

from elasticdl.paddle_compat.config.graph import Configuration
from elasticdl.paddle_compat.config.loader import old_modules
from elasticdl.paddle_compat.config.program import Program, add_penalty, build_program, make_optimizer
from elasticdl.paddle_compat.config.provider import InputType, Provider, slots_of

log = logging.getLogger("elasticdl.paddle")

# The first four are the client's own defaults, which a list of flags replaces.
_PUSH_FLAGS = " ".join(
    (
        "-max_body_size=314217728",
        "-bthread_concurrency=40",
        "-socket_max_unwritten_bytes=2048000000",
        "-max_connection_pool_size=1950",
        "-pserver_push_dense_merge_limit=0",
        "-pserver_async_push_dense_interval_ms=1",
    )
)


@dataclass(frozen=True, kw_only=True)
class Built:
    """A program with the copy that tests, and the slots that it is fed with."""

    program: Program
    slots: Mapping[str, InputType]
    main: Any
    test: Any


def build(
    configuration: Configuration,
    provider: Provider,
    optimizer: Any,
    *,
    seed: int = 1,
    on_servers: bool = False,
) -> Built:
    """Builds the program, and lets the optimizer minimize its cost."""
    assert configuration.sources is not None
    sources = configuration.sources
    with old_modules():
        opened = provider.open(
            sources.train_list or sources.test_list or "", is_train=True, arguments=sources.args
        )
    names = [each.name for each in configuration.inputs]
    slots = slots_of(opened.input_types, names)
    paddle.seed(seed)
    main = paddle.static.default_main_program()
    main.random_seed = paddle.static.default_startup_program().random_seed = seed
    program = build_program(configuration, slots)
    test = main.clone(for_test=True)
    total = program.total
    if on_servers:
        total = add_penalty(total, program.parameters, configuration.settings)
        for name, parameter in program.parameters.items():
            if parameter.optimize_attr["learning_rate"] != 1.0:
                log.warning("%s: Paddle's parameter servers have one learning rate for all parameters", name)
    optimizer.minimize(total)
    return Built(
        program=program,
        slots={name: slots[name] for name in names},
        # For trainers, fleet has put another program in the place of the default one.
        main=paddle.static.default_main_program(),
        test=test,
    )


def distribute(configuration: Configuration, provider: Provider, *, seed: int = 1) -> Built:
    """Builds the program of the role that the environment describes."""
    # Paddle would look for its servers every 3 seconds; `wait_for_servers` does it more often.
    os.environ["FLAGS_LAUNCH_BARRIER"] = "0"
    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    optimizer = fleet.distributed_optimizer(make_optimizer(configuration.settings, on_servers=True), strategy)
    built = build(configuration, provider, optimizer, seed=seed, on_servers=True)
    if fleet.is_worker():
        fleet.fleet._runtime_handle.ps_desc_builder.ps_desc.init_gflags = _PUSH_FLAGS
    return built


class Parameters:
    """The parameters on the servers, from a trainer."""

    def __init__(self) -> None:
        from paddle.distributed.ps.utils.public import get_the_one_recv_context, get_the_one_send_context

        self._runtime = fleet.fleet._runtime_handle
        context = self._runtime.context
        self._sent = get_the_one_send_context(context, ep_list=self._runtime.endpoints)
        self._received = get_the_one_recv_context(context)

    def pull(self) -> None:
        self._runtime._pull_all_dense([paddle.static.global_scope()], self._sent, self._received)

    def flush(self) -> None:
        """Returns when the servers have applied all gradients of this trainer. Takes at least 0.1 s."""
        self._runtime._worker.client_flush()

    def stop_servers(self) -> None:
        self._runtime._worker.stop_server()


def read_parameter(name: str) -> np.ndarray[Any, Any]:
    return np.array(paddle.static.global_scope().find_var(name).get_tensor())


def write_parameter(name: str, values: np.ndarray[Any, Any]) -> None:
    paddle.static.global_scope().find_var(name).get_tensor().set(values, paddle.CPUPlace())
