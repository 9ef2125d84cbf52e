"""The questions of CONTRIBUTING.md: the command of each leads to the file of the answer, among few others."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| ([^|]+\?) \| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
QUESTIONS = _ROW.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
# As many as a folder may have modules.
LINE_LIMIT = 16


def test_there_are_ten_questions() -> None:
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize(("question", "command", "answer"), QUESTIONS, ids=[row[0] for row in QUESTIONS])
def test_command_leads_to_file(question: str, command: str, answer: str) -> None:
    lines = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    lines = [line for line in lines if line != "__pycache__"]
    assert (ROOT / answer).is_file()
    assert len(lines) <= LINE_LIMIT
    found = [line.partition(":")[0] for line in lines]
    shown = Path(answer).name if command.startswith("ls ") else answer
    assert shown in found
