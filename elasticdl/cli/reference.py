"""`python -m elasticdl.cli.reference`: writes the page of the documentation that lists all flags.

python -m elasticdl.cli.reference > docs/reference/flags.md
"""

from __future__ import annotations

import re

from elasticdl.cli.submission.flags import default_text
from elasticdl.jobs.flags.flag import KINDS, Topic
from elasticdl.jobs.schema.flag_index import LEAVES, Leaf

_OPENING = """\
# Flags

<!-- Written by `python -m elasticdl.cli.reference`: change the definitions in elasticdl/jobs, not this page. -->

The same names are flags of `elasticdl train`, `evaluate` and `predict`, keys of a job file (`-f job.yaml`, in
the section named below), and keyword arguments of `elasticdl.run` and `elasticdl.JobSpec.build`. A flag goes
before what a job file says. `--dry_run` prints the whole job, every default resolved, as such a file.

- Flags are written with underscores; dashes mean the same (`--num-workers`).
- `true|false` also takes 1/0, yes/no and on/off. The flag alone means true.
- `KEY=VALUE,...` is a list of pairs, separated by commas or semicolons; a value that contains one is put in
  quotes. In a job file it may be a mapping. The flag may be given several times.
- Resources follow Kubernetes: `cpu=0.5,memory=2Gi,disk=10Gi,gpu=1`, or a device by name, `nvidia.com/gpu=1`.
- Paths are relative to the folder in which the command is run, also those in a job file.
"""


_HEAD = "| flag | value | default | section | meaning |"
_RULE = "| --- | --- | --- | --- | --- |"


def page() -> str:
    lines = [_OPENING, " ·\n".join(f"[{topic.value}](#{_anchor(topic.value)})" for topic in Topic), ""]
    for topic in Topic:
        leaves = [leaf for leaf in LEAVES.values() if leaf.flag.topic is topic]
        lines += [f"## {topic.value}", "", _HEAD, _RULE]
        lines += [_row(leaf) for leaf in leaves]
        lines.append("")
    return "\n".join(lines)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _row(leaf: Leaf) -> str:
    names = " ".join(f"`--{word}`" for word in (leaf.name, *leaf.flag.aliases))
    shape = leaf.flag.grammar.shape.replace("|", "\\|")
    default = default_text(leaf)
    shown = default if leaf.flag.derived or not default else f"`{default}`"
    only = "" if leaf.flag.kinds == KINDS else f" Only {' and '.join(leaf.flag.kinds)}."
    return f"| {names} | `{shape}` | {shown} | {leaf.section} | {leaf.flag.help}{only} |"


if __name__ == "__main__":
    print(page(), end="")
