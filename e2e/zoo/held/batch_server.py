"""An HTTP server that limits the batches of workers. It has a pod of its own, so a test reaches it on any cluster.

    PUT    /limit/BATCHES         the limit of each worker
    PUT    /limit/BATCHES/NODE    the limit of this worker
    DELETE /limit                 no limits any more; there are none at first
    GET    /enter/NODE/DONE       a worker asks for its next batch: answered when the limit allows it
    PUT    /ended/NODE            the program of this worker has ended
    GET    /                      batches of the workers that wait or waited, ended programs, limits

A held request blocks no other one, however many there are.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class BatchServer:
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
    batch_server = BatchServer()

    def do_GET(self) -> None:
        match self.path.strip("/").split("/"):
            case [""]:
                self._answer(json.dumps(self.batch_server.describe()))
            case ["enter", node, done]:
                self.batch_server.enter(node, int(done))
                self._answer()
            case _:
                self.send_error(404)

    def do_PUT(self) -> None:
        match self.path.strip("/").split("/"):
            case ["limit", batches, *node]:
                self.batch_server.limit(int(batches), "".join(node))
                self._answer()
            case ["ended", node]:
                self.batch_server.ended.append(node)
                self._answer()
            case _:
                self.send_error(404)

    def do_DELETE(self) -> None:
        self.batch_server.release()
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
