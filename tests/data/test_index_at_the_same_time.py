"""Many processes that open the same data at the same time each get a right index, and leave one behind."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Callable
from pathlib import Path

PROGRAM = """
import logging, sys
from elasticdl.data.dataset import open_reader
logging.basicConfig(level="INFO")
print("ready", flush=True)
sys.stdin.readline()
for path in sys.argv[1:]:
    reader = open_reader(path)
    rows = list(reader.read(0, len(reader)))
    print(len(rows), [int(row[0]) for row in rows] == list(range(30_000)), next(reader.read(29_999, 30_000)))
"""


def run_all(python: Callable[..., subprocess.Popen[str]], *paths: Path) -> tuple[set[str], str]:
    """The outputs of all processes, which may be the same only, and what they have said."""
    processes = [python(PROGRAM, *map(str, paths)) for _ in range(4)]
    # They wait for a line, so that all have their imports behind them when the first begins.
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, results
    return {output for output, _ in results}, "".join(said for _, said in results)


def test_plain_files(tmp_path: Path, python: Callable[..., subprocess.Popen[str]]) -> None:
    for name in ("1.csv", "2.csv"):
        with (tmp_path / name).open("w") as file:
            file.writelines(f'{number},"a\n{number}"\n' for number in range(30_000))
    outputs, _ = run_all(python, tmp_path / "1.csv", tmp_path / "2.csv")
    assert outputs == {"30000 True ['29999', 'a\\n29999']\n" * 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".1.csv.elasticdl-index",
        ".2.csv.elasticdl-index",
        "1.csv",
        "2.csv",
    ]


def test_compressed_files_are_decompressed_by_one_of_them(
    tmp_path: Path, python: Callable[..., subprocess.Popen[str]], cache: Path
) -> None:
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wt") as file:
        file.writelines(f"{number},b\n" for number in range(30_000))
    outputs, said = run_all(python, path)
    assert outputs == {"30000 True ['29999', 'b']\n"}
    assert said.count("bytes decompressed") == 1
    leftovers = [found for found in (cache / "plain").iterdir() if found.name.endswith(".tmp")]
    assert leftovers == []
