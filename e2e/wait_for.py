"""`python -m e2e.wait_for JOB WORDS`: until the status of a job has these words, as `grep` finds them.

What a reader of a page does who types `elasticdl jobs status` again and again, without a new process for each look:
those that are waited for need the machine.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time

from elasticdl.cli.main import main

_PAUSE_SECONDS = 0.3
# Far more than anything takes: it ends what hangs.
_SECONDS = 600.0


def wait_for(job: str, words: str) -> int:
    end, text = time.monotonic() + _SECONDS, ""
    while time.monotonic() < end:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            main(["jobs", "status", job])
        text = output.getvalue()
        found = subprocess.run(["grep", "-e", words], input=text, text=True, capture_output=True, check=False)
        if found.returncode == 0:
            return 0
        time.sleep(_PAUSE_SECONDS)
    print(f"The status of {job} never had: {words}\n{text}")
    return 1


if __name__ == "__main__":
    sys.exit(wait_for(*sys.argv[1:]))
