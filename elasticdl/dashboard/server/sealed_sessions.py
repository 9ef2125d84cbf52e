"""Sessions that are in the browser alone: the cookie is the user's token, encrypted for the server.

So any replica with the same secret continues a session that another one has begun, and a restart ends none. Browsers
accept cookies of four kilobytes; a longer one is split, and the first part says how many there are.

Failure modes
    A part is missing, the cookie was changed, its time is over, or another secret encrypted it: there is no session.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import time
import zlib
from collections.abc import Callable, Sequence

from elasticdl.errors import UserError
from elasticdl.extras import install_command

_SECONDS = 8 * 3600.0
_PART_CHARACTERS = 3000
MOST_PARTS = 8
# A token of 16 KiB; a cookie that unpacks to more is not one of ours.
_MOST_BYTES = 32 * 1024
_NONCE_BYTES = 12
_PURPOSE = b"elasticdl dashboard session"


class SealedSessions:
    """`secret`: shared by all servers of which one continues the sessions of another, such as their private key."""

    def __init__(self, secret: bytes, *, clock: Callable[[], float] = time.time) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ModuleNotFoundError as error:
            raise UserError(
                f"--cluster_auth needs the package {error.name}.", hint=install_command("kubernetes")
            ) from error
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret)
        self._cipher = AESGCM(key)
        self._clock = clock

    def seal(self, token: str) -> list[str]:
        """Returns the parts of the cookie of a new session."""
        content = json.dumps([self._clock() + _SECONDS, token]).encode()
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, zlib.compress(content), _PURPOSE)
        text = base64.urlsafe_b64encode(sealed).decode().rstrip("=")
        parts = [text[at : at + _PART_CHARACTERS] for at in range(0, len(text), _PART_CHARACTERS)]
        return [f"{len(parts)}.{parts[0]}", *parts[1:]]

    def open(self, parts: Sequence[str]) -> str | None:
        """Returns the token of a session; None if there is no such session, or it is over. `parts`: of a request,
        perhaps with some of an older session behind them.
        """
        from cryptography.exceptions import InvalidTag

        count, _, first = parts[0].partition(".") if parts else ("", "", "")
        if count not in map(str, range(1, min(MOST_PARTS, len(parts)) + 1)):
            return None
        text = "".join([first, *parts[1 : int(count)]])
        try:
            sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            packed = self._cipher.decrypt(nonce, rest, _PURPOSE)
        except (binascii.Error, ValueError, InvalidTag):
            return None
        end, token = json.loads(zlib.decompressobj().decompress(packed, _MOST_BYTES))
        return str(token) if self._clock() <= end else None
