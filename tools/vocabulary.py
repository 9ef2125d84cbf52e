"""Rejects retired words in the source tree, so that each concept keeps one name: the one in `docs/glossary.md`.

A word is found in prose and as a part of an identifier (`test_nobody_waits`), in any case, not inside of another
word. A phrase is found on one line only.

    python -m tools.vocabulary            # all tracked files in scope
    python -m tools.vocabulary PATH...    # these files
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# What to write instead. The first word of each entry is the one that is most often right.
RETIRED = {
    "anew": "again, or a verb: restart, rebuild, reset",
    "anybody": "any user, any process; or the passive",
    "are ended": "are killed, are terminated",
    "asked to go": "terminated, drained",
    "astray": "unresponsive (a node that stops reporting)",
    "brought back": "restarted, resumed, restored",
    "come to a halt": "barrier",
    "comeback": "recovery, replay",
    "everybody": "all workers, every server, every caller",
    "fetched ahead": "prefetched",
    "for people who": "name the place: the job's status, the log",
    "for want of": "for lack of, without",
    "frozen copy": "copy-on-write snapshot",
    "heard of": "reported to, received by, known to",
    "hears of": "receives, is reported to",
    "in the hands of": "held by, leased to",
    "in vain": "timed out, failed, retried with backoff",
    "is ended": "is killed, is terminated",
    "let go": "drain, release, terminate",
    "lingering": "stalled, straggler",
    "nobody": "no node, no caller, none; or the passive",
    "number that is none": "non-finite, NaN or infinite",
    "obey": "replicate, follow the primary",
    "of no use": "useless, not needed, permanent (an error)",
    "otherwise than": "differently from, in other ways than",
    "pulled ahead": "prefetched",
    "send away": "drain",
    "sends away": "drains",
    "sent away": "drained",
    "somebody": "another process, a caller, a user",
    "standstill": "barrier",
    "stands by": "is on standby",
    "those who": "the processes that, members, callers; or name them",
    "thrown away": "discarded",
    "told": "reported, sent, logged; configured",
    "tried again later": "retried with backoff",
    "unheard": "unresponsive",
    "who asks": "the caller",
    "whoever": "the caller, the holder, the next worker",
    "without a word": "silently",
}
# Rejected only in the pages of docs/. These are usable in comments, but unclear in a manual.
RETIRED_IN_DOCS = {
    "comes to its end": "ends, finishes",
    "heeds": "implements, enforces",
    "it is said": "name who reports it, and where",
    "leave away": "omit",
    "left away": "omitted",
    "not heard of": "unresponsive",
    "of itself": "automatically; or name the cause",
    "taken for": "treated as, counted as",
    "who names none": "without --flag, ...",
    "will do": "works, is enough",
    "wish": "desired (size, state)",
    "wishes": "desired (size, state)",
}
# Files with other words are not prose: data, keys, pictures.
SUFFIXES = {".cpp", ".h", ".md", ".proto", ".py", ".toml", ".yaml", ".yml"}
NAMES = {"Makefile", "CMakeLists.txt"}
# These name the words to reject them.
ALLOWED = {"tools/vocabulary.py", "tests/tools/test_vocabulary.py"}


def _pattern(phrase: str) -> str:
    return r"[\s_-]+".join(map(re.escape, phrase.split()))


def _any_of(phrases: Iterable[str]) -> re.Pattern[str]:
    return re.compile(
        rf"(?<![A-Za-z])({'|'.join(map(_pattern, sorted(phrases)))})(?![A-Za-z])", re.IGNORECASE
    )


_RETIRED = _any_of(RETIRED)
_RETIRED_IN_DOCS = _any_of(RETIRED | RETIRED_IN_DOCS)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A retired word in a file."""

    path: str
    line: int
    word: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r} is retired; write: {(RETIRED | RETIRED_IN_DOCS)[self.word]}"


def find_retired(text: str, path: str) -> Iterator[Finding]:
    """Yields the retired words of a text, line by line."""
    retired = _RETIRED_IN_DOCS if _is_page(path) else _RETIRED
    for number, line in enumerate(text.splitlines(), start=1):
        for match in retired.finditer(line):
            word = " ".join(re.split(r"[\s_-]+", match[1].lower()))
            yield Finding(path=path, line=number, word=word)


def _is_page(path: str) -> bool:
    """Whether a file is a page that is written by hand: docs/reference/ comes from the code."""
    return path.startswith("docs/") and path.endswith(".md") and not path.startswith("docs/reference/")


def is_checked(path: str) -> bool:
    """Whether a path, relative to the root, is in scope."""
    if path in ALLOWED:
        return False
    name = Path(path)
    return name.suffix in SUFFIXES or name.name in NAMES


def tracked_files(root: Path) -> list[str]:
    """Returns the tracked files of a work tree, relative to its root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    return [path for path in listed.split("\0") if path]


def check_files(root: Path, paths: Iterable[str]) -> list[Finding]:
    """Checks the files in scope among some paths. Deleted files that are still tracked are passed over."""
    found: list[Finding] = []
    for path in filter(is_checked, paths):
        file = root / path
        if file.is_file():
            found += find_retired(file.read_text(encoding="utf-8"), path)
    return found


def main(arguments: list[str]) -> int:
    paths = [str(Path(path).resolve().relative_to(ROOT)) for path in arguments] or tracked_files(ROOT)
    found = check_files(ROOT, paths)
    for finding in found:
        print(finding)
    if found:
        print(f"Found {len(found)} retired words. docs/glossary.md has the terms.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
