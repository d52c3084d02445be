"""SIGHUP: files that settings name are read again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def reread_on_hangup(rereads: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Call all of these whenever SIGHUP comes. For the event loop of the main thread; elsewhere nothing is done.

    A SIGHUP to a service that has nothing to read again ends it, as the system does by default.
    """

    def reread() -> None:
        for each in rereads:
            each()

    loop = asyncio.get_running_loop()
    try:
        if rereads:
            loop.add_signal_handler(signal.SIGHUP, reread)
    except (ValueError, RuntimeError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        if rereads:
            loop.remove_signal_handler(signal.SIGHUP)
