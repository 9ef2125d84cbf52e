"""Computes actions from observed state: pure functions over one job at a time."""
