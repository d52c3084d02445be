"""What a plan follows from, as one number: equal digests mean equal outputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from core.checkpoint.plan.directory.source import Source
from core.checkpoint.plan.model import Request, Task
from core.checkpoint.safetensors.header import Header
from core.checkpoint.storage.store import StoredFile

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
                [shard.file.name, shard.file.size, shard.file.version, _hash(_entries(shard.header))]
                for _, shard in sorted(source.shards.items())
            ],
            "carried": [[file.name, file.size, file.version] for file in carried],
            "outputs": [[task.output, hashlib.sha256(task.head).hexdigest()] for task in tasks],
            "config": config.decode(),
        }
    )


def _entries(header: Header) -> list[list[Any]]:
    return [[entry.name, entry.dtype, entry.shape, entry.begin, entry.end] for entry in header.tensors]


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
