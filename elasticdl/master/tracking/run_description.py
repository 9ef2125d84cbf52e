"""The description of a job in its run on a tracker: the flags that differ from their defaults, and the kind of job.

A tracking server is read by others than the job's folder is. So nothing is recorded that may be a secret: no
variables, no pod fields, no arguments of data readers (accounts of databases), no job command (`TOKEN=... python
train.py`), no user or password of a URL.
"""

from __future__ import annotations

import re

from elasticdl.jobs.schema.flag_index import LEAVES
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.tracking.tracker import Run

_MAY_BE_SECRET = frozenset(
    {
        "cluster_spec",
        "cluster_spec_json",
        "data_reader_params",
        "envs",
        "job_command",
        "populate_env_names",
        "secret_envs",
    }
)
# The run has it as its name, or is where it says.
_KNOWN_ANYWAY = frozenset({"job_name", "mlflow_experiment", "mlflow_uri", "wandb_project"})
_USER_OF_URL = re.compile(r"(?<=://)[^/@\s]*@")


def describe_run(spec: JobSpec, key: str) -> Run:
    """`key`: unique for every job, and no secret."""
    return Run(
        name=spec.job_name,
        key=key,
        params=_params(spec),
        tags={
            "elasticdl.job": spec.job_name,
            "elasticdl.kind": spec.kind,
            "elasticdl.program": spec.program,
            "elasticdl.strategy": spec.training.distribution_strategy,
        },
    )


def _params(spec: JobSpec) -> dict[str, str]:
    params = {}
    for name, value in spec.values().items():
        leaf = LEAVES[name]
        if name in _MAY_BE_SECRET or name in _KNOWN_ANYWAY or value == leaf.default():
            continue
        params[name] = _USER_OF_URL.sub("", leaf.flag.grammar.text(value))
    return params
