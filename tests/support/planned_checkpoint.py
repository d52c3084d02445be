"""Checkpoints of which only the headers exist, for plans: as many and as large tensors as asked for, in no memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from requant.checkpoint.plan.model import Direction, Plan, QuantizeStep, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.safetensors.header import Header
from requant.checkpoint.safetensors.reader import read_header
from requant.checkpoint.safetensors.writer import head_bytes, layout
from requant.checkpoint.storage.store import MAX_BYTES_OF_SMALL_FILE, FileWriter, Store, StoredFile

Tensors = Sequence[tuple[str, str, tuple[int, ...]]]
INDEX = "model.safetensors.index.json"


@dataclass
class HeadersOnly(Store):
    """A store of files that begin with `start` and go on with zeros, but for some `pieces`, by their offsets."""

    start: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    pieces: dict[str, dict[int, bytes]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    reads: list[tuple[str, int, int]] = field(default_factory=list)
    url: str = "headers only"

    def add(self, name: str, data: bytes, size: int | None = None) -> None:
        self.start[name] = data
        self.sizes[name] = len(data) if size is None else size

    def add_tensors(self, name: str, tensors: Tensors, metadata: dict[str, str] | None = None) -> Header:
        header = layout(tensors, metadata)
        self.add(name, head_bytes(header), header.size)
        return header

    def files(self) -> tuple[StoredFile, ...]:
        return tuple(StoredFile(name, size, self.versions.get(name, "1")) for name, size in sorted(self.sizes.items()))

    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        self.reads.append((file.name, offset, len(target)))
        known = self.start[file.name][offset : offset + len(target)]
        target[: len(known)] = known
        target[len(known) :] = bytes(len(target) - len(known))
        for at, data in self.pieces.get(file.name, {}).items():
            begin, end = max(at, offset), min(at + len(data), offset + len(target))
            if begin < end:
                target[begin - offset : end - offset] = data[begin - at : end - at]

    def get(self, name: str, max_bytes: int = MAX_BYTES_OF_SMALL_FILE) -> bytes | None:
        return self.start.get(name)

    def create(self, name: str, size: int) -> FileWriter:
        raise AssertionError("a plan writes nothing")

    def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
        raise AssertionError("a plan writes nothing")

    def remove(self, name: str) -> None:
        raise AssertionError("a plan removes nothing")


def checkpoint(
    shards: Mapping[str, Tensors], config: Mapping[str, Any] | None = None, *, index: bool | None = None
) -> HeadersOnly:
    """Return a checkpoint of these files, with an index if there are several."""
    store = HeadersOnly()
    places: dict[str, str] = {}
    for name, tensors in shards.items():
        store.add_tensors(name, tensors)
        places |= dict.fromkeys((tensor[0] for tensor in tensors), name)
    if index or (index is None and len(shards) > 1):
        store.add(INDEX, json.dumps({"metadata": {}, "weight_map": places}).encode())
    store.add("config.json", json.dumps({} if config is None else config).encode())
    return store


def outputs_of(plan: Plan) -> HeadersOnly:
    """Return what a plan writes, with the values of `weight_shape`."""
    store = HeadersOnly()
    for task in plan.tasks:
        store.add(task.output, task.head, task.header.size)
        places = {entry.name: entry.begin for entry in task.header.tensors}
        shapes = {step.module: step.source.shape for step in task.steps if isinstance(step, QuantizeStep)}
        store.pieces[task.output] = {
            places[f"{module}.weight_shape"]: b"".join(extent.to_bytes(8, "little") for extent in shape)
            for module, shape in shapes.items()
            if f"{module}.weight_shape" in places
        }
    assert plan.index is not None
    store.add(INDEX, plan.index)
    store.add("config.json", plan.config)
    return store


def request(
    scheme: str | Sequence[SchemeFor] | None = "W8A8",
    profile: str = "compressed-tensors-cpu",
    *,
    ignore: Sequence[str] = (),
    targets: Sequence[str] = ("Linear",),
    **others: Any,
) -> Request:
    """Return a request to quantize, or, without a scheme, to dequantize. `targets`: of one scheme."""
    direction = Direction.DEQUANTIZE if scheme is None else Direction.QUANTIZE
    schemes = (SchemeFor(scheme, tuple(targets)),) if isinstance(scheme, str) else tuple(scheme or ())
    return Request(direction, schemes, profile if schemes else "", ignore=tuple(ignore), **others)


def planned(store: Store, scheme: str | Sequence[SchemeFor] | None = "W8A8", **others: Any) -> Plan:
    """Return the plan for a checkpoint."""
    return plan_conversion(store, request(scheme, **others))


def tensors_of(plan: Plan) -> dict[str, dict[str, tuple[str, tuple[int, ...]]]]:
    """Return the dtype and shape of each tensor, by file. The heads are read back, so that they are right too."""
    found = {}
    for task in plan.tasks:
        assert header_of(task.head, task.header.size) == task.header
        found[task.output] = {entry.name: (entry.dtype, entry.shape) for entry in task.header.tensors}
    return found


def header_of(head: bytes, size: int) -> Header:
    """Return the header of a file of `size` bytes that begins with `head`."""
    return read_header(lambda offset, length: head[offset : offset + length], size)
