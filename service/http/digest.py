"""The digest of a reply, for clients that ask for one (RFC 9530): proof that the bytes are those that were computed."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import Iterable

from starlette.types import Scope

from service.http.header_fields import header_fields

_ALGORITHM = b"sha-256"
_HEADER = b"repr-digest"

# Below this, hashing takes less time than a change of thread.
_INLINE_BYTES = 64 << 10


def wants_digest(scope: Scope) -> bool:
    """Return whether `Want-Repr-Digest` asks for SHA-256: with any preference but 0."""
    asked = header_fields(scope).get(b"want-repr-digest")
    if asked is None:
        return False
    wishes = (wish.partition(b"=") for wish in asked.split(b","))
    return any(name.strip().lower() == _ALGORITHM and preference.strip() != b"0" for name, _, preference in wishes)


async def digest_field(pieces: Iterable[bytes | memoryview], length: int) -> tuple[bytes, bytes]:
    """Return the header field `Repr-Digest` of a body."""

    def compute() -> bytes:
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        return b64encode(digest.digest())

    encoded = compute() if length <= _INLINE_BYTES else await asyncio.to_thread(compute)
    return _HEADER, b"%s=:%s:" % (_ALGORITHM, encoded)
