"""What a plan follows from, as one number: equal digests mean equal outputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from requant.checkpoint.plan.directory.source import Source
from requant.checkpoint.plan.model import Request, Task
from requant.checkpoint.safetensors.header import Header
from requant.checkpoint.storage.store import StoredFile
from requant.errors.cancellation import checked

PLAN_VERSION = 1
"""Raised whenever the same headers are filled with other bytes."""


def digest_of(
    source: Source,
    request: Request,
    arithmetic: Mapping[str, str],
    tasks: Iterable[Task],
    carried: Iterable[StoredFile],
    config: bytes,
) -> str:
    """Return the SHA-256, in hex, of all that the outputs depend on. `arithmetic`: the profile with its version.

    Of each file of the source: name, size and version; of those with tensors the header. Of the outputs: the headers,
    and config.json as it will be, so that a version of Requant that plans other outputs has another digest.
    """
    return _hash(
        {
            "plan": PLAN_VERSION,
            "request": asdict(request),
            "arithmetic": dict(arithmetic),
            "shards": [
                [shard.file.name, shard.file.size, shard.file.version, _hash_of_entries(shard.header)]
                for _, shard in sorted(source.shards.items())
            ],
            "carried": [[file.name, file.size, file.version] for file in carried],
            "outputs": [[task.output, hashlib.sha256(task.head).hexdigest()] for task in tasks],
            "config": config.decode(),
        }
    )


def _hash_of_entries(header: Header) -> str:
    """Return the hash of the list of all tensors, of which the text is never there at once."""
    digest = hashlib.sha256(b"[")
    for number, entry in enumerate(checked(header.tensors)):
        text = _json([entry.name, entry.dtype, entry.shape, entry.begin, entry.end])
        digest.update(b"," + text if number else text)
    digest.update(b"]")
    return digest.hexdigest()


def _hash(value: Any) -> str:
    return hashlib.sha256(_json(value)).hexdigest()


def _json(value: Any) -> bytes:
    return _encode(value).encode()


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
