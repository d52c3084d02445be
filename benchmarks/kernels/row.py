"""One row of the tables: a conversion at one size, ours and the others, checked against each other and then timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from benchmarks.kernels.limits import traffic
from benchmarks.kernels.peers import Array, Peer, as_bytes
from benchmarks.measure import compare
from requant.plan.plan import Conversion, Plan

# What it makes a peer of is a Work that the peer knows; how many elements, the input, and the number of threads.
MakePeer = Callable[[Any, int, Array, int], Peer]

# Elements of a piece that is packed while it is in the cache.
_PACKED_PIECE = 65_536


class Work(Protocol):
    """What is timed, at any size. `dense`: whether numbers narrower than a byte are packed."""

    @property
    def dense(self) -> bool: ...

    def elements(self, size: int) -> int: ...

    def plan(self, size: int) -> Plan: ...

    def source(self, size: int) -> Array: ...


@dataclass(frozen=True, slots=True)
class Row:
    """Median seconds by contender. `differing` counts the peer's bytes that differ from ours, where bits may differ.

    `asked` is the size of the rows that are compared with each other, `elements` what came closest to it, `bytes` what
    a conversion reads and writes, `foreign` the CPUs that other processes took meanwhile.
    """

    group: str
    name: str
    asked: int
    elements: int
    bytes: int
    seconds: dict[str, float]
    differing: dict[str, int]
    foreign: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ours(plan: Plan, source: Array, *, dense: bool = False, threads: int = 1) -> Peer:
    """Our conversion into memory that is allocated once; in several threads, a part for each."""
    flat = source.view(np.uint16) if source.dtype.name == "bfloat16" else source
    target = np.empty(plan.elements, plan.output_dtype)
    if threads > 1:
        pool = ThreadPoolExecutor(threads)

        piece = -(-flat.size // threads)

        def step(start: int) -> Array:
            counts = plan.new_counts()
            plan.step(flat[start : start + piece], target[start : start + piece], start, counts)
            return counts

        return Peer(lambda: list(pool.map(step, range(0, flat.size, piece))), lambda: as_bytes(target))
    if not dense:
        return Peer(partial(plan.run, flat, target), lambda: as_bytes(target))
    conversion = Conversion(plan, packed_out=4)
    packed = np.empty(conversion.output_entries, np.uint8)

    def call() -> None:
        counts = plan.new_counts()
        for begin, end in conversion.pieces(0, plan.elements, _PACKED_PIECE):
            into = packed[conversion.output_at(begin) : conversion.output_at(end)]
            conversion.step(flat[begin:end], into, begin, counts)
        plan.report(counts)

    return Peer(call, lambda: packed)


def differing_bytes(name: str, peers: Mapping[str, Peer], equal: frozenset[str]) -> dict[str, int]:
    """Run every peer once and compare its bytes with ours. Raise AssertionError where equal ones are not."""
    peers["ours"].call()
    expected = peers["ours"].result()
    found = {}
    for peer, contender in peers.items():
        if peer == "ours":
            continue
        contender.call()
        theirs = contender.result()
        assert theirs.shape == expected.shape, f"{name}: {peer} gives {theirs.size} bytes, ours are {expected.size}"
        count = int(np.count_nonzero(theirs != expected))
        if peer in equal:
            assert count == 0, f"{name}: {count} of {expected.size} bytes of {peer} differ from ours"
        else:
            found[peer] = count
    return found


def work_row(
    group: str, name: str, work: Work, size: int, peers: Mapping[str, MakePeer], equal: frozenset[str], threads: int
) -> Row:
    """Compare, check and time one conversion. `equal` names the peers whose bits must be ours."""
    source = work.source(size)
    contenders = {"ours": ours(work.plan(size), source, dense=work.dense, threads=threads)}
    contenders |= {peer: make(work, size, source, threads) for peer, make in peers.items()}
    differing = differing_bytes(f"{name}, {size} elements", contenders, equal)
    result = contenders["ours"].result()
    elements = work.elements(size)
    whole = result if work.dense else result.view(f"u{result.size // elements}")
    if threads == 1:
        contenders["limit"] = traffic(source, whole)
    measured = compare({peer: contender.call for peer, contender in contenders.items()}, threads=threads)
    traffic_bytes = source.nbytes + result.nbytes
    return Row(group, name, size, elements, traffic_bytes, measured.seconds, differing, measured.foreign)
