"""The lint that rejects retired words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.vocabulary import ROOT, check_files, find_retired, is_checked, tracked_files


def words(text: str) -> list[tuple[int, str]]:
    return [(found.line, found.word) for found in find_retired(text, "x.py")]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("# The master is told.", "told"),
        ('"""Nobody waits."""', "nobody"),
        ("def test_nobody_waits() -> None:", "nobody"),
        ("_TOLD = 10", "told"),
        ("told_at: float", "told"),
        ("somebody's lease", "somebody"),
        ("It waits in vain.", "in vain"),
        ("def wait_in_vain() -> None:", "in vain"),
        ("# Everybody waits for the barrier.", "everybody"),
        ("shards that were fetched ahead", "fetched ahead"),
        ("# For those who read it.", "those who"),
        ("It stands by.", "stands by"),
    ],
)
def test_retired_word_is_found_in_prose_and_names(line: str, word: str) -> None:
    assert words(f"first = 1\n{line}\n") == [(2, word)]


@pytest.mark.parametrize(
    "line", ["stolden", "untold_numbers = 1", "an anewton", "message ToldShard {", "in, vain"]
)
def test_parts_of_other_words_are_not_found(line: str) -> None:
    assert words(line) == []


def test_words_retired_in_docs_are_found_in_pages_only() -> None:
    assert [found.word for found in find_retired("A wish is stored.", "docs/page.md")] == ["wish"]
    assert [found.word for found in find_retired("The master is told.", "docs/page.md")] == ["told"]
    assert list(find_retired("# A wish is stored.", "elasticdl/a.py")) == []
    assert list(find_retired("A wish is stored.", "docs/reference/flags.md")) == []


def test_every_occurrence_is_found() -> None:
    assert words("told, told\nwhoever") == [(1, "told"), (1, "told"), (2, "whoever")]


def test_finding_names_the_place_and_the_term() -> None:
    (found,) = find_retired("anew", "elasticdl/a.py")
    assert str(found).startswith("elasticdl/a.py:1: 'anew' is retired; write: again")


def test_planted_word_in_a_tracked_file_is_found(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "elasticdl").mkdir()
    for name in ("planted.py", "clean.py", "untracked.py", "data.csv"):
        (tmp_path / "elasticdl" / name).write_text("x = 1\n" if name == "clean.py" else "# told\n")
    tracked = [f"elasticdl/{name}" for name in ("planted.py", "clean.py", "data.csv")]
    subprocess.run(["git", "-C", str(tmp_path), "add", *tracked], check=True)
    found = check_files(tmp_path, tracked_files(tmp_path))
    assert [str(each.path) for each in found] == ["elasticdl/planted.py"]


@pytest.mark.parametrize(
    ("path", "checked"),
    [
        ("elasticdl/master/journal.py", True),
        ("native/table.h", True),
        ("elasticdl/wire/master.proto", True),
        ("elasticdl/manifests/trainingjob-crd.yaml", True),
        ("Makefile", True),
        ("docs/glossary.md", True),
        ("tools/vocabulary.py", False),
        ("docs/decisions/0029-replicas.md", True),
        ("docs/images/packages.svg", False),
    ],
)
def test_path_is_in_scope(path: str, checked: bool) -> None:
    assert (ROOT / path).is_file()
    assert is_checked(path) == checked
