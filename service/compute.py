"""Where a piece of work runs: at once when it is light, in the service's own threads when it is not.

The event loop must never wait for a tensor, and a small tensor must not wait for a change of thread, which costs more
than its arithmetic. There are two kinds of heavy work. Arrays (kernels, base64, large copies) release the GIL, so they
have as many threads as there are CPUs. Texts (JSON, types, plans, multipliers) are Python and hold it, so more than one
thread would gain nothing: they have one of their own, and however long that is busy, the threads of arrays go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

# What reading and printing a character of a type costs, in bytes of tensor. A token of JSON costs about as much.
_BYTES_PER_CHARACTER = 16

# What deriving one multiplier costs, in characters.
CHARACTERS_PER_FACTOR = 64


class Compute:
    """The service's threads, and the weight up to which work is done without them."""

    def __init__(self, threads: int, inline_bytes: int) -> None:
        self._arrays = ThreadPoolExecutor(threads, thread_name_prefix="arrays")
        self._texts = ThreadPoolExecutor(1, thread_name_prefix="texts")
        self._inline_bytes = inline_bytes

    async def arrays(self, byte_count: int, work: Callable[[], Result]) -> Result:
        """Return the result of `work` on arrays of about `byte_count` bytes."""
        return await self._run(self._arrays, byte_count, work)

    async def texts(self, characters: int, work: Callable[[], Result]) -> Result:
        """Return the result of `work` on texts of about `characters` characters."""
        return await self._run(self._texts, characters * _BYTES_PER_CHARACTER, work)

    async def _run(self, executor: Executor, weight: int, work: Callable[[], Result]) -> Result:
        if weight <= self._inline_bytes:
            return work()
        return await asyncio.get_running_loop().run_in_executor(executor, work)

    def shut_down(self) -> None:
        """Take no more work, and let the threads finish what they have."""
        for executor in (self._arrays, self._texts):
            executor.shutdown(wait=False, cancel_futures=True)
