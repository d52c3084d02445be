"""Coroutines that begin at once, as `eager_start` of Python 3.12's tasks: most requests end without ever waiting.

Such a request takes no task, and no turn of the event loop (docs/architecture.md has what that saves).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from types import coroutine
from typing import Any


def start_eagerly(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> asyncio.Task[None] | None:
    """Run `work` in a context of its own until it waits. Return the task that goes on with it, None if it has ended.

    What it raises before it waits is raised here. Until then there is no current task.
    """
    context = copy_context()
    try:
        awaited = context.run(work.send, None)
    except StopIteration:
        return None
    return loop.create_task(_continued(work, awaited), context=context)


@coroutine
def _continued(work: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    """Go on with `work`, which waits for `awaited`: what it has yielded to its task."""
    try:
        while True:
            try:
                result = yield awaited
            except BaseException as error:  # such as CancelledError
                awaited = work.throw(error)
            else:
                awaited = work.send(result)
    except StopIteration:
        pass
