"""A page of the documentation becomes the script that it describes, and mistakes in it are not passed over."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from e2e.documents import DocumentError, missing_line, outputs_of, steps_of, whole_script


def _page(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text.replace("'''", "```"))
    return page


def _run(folder: Path, text: str) -> tuple[int, dict[str, str]]:
    script = whole_script(steps_of(_page(folder, text)))
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, outputs_of(done.stdout)


def test_blocks_run_in_order_in_one_shell(tmp_path: Path) -> None:
    code, outputs = _run(tmp_path, "'''bash\nhere=1\n'''\n'''bash\necho $((here + 1))\n'''\n")
    assert code == 0
    assert outputs["1"].split() == ["2"]
    assert "end" in outputs


def test_the_first_failure_ends_it(tmp_path: Path) -> None:
    code, outputs = _run(tmp_path, "'''bash\nfalse\necho on\n'''\n'''bash\necho later\n'''\n")
    assert code == 1
    assert list(outputs) == ["0"]
    assert outputs["0"].strip() == ""


def test_an_expected_exit_code(tmp_path: Path) -> None:
    page = "<!-- exit code: {} -->\n'''bash\nexit 3\n'''\n"
    assert _run(tmp_path, page.format(3))[0] == 0
    assert _run(tmp_path, page.format(4))[0] != 0


def test_blocks_that_are_files(tmp_path: Path) -> None:
    code, outputs = _run(tmp_path, "'''yaml\n# a/b.yaml\nx: $1\n'''\n'''bash\ncat a/b.yaml\n'''\n")
    assert code == 0
    assert outputs["1"].split("\n")[1:3] == ["# a/b.yaml", "x: $1"]


def test_a_second_terminal(tmp_path: Path) -> None:
    page = (
        "<!-- background: other -->\n'''bash\nwhile [ ! -e go ]; do sleep 0.01; done; echo went\n'''\n"
        "'''bash\ntouch go\n'''\n<!-- end of: other -->\n'''text\nwent\n'''\n"
    )
    steps = steps_of(_page(tmp_path, page))
    code, outputs = _run(tmp_path, page)
    assert code == 0
    assert steps[2].shown == ["went"]
    assert missing_line(steps[2].shown, outputs["2"]) is None


def test_failure_in_background_terminal_fails_the_page(tmp_path: Path) -> None:
    page = "<!-- background: other -->\n'''bash\nexit 1\n'''\n<!-- end of: other -->\n"
    assert _run(tmp_path, page)[0] != 0


def test_steps_marked_as_not_run_are_left_out(tmp_path: Path) -> None:
    assert steps_of(_page(tmp_path, "<!-- not run: it installs -->\n'''bash\nfalse\n'''\n")) == []


@pytest.mark.parametrize(
    "text",
    [
        "'''\nls\n'''\n",
        "'''sh\nls\n'''\n",
        "'''yaml\nkey: value\n'''\n",
        "'''bash\nls\n",
        "- item\n  '''bash\n  ls\n  '''\n",
        "'''bash\nls\n'''\n<!-- not run: nothing behind it -->\n",
    ],
    ids=["no language", "unknown language", "yaml that is no file", "no end", "indented", "comment alone"],
)
def test_pages_that_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DocumentError):
        steps_of(_page(tmp_path, text))


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (["a 1", "c 3"], True),
        (["c 3", "a 1"], False),
        (["a …"], True),
        (["…", "b   2"], True),
        (["a"], False),
        (["a 1", "a 1"], False),
    ],
)
def test_output_has_the_lines_shown_in_their_order(shown: list[str], found: bool) -> None:
    assert (missing_line(shown, "  a 1\nb 2\nc 3\n") is None) is found
