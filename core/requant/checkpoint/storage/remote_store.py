"""What object stores and HTTP servers have in common: files are read in blocks, some of them ahead, since a request
takes as long for 4 MiB as for one; and a request that fails is sent again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING

from requant.checkpoint.storage.store import Store, StoredFile
from requant.errors import SourceChangedError, excerpt

if TYPE_CHECKING:
    from obstore.store import RetryConfig

# Server errors, throttling (429, 503) and lost connections are tried again after 0.1 s, 0.2 s and so on to 15 s, with
# jitter, for at most three minutes: the signature of a request is valid for five.
RETRY: RetryConfig = {
    "max_retries": 10,
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=15), "base": 2},
    "retry_timeout": timedelta(minutes=3),
}

BLOCK = 4 << 20
CONNECTIONS = 8
"""A connection to S3 carries 50 to 100 MB/s, so that a few are needed for a network card."""
AHEAD = 5
"""Blocks that are asked for beyond the one that is read, once the one before it was read too."""
MAX_BLOCKS = 10
SINGLE_READS = 4
"""The first reads of a file, those of its header, are not extended."""

Fetch = Callable[[StoredFile, int, int], memoryview]
"""Returns the bytes [begin, end) of a file."""


class ReadAhead:
    """The blocks that were read last, and those that are on their way. Used by several threads."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._connections = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="object-store")
        self._lock = Lock()
        self._blocks: OrderedDict[tuple[StoredFile, int], Future[memoryview]] = OrderedDict()
        self._reads: Counter[StoredFile] = Counter()

    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        """Fill `target` from `offset` on, which must lie entirely within the file. Raises what `fetch` raises."""
        with self._lock:
            self._reads[file] += 1
            single = self._reads[file] <= SINGLE_READS
        if single and len(target) <= BLOCK:
            target[:] = self._fetch(file, offset, offset + len(target))
            return
        filled = 0
        while filled < len(target):
            index, begin = divmod(offset + filled, BLOCK)
            size = min(BLOCK - begin, len(target) - filled)
            target[filled : filled + size] = self._block(file, index)[begin : begin + size]
            filled += size

    def _block(self, file: StoredFile, index: int) -> memoryview:
        with self._lock:
            follows = (file, index - 1) in self._blocks
            block = self._request(file, index)
            for ahead in range(index + 1, index + 1 + AHEAD if follows else 0):
                if ahead * BLOCK < file.size:
                    self._request(file, ahead)
            while len(self._blocks) > MAX_BLOCKS:
                self._blocks.popitem(last=False)
        try:
            return block.result()
        except BaseException:
            with self._lock:
                # Whoever reads it again asks again.
                if self._blocks.get((file, index)) is block:
                    del self._blocks[file, index]
            raise

    def _request(self, file: StoredFile, index: int) -> Future[memoryview]:
        key = (file, index)
        if key not in self._blocks:
            begin = index * BLOCK
            end = min(begin + BLOCK, file.size)
            self._blocks[key] = self._connections.submit(self._fetch, file, begin, end)
        self._blocks.move_to_end(key)
        return self._blocks[key]


class RemoteStore(Store):
    """A store that is read by requests for ranges.

    The version of a file is its ETag, and the time of its last change where a server sends none.
    """

    read_size = BLOCK

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._read_ahead = ReadAhead(self._fetch)

    def read_into(self, file: StoredFile, offset: int, target: memoryview) -> None:
        target = target.cast("B")
        if offset + len(target) > file.size:
            raise self._changed(file)
        if target:
            self._read_ahead.read_into(file, offset, target)

    @abstractmethod
    def _fetch(self, file: StoredFile, begin: int, end: int) -> memoryview:
        """Return the bytes [begin, end) of a file, which is not empty. Raises SourceChangedError, StorageError."""

    def _changed(self, file: StoredFile) -> SourceChangedError:
        return SourceChangedError(
            f"{self.url}/{excerpt(file.name)} is no longer the file of {file.size} bytes with the ETag "
            f"{excerpt(file.version)} that the plan was made from; make a new plan",
            file=file.name,
        )
