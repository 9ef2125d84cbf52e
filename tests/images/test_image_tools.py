"""Images are built with the tool that works here; what a tool says when it fails reaches the user, with a hint.

The tools are stand-ins: programs with their names that write down how they were called.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.images.builder import build_image, find_tool, push_image


class Tools:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"

    def put(self, name: str, script: str = "exit 0") -> None:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $@" >> {self.calls}\n{script}\n')
        path.chmod(0o755)

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}")
    return Tools(folder)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n")
    return folder


def ignore(line: str) -> None:
    """Discards the output of the tool."""


def test_docker_if_its_daemon_answers(tools: Tools) -> None:
    for name in ("docker", "podman", "buildah"):
        tools.put(name)
    assert find_tool().name == "docker"
    assert find_tool("podman").name == "podman"


def test_docker_without_a_daemon_is_passed_over(tools: Tools) -> None:
    tools.put("docker", 'echo "Cannot connect to the Docker daemon" >&2; exit 1')
    tools.put("buildah")
    assert find_tool().name == "buildah"
    with pytest.raises(UserError, match="docker is installed, but its daemon does not answer"):
        find_tool("docker")


def test_no_tool_at_all(tools: Tools) -> None:
    with pytest.raises(
        UserError, match="docker is not installed; podman is not installed; buildah"
    ) as caught:
        find_tool()
    assert "Install one of" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "build", "save"),
    [
        ("docker", "docker build --tag=a/b:c", "docker save --output={archive} a/b:c"),
        ("podman", "podman build --tag=a/b:c", "podman push a/b:c docker-archive:{archive}:a/b:c"),
        (
            "buildah",
            "buildah build --layers --isolation=chroot",
            "buildah push a/b:c docker-archive:{archive}:a/b:c",
        ),
    ],
)
def test_build_save_push(
    tools: Tools, context: Path, tmp_path: Path, name: str, build: str, save: str
) -> None:
    tools.put(name)
    archive = tmp_path / "image.tar"
    tool = find_tool(name)
    build_image(image="a/b:c", folder=context, archive=archive, tool=tool, say=ignore)
    push_image(image="a/b:c", tool=tool, say=ignore)
    built, saved, pushed = tools.called()[-3:]
    assert built.startswith(build)
    assert built.endswith(f"--file={context}/Dockerfile {context}")
    assert saved == save.format(archive=archive)
    assert pushed == f"{name} push a/b:c"


def test_output_of_failing_tool_is_reported_with_hint(tools: Tools, context: Path) -> None:
    tools.put(
        "podman", "echo step one; echo 'ERROR: No matching distribution found for elasticdl' >&2; exit 3"
    )
    said: list[str] = []
    with pytest.raises(UserError) as caught:
        build_image(image="a:b", folder=context, archive=None, tool=find_tool("podman"), say=said.append)
    assert said == ["step one", "ERROR: No matching distribution found for elasticdl"]
    assert "The image a:b could not be built. podman ended with exit code 3" in caught.value.message
    assert caught.value.message.endswith(said[1])
    assert "--local_pkg_dir" in caught.value.hint


def test_packages_for_another_python(tools: Tools, context: Path) -> None:
    words = "ERROR: elasticdl-2.0.0-cp312-cp312-linux_x86_64.whl is not a supported wheel on this platform."
    tools.put("podman", f"echo '{words}' >&2; exit 1")
    with pytest.raises(UserError) as caught:
        build_image(image="a:b", folder=context, archive=None, tool=find_tool("podman"), say=ignore)
    assert "--base_image" in caught.value.hint


def test_a_registry_that_refuses(tools: Tools) -> None:
    tools.put(
        "docker", '[ "$1" = version ] && exit 0; echo "denied: requested access to the resource"; exit 1'
    )
    with pytest.raises(UserError, match="could not be pushed") as caught:
        push_image(image="team/name:tag", tool=find_tool(), say=ignore)
    assert "docker login" in caught.value.hint


def test_invalid_arguments_are_rejected_before_the_tool_runs(
    tools: Tools, context: Path, tmp_path: Path
) -> None:
    tools.put("podman")
    tool = find_tool()
    with pytest.raises(UserError, match="is not the name of an image"):
        build_image(image="Ä b", folder=context, archive=None, tool=tool, say=ignore)
    with pytest.raises(UserError, match="There is no Dockerfile") as caught:
        build_image(image="a", folder=tmp_path, archive=None, tool=tool, say=ignore)
    assert "zoo init" in caught.value.hint
    with pytest.raises(UserError, match="There is no folder"):
        build_image(image="a", folder=tmp_path / "none", archive=None, tool=tool, say=ignore)
    assert not tools.calls.exists()
