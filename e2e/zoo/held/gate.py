"""Makes a worker wait before each batch until the batch server (`batch_server.py`) allows it."""

import json
import os
import time
import urllib.error
import urllib.request

BATCH_SERVER = os.environ["ELASTICDL_TEST_BATCH_SERVER"]
NODE = os.environ["ELASTICDL_NODE"]
# Pods talk to each other directly.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(method: str, path: str) -> str:
    """Returns the answer. Retries without end: the machine of the batch server may be away for a while."""
    request = urllib.request.Request(
        f"http://{BATCH_SERVER}/{path}", method=method, data=b"" if method == "PUT" else None
    )
    while True:
        try:
            with _OPENER.open(request) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)


def is_limited() -> bool:
    return bool(json.loads(ask("GET", ""))["limits"])


class Gate:
    def __init__(self) -> None:
        self._done = 0

    def enter(self) -> None:
        """Before a batch."""
        ask("GET", f"enter/{NODE}/{self._done}")

    def leave(self) -> None:
        """After a batch."""
        self._done += 1
