"""Selects the launcher of a job by `JobSpec.framework`."""

from __future__ import annotations

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.programs.launchers.launcher import Launcher
from elasticdl.master.programs.launchers.paddle import PaddleLauncher
from elasticdl.master.programs.launchers.plain import PlainLauncher
from elasticdl.master.programs.launchers.tensorflow import TensorflowLauncher


def launcher_of(spec: JobSpec) -> Launcher:
    if spec.framework == "tensorflow":
        return TensorflowLauncher()
    if spec.framework == "paddle":
        return PaddleLauncher()
    return PlainLauncher()
