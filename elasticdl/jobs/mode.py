"""The purpose of a model definition in a job: the `mode` argument of its `feed`."""

from __future__ import annotations

import enum


class Mode(str, enum.Enum):
    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
