"""The documentation as programs: one page becomes one shell script that does what the page says, in its order.

What is run
    Blocks marked ```bash are run as they stand, ```python blocks by the Python of the tests. A block whose first
    line is a comment with a file name (`# job.yaml`, `# my_zoo/mine/model.py`) is that file: it is written, and
    what runs it comes later in the page. A ```text block right behind a block that was run is what it prints:
    its lines must come in this order; `…` stands for anything, also for lines left out.

What a page says to the tests, in comments that readers do not see
    <!-- not run: REASON -->        the next block cannot be run here
    <!-- not checked: REASON -->    the next text block is no output of the block before it
    <!-- exit code: N -->           how the next block ends, if not well
    <!-- background: NAME -->       the next block runs in a second terminal ...
    <!-- end of: NAME -->           ... which is waited for here; the output shown next is that of all its run
    <!-- run: COMMAND -->           what a reader does without instructions; `wait_for JOB WORDS` waits until the
                                    status of a job has these words

Every block must be of a language named here, so that none is passed over by mistake.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)$")
_COMMENT = re.compile(r"^<!--\s*(not run|not checked|exit code|background|end of|run):\s*(.+?)\s*-->$")
_FILE = re.compile(r"^# ([\w./-]+\.(?:py|ya?ml|csv))$")
_LANGUAGES = {"bash", "python", "text", "yaml"}
# Printed between steps. No program prints it by chance.
_MARK = "\x1e"
_WAIT_FOR = 'wait_for() { python -m e2e.wait_for "$1" "$2"; }'


class DocumentError(ValueError):
    """The page itself is wrong."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to do, and the lines of output that the page shows for it."""

    line: int
    script: str
    shown: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class _Block:
    line: int
    language: str
    text: list[str] = field(default_factory=list)


def steps_of(page: Path) -> list[Step]:
    steps: list[Step] = []
    said: dict[str, str] = {}
    # Whether a text block here would be output of the last step.
    output_follows = False
    for item in _items(page):
        where = f"{page.name}:{item.line}"
        if isinstance(item, _Directive):
            if item.word in ("run", "end of"):
                steps.append(Step(line=item.line, script=_standing_alone(item)))
                output_follows = item.word == "end of"
            else:
                said[item.word] = item.value
            continue
        if item.language not in _LANGUAGES:
            raise DocumentError(
                f"{where}: a block of {item.language or 'no language'}; use {sorted(_LANGUAGES)}"
            )
        named = _FILE.match(item.text[0]) if item.text and item.language != "text" else None
        if item.language == "text":
            if output_follows and "not checked" not in said:
                steps[-1].shown.extend(item.text)
        elif "not run" in said:
            output_follows = False
        elif named:
            steps.append(Step(line=item.line, script=_write_file(named[1], item.text)))
            output_follows = False
        elif item.language == "yaml":
            raise DocumentError(f"{where}: a yaml block that is neither a file (`# name.yaml`) nor `not run`")
        else:
            steps.append(Step(line=item.line, script=_run(item, said)))
            output_follows = "background" not in said
        said = {}
    if said:
        raise DocumentError(f"{page.name}: {said} has no block behind it")
    return steps


def whole_script(steps: list[Step]) -> str:
    """Ends at the first command that fails."""
    lines = ["set -euo pipefail", "mkdir -p .steps", _WAIT_FOR]
    for number, step in enumerate(steps):
        lines += [f"printf '{_MARK}{number}{_MARK}\\n'", step.script]
    lines.append(f"printf '{_MARK}end{_MARK}\\n'")
    return "\n".join(lines) + "\n"


def outputs_of(text: str) -> dict[str, str]:
    """What was printed, by the number of the step; "end" is there if the script came to its end."""
    parts = text.split(_MARK)[1:]
    return dict(zip(parts[0::2], parts[1::2], strict=True))


def missing_line(shown: list[str], output: str) -> str | None:
    """The first line of those shown that the output does not have, at or after the place of the one before."""
    lines = iter(output.splitlines())
    for line in shown:
        words = [re.escape(word).replace("…", ".*") for word in line.split()]
        if not words or line.strip() == "…":
            continue
        wanted = re.compile(r"\s*" + r"\s+".join(words) + r"\s*")
        if not any(wanted.fullmatch(candidate) for candidate in lines):
            return line
    return None


# -- reading a page ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Directive:
    line: int
    word: str
    value: str


def _items(page: Path) -> list[_Block | _Directive]:
    items: list[_Block | _Directive] = []
    block: _Block | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        comment = _COMMENT.match(line)
        if block is not None:
            if line == "```":
                items.append(block)
                block = None
            else:
                block.text.append(line)
        elif fence:
            block = _Block(line=number, language=fence[1])
        elif comment:
            items.append(_Directive(line=number, word=comment[1], value=comment[2]))
        elif line.lstrip().startswith(("```", "~~~")):
            raise DocumentError(
                f"{page.name}:{number}: blocks begin at the start of a line, with ```LANGUAGE"
            )
    if block is not None:
        raise DocumentError(f"{page.name}:{block.line}: the block has no end")
    return items


def _standing_alone(directive: _Directive) -> str:
    if directive.word == "run":
        return directive.value
    name = directive.value
    return f'code=0; wait "$background_{name}" || code=$?; cat .steps/{name}.out; [ "$code" = "$expected_{name}" ]'


def _run(block: _Block, said: dict[str, str]) -> str:
    text = "\n".join(block.text)
    if block.language == "python":
        file = f".steps/line_{block.line}.py"
        text = f"{_write_file(file, block.text)}\npython {file}"
    code = said.get("exit code", "0")
    if name := said.get("background"):
        return f"( {text}\n) > .steps/{name}.out 2>&1 &\nbackground_{name}=$! expected_{name}={code}"
    if code == "0":
        return text
    return f'code=0\n( {text}\n) || code=$?\n[ "$code" = {code} ]'


def _write_file(name: str, lines: list[str]) -> str:
    folder = shlex.quote(str(Path(name).parent))
    text = "\n".join(lines)
    return f"mkdir -p {folder}\ncat > {shlex.quote(name)} <<'END_OF_THE_FILE'\n{text}\nEND_OF_THE_FILE"
