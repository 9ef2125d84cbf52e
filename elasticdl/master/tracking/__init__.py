"""Runs of jobs on experiment trackers (MLflow, Weights & Biases), written by the master: one run for each job."""
