"""A worker does as many batches as the hall lets it, and says there how many it has done: see `hall.py`."""

import json
import os
import time
import urllib.error
import urllib.request

HALL = os.environ["ELASTICDL_TEST_HALL"]
NODE = os.environ["ELASTICDL_NODE"]
# Pods talk to each other directly.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(method: str, path: str) -> str:
    """For as long as it takes: the hall is on a machine, too. Returns the answer."""
    request = urllib.request.Request(
        f"http://{HALL}/{path}", method=method, data=b"" if method == "PUT" else None
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
