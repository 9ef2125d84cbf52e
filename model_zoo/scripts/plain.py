"""An ordinary script that knows nothing of ElasticDL: it looks for good settings of a model, each process its own.

    elasticdl train --job_command="python -m model_zoo.scripts.plain" --num_workers=4

Each process tries settings of its own, which it takes from the number it has among the others, and ends. What is
killed is started again. Nothing is sharded and nothing accounted for: the script does not ask for it.
"""

from __future__ import annotations

import argparse
import os

import numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m model_zoo.scripts.plain")
    parser.add_argument("--tries", type=int, default=5)
    tries = parser.parse_args().tries
    number = int(os.environ.get("WORKER_ID", "0"))
    measures, species = load_iris(return_X_y=True)
    random = np.random.default_rng(number)
    best = (0.0, 0.0)
    for _ in range(tries):
        strength = float(10 ** random.uniform(-3, 3))
        scores = cross_val_score(LogisticRegression(C=strength, max_iter=1000), measures, species, cv=3)
        best = max(best, (float(scores.mean()), strength))
    print(f"Process {number}: accuracy {best[0]:.4f} with C={best[1]:.4g}", flush=True)


if __name__ == "__main__":
    main()
