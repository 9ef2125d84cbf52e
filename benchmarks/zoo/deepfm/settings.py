"""Settings of a job of the parameter server benchmark besides its flags: environment variables of all its nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.parameter_servers import clicks

SIZE = "ELASTICDL_BENCHMARK_SIZE"
OPTIMIZER = "ELASTICDL_BENCHMARK_OPTIMIZER"


def layers() -> tuple[int, ...]:
    return clicks.LAYERS[os.environ[SIZE]]


def optimizer() -> str:
    return os.environ.get(OPTIMIZER, "adagrad")


# More than can be trained during the measurement, so that no epoch ends.
_PASSES = 1_000_000


class Records:
    """Reads samples from mapped memory, repeatedly. A shard of whole batches never crosses the end of the data."""

    kind = "columns"

    def __init__(self, folder: str) -> None:
        self._clicks = clicks.open_clicks(Path(folder))

    def __len__(self) -> int:
        return _PASSES * len(self._clicks)

    def read_columns(self, start: int, end: int) -> dict[str, Any]:
        data = self._clicks
        part = slice(start % len(data), (end - 1) % len(data) + 1)
        return {"numbers": data.numbers[part], "ids": data.ids[part], "label": data.labels[part]}

    def read(self, start: int, end: int) -> Iterator[dict[str, Any]]:
        data = self._clicks
        start, end = start % len(data), (end - 1) % len(data) + 1
        for numbers, ids, label in zip(
            data.numbers[start:end], data.ids[start:end], data.labels[start:end], strict=True
        ):
            yield {"numbers": numbers, "ids": ids, "label": label}
