"""`python -m e2e.cluster`: a Kubernetes for the tests, from the command line."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import e2e.cluster
from e2e.cluster.commands import run
from e2e.cluster.images import FRAMEWORKS
from e2e.cluster.places import bring_up, find_cluster, make_layers, provide_images
from e2e.cluster.programs import provide
from e2e.cluster.selfmade import SelfMade


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.cluster",
        description=e2e.cluster.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("programs", help="install and unpack, or compile, what a cluster runs")
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
        case "up":
            own.up(size=arguments.nodes, cpus=arguments.cpus)
            run(*own.inside("kubectl", f"--kubeconfig={own.kubeconfig}", "get", "nodes"))
        case "images":
            print("\n".join(provide_images(find_cluster(), arguments.frameworks or None, tag=arguments.tag)))
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
    cluster = find_cluster()
    with ThreadPoolExecutor() as pool:
        if isinstance(cluster, SelfMade):
            # Both need its packages.
            provide(cluster.home)
        layers = pool.submit(make_layers)
        started = bring_up(cluster)
    try:
        layers.result()
        provide_images(cluster)
        # In a process of its own: it enters the cluster's network, in which nothing could be taken down.
        return subprocess.run([sys.executable, "-m", "e2e.cluster", "exec", *words], check=False).returncode
    finally:
        if started:
            SelfMade.here().down()


def _enter() -> None:
    cluster = find_cluster()
    cluster.enter()
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
