"""The copy of a job's checkpoints at a URL (`--checkpoint_dir=s3://…`).

Checkpoints are written to the folder of the job first, as without a URL, and put at the URL before the job counts them
as written. Training goes on meanwhile.

Failure modes
    The master is killed in the middle of an upload: a checkpoint without its manifest, which is none, remains at the
    URL until the next one of that step. The upload fails: so does the checkpoint, with the error of the store.
"""

from __future__ import annotations

import logging
from pathlib import Path

from elasticdl.jobs.flags.grammar import is_url
from elasticdl.ps.checkpoint.checkpoint_folders import (
    MANIFEST,
    highest_serial_at,
    manifest_crc32,
    published,
)

log = logging.getLogger(__name__)


class RemoteCopy:
    """Keeps a URL like a folder. Without a URL it does nothing."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url if is_url(url) else ""
        self._folder = folder
        self._highest_serial: int | None = None
        # Names and manifests of what this job has put there. A restarted master finds them in the job's folder.
        self._uploaded = {path.name: manifest_crc32(path) for path in published(folder)} if self._url else {}

    def highest_serial(self) -> int:
        """The number of the newest checkpoint there, which may be of an earlier job; 0 without a URL."""
        if self._url and self._highest_serial is None:
            self._highest_serial = highest_serial_at(self._url)
        return self._highest_serial or 0

    def upload(self) -> None:
        """Puts the checkpoints there that are new. Raises `UserError` if the store does not take them."""
        if not self._url:
            return
        from elasticdl.data.remote.upload import delete_folder, upload

        for path in published(self._folder):
            crc32 = manifest_crc32(path)
            if self._uploaded.get(path.name) != crc32:
                # A manifest of an earlier checkpoint of this name would be above files of this one.
                delete_folder(self._at(path.name))
                upload(path, self._at(path.name), last=MANIFEST)
                self._uploaded[path.name] = crc32
                log.info("Checkpoint uploaded: %s", self._at(path.name))

    def prune(self) -> None:
        """Removes there what has been removed in the folder."""
        if not self._url:
            return
        from elasticdl.data.remote.upload import delete_folder

        kept = {path.name for path in published(self._folder)}
        for name in [name for name in self._uploaded if name not in kept]:
            delete_folder(self._at(name))
            del self._uploaded[name]

    def _at(self, name: str) -> str:
        path, mark, query = self._url.partition("?")
        return f"{path.rstrip('/')}/{name}{mark}{query}"
