"""A request as bytes, the connection that sends it, and how to send it again by hand."""

from __future__ import annotations

import base64
import http.client
import shlex
from dataclasses import dataclass
from typing import Self

TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class Request:
    """A POST request. `operation` is its path in the OpenAPI document, `target` the request target with the query."""

    operation: str
    target: str
    fields: tuple[tuple[str, str], ...]
    body: bytes

    def reproduction(self, origin: str) -> str:
        """The request as a shell command. `-g`: type texts have brackets and braces that curl would expand."""
        fields = [f"{name}: {value}" for name, value in self.fields]
        if not any(name.lower() == "content-type" for name, _ in self.fields):
            fields.append("Content-Type:")
        options = " ".join(f"-H {shlex.quote(field)}" for field in fields)
        post = f"curl -sS -g -i {options} --data-binary @- {shlex.quote(origin + self.target)}"
        text = self.body.decode("ascii", "replace")
        if text.isprintable() and "�" not in text:
            return f"printf %s {shlex.quote(text)} | {post}"
        return f"echo {base64.b64encode(self.body).decode()} | base64 -d | {post}"


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    fields: http.client.HTTPMessage
    body: bytes


class Connection:
    """A connection that is kept open between requests, and opened again where the service closes it."""

    def __init__(self, port: int) -> None:
        self._client = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def send(self, request: Request) -> Reply:
        """Return the reply. Raise OSError or http.client.HTTPException where there is none."""
        try:
            self._client.putrequest("POST", request.target, skip_accept_encoding=True)
            for name, value in request.fields:
                self._client.putheader(name, value.encode("utf-8"))
            self._client.putheader("Content-Length", str(len(request.body)))
            self._client.endheaders(request.body)
            found = self._client.getresponse()
            return Reply(found.status, found.headers, found.read())
        except (OSError, http.client.HTTPException):
            self._client.close()
            raise
