"""Bearer tokens: with a file of them, every route asks for one but those that are open.

Every token is compared, each in constant time, so that the time of a refusal says nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Sequence

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from requant.errors import UnauthorizedError
from requant_service.http.problems import error_response
from requant_service.runtime.tokens import Tokens


class BearerAuth:
    """Pure ASGI middleware that refuses requests without one of the tokens, but for the paths that are `open_paths`."""

    def __init__(self, app: ASGIApp, tokens: Tokens, open_paths: Collection[str]) -> None:
        self.app = app
        self._tokens = tokens
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        if scope["type"] != "http" or scope["path"] in self._open_paths or self._holds_a_token(scope):
            await self.app(scope, receive, send)
            return
        error = UnauthorizedError("the request has no valid token; expected the header 'Authorization: Bearer <token>'")
        reply = error_response(Request(scope), error)
        await reply(scope, receive, send)

    def _holds_a_token(self, scope: Scope) -> bool:
        return holds_a_token([value for name, value in scope["headers"] if name == b"authorization"], self._tokens)


def holds_a_token(authorization: Sequence[bytes], tokens: Tokens) -> bool:
    """Return whether the values of `Authorization` are one, and that is one of the tokens."""
    if len(authorization) != 1:
        return False
    word, _, token = authorization[0].partition(b" ")
    # Not any(): it would stop at the first one.
    matches = [hmac.compare_digest(token.strip(), known) for known in tokens.known]
    return word.lower() == b"bearer" and sum(matches) > 0
