"""`python -m e2e.cluster`: a Kubernetes for the tests, from the command line."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import e2e.cluster
from e2e.cluster.commands import run
from e2e.cluster.images import FRAMEWORKS
from e2e.cluster.places import Cluster, bring_up, find_cluster, make_layers, provide_images, provide_wheel
from e2e.cluster.programs import provide
from e2e.cluster.selfmade import SelfMade

# How long what runs with a cluster may take to end when it is interrupted.
_LEAVE_SECONDS = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.cluster",
        description=e2e.cluster.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("programs", help="install and unpack, or compile, what a cluster runs")
    commands.add_parser(
        "prepare", help="all that can be done before a cluster is started: programs and layers"
    )
    up = commands.add_parser("up", help="start a cluster on this machine")
    up.add_argument("--nodes", type=int, default=3)
    up.add_argument("--cpus", type=int, default=6, help="what a node says it has; 0: what the machine has")
    images = commands.add_parser("images", help="make the images of the tests and load them")
    images.add_argument("frameworks", nargs="*", help=", ".join(FRAMEWORKS))
    images.add_argument("--tag", default="", help="put behind the image's tag")
    for name, words in (
        ("exec", "in the cluster's network"),
        ("with", "with a cluster that is there for it"),
    ):
        commands.add_parser(name, help=f"run a command {words}").add_argument(
            "words", nargs=argparse.REMAINDER
        )
    for name in ("stop-node", "start-node"):
        commands.add_parser(name).add_argument("node", help="such as node-1")
    for name in ("stop-api", "start-api"):
        commands.add_parser(name, help="the API server alone")
    commands.add_parser("down", help="stop everything")
    return _do(parser.parse_args())


def _do(arguments: argparse.Namespace) -> int:
    own = SelfMade.here()
    match arguments.command:
        case "programs":
            provide(own.home)
        case "prepare":
            if isinstance(find_cluster(), SelfMade):
                provide(own.home)
            make_layers()
        case "up":
            own.up(size=arguments.nodes, cpus=arguments.cpus)
            run(*own.inside("kubectl", f"--kubeconfig={own.kubeconfig}", "get", "nodes"))
        case "images":
            print("\n".join(provide_images(find_cluster(), arguments.frameworks or None, tag=arguments.tag)))
            provide_wheel()
        case "exec":
            _enter()
            os.execvp(arguments.words[0], arguments.words)
        case "with":
            return _with(arguments.words)
        case "stop-node":
            find_cluster().stop_node(arguments.node)
        case "start-node":
            find_cluster().start_node(arguments.node)
        case "stop-api":
            find_cluster().stop_api_server()
        case "start-api":
            find_cluster().start_api_server()
        case "down":
            own.down()
    return 0


def _with(words: list[str]) -> int:
    """Whatever happens, what was started here is gone afterwards."""
    cluster = find_cluster()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    ours = isinstance(cluster, SelfMade) and not cluster.is_up
    try:
        _prepare(cluster)
        return _run(words)
    finally:
        if ours:
            SelfMade.here().down()


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _prepare(cluster: Cluster) -> None:
    begun = time.monotonic()
    if isinstance(cluster, SelfMade):
        # Both of what follows need its packages.
        provide(cluster.home)
    _say("packages and programs", begun)
    with ThreadPoolExecutor() as pool:
        layers = pool.submit(make_layers)
        try:
            bring_up(cluster)
        except BaseException:
            if isinstance(cluster, SelfMade):
                cluster.tell_logs()
            raise
        _say("a cluster", begun)
        layers.result()
    _say("layers", begun)
    provide_images(cluster)
    _say("images on every node", begun)


def _say(what: str, begun: float) -> None:
    print(f"e2e.cluster: {what}, after {time.monotonic() - begun:.0f} s", flush=True)


def _run(words: list[str]) -> int:
    """In processes of its own: they enter the cluster's network, in which nothing could be taken down; and in a group
    of their own, so that all of them hear of an interruption.
    """
    command = [sys.executable, "-m", "e2e.cluster", "exec", *words]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(timeout=_LEAVE_SECONDS)
        raise


def _enter() -> None:
    cluster = find_cluster()
    cluster.enter()
    os.environ["KUBECONFIG"] = cluster.kubeconfig
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
