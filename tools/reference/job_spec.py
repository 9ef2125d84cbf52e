"""docs/reference/job-spec.md: the sections and keys of a job file, which are the fields of JobSpec."""

from __future__ import annotations

import inspect

from elasticdl.cli.submission.flags import default_text
from elasticdl.jobs.schema.flag_index import LEAVES, SECTIONS, Leaf
from tools.reference.markdown import code, opening, table

_TEXT = """\
A job is one `JobSpec`. Flags, a job file and the Python API build the same object with the same checks. A job file
(`elasticdl train -f job.yaml`) has the sections below as YAML mappings; in Python they are attributes,
`spec.training.minibatch_size`. `elasticdl.JobSpec.build(**flags)` takes the keys without their sections.
`elasticdl train --dry_run` prints a job as such a file, with every default.

[Flags](flags.md) lists the same fields by topic."""


def page() -> str:
    lines = opening("JobSpec", "the definitions in elasticdl/jobs/sections", _TEXT)
    lines += ["## The job itself", ""]
    head = [("kind", "`train\\|evaluate\\|predict`", "The command.")]
    lines += ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {shape} |  | {text} |" for name, shape, text in head]
    lines += [_row(leaf) for leaf in LEAVES.values() if not leaf.section] + [""]
    for section, owner in SECTIONS.items():
        lines += [f"## {section}", "", (inspect.getdoc(owner) or "").partition("\n\n")[0], ""]
        lines += ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [_row(leaf) for leaf in LEAVES.values() if leaf.section == section] + [""]
    return "\n".join(lines)


def _row(leaf: Leaf) -> str:
    default = default_text(leaf)
    shown = default if leaf.flag.derived else code(default)
    row = table(["", "", "", ""], [[code(leaf.name), code(leaf.flag.grammar.shape), shown, leaf.flag.help]])
    return row[2]
