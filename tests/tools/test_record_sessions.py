"""The recorded sessions: frames of a live display are separated, and the pictures show what they are for."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tools.record_sessions import IMAGES, frames


def test_each_frame_of_a_live_display_is_one() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        live.update(Text("one\ntwo"), refresh=True)
        console.print("a note")
        live.update(Text("three\nfour\nfive"), refresh=True)
    console.print("the end")
    found = [frame.split() for frame in frames(file.getvalue())]
    assert ["one", "two"] in found
    assert found[-1] == ["three", "four", "five", "the", "end"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "terminal",
            ["kill -9", "ended: worker-0 (killed)", "worker-2", "Exact: every sample of every epoch"],
        ),
        ("jobs", ["elasticdl jobs list", "PROGRESS", "elasticdl jobs top survivor", "samples/s"]),
    ],
)
def test_pictures_show_the_session_and_fetch_nothing(name: str, words: list[str]) -> None:
    path: Path = IMAGES / f"{name}.svg"
    picture = path.read_text()
    assert path.stat().st_size < 100_000
    text = re.sub(r"<[^>]+>", "", picture).replace("&#160;", " ")
    for word in words:
        assert word in text
    assert "url(http" not in picture
    assert "/tmp/" not in picture
