"""`paddle train`: one trainer, with parameter servers (`--local=0`) or alone (`--local=1`).

The passes of a run continue behind the newest complete pass in --save_dir; `--start_pass` and `--init_model_path` say
otherwise. Trainer 0 saves. A modern program for Paddle's fleet is run as it stands, with the variables that it reads.
"""

from __future__ import annotations

import datetime
import errno
import logging
import os
import runpy
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.arguments import Arguments
from elasticdl.paddle_compat.cluster.passes import load_parameter, newest_pass, pass_folder, save_pass
from elasticdl.paddle_compat.command.roles import trainer_variables, wait_for_servers
from elasticdl.paddle_compat.config.feed import PassData
from elasticdl.paddle_compat.config.graph import Configuration
from elasticdl.paddle_compat.config.loader import (
    explained,
    is_fleet_script,
    load_configuration,
    load_provider,
    old_modules,
)
from elasticdl.paddle_compat.config.provider import Provider, read_list
from elasticdl.worker.environment import select_mkl_kernels

log = logging.getLogger("elasticdl.paddle")

_NOT_FINITE_HINT = "Lower the learning_rate, or set a gradient_clipping_threshold."


def train(arguments: Arguments) -> int:
    config = Path(arguments.text("config"))
    select_mkl_kernels()
    if arguments.switch("use_gpu"):
        log.warning("--use_gpu=1: this Paddle runs on CPUs")
    if is_fleet_script(config):
        return _run_script(config, arguments)
    configuration = load_configuration(config, config_args=arguments.text("config_args"))
    provider = load_provider(configuration, config)
    _say(f"The input order is [{', '.join(each.name for each in configuration.inputs)}]")
    _say(f"The output order is [{', '.join(each.name for each in configuration.outputs)}]")
    trainer = (
        _local(configuration, provider, arguments)
        if arguments.switch("local")
        else _remote(configuration, provider, arguments)
    )
    trainer.run()
    return 0


def _run_script(config: Path, arguments: Arguments) -> int:
    if not arguments.switch("local"):
        # It waits itself: before its servers listen they meet its trainers over gloo.
        os.environ.update(trainer_variables(arguments))
    os.environ["PADDLE_NUM_PASSES"] = arguments.text("num_passes")
    sys.argv = [str(config), *filter(None, arguments.text("config_args").split(","))]
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_path(str(config), run_name="__main__")
    return 0


def _say(text: str) -> None:
    now = datetime.datetime.now()
    print(f"I{now:%m%d %H:%M:%S.%f} {os.getpid():5d} paddle train] {text}", flush=True)


# -- alone and with servers ----------------------------------------------------------------------------------


class Alone:
    """A trainer without others."""

    is_first = True

    def agree_on_most(self, value: int) -> int:
        return value

    def after_batch(self) -> None:
        """Parameters are updated by the program."""

    def before_saving(self) -> None:
        """No other process has updates in flight."""

    def finish(self) -> None:
        """There are no servers to stop."""


class WithServers:
    """One of several trainers with Paddle's parameter servers."""

    def __init__(self, *, number: int, count: int, is_synchronous: bool) -> None:
        from elasticdl.paddle_compat.command.fleet_program import Parameters

        self.is_first = number == 0
        self._count = count
        self._is_synchronous = is_synchronous
        self._parameters = Parameters()

    def agree_on_most(self, value: int) -> int:
        from paddle.distributed import fleet

        if self._count == 1:
            return value
        found = fleet.util.all_reduce(np.array([value], dtype=np.int64), "max")
        return int(np.asarray(found).reshape(-1)[0])

    def after_batch(self) -> None:
        if self._is_synchronous:
            self._meet()
        self._parameters.pull()

    def before_saving(self) -> None:
        self._parameters.flush()
        self._meet()
        self._parameters.pull()

    def finish(self) -> None:
        self._meet()
        if self.is_first:
            self._parameters.stop_servers()

    def _meet(self) -> None:
        from paddle.distributed import fleet

        if self._count > 1:
            fleet.barrier_worker()


