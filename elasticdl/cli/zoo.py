"""`elasticdl zoo`: put a model zoo into an image, for jobs on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from elasticdl import __version__
from elasticdl.cli.group import UserPath
from elasticdl.images.builder import TOOLS, build_image, find_tool, push_image
from elasticdl.images.dockerfile import BASE_IMAGE, write_dockerfile

_CONTEXT = {"token_normalize_func": lambda word: word.replace("-", "_")}

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _with_tool(command: _Command) -> _Command:
    return click.option(
        "--tool",
        type=click.Choice(TOOLS),
        default=None,
        help="Program to use.  [default: the first that works here]",
    )(command)


@click.group(context_settings=_CONTEXT)
def zoo() -> None:
    """Put a model zoo into an image."""


@zoo.command(context_settings=_CONTEXT)
@click.option(
    "--model_zoo",
    type=UserPath(path_type=Path),
    default=Path("."),
    help="Folder with model definitions, or one file, inside of this folder.  [default: this folder]",
)
@click.option(
    "--base_image", default=BASE_IMAGE, show_default=True, metavar="IMAGE", help="Image to begin with."
)
@click.option("--extra_pypi_index", default="", metavar="URL", help="Index that pip asks too.")
@click.option(
    "--local_pkg_dir",
    type=UserPath(path_type=Path),
    default=None,
    help="Folder of packages (*.whl) to install, elasticdl among them.  [default: elasticdl from pip's index]",
)
@click.option(
    "--cluster_spec",
    type=UserPath(path_type=Path),
    default=None,
    help="File with fields for every pod, put into the image's folder /cluster_spec.",
)
@click.option("--overwrite", is_flag=True, help="Replace the Dockerfile that is there.")
def init(
    model_zoo: Path,
    base_image: str,
    extra_pypi_index: str,
    local_pkg_dir: Path | None,
    cluster_spec: Path | None,
    overwrite: bool,
) -> None:
    """Write a Dockerfile for a model zoo into this folder.

    The image has elasticdl, the packages of the model zoo's requirements.txt, and the model zoo in /model_zoo.
    """
    is_new = write_dockerfile(
        Path(),
        model_zoo=model_zoo,
        base_image=base_image,
        extra_pypi_index=extra_pypi_index,
        local_pkg_dir=local_pkg_dir,
        cluster_spec=cluster_spec,
        version=__version__,
        overwrite=overwrite,
    )
    state = "is written" if is_new else "is there already, and as it would be written now"
    click.echo(f"Dockerfile {state}. `elasticdl zoo build --image=NAME .` builds the image.")


@zoo.command(context_settings=_CONTEXT)
@click.option(
    "--image", required=True, metavar="NAME", help="Name of the image, such as registry/team/name:tag."
)
@click.option(
    "--archive",
    type=UserPath(path_type=Path),
    default=None,
    help="Write the image to this file too, for clusters that get images without a registry.",
)
@_with_tool
@click.argument("path", type=UserPath(path_type=Path), default=Path("."))
def build(image: str, archive: Path | None, tool: str | None, path: Path) -> None:
    """Build the image that the Dockerfile in PATH describes."""
    used = find_tool(tool or "")
    build_image(image=image, folder=path, archive=archive, tool=used, say=click.echo)
    click.echo(f"The image {image} is built with {used.name}.")
    if archive:
        click.echo(f"{archive} contains it.")


@zoo.command(context_settings=_CONTEXT)
@_with_tool
@click.argument("image")
def push(tool: str | None, image: str) -> None:
    """Push the image to the registry in its name."""
    push_image(image=image, tool=find_tool(tool or ""), say=click.echo)
    click.echo(f"The image {image} is pushed.")
