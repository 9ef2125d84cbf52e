"""Names: what a job may be called, what it is called by default, and other names that Kubernetes reads.

A job's name becomes part of pod names, so it follows the rules of Kubernetes also where none is near:
the same job can then be sent there.
"""

from __future__ import annotations

import re
import shlex

from elasticdl.jobs.flags.grammar import Rule

# A label has 63 characters at most; "elasticdl-" before the name and "-evaluator-9" behind it must fit too.
LONGEST_JOB_NAME = 50

JOB_NAME = Rule(
    pattern="[a-z]([-a-z0-9]*[a-z0-9])?",
    words="a job name: small letters, digits and dashes, a letter first and no dash last",
    longest=LONGEST_JOB_NAME,
)
DNS_LABEL = Rule(
    pattern="[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    words="a name for Kubernetes: small letters, digits and dashes, no dash first or last",
    longest=63,
)
DNS_NAME = Rule(
    pattern=r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    words="a name for Kubernetes: small letters, digits, dashes and dots",
    longest=253,
)
IMAGE = Rule(
    pattern=r"[A-Za-z0-9][-A-Za-z0-9_./:]*(@sha256:[0-9a-f]{64})?",
    words="the name of an image, such as registry/team/name:tag",
)
FUNCTION = Rule(pattern=r"[A-Za-z_]\w*", words="the name of a function or class in the module of the model")
MODEL = Rule(
    pattern=r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+",
    words="of the form folder.module.function (in the model zoo)",
)
ARGUMENT = Rule(pattern=r"[A-Za-z_]\w*", words="the name of an argument in Python")
ENVIRONMENT_VARIABLE = Rule(
    pattern=r"[-._A-Za-z][-._A-Za-z0-9]*", words="the name of an environment variable"
)


def default_job_name(*, kind: str, model_def: str, job_command: str, suffix: str) -> str:
    """A name from what the job runs, and from the suffix that keeps two runs of it apart."""
    words = _command_words(job_command) if job_command else model_def.split(".")[:-1]
    if kind != "train":
        words = [*words, kind]
    parts: list[str] = []
    for word in words:
        slug = re.sub("[^a-z0-9]+", "-", word.lower()).strip("-")
        if slug and slug not in parts:
            parts.append(slug)
    base = "-".join(parts) or "job"
    if not base[0].isalpha():
        base = f"job-{base}"
    tail = f"-{suffix}" if suffix else ""
    return base[: LONGEST_JOB_NAME - len(tail)].rstrip("-") + tail


def _command_words(command: str) -> list[str]:
    """The program in a command: the module behind -m, or the script, without its folders."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1].split(".")[-1:]
    scripts = [word for word in words if word.endswith((".py", ".sh"))] or words[:1]
    return [script.rsplit("/", 1)[-1].rsplit(".", 1)[0] for script in scripts[:1]]