def _local(configuration: Configuration, provider: Provider, arguments: Arguments) -> Trainer:
    os.environ.setdefault("OMP_NUM_THREADS", arguments.text("trainer_count"))
    import paddle

    from elasticdl.paddle_compat.command.fleet_program import build
    from elasticdl.paddle_compat.config.program import make_optimizer

    paddle.enable_static()
    built = build(
        configuration,
        provider,
        make_optimizer(configuration.settings, on_servers=False),
        seed=arguments.number("seed"),
    )
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    start = _restore(arguments, list(built.program.parameters.items()))
    return Trainer(
        arguments=arguments,
        configuration=configuration,
        provider=provider,
        built=built,
        executor=executor,
        group=Alone(),
        start_pass=start,
    )


def _remote(configuration: Configuration, provider: Provider, arguments: Arguments) -> Trainer:
    variables = trainer_variables(arguments)
    os.environ.update(variables)
    import paddle
    from paddle.distributed import fleet

    from elasticdl.paddle_compat.command.fleet_program import distribute

    number, count = arguments.number("trainer_id"), arguments.number("num_gradient_servers")
    built = distribute(configuration, provider, seed=arguments.number("seed"))
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    # Trainer 0 initializes the servers with its parameters.
    start = _restore(arguments, list(built.program.parameters.items())) if number == 0 else 0
    for index, server in enumerate(arguments.servers):
        _say(f"pserver {index} {server}")
    wait_for_servers(arguments.servers)
    fleet.init_worker()
    group = WithServers(number=number, count=count, is_synchronous=configuration.settings.algorithm == "sgd")
    return Trainer(
        arguments=arguments,
        configuration=configuration,
        provider=provider,
        built=built,
        executor=executor,
        group=group,
        start_pass=group.agree_on_most(start),
    )


def _restore(arguments: Arguments, parameters: list[tuple[str, Any]]) -> int:
    """Loads parameters if there are any to continue from. Returns the number of the first pass."""
    from elasticdl.paddle_compat.command.fleet_program import write_parameter

    output = Path(arguments.text("save_dir"))
    start = arguments.number("start_pass")
    folder: Path | None = None
    if arguments.text("init_model_path"):
        folder = Path(arguments.text("init_model_path"))
        if not folder.is_dir():
            raise UserError(f"There is no folder {folder} (--init_model_path).")
    elif start:
        folder = pass_folder(output, start - 1)
        if not folder.is_dir():
            raise UserError(f"There is no folder {folder} to start pass {start} from.")
    elif (newest := newest_pass(output)) is not None:
        folder, start = pass_folder(output, newest), newest + 1
    if folder is not None:
        for name, parameter in parameters:
            write_parameter(name, load_parameter(folder, name, tuple(parameter.shape)))
        _say(f"Restored {len(parameters)} parameters from {folder}")
    return start


