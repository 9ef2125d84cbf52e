"""A process that has given up a round, because another one has begun, can end though no peer has joined it."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from elasticai_api.pytorch.group import GroupBroken, MeetingPoint, form

meeting = MeetingPoint("127.0.0.1")
other = MeetingPoint("127.0.0.1")
address = {"own": meeting.address, "other": other.address}[sys.argv[1]]
try:
    form(number=1, rank=0, workers=["a", "b"], address=address, meeting=meeting, stale=lambda: True)
except GroupBroken as error:
    print(error)
"""


@pytest.mark.parametrize("store", ["own", "other"])
def test_abandoned_round_does_not_block_process_exit(store: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, store], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "another round has begun\n"), done.stderr
