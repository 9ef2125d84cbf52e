"""Building and pushing images with docker, podman or buildah, whichever is there.

docker counts only if its daemon answers: many machines have the command alone. What the tools print is shown while they
work; when one fails, what it said last is in the error, with a hint for what goes wrong most often.
"""

from __future__ import annotations

import collections
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.jobs.flags.names import IMAGE
from elasticdl.jobs.flags.pairs import BadValue

TOOLS = ("docker", "podman", "buildah")
_LAST_LINES = 12
# The meaning of a tool's messages, and the advice. The first that matches counts.
_HINTS = (
    (
        ("No matching distribution found for elasticdl", "No matching distribution found for elasticai"),
        "This version of elasticdl is at no index that pip asks. `elasticdl zoo init --local_pkg_dir=DIR` takes it "
        "from a folder of packages; --extra_pypi_index asks another index.",
    ),
    (
        ("is not a supported wheel on this platform",),
        "The package was made by another version of Python than the image has, or on another kind of machine. Build "
        "it again, or let `elasticdl zoo init --base_image=IMAGE` name an image with that Python.",
    ),
    (
        ("unauthorized", "denied", "authentication required"),
        "Log in to the registry first: `{tool} login REGISTRY`. Has the image the registry's name in front?",
    ),
    (
        (
            "manifest unknown",
            "pull access denied",
            "initializing source",
            "short-name",
            "failed to resolve source",
        ),
        "The base image is not here and cannot be pulled. `elasticdl zoo init --base_image=IMAGE` names another one.",
    ),
    (("no space left",), "There is no space left on the disk."),
)

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Tool:
    name: str

    def build(self, *, image: str, folder: Path) -> list[str]:
        file = f"--file={folder / 'Dockerfile'}"
        if self.name == "buildah":
            # Without a network and a runtime of its own it works wherever files can be written, in a container too.
            return ["buildah", "build", "--layers", "--isolation=chroot", f"--tag={image}", file, str(folder)]
        return [self.name, "build", f"--tag={image}", file, str(folder)]

    def push(self, image: str) -> list[str]:
        return [self.name, "push", image]

    def save(self, *, image: str, archive: Path) -> list[str]:
        if self.name == "docker":
            return ["docker", "save", f"--output={archive}", image]
        # Under the name as it was given. Without a registry it is one of this machine (localhost/) to these tools, and
        # one of docker.io to the nodes of a cluster; `podman save` would write the former.
        return [self.name, "push", image, f"docker-archive:{archive}:{image}"]


def find_tool(wanted: str = "") -> Tool:
    """The first of the tools that works here, or the one wanted."""
    absent = []
    for name in (wanted,) if wanted else TOOLS:
        if shutil.which(name) is None:
            absent.append(f"{name} is not installed")
        elif name == "docker" and not _daemon_answers():
            absent.append("docker is installed, but its daemon does not answer")
        else:
            return Tool(name=name)
    raise UserError(
        f"An image cannot be built here: {'; '.join(absent)}.", hint="Install one of docker, podman, buildah."
    )


def build_image(*, image: str, folder: Path, archive: Path | None, tool: Tool, say: Say) -> None:
    """Builds the Dockerfile of the folder. `archive` is a file for clusters that get images without a registry."""
    check_name(image)
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}.")
    if not (folder / "Dockerfile").is_file():
        raise UserError(f"There is no Dockerfile in {folder}.", hint="`elasticdl zoo init` writes one.")
    _run(tool, tool.build(image=image, folder=folder), f"The image {image} could not be built", say)
    if archive:
        # The tools refuse to write over an older one.
        archive.unlink(missing_ok=True)
        _run(tool, tool.save(image=image, archive=archive), f"{image} could not be written to {archive}", say)


def push_image(*, image: str, tool: Tool, say: Say) -> None:
    check_name(image)
    _run(tool, tool.push(image), f"The image {image} could not be pushed", say)


def check_name(image: str) -> None:
    try:
        IMAGE.check(image)
    except BadValue as error:
        raise UserError(f"{error}.") from error


def _daemon_answers() -> bool:
    # A daemon that is there but hangs counts as none.
    try:
        done = subprocess.run(["docker", "version"], capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _run(tool: Tool, command: Sequence[str], failure: str, say: Say) -> None:
    last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            say(line.rstrip("\n"))
            if line.strip():
                last.append(line.rstrip())
    if process.returncode != 0:
        words = "\n".join(last)
        hint = next((text for signs, text in _HINTS if any(sign in words for sign in signs)), "")
        raise UserError(
            f"{failure}. {tool.name} ended with exit code {process.returncode} and said last:\n{words}",
            hint=hint.format(tool=tool.name),
        )