# -- the loop ------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Trainer:
    """Passes over the data of this trainer."""

    arguments: Arguments
    configuration: Configuration
    provider: Provider
    built: Any
    executor: Any
    group: Alone | WithServers
    start_pass: int
    _data: PassData | None = None

    def run(self) -> None:
        passes = self.arguments.number("num_passes")
        sources = self.configuration.sources
        assert sources is not None
        if self.group.is_first and sources.test_list:
            # Before a pass is trained, not after it.
            read_list(sources.test_list)
        if self.start_pass >= passes:
            _say(f"All {passes} passes are complete")
        for number in range(self.start_pass, passes):
            self._train_pass(number)
            self.group.before_saving()
            if self.group.is_first:
                self._test(number)
                if (number + 1) % self.arguments.number("saving_period") == 0 or number + 1 == passes:
                    self._save(number)
        self.group.finish()
        _say("Training is complete")

    def _train_pass(self, number: int) -> None:
        sources = self.configuration.sources
        assert sources is not None
        if not sources.train_list:
            raise UserError("define_py_data_sources2 names no train_list.")
        if self._data is None or not self.provider.is_cached:
            self._data = self._load(sources.train_list, is_train=True)
            if not self._data.count:
                raise UserError(f"The data provider has no samples for {sources.train_list}.")
        data = self._data
        steps = self.group.agree_on_most(-(-data.count // self.configuration.settings.batch_size))
        order = np.arange(data.count)
        if self.provider.should_shuffle:
            seed = [self.arguments.number("seed"), number, self.arguments.number("trainer_id")]
            np.random.default_rng(seed).shuffle(order)
        log_period, dot_period = self.arguments.number("log_period"), self.arguments.number("dot_period")
        seen, costs, since = 0, 0.0, 0
        total_seen, total_cost = 0, 0.0
        dots = False
        for batch, (samples, feed) in enumerate(_prefetched(data.batches(steps, order)), start=1):
            found = self.executor.run(self.built.main, feed=feed, fetch_list=self.built.program.fetched)
            self.group.after_batch()
            cost = float(found[0])
            if not np.isfinite(cost):
                raise UserError(
                    f"The cost is {cost} in batch {batch} of pass {number}.",
                    hint=_NOT_FINITE_HINT,
                )
            seen, costs, since = seen + samples, costs + cost * samples, since + samples
            total_seen, total_cost = total_seen + samples, total_cost + cost * samples
            if batch % log_period == 0:
                print("\n" if dots else "", end="")
                dots = False
                _say(
                    f"Pass={number} Batch={batch} samples={total_seen} AvgCost={total_cost / total_seen:g} "
                    f"CurrentCost={costs / since:g}{_eval(found)}"
                )
                costs, since = 0.0, 0
            elif dot_period and batch % dot_period == 0:
                print(".", end="", flush=True)
                dots = True
        print("\n" if dots else "", end="")
        _say(
            f"Pass={number} Batch={steps} samples={total_seen} AvgCost={total_cost / total_seen:g}{_eval(found)}"
        )

    def _load(self, file_list: str, *, is_train: bool) -> PassData:
        sources = self.configuration.sources
        assert sources is not None
        with old_modules(), explained(Path(f"{sources.module}.py")):
            opened = self.provider.open(file_list, is_train=is_train, arguments=sources.args)
            return PassData(self.provider.samples(opened, file_list), self.built.slots)

    def _test(self, number: int) -> None:
        sources = self.configuration.sources
        assert sources is not None
        if not sources.test_list:
            return
        data = self._load(sources.test_list, is_train=False)
        if not data.count:
            return
        total = np.zeros(len(self.built.program.fetched))
        steps = -(-data.count // self.configuration.settings.batch_size)
        for samples, feed in data.batches(steps, np.arange(data.count)):
            found = self.executor.run(self.built.test, feed=feed, fetch_list=self.built.program.fetched)
            total += samples * np.array([float(each) for each in found])
        mean = total / data.count
        if not np.isfinite(mean[0]):
            raise UserError(
                f"The cost of the test samples is {mean[0]} after pass {number}.", hint=_NOT_FINITE_HINT
            )
        rate = f" Eval: classification_error_evaluator={mean[1]:g}" if len(mean) > 1 else ""
        _say(f"Pass={number} Test samples={data.count} cost={mean[0]:g}{rate}")

    def _save(self, number: int) -> None:
        from elasticdl.paddle_compat.command.fleet_program import read_parameter

        output = Path(self.arguments.text("save_dir"))
        values = {name: read_parameter(name) for name in self.built.program.parameters}
        if wrong := [name for name, value in values.items() if not np.isfinite(value).all()]:
            # The cost of a batch does not show what its own update does.
            raise UserError(
                f"{wrong[0]} has NaN or infinite values after pass {number}, which is not saved.",
                hint=_NOT_FINITE_HINT,
            )
        try:
            folder = save_pass(output, number, values)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise UserError(f"Pass {number} cannot be saved in {output}: {error.strerror}.") from error
            raise UserError(
                f"There is no space left for pass {number} in {output}.",
                hint="Free some and start the job again: it continues from the newest complete pass.",
            ) from error
        _say(f"Saved {len(values)} parameters in {folder}")


def _eval(found: list[Any]) -> str:
    return f" Eval: classification_error_evaluator={float(found[1]):g}" if len(found) > 1 else ""


def _prefetched(batches: Iterator[Any]) -> Iterator[Any]:
    """Makes the next batch while one is computed."""
    import queue

    ready: queue.Queue[Any] = queue.Queue(maxsize=2)
    end = object()

    def fill() -> None:
        try:
            for each in batches:
                ready.put(each)
            ready.put(end)
        except BaseException as error:  # noqa: BLE001 - raised in the loop
            ready.put(error)

    threading.Thread(target=fill, daemon=True).start()
    while (each := ready.get()) is not end:
        if isinstance(each, BaseException):
            raise each
        yield each
