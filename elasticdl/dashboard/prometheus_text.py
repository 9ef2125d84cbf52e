"""Prometheus' text format of one document, written by the library of the Prometheus project.

Nothing is counted in this process: a job's status has every figure already. So the library's instruments have no part
in it, only its families of samples and its writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class Exposition(Collector):
    """Figures, in the order in which their names first came."""

    def __init__(self, **labels: str) -> None:
        """`labels`: those that all figures have."""
        self._labels = labels
        self._families: dict[str, Metric] = {}

    def gauge(self, name: str, help: str, value: float | None, **labels: str) -> None:  # noqa: A002
        """Something that goes up and down. None: not known, and not said."""
        self._add(name, "gauge", help, "", value, labels)

    def counter(self, name: str, help: str, value: float | None, **labels: str) -> None:  # noqa: A002
        """Something that only grows, until its process is started again. The name ends with _total."""
        self._add(name.removesuffix("_total"), "counter", help, "_total", value, labels)

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
        labels: Mapping[str, str],
    ) -> None:
        if value is None:
            return
        family = self._families.setdefault(name, Metric(name, help, kind))
        # The library calls methods of text on labels.
        texts = {label: str(text) for label, text in {**self._labels, **labels}.items()}
        family.add_sample(f"{name}{ending}", texts, value)

    def collect(self) -> Iterable[Metric]:
        return self._families.values()

    def add(self, other: Exposition) -> None:
        """Adds the samples of another one. All samples of a metric have to be in one block."""
        for name, family in other._families.items():
            own = self._families.setdefault(name, Metric(family.name, family.documentation, family.type))
            own.samples.extend(family.samples)

    def text(self) -> str:
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode()
