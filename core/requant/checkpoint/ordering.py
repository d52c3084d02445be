"""Sorting of long lists in pieces: one call of `sorted` for a million items would hold the interpreter for seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

from requant.errors.cancellation import check_cancelled, checked

Item = TypeVar("Item")

_PIECE = 1 << 14


def sorted_in_pieces(items: Iterable[Item], key: Callable[[Item], Any]) -> list[Item]:
    """Return what `sorted(items, key=key)` returns; the work can be cancelled, and other threads run in between."""
    left = iter(items)
    pieces: list[list[Item]] = []
    while piece := sorted(islice(left, _PIECE), key=key):
        check_cancelled()
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else list(checked(merge(*pieces, key=key)))
