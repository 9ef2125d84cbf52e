"""Whatever interrupts the writing of a file, the one that was there before stays whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import NamedArrays, read_array_file, write_array_file
from elasticdl.ps.core.server_errors import WriteFailed


def test_writer_killed_at_random_leaves_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "x.edl"
    program = textwrap.dedent(
        """
        import sys
        import numpy as np
        from elasticdl.ps.checkpoint.array_file import NamedArrays, write_array_file
        number = int(sys.argv[2])
        while True:
            number += 1
            arrays = {name: np.full(200_000, number, np.int64) for name in "abc"}
            write_array_file(sys.argv[1], NamedArrays(attributes={"number": number}, groups={"g": arrays}))
            print(number, flush=True)
        """
    )
    number = 0
    interrupted = 0
    for attempt in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(path), str(number)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        number = int(process.stdout.readline())
        # A write takes some milliseconds: somewhere inside of one of the next.
        deadline = time.monotonic() + 0.0007 * attempt
        while time.monotonic() < deadline:
            pass
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        number = max([number, *map(int, rest.split())])
        interrupted += (tmp_path / ".x.edl.partial").exists()
        snapshot = read_array_file(path)
        # The last one that was printed, or the one whose line was cut short.
        assert snapshot.attributes["number"] in (number, number + 1)
        assert all(np.all(array == snapshot.attributes["number"]) for array in snapshot.groups["g"].values())
        number = snapshot.attributes["number"]
    assert interrupted, "no kill hit a write: this test shows nothing"


def test_no_room_left(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the write fails half way."""
    path = tmp_path / "x.edl"
    write_array_file(path, NamedArrays(groups={"g": {"a": np.arange(10)}}))
    program = textwrap.dedent(
        """
        import resource, signal, sys
        import numpy as np
        from elasticdl.ps.checkpoint.array_file import NamedArrays, write_array_file
        from elasticdl.ps.core.server_errors import WriteFailed
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        # A limit on the size of files would truncate what Python caches of a module, for good.
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
        try:
            write_array_file(sys.argv[1], NamedArrays(groups={"g": {"a": np.zeros(1_000_000)}}))
        except WriteFailed as error:
            print(error.message)
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert str(path) in result.stdout
    assert "cannot be written" in result.stdout
    np.testing.assert_array_equal(read_array_file(path).groups["g"]["a"], np.arange(10))
    assert os.listdir(tmp_path) == ["x.edl"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WriteFailed, match=r"nowhere/x\.edl cannot be written: No such file or directory"):
        write_array_file(tmp_path / "nowhere" / "x.edl", NamedArrays())


def test_array_of_unsupported_dtype_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bad has dtype"):
        write_array_file(tmp_path / "x.edl", NamedArrays(groups={"g": {"bad": np.array(["text"])}}))
    assert os.listdir(tmp_path) == []
    assert issubclass(WriteFailed, UserError)
