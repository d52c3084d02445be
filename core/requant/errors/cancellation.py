"""Cooperative cancellation: long loops check between two steps whether the result is still needed.

Whoever starts the work sets `cancellation_check` in its context to a function that raises once the work has to end; the
error leaves the work like any other. Without one, work runs to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")


def _never() -> None:
    """Let the work go on."""


cancellation_check: ContextVar[Callable[[], None]] = ContextVar("cancellation_check", default=_never)
"""What raises when the work of this context has to end."""


def check_cancelled() -> None:
    """Raise if the work of this context has to end."""
    cancellation_check.get()()


class LateError(Exception):
    """The time of a part of a piece of work has passed. Whoever set its deadline goes on without that part."""


@contextmanager
def deadline(is_late: Callable[[], bool]) -> Iterator[None]:
    """Let checks within raise LateError once it is late, after what they raise anyway."""
    cancelled = cancellation_check.get()

    def check() -> None:
        cancelled()
        if is_late():
            raise LateError

    token = cancellation_check.set(check)
    try:
        yield
    finally:
        cancellation_check.reset(token)


def until_late(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items until it is late."""
    with suppress(LateError):
        for item in items:
            check_cancelled()
            yield item


def checked(items: Iterable[Item], every: int = 256) -> Iterator[Item]:
    """Yield the items, with a check before the first and then before each one of `every`."""
    check = cancellation_check.get()
    for index, item in enumerate(items):
        if index % every == 0:
            check()
        yield item
