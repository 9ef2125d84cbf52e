"""docs/reference/exit-codes.md: how commands and nodes end."""

from __future__ import annotations

from elasticdl import errors
from elasticdl.errors import ExitCode
from elasticdl.master.kubernetes import pod_master
from elasticdl.platforms import platform
from tools.reference.markdown import code, opening, table
from tools.reference.source_comments import field_comments

_MEANINGS = {
    ExitCode.SUCCESS: "The command did what was asked. A job has succeeded, and its audit is exact.",
    ExitCode.JOB_FAILED: "The job has failed, or its audit is not exact. The last line on the screen is the reason.",
    ExitCode.BAD_INPUT: "Something that you can put right: a wrong flag, a missing file, a module that does not "
    "import. Nothing was started.",
    ExitCode.TIMED_OUT: "`elasticdl jobs wait --timeout` has waited for so long. The job goes on.",
    ExitCode.CRASHED: "A defect of ElasticDL. The traceback is shown; please report it.",
    ExitCode.INTERRUPTED: "Ctrl-C, or `elasticdl jobs stop`: the job has stopped and can be resumed.",
}
_NODES = {
    "EXIT_COMPLETED": "The node has done its work.",
    "EXIT_DRAINED": "The node was drained.",
    "EXIT_OUT_OF_MEMORY": "The node ran out of memory.",
    "EXIT_DEFINITION_ERROR": "The model definition cannot work.",
    "EXIT_TERMINATED": "Terminated by a signal.",
}
_MASTER = {
    "EXIT_DONE": "The job has ended well.",
    "EXIT_FAILED": "The job has failed.",
    "EXIT_AGAIN": "The container is started again, and the master continues.",
    "EXIT_TERMINATED": "Terminated by Kubernetes.",
}
_TEXT = """\
`echo $?` after a command. `elasticdl jobs wait` and `attach`, and `JobResult.exit_code` in Python, give the code of
the job."""


def page() -> str:
    lines = opening("Exit codes", f"{errors.__name__.replace('.', '/')}.py and tools/reference", _TEXT)
    lines += ["## Commands", ""]
    lines += table(
        ["code", "name", "meaning"],
        ([code(str(each.value)), each.name, _MEANINGS[each]] for each in sorted(ExitCode)),
    )
    lines += [
        "## Nodes",
        "",
        "Workers and parameter servers end with these. A code from 128 on is 128 plus the number of the signal that "
        "killed the process: 137 for SIGKILL, which is also what the kernel sends when memory runs out. A program of "
        "your own may end with any code; all but 0 count as a failure.",
        "",
    ]
    comments = field_comments(platform)
    lines += table(
        ["code", "name", "meaning"],
        (
            [code(str(int(getattr(platform, name)))), name, _joined(text, comments.get(name, ""))]
            for name, text in _NODES.items()
        ),
    )
    lines += ["## The master's pod", ""]
    comments = field_comments(pod_master)
    lines += table(
        ["code", "name", "meaning"],
        (
            [code(str(int(getattr(pod_master, name)))), name, _joined(text, comments.get(name, ""))]
            for name, text in _MASTER.items()
        ),
    )
    return "\n".join(lines)


def _joined(text: str, comment: str) -> str:
    return f"{text} {comment[:1].upper()}{comment[1:].rstrip('.')}." if comment else text
