"""Many processes that open the same data at the same time each get a right index, and leave one behind."""

import gzip

PROGRAM = """
import sys
from elasticdl.data.open import open_reader
sys.stdin.readline()
for path in sys.argv[1:]:
    reader = open_reader(path)
    print(len(reader), hash(tuple(map(tuple, reader.read(0, len(reader))))) != 0, next(reader.read(29_999, 30_000)))
"""


def run_all(python, *paths):
    processes = [python(PROGRAM, *map(str, paths)) for _ in range(4)]
    # They wait for a line, so that imports are behind them when they start.
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    results = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, results
    return {output for output, _ in results}


def test_plain_files(tmp_path, python):
    for name in ("1.csv", "2.csv"):
        with (tmp_path / name).open("w") as file:
            file.writelines(f'{number},"a\n{number}"\n' for number in range(30_000))
    expected = "30000 True ['29999', 'a\\n29999']\n" * 2
    assert run_all(python, tmp_path / "1.csv", tmp_path / "2.csv") == {expected}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".1.csv.elasticdl-index",
        ".2.csv.elasticdl-index",
        "1.csv",
        "2.csv",
    ]


def test_compressed_files(tmp_path, python, cache):
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wt") as file:
        file.writelines(f"{number},b\n" for number in range(30_000))
    assert run_all(python, path) == {"30000 True ['29999', 'b']\n"}
    leftovers = [found for found in (cache / "plain").iterdir() if found.name.endswith(".tmp")]
    assert leftovers == []
