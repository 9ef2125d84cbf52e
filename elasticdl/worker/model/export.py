"""The end of a training: the model with its last values, in the framework's own form and in ours.

Ours stands in a folder among the framework's files, or beside a file that is all of the export (`NAME.elasticdl`), so
that `evaluate` and `predict` can start from an export as they can from a checkpoint.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, values_folder, write_manifest
from elasticdl.worker.model.model_store import save
from elasticdl.worker.trainer import Batch, Trainer


def export_model(spec: JobSpec, trainer: Trainer, example: Batch) -> list[str]:
    """Writes to --output. Returns one line a thing written."""
    path = Path(spec.training.output).resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = trainer.export(path, example)
        lines.append(_write_values(spec, trainer, path))
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise UserError(f"The model could not be written to {path}: {reason}.") from error
    return lines


def _write_values(spec: JobSpec, trainer: Trainer, path: Path) -> str:
    folder = values_folder(path)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = save(trainer, folder, with_optimizer=False)
    attributes = {"job": spec.job_name, "model_def": spec.model.model_def, "owner": "export"}
    write_manifest(folder, Manifest(step=0, files=(file,), attributes=attributes), None)
    return f"values for `elasticdl evaluate` and `predict`: --checkpoint_dir_for_init={path}"
