"""Numbers that a model definition records while it trains: `elasticdl.scalar("gradient_norm", value)`.

They are averaged over what a worker reports at a time (about four times a second), travel with its next report, and
appear in TensorBoard under their names, at the global step. One collector for each worker process: the functions of a
model definition are called by frameworks and have no object of ours to record to.

Failure modes
    A value that is not finite is left out. Names beyond `MOST_NAMES` are an error: a name made of a step or a sample
    would fill the disk of the master.
"""

from __future__ import annotations

import math
import threading
from typing import SupportsFloat

MOST_NAMES = 100
LONGEST_NAME = 100

_lock = threading.Lock()
_sums: dict[str, tuple[float, int]] = {}
_names: set[str] = set()


def scalar(name: str, value: SupportsFloat) -> None:
    """Records a number for TensorBoard.

    Args:
        name: What TensorBoard calls it; `/` makes groups.
        value: Anything that `float` takes, such as a tensor with one element.

    Raises:
        ValueError: The name is empty or longer than 100 characters, or the program uses more than 100 names.

    Example:
        def loss(labels, predictions):
            elasticdl.scalar("logits/largest", predictions.detach().max())
            return torch.nn.functional.cross_entropy(predictions, labels)
    """
    number = float(value)
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(
            f"the name of a scalar has 1 to {LONGEST_NAME} characters, {name[:120]!r} has {len(name)}"
        )
    with _lock:
        if name not in _names:
            if len(_names) == MOST_NAMES:
                raise ValueError(
                    f"{name!r} would be scalar {MOST_NAMES + 1}; at most {MOST_NAMES} names can be used"
                )
            _names.add(name)
        if math.isfinite(number):
            total, count = _sums.get(name, (0.0, 0))
            _sums[name] = (total + number, count + 1)


def take_scalars() -> dict[str, float]:
    """Returns the mean of each scalar since the last call."""
    with _lock:
        means = {name: total / count for name, (total, count) in _sums.items()}
        _sums.clear()
    return means
