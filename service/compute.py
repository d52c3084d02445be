"""Where a piece of work runs: at once when it is light, in the service's own threads when it is not.

The event loop must never wait for a tensor, and a small tensor must not wait for a change of thread, which costs more
than its arithmetic. The threads only help for work that releases the GIL: kernels, pybase64, large copies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

Result = TypeVar("Result")

# What other work weighs, in bytes of tensor: parsing types and deriving multipliers is Python, not kernels.
BYTES_PER_TYPE_CHARACTER = 16
BYTES_PER_FACTOR = 1024


class Compute:
    """The service's threads, and the weight up to which work is done without them."""

    def __init__(self, executor: Executor, inline_bytes: int) -> None:
        self._executor = executor
        self._inline_bytes = inline_bytes

    async def run(self, weight: int, work: Callable[[], Result]) -> Result:
        """Return the result of `work`. `weight` is about how many bytes of tensor it goes through."""
        if weight <= self._inline_bytes:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
