"""Defaults that follow from other flags. Each says so in its `derived` text; the rules are here."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from elasticdl.jobs.flags.flag import JobKind
from elasticdl.jobs.flags.names import default_job_name
from elasticdl.jobs.sections.training import ALLREDUCE, LOCAL, PARAMETER_SERVER


def derive(
    values: dict[str, Any], *, kind: JobKind, given: Container[str], name_suffix: str
) -> dict[str, Any]:
    """Returns all values of a job, computing those that were not given from the others."""
    values = dict(values)

    def set_default(name: str, value: object) -> None:
        if name not in given:
            values[name] = value

    set_default("num_workers", max(values["num_workers"], values["min_workers"]))
    set_default("num_ps", values["min_ps"])
    set_default("distribution_strategy", _strategy(values))
    needs_server = values["distribution_strategy"] == PARAMETER_SERVER
    set_default("num_ps", max(values["num_ps"], 1 if needs_server else 0))
    set_default("use_async", values["grads_to_wait"] == 1)
    set_default("num_chief", 1 if values["job_command"] and values["need_tf_config"] else 0)
    if not values["job_name"]:
        values["job_name"] = default_job_name(
            kind=kind, model_def=values["model_def"], job_command=values["job_command"], suffix=name_suffix
        )
    return values


def _strategy(values: dict[str, Any]) -> str:
    if values["num_ps"] > 0:
        return PARAMETER_SERVER
    # A job that may grow needs a strategy for several workers from the start.
    if max(values["num_workers"], values["max_workers"]) <= 1:
        return LOCAL
    # A program with a loop of its own has parameter servers only if it asks for them.
    return ALLREDUCE if values["job_command"] else PARAMETER_SERVER
