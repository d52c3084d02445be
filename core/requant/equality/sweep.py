"""The comparison of two rules by computing both for every input of a part, piece by piece on all cores.

A piece stays in the cache: its inputs, both outcomes. Strips of pieces are handed out to threads, which the kernels and
numpy let run side by side, and collected in their order.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from requant.equality.rules import Array, Part, Rule
from requant.errors import LimitError, UnsupportedError
from requant.errors.cancellation import check_cancelled

MAX_INPUTS = 1 << 32
"""Of more inputs not all are computed."""

_PIECE = 1 << 16
_STRIP = 1 << 23
_STRIP_OF_ONE = 1 << 20
_BLOCK = 64
SAMPLES = 16
_LOOK_EVERY = 0.1
"""Seconds between two looks at whether the work is still wanted."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many inputs differ, and how many only one of the rules is defined for, or neither; and some that differ.

    `differing` are counted where both are defined. `found` are codes of inputs with another outcome, or with one at
    all, in ascending order: the first, the last, and some between.
    """

    differing: int = 0
    only_first: int = 0
    only_second: int = 0
    neither: int = 0
    found: tuple[int, ...] = ()

    def __add__(self, other: Tally) -> Tally:
        if other is _NOTHING:
            return self
        found = self.found + other.found
        if len(found) > 2 * SAMPLES:
            found = thinned(found)
        return Tally(
            self.differing + other.differing,
            self.only_first + other.only_first,
            self.only_second + other.only_second,
            self.neither + other.neither,
            found,
        )


_NOTHING = Tally()


def thinned(found: tuple[int, ...]) -> tuple[int, ...]:
    """Return at most as many as a sample has, the first and the last among them."""
    if len(found) <= SAMPLES:
        return found
    return tuple(found[index * (len(found) - 1) // (SAMPLES - 1)] for index in range(SAMPLES))


def sweep(
    first: Rule,
    second: Rule,
    part: Part,
    interval: tuple[int, int],
    progress: Callable[[int], None],
    workers: int | None = None,
    limit: int = MAX_INPUTS,
) -> Tally:
    """Compare two rules for the inputs of a part from the first to the last code of an interval.

    `progress` is called with how many more inputs are done. `workers`: threads; as many as there are cores by default.
    One is this thread, whose time is then that of the work. What `cancellation_check` raises ends it. Raise
    UnsupportedError for more than MAX_INPUTS inputs, LimitError for more than `limit`.
    """
    begin, end = interval[0], interval[1] + 1
    if end - begin > MAX_INPUTS:
        raise UnsupportedError(
            f"there are {end - begin} {part.name} to compute, and at most 2^32 are; these rules are not proven to be "
            "monotone with few outcomes, so that thresholds do not decide"
        )
    if end - begin > limit:
        raise LimitError(
            f"thresholds do not decide, so that {end - begin} inputs have to be computed; at most {limit} are in one "
            "request, and up to 2^32 in a job",
            limit=limit,
        )
    stopped = threading.Event()
    work = _Strips(first, second, part, stopped)
    count = workers or os.cpu_count() or 1
    total = Tally()
    if count == 1:
        for start in range(begin, end, _STRIP_OF_ONE):
            check_cancelled()
            stop = min(start + _STRIP_OF_ONE, end)
            total += work.run(start, stop)
            progress(stop - start)
        return total
    with ThreadPoolExecutor(count, "requant-sweep") as pool:
        waiting: deque[tuple[int, Future[Tally]]] = deque()
        try:
            for start in range(begin, end, _STRIP):
                stop = min(start + _STRIP, end)
                waiting.append((stop - start, pool.submit(work.run, start, stop)))
                if len(waiting) > count:
                    total += _collected(waiting, progress)
            while waiting:
                total += _collected(waiting, progress)
        finally:
            stopped.set()
    return total


def _collected(waiting: deque[tuple[int, Future[Tally]]], progress: Callable[[int], None]) -> Tally:
    """Wait for the strip that is next in order."""
    size, strip = waiting.popleft()
    while True:
        check_cancelled()
        try:
            tally = strip.result(_LOOK_EVERY)
        except TimeoutError:
            continue
        progress(size)
        return tally


@dataclass(frozen=True, slots=True)
class _Strips:
    """The work of the threads."""

    first: Rule
    second: Rule
    part: Part
    stopped: threading.Event

    def run(self, begin: int, end: int) -> Tally:
        """Compare the inputs from `begin` to before `end`."""
        one, other = (np.empty(_PIECE, rule.plan.output_dtype) for rule in (self.first, self.second))
        total = Tally()
        for start in range(begin, end, _PIECE):
            if self.stopped.is_set():
                break
            size = min(_PIECE, end - start)
            total += self._piece(start, size, one[:size], other[:size])
        return total

    def _piece(self, start: int, size: int, one: Array, other: Array) -> Tally:
        array = self.first.consecutive(self.part, start, size)
        return compared(self.first, self.second, array, start, (one, other))


def compared(first: Rule, second: Rule, array: Array, start: int, targets: tuple[Array, Array] | None = None) -> Tally:
    """Compare two rules for an array of inputs, as their plans take them; the first is called `start`, and so on.

    `targets`: where outcomes are written.
    """
    if targets is None:
        targets = np.empty(array.size, first.plan.output_dtype), np.empty(array.size, second.plan.output_dtype)
    lacks_one, lacks_other = _convert(first, array, targets[0]), _convert(second, array, targets[1])
    different = bits_of(first, targets[0]) != bits_of(second, targets[1])
    if lacks_one is None and lacks_other is None:
        count = int(np.count_nonzero(different))
        return Tally(count, found=_some(start, different)) if count else _NOTHING
    none = np.zeros(array.size, np.bool_)
    lacks_one = none if lacks_one is None else lacks_one
    lacks_other = none if lacks_other is None else lacks_other
    different = different & ~lacks_one & ~lacks_other
    return Tally(
        int(np.count_nonzero(different)),
        int(np.count_nonzero(lacks_other & ~lacks_one)),
        int(np.count_nonzero(lacks_one & ~lacks_other)),
        int(np.count_nonzero(lacks_one & lacks_other)),
        _some(start, different | (lacks_one != lacks_other)),
    )


def bits_of(rule: Rule, stored: Array) -> Array:
    """Return outcomes as numbers that are equal where the bits are."""
    return stored.view(f"u{stored.itemsize}") if rule.gives_floats else stored


def _convert(rule: Rule, array: Array, target: Array) -> NDArray[np.bool_] | None:
    """Convert inputs. Return which of them are undefined, None where all are defined."""
    if rule.masked is not None:
        return rule.masked(array, target)

    def convert(piece: slice) -> int:
        first = rule.convert(array[piece], target[piece])
        return -1 if first is None else first

    return convert_all(convert, array.size)


def convert_all(convert: Callable[[slice], int], size: int) -> NDArray[np.bool_] | None:
    """Convert elements, and return which of them are undefined, None where all are defined.

    `convert` converts a slice and returns the index in it of the first that is undefined, or -1: no kernel tells more.
    """
    if convert(slice(0, size)) < 0:
        return None
    undefined = np.zeros(size, np.bool_)
    for block in range(0, size, _BLOCK):
        begin, end = block, min(block + _BLOCK, size)
        while begin < end:
            first = convert(slice(begin, end))
            if first < 0:
                break
            undefined[begin + first] = True
            begin += first + 1
    return undefined


def _some(start: int, chosen: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return codes of some that are chosen, the first and the last among them."""
    places = np.flatnonzero(chosen)
    if places.size > SAMPLES:
        places = places[np.arange(SAMPLES) * (places.size - 1) // (SAMPLES - 1)]
    return tuple((places + start).tolist())
