"""Whether the manifest of a checkpoint is as it was written, and names its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from requant.checkpoint.plan.model import request_of
from requant.checkpoint.plan.source import Source
from requant.checkpoint.run.destination import CONFIG, INDEX, MANIFEST, SEAL, Manifest, sealed
from requant.checkpoint.storage.store import Store
from requant.checkpoint.verify.fault import Fault
from requant.errors import excerpt

_MEMBERS = {"version", "plan", "request", "files"}


def manifest_faults(store: Store, manifest: Manifest, source: Source | None) -> list[Fault]:
    """Return the faults of a manifest that can be read. `source`: the checkpoint beside it, if that can be read."""
    data = store.get(MANIFEST) or b"{}"
    parsed = json.loads(data)
    members = {name: value for name, value in parsed.items() if name != SEAL}
    faults = []
    if members.keys() != _MEMBERS or not _is_as_written(data, members, stated=SEAL in parsed):
        faults.append("it was changed: it has other members, or another SHA-256, than Requant wrote")
    try:
        request_of(manifest.request)
    except (KeyError, TypeError, ValueError):
        faults.append("the request in it cannot be read")
    if source is not None:
        beside = {*source.shards, CONFIG, *(file.name for file in source.files if file.name == INDEX)}
        faults += [f"it does not name '{excerpt(name)}'" for name in sorted(beside - manifest.files.keys())]
    return [Fault(each, MANIFEST) for each in faults]


def _is_as_written(data: bytes, members: Mapping[str, Any], *, stated: bool) -> bool:
    """Return whether the text is that of its members. Manifests of earlier versions do not state their SHA-256."""
    try:
        return not stated or sealed(members) == data
    except (ValueError, RecursionError):
        return False
