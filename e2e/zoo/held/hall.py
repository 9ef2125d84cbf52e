"""Where workers wait to be let on: a small server in a pod of its own, so that a test can talk to it on any cluster.

    PUT    /limit/BATCHES         so many batches may each worker do
    PUT    /limit/BATCHES/NODE    so many may this one
    DELETE /limit                 no worker is held any more; nor is one before the first limit is set
    GET    /enter/NODE/DONE       a worker that has done so many asks for one more: answered when it may
    PUT    /ended/NODE            a program has come to its own end
    GET    /                      who is, or was, held, after how many batches; who has ended; and the limits

A held request blocks no other one, however many there are.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hall:
    def __init__(self) -> None:
        self.limits: dict[str, float] = {}
        self.done: dict[str, int] = {}
        self.ended: list[str] = []
        self.changed = threading.Condition()

    def may(self, node: str, done: int) -> bool:
        return done < self.limits.get(node, self.limits.get("", float("inf")))

    def enter(self, node: str, done: int) -> None:
        with self.changed:
            while not self.may(node, done):
                self.done[node] = done
                self.changed.wait()

    def describe(self) -> dict[str, object]:
        with self.changed:
            return {"done": self.done, "ended": self.ended, "limits": dict(self.limits)}

    def limit(self, batches: int, node: str) -> None:
        with self.changed:
            self.limits[node] = batches
            self.changed.notify_all()

    def release(self) -> None:
        with self.changed:
            self.limits.clear()
            self.changed.notify_all()


class Handler(BaseHTTPRequestHandler):
    hall = Hall()

    def do_GET(self) -> None:
        match self.path.strip("/").split("/"):
            case [""]:
                self._answer(json.dumps(self.hall.describe()))
            case ["enter", node, done]:
                self.hall.enter(node, int(done))
                self._answer()
            case _:
                self.send_error(404)

    def do_PUT(self) -> None:
        match self.path.strip("/").split("/"):
            case ["limit", batches, *node]:
                self.hall.limit(int(batches), "".join(node))
                self._answer()
            case ["ended", node]:
                self.hall.ended.append(node)
                self._answer()
            case _:
                self.send_error(404)

    def do_DELETE(self) -> None:
        self.hall.release()
        self._answer()

    def log_message(self, *words: object) -> None:
        """Logs nothing."""

    def _answer(self, text: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


class Server(ThreadingHTTPServer):
    # All workers of a job may come at once.
    request_queue_size = 128
    daemon_threads = True


if __name__ == "__main__":
    Server(("", int(sys.argv[1])), Handler).serve_forever()
