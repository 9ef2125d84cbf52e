"""Whole jobs on a real Kubernetes: see `e2e/cluster`."""
