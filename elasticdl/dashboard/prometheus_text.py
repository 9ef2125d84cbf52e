"""Prometheus' text format: a few lines of text for each figure, which everything that watches programs can read.

Written by hand. What there is to say stands in one document (a job's status), and nothing is counted in this process:
of a client library with its registries and instruments only the writing would be used, and that is this page.
"""

from __future__ import annotations

from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(kw_only=True)
class _Family:
    kind: str
    help: str
    samples: list[str] = field(default_factory=list)


class Exposition:
    """Figures, in the order in which their names first came."""

    def __init__(self, **labels: str) -> None:
        """`labels`: those that all figures have."""
        self._labels = labels
        self._families: dict[str, _Family] = {}

    def gauge(self, name: str, help: str, value: float | None, **labels: str) -> None:  # noqa: A002
        """Something that goes up and down. None: not known, and not said."""
        self._add(name, "gauge", help, "", value, labels)

    def counter(self, name: str, help: str, value: float | None, **labels: str) -> None:  # noqa: A002
        """Something that only grows, until its process is started again. The name ends with _total."""
        self._add(name, "counter", help, "", value, labels)

    def summary(
        self,
        name: str,
        help: str,  # noqa: A002
        *,
        quantiles: dict[str, float | None],
        sum: float,  # noqa: A002
        count: float,
        **labels: str,
    ) -> None:
        """`quantiles`: by what they are, such as 0.95."""
        for quantile, value in quantiles.items():
            self._add(name, "summary", help, "", value, {**labels, "quantile": quantile})
        self._add(name, "summary", help, "_sum", sum, labels)
        self._add(name, "summary", help, "_count", count, labels)

    def _add(
        self,
        name: str,
        kind: str,
        help: str,  # noqa: A002
        ending: str,
        value: float | None,
        labels: dict[str, str],
    ) -> None:
        if value is None:
            return
        family = self._families.setdefault(name, _Family(kind=kind, help=help))
        shown = ",".join(
            f'{label}="{_escaped(str(said))}"' for label, said in {**self._labels, **labels}.items()
        )
        family.samples.append(f"{name}{ending}{{{shown}}} {_number(value)}")

    def text(self) -> str:
        lines = []
        for name, family in self._families.items():
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}", *family.samples]
        return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _escaped(said: str) -> str:
    return said.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
