"""The names of a job's data sets, as workers announce them and the audit lists them."""

from __future__ import annotations

TRAINING = "training"
# Each evaluation is a data set of its own in the ledger, with its number behind this.
EVALUATION = "evaluation"
PREDICTION = "prediction"
