"""`elasticdl paddle`: the commands of PaddlePaddle's Kubernetes guide, on a cluster and on one machine."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from elasticdl.cli.group import UserPath
from elasticdl.errors import UserError

# Flags are written with underscores; dashes mean the same.
_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}
# All words go to the command as they are.
_PASSED = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
_CONFIGS = ("trainer_config.py", "trainer_config.lr.py", "train.py")
# Flags of `paddle train` that a run gives to each node itself.
_OF_NODES = ("save_dir", "trainer_id", "pservers", "num_gradient_servers", "comment")


@click.group(context_settings=_CONTEXT)
def paddle() -> None:
    """The commands of PaddlePaddle's Kubernetes guide.

    `train`, `pserver` and `version` take the flags of the guide; `data` makes the folders that a job reads; `run` runs
    the nodes of a job on this machine.
    """


def _command(name: str, words: tuple[str, ...]) -> None:
    """Replaces this process, so that only the new one imports Paddle."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "elasticdl.paddle_compat.command", name, *words])


@paddle.command(context_settings=_PASSED)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--FLAG=VALUE]...")
def train(words: tuple[str, ...]) -> None:
    """Run one trainer: --config, --pservers, --num_passes, --save_dir, …"""
    _command("train", words)


@paddle.command(context_settings=_PASSED)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--FLAG=VALUE]...")
def pserver(words: tuple[str, ...]) -> None:
    """Run the parameter servers of a node: --config, --port, --ports_num, …"""
    _command("pserver", words)


@paddle.command()
def version() -> None:
    """Print the version of PaddlePaddle."""
    _command("version", ())


@paddle.command()
@click.option("--out_dir", help="Folder to write.  [default: $OUT_DIR]")
@click.option("--split_count", help="Number of nodes to split the data for.  [default: $SPLIT_COUNT]")
@click.option("--quick_start_data", help="File or URL with lines of a label (0, 1), a tab and words.")
@click.option("--recommendation_data", help="Folder, zip archive or URL with the files of MovieLens 1M.")
@click.option("--reviews", help="Reviews to generate.  [default: 6000]")
@click.option("--ratings", help="Ratings to generate.  [default: 12000]")
@click.option("--seed", help="The same seed generates the same data.  [default: 0]")
def data(
    out_dir: str | None,
    split_count: str | None,
    quick_start_data: str | None,
    recommendation_data: str | None,
    reviews: str | None,
    ratings: str | None,
    seed: str | None,
) -> int:
    """Make the folders of a job: data for each node, configurations, output.

    Without flags it reads the variables of the guide's data job. Data that is complete already stays as it is.
    """
    from elasticdl.paddle_compat.cluster.data_job import check_volume, read_data_job

    flags = {
        "OUT_DIR": out_dir,
        "SPLIT_COUNT": split_count,
        "QUICK_START_DATA": quick_start_data,
        "RECOMMENDATION_DATA": recommendation_data,
        "DATA_REVIEWS": reviews,
        "DATA_RATINGS": ratings,
        "DATA_SEED": seed,
    }
    job = read_data_job({**os.environ, **{name: value for name, value in flags.items() if value}})
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        check_volume(job.out_dir)
    made = job.run()
    click.echo(f"{job.out_dir}: data for {job.split_count} nodes{'' if made else ' was complete already'}")
    return 0


@paddle.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--nodes", type=click.IntRange(min=1, max=200), default=3, show_default=True, help="Number of nodes."
)
@click.option(
    "--job_path", type=UserPath(path_type=Path), default=Path(), help="Folder of jobs.  [default: this one]"
)
@click.option("--job_name", default="paddle-cluster-job", show_default=True, help="Folder of the job in it.")
@click.option(
    "--train_config_dir", default="recommendation", show_default=True, help="Folder in that of the job."
)
@click.option(
    "--port", type=click.IntRange(1, 65000), default=7164, show_default=True, help="First port of servers."
)
@click.option(
    "--ports_num", type=click.IntRange(min=1), default=2, show_default=True, help="Servers of a node."
)
@click.option(
    "--ports_num_for_sparse",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Ports kept free.",
)
@click.option("--nics", default="lo", show_default=True, help="Network interface.")
@click.option(
    "--restarts", type=click.IntRange(min=0), default=6, show_default=True, help="Failed nodes to replace."
)
@click.option(
    "--heartbeat_timeout",
    type=click.FloatRange(min=0),
    default=30,
    show_default=True,
    help="Seconds until a frozen node is killed; 0: never.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--FLAG=VALUE]...")
def run(
    nodes: int,
    job_path: Path,
    job_name: str,
    train_config_dir: str,
    port: int,
    ports_num: int,
    ports_num_for_sparse: int,
    nics: str,
    restarts: int,
    heartbeat_timeout: float,
    words: tuple[str, ...],
) -> int:
    """Run a job of the guide on this machine: nodes are processes.

    Node N has the address 127.0.0.(N+1). Further flags are those of `paddle train`, such as --num_passes=3.
    """
    import logging

    from elasticdl.paddle_compat.cluster.arguments import TRAIN, parse
    from elasticdl.paddle_compat.cluster.local import LocalRun
    from elasticdl.paddle_compat.cluster.variables import Variables
    from elasticdl.paddle_compat.installation import check_installed

    logging.basicConfig(level=logging.INFO, format="[%(levelname)s %(asctime)s %(name)s] %(message)s")
    check_installed()
    variables = Variables(
        job_name=job_name,
        job_path=job_path.absolute(),
        namespace="",
        config_dir=train_config_dir,
        nic=nics,
        port=port,
        ports_num=ports_num,
        ports_num_sparse=ports_num_for_sparse,
        gradient_num=nodes,
    )
    parsed = parse(words, TRAIN, command="elasticdl paddle run")
    given = parsed.given
    defaults = {
        "dot_period": "10",
        "log_period": "50",
        "num_passes": "10",
        "trainer_count": "1",
        "saving_period": "1",
        "use_gpu": "0",
        "config": _config_of(variables.config_folder),
    }
    if "local" in given and parsed.switch("local"):
        raise UserError(
            "--local=1 is for one trainer without servers.", hint="`elasticdl paddle train --local=1 …`"
        )
    if refused := [name for name in _OF_NODES if name in given]:
        raise UserError(
            f"elasticdl paddle run: each node gets its own --{refused[0]}.",
            hint=f"Omit it. Passes and logs are written to {variables.output}; --nodes is the number of nodes.",
        )
    used = {**defaults, **given, "local": "0"}
    flags = [f"--{name}={value}" for name, value in used.items()]
    with _signals_exit():
        run_of_nodes = LocalRun(
            variables=variables,
            words=flags,
            restarts=restarts,
            heartbeat_timeout_seconds=heartbeat_timeout,
        )
        return run_of_nodes.run(used["config"])


@contextlib.contextmanager
def _signals_exit() -> Iterator[None]:
    """Lets a run that is terminated stop its nodes and remove what they have copied."""

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _config_of(folder: Path) -> str:
    """The first that is there; that none is, is reported later."""
    return f"./{next((name for name in _CONFIGS if (folder / name).is_file()), _CONFIGS[0])}"
