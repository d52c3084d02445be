"""How many cases a test takes: all of them with REQUANT_EXHAUSTIVE=1, else a sample. Many cases are one test."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import date
from math import isinf
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

EXHAUSTIVE: Final = os.environ.get("REQUANT_EXHAUSTIVE") == "1"
DAYS: Final = int(os.environ.get("TEST_DAYS", "1"))
"""In so many days each file of tests has one on which it is run (`.ci/run`)."""
MINUTES: Final = float(os.environ.get("TEST_MINUTES", "inf"))
"""A test that has not begun so long after the run did is skipped (`.ci/run`, whose time is limited on any machine)."""
WHOLE: Final = DAYS == 1 and isinf(MINUTES)
"""Whether no file and no test is left out."""
TODAY: Final = date.today().toordinal()
OF_THE_DAY: Final = TODAY // DAYS if EXHAUSTIVE else 0
"""The number of the run, for what is so much that it takes several to see all of it; a sample is always the same. With
TEST_DAYS it counts the days of each file, so that none sees the same part again and again."""
# A test stops at this many failures: they have one cause more often than several.
_MAX_SHOWN = 5

Item = TypeVar("Item")
Scalar = TypeVar("Scalar", bound=np.generic)


class Case(Protocol):
    """A case of the vectors: its name is that of its file, a slash, and what tells it from the others there."""

    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=Case)


def sample(items: Sequence[Item], most: int) -> Sequence[Item]:
    """Return all items if REQUANT_EXHAUSTIVE is 1, else about `most` of them, evenly spread, first and last included.

    The stride is odd and so visits both halves of whatever alternates. What a rule turns on (ties, bounds, NaN) is not
    sampled: a test adds it to the sample of the rest.
    """
    stride = max(1, len(items) // most) | 1
    return items if EXHAUSTIVE or len(items) <= most else [*items[:-1:stride], items[-1]]


def sample_array(items: NDArray[Scalar], most: int) -> NDArray[Scalar]:
    """The same for the elements of an array."""
    return items[np.array(sample(range(items.size), most), np.int64)]


def sample_each(items: Sequence[Item], key: Callable[[Item], Hashable], most: int) -> Sequence[Item]:
    """Return all items if REQUANT_EXHAUSTIVE is 1, else about `most`, and one at least, of those of each key.

    They begin at another place for each key, so that what all have in common is met with one key or another.
    """
    groups = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    if EXHAUSTIVE:
        return items
    strides = [max(1, len(group) // most) for group in groups.values()]
    return [
        item
        for number, (group, stride) in enumerate(zip(groups.values(), strides, strict=True))
        for item in group[number % stride :: stride]
    ]


def examples(most: int) -> int:
    """Return how many examples hypothesis makes where REQUANT_EXHAUSTIVE=1 makes `most`: a tenth, but 15 at least."""
    return most if EXHAUSTIVE else min(most, max(15, most // 10))


def by_file(cases: Iterable[Named]) -> dict[str, list[Named]]:
    """Return the cases of each file of vectors."""
    found = defaultdict(list)
    for case in cases:
        found[case.name.partition("/")[0]].append(case)
    return dict(found)


def check_each(cases: Iterable[Named], check: Callable[[Named], None]) -> None:
    """Call `check` with every case. Raise an ExceptionGroup of the first failures, each with the name of its case."""
    failures: list[Exception] = []
    for case in cases:
        try:
            check(case)
        except Exception as error:
            error.add_note(f"in the case {case.name}")
            failures.append(error)
            if len(failures) == _MAX_SHOWN:
                break
    if failures:
        raise ExceptionGroup(f"{len(failures)} cases failed", failures)
