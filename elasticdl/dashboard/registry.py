"""The address of this user's dashboard, in files of ELASTICDL_HOME that only this user may read.

    dashboard.token    the token, made once: links and sessions outlive a restart of the server
    dashboard.json     the address of the one that runs; its lock is held as long as it does

Failure modes
    A dashboard was killed: its lock went with it, so its address does not count any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import file_errors_as_user_errors
from elasticdl.jobs.job_store import default_home

_TOKEN_BYTES = 32


class DashboardRegistry:
    def __init__(self, home: Path | None = None) -> None:
        self._home = default_home() if home is None else home

    def token(self, *, is_new: bool = False) -> str:
        """Returns the token, which is made when there is none. `is_new`: replaces it, which ends all sessions."""
        with file_errors_as_user_errors(self._token_path):
            self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
            if is_new:
                self._token_path.unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):
                number = os.open(self._token_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(number, "w") as file:
                    file.write(secrets.token_urlsafe(_TOKEN_BYTES))
            token = self._token_path.read_text().strip()
            if self._token_path.stat().st_mode & 0o077:
                raise UserError(
                    f"{self._token_path} can be read by other users, so its token is not used.",
                    hint="`elasticdl dashboard --new_token` makes another one.",
                )
        if len(token) < _TOKEN_BYTES:
            raise UserError(
                f"{self._token_path} has no token.", hint="`elasticdl dashboard --new_token` makes one."
            )
        return token

    @contextlib.contextmanager
    def running(self, address: str, *, takes_token: bool = True) -> Iterator[None]:
        """Publishes the address as long as the context lasts, unless another dashboard has done so. `takes_token`:
        links have the token of this registry.
        """
        with file_errors_as_user_errors(self._address_path):
            number = os.open(self._address_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(number, "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield
                return
            file.truncate()
            file.write(json.dumps({"address": address, "takes_token": takes_token}))
            file.flush()
            yield

    def address(self) -> str | None:
        """Returns the address of the dashboard that runs, such as http://127.0.0.1:8580. None if none does."""
        running = self._read()
        return None if running is None else running[0]

    def link(self, job: str = "", *, namespace: str = "") -> str | None:
        """Returns the link to the dashboard that runs, or to its page of a job, with the token."""
        running = self._read()
        if running is None:
            return None
        address, takes_token = running
        with contextlib.suppress(UserError):
            return link(address, self.token() if takes_token else "", job=job, namespace=namespace)
        return None

    def _read(self) -> tuple[str, bool] | None:
        """Returns the address of the dashboard that runs, and whether it takes the token."""
        try:
            with self._address_path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    document = json.load(file)
                    return str(document["address"]), document.get("takes_token") is not False
        except (OSError, ValueError, KeyError):
            pass
        return None

    @property
    def _token_path(self) -> Path:
        return self._home / "dashboard.token"

    @property
    def _address_path(self) -> Path:
        return self._home / "dashboard.json"


def link(address: str, token: str, *, job: str = "", namespace: str = "") -> str:
    """Returns the link that opens a session; without a token, one that asks for it. Browsers keep the fragment to
    themselves.
    """
    page = f"/job/{namespace or '-'}/{job}" if job else "/jobs"
    return f"{address}/#{page}?token={token}" if token else f"{address}/#{page}"
