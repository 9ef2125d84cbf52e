"""The settings of a job for its hosts, in the form of the platform."""

from __future__ import annotations

import os
import sys

from elasticdl.jobs.flags.grammar import is_url
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.ssh.launch import Document, SshOptions
from elasticdl.platforms.ssh.ssh_platform import SshSettings
from elasticdl.version import VERSION


def settings_of(spec: JobSpec, *, master_port: int = 0) -> SshSettings:
    """To be called in the working directory of the job, which hosts have at the same path, as all that it names."""
    python = spec.nodes.hosts_python or sys.executable
    is_definition = spec.program == "definition"
    return SshSettings(
        hosts=spec.nodes.hosts,
        is_addressed=spec.addressed,
        options=SshOptions(python=python, config=spec.nodes.ssh_config),
        document=Document(
            environment=spec.nodes.envs,
            directory=os.getcwd(),
            needed=_needed(spec),
            version=VERSION if is_definition else "",
            programs=os.path.dirname(python),
            master_port=master_port,
            master_host=spec.nodes.master_host,
        ),
    )


def _needed(spec: JobSpec) -> dict[str, str]:
    """Paths by the flags that name them; those that are not here either are reported when they are opened."""
    named = {
        "the working directory": os.getcwd(),
        "--model_zoo": spec.model.model_zoo,
        "--training_data": spec.data.training_data,
        "--validation_data": spec.data.validation_data,
        "--prediction_data": spec.data.prediction_data,
        "--checkpoint_dir_for_init": spec.checkpoint.checkpoint_dir_for_init,
        "--checkpoint_dir": spec.checkpoint.checkpoint_dir,
        "--output": os.path.dirname(spec.training.output) if not is_url(spec.training.output) else "",
    }
    return {
        flag: os.path.abspath(path)
        for flag, path in named.items()
        if path and not is_url(path) and os.path.exists(path)
    }
