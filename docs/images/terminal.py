"""Draws docs/images/terminal.svg: the live display of a job, from the status of a real one.

    elasticdl jobs status JOB --json > status.json
    python docs/images/terminal.py status.json > docs/images/terminal.svg

The picture is rich's own export, without the fonts that it would fetch from elsewhere.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from elasticdl.cli.output.display import panel
from elasticdl.jobs.status import JobStatus

WIDTH = 86


def draw(status: JobStatus) -> str:
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(panel(status))
    picture = console.export_svg(title="elasticdl train", unique_id="display")
    return re.sub(r"\s*@font-face \{.*?\}\n", "", picture, flags=re.DOTALL)


if __name__ == "__main__":
    print(draw(JobStatus.from_text(Path(sys.argv[1]).read_text())))
