"""A bound on how deep YAML nests, checked before it is read.

PyYAML makes documents by recursion. In C, a few kilobytes of `[` overflow the stack and end the process.
"""

from __future__ import annotations

from typing import Any

# Pods, the deepest that is given in YAML, need about ten.
_MOST = 100


def check_nesting(text: str) -> None:
    """Raises `yaml.YAMLError` if the text nests deeper than anything here does, or is not YAML."""
    import yaml

    depth = 0
    # Events come one by one, without recursion.
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MOST:
                mark: Any = event.start_mark
                raise yaml.MarkedYAMLError(problem=f"it nests deeper than {_MOST} levels", problem_mark=mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
