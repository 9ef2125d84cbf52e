"""The error that the planner raises for input that describes no possible cluster or job.

Why it exists: a controller must tell a broken description (skip that job, report it) from a defect in the planner.
Every message names the object and the field.
"""

from __future__ import annotations


class SchedulingInputError(ValueError):
    """An input object contradicts itself; the message names the object and the field."""
