"""Bearer tokens: with a file of them, every route but the health probes asks for one.

One token to a line; blank lines and lines that begin with `#` are skipped. Several tokens are how one is replaced
without a gap. Every token is compared, each in constant time, so that the time of a refusal says nothing.
"""

from __future__ import annotations

import hmac
from pathlib import Path

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from core.errors import UnauthorizedError
from service.problems import requant_problem

SHORTEST_TOKEN = 16

# Probes come without a token. They say nothing but whether work is taken.
_OPEN = frozenset({"/healthz", "/v2/health/live", "/v2/health/ready"})


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """Return the tokens in a file. Raise ValueError if there is none, or one is too short or not printable ASCII."""
    lines = [line.strip() for line in path.read_bytes().splitlines()]
    tokens = tuple(line for line in lines if line and not line.startswith(b"#"))
    if not tokens:
        raise ValueError("the file of tokens holds none")
    for number, token in enumerate(tokens, 1):
        if len(token) < SHORTEST_TOKEN or not all(33 <= byte <= 126 for byte in token):
            raise ValueError(
                f"token {number} is not {SHORTEST_TOKEN} or more printable ASCII characters without blanks"
            )
    return tokens


class Access:
    """Pure ASGI middleware that refuses requests without one of the tokens."""

    def __init__(self, app: ASGIApp, tokens: tuple[bytes, ...]) -> None:
        self.app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        if scope["type"] != "http" or scope["path"] in _OPEN or self._holds_a_token(scope):
            await self.app(scope, receive, send)
            return
        error = UnauthorizedError("the request has no valid token; expected the header 'Authorization: Bearer <token>'")
        reply = requant_problem(Request(scope), error)
        await reply(scope, receive, send)

    def _holds_a_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return False
        word, _, token = given[0].partition(b" ")
        # Not any(): it would stop at the first one.
        matches = [hmac.compare_digest(token.strip(), known) for known in self._tokens]
        return word.lower() == b"bearer" and sum(matches) > 0
