"""A client that sends exactly the headers it is given, as no browser would."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

_TIMEOUT_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, kw_only=True)
class Event:
    id: str
    kind: str
    data: Any


class Client:
    def __init__(self, link: str, *, tls: ssl.SSLContext | None = None) -> None:
        place = urllib.parse.urlsplit(link)
        assert place.hostname is not None
        assert place.port is not None
        self.host, self.port = place.hostname, place.port
        self.authority = f"{self.host}:{self.port}"
        self.token = link.rpartition("token=")[2]
        self._tls = tls

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def connect(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(
                self.host, self.port, timeout=_TIMEOUT_SECONDS, context=self._tls
            )
        return http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_SECONDS)

    def send(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> Reply:
        connection = self.connect()
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return Reply(status=answer.status, headers=answer.headers, body=answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        """With the token."""
        return self.send("GET", path, {**self.bearer, **headers})

    def stream(self, path: str, **headers: str) -> Generator[Event, None, None]:
        """Yields the events of a stream, until the iterator is closed."""
        connection = self.connect()
        connection.request("GET", path, headers={**self.bearer, **headers})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        try:
            fields: dict[str, str] = {}
            while line := answer.readline().decode():
                name, _, value = line.rstrip("\n").partition(": ")
                if name:
                    fields[name] = value
                elif "data" in fields:
                    yield Event(
                        id=fields.get("id", ""),
                        kind=fields.get("event", "message"),
                        data=json.loads(fields["data"]),
                    )
                    fields = {}
        finally:
            connection.close()
