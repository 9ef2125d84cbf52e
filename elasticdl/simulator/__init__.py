"""Replays workloads through the scheduling code on a virtual clock.

The controller runs `elasticdl.scheduling` against a cluster; this package runs the same code against a
described one, so that a policy can be compared, explained and tested in seconds. Nothing here talks to a
cluster or reads the real clock.
"""
