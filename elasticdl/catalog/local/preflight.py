"""Checks of a local job before a process is started for it: what can be found out now need not fail later."""

from __future__ import annotations

import shutil
import subprocess

from elasticdl.errors import UserError
from elasticdl.jobs.definition_check import check_definition, defined_names
from elasticdl.jobs.flags.grammar import is_url
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.programs.program_nodes import search_path
from elasticdl.master.programs.shell_command import command_line, of_shell
from elasticdl.master.tracing.tracing import check_exporter
from elasticdl.master.tracking.tracking import check_libraries
from elasticdl.wire.reserved_ports import KeptPort


def check_job(spec: JobSpec) -> None:
    """Raises `UserError` for whatever would keep the job from starting."""
    reserve_port(spec.cluster.master_port).close()
    check_libraries(spec)
    check_exporter(spec)
    if spec.program == "command":
        if not spec.nodes.hosts:
            _check_command(spec.model.job_command)
    else:
        _check_definition(spec)
    if spec.nodes.hosts:
        _check_hosts(spec)


def _check_definition(spec: JobSpec) -> None:
    check_definition(spec)
    if spec.checkpoint.checkpoint_dir_for_init:
        from elasticdl.ps.checkpoint.checkpoint_folders import find_checkpoint

        find_checkpoint(spec.checkpoint.checkpoint_dir_for_init)
    _check_data(spec)
    _check_outputs(spec)


def _check_hosts(spec: JobSpec) -> None:
    """Logs in on all of them, and looks for what the nodes will need there."""
    from elasticdl.platforms.ssh.host_check import check_hosts
    from elasticdl.platforms.ssh.job_settings import settings_of

    settings = settings_of(spec)
    check_hosts(settings.hosts, settings.options, settings.document)


def reserve_port(port: int) -> KeptPort:
    """Reserves a port for the master, so that a restarted master gets the same one. 0: any free port."""
    try:
        return KeptPort(port)
    except OSError as error:
        if not port:
            raise UserError(
                f"No port of this machine is free for the job's master: {error.strerror}.",
                hint="If all are in use (`ss -tan` lists them), end what uses them.",
            ) from None
        raise UserError(
            f"--master_port={port}: the port cannot be taken: {error.strerror}.",
            hint="Choose another port, or omit the flag to use any free one.",
        ) from None


def _check_command(command: str) -> None:
    """A command that needs no shell can be looked up; of others the shell checks the syntax."""
    words = command_line(command)
    if of_shell(words):
        # -n reads the command without executing it.
        read = subprocess.run([words[0], "-n", "-c", words[-1]], capture_output=True, text=True, check=False)
        if read.returncode:
            raise UserError(f"--job_command: the shell does not understand it: {read.stderr.strip()}")
        return
    if shutil.which(words[0], path=search_path()) is None:
        raise UserError(
            f"--job_command: there is no program {words[0]!r}.",
            hint="Give its path, or a program on your PATH.",
        )


def _check_data(spec: JobSpec) -> None:
    """Opens the data sets, which also builds their indices for the workers."""
    from elasticdl.data.dataset import open_reader

    for flag in ("training_data", "validation_data", "prediction_data"):
        origin = getattr(spec.data, flag)
        if not origin or _has_custom_reader(spec):
            continue
        try:
            size = len(open_reader(origin, spec.data.data_reader_params))
        except UserError as error:
            hint = error.hint or f"Give a file, a folder or a pattern of files with samples in --{flag}."
            raise UserError(f"--{flag}: {error.message}", hint=hint) from error
        if size == 0:
            raise UserError(f"--{flag}: {origin} has no samples.")


def _check_outputs(spec: JobSpec) -> None:
    """Opens the stores to write to: what is trained for hours should have a place to go."""
    for flag, place in (("output", spec.training.output), ("checkpoint_dir", spec.checkpoint.checkpoint_dir)):
        if not is_url(place):
            continue
        from elasticdl.data.remote.location import open_location

        try:
            open_location(place)
        except UserError as error:
            raise UserError(f"--{flag}: {error.message}", hint=error.hint) from error


def _has_custom_reader(spec: JobSpec) -> bool:
    """Whether the job has a custom reader, the only one that knows whether its data exists."""
    names = defined_names(spec)
    return names is None or spec.model.custom_data_reader in names
