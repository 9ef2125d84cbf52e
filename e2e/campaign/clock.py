"""A wall clock that jumps, for the processes of one job: `clock_shift.c`, loaded into each of them."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock_shift.c")


class ShiftedClock:
    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock-shift"
        self._file.write_bytes(bytes(8))
        self._library = folder / "clock_shift.so"
        compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), "")
        if not compiler:
            raise FileNotFoundError("clock jumps need a C compiler: install one, or name it in CC")
        subprocess.run(
            [compiler, "-O1", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE), "-ldl"], check=True
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT_FILE": str(self._file)}

    def shift(self, seconds: int) -> None:
        """From now on all clocks are so far off."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", seconds))
