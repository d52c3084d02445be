"""A part of a file as an array whose memory is the file's own pages, shared with other processes that map it."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant_service.runtime.shared_memory.bus_errors import MAX_MAPPINGS, BusErrors, bus_errors

_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class _Pages:
    """Whole pages of a file. They are unmapped when the last array over them is gone."""

    def __init__(self, descriptor: int, offset: int, byte_count: int) -> None:
        self._number: int | None = None
        flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED
        self._address = _libc.mmap(None, byte_count, *flags, descriptor, offset)
        if self._address == _MAP_FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._byte_count = byte_count
        self._bus_errors: BusErrors = bus_errors()
        self._number = self._bus_errors.watch(self._address, self._address + byte_count)
        self._unmap = _libc.munmap
        if self._number is None:
            self._unmap(self._address, byte_count)
            raise OSError(f"{MAX_MAPPINGS} mappings are in use")

    def __del__(self) -> None:
        if self._number is not None:
            self._bus_errors.forget(self._number)
            self._unmap(self._address, self._byte_count)

    @property
    def is_lost(self) -> bool:
        assert self._number is not None
        return self._bus_errors.is_lost(self._number)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self._byte_count,), "typestr": "|u1", "data": (self._address, False), "version": 3}


class Mapping:
    """The `byte_count` bytes at `offset` of an open file, which has so many, as the array `data`.

    The file stays mapped as long as there is an array over any part of it. Another process may truncate it at any time:
    then `data` is zeros from there on, is no longer shared, and `is_lost` says so. The contents of the array may change
    between two reads.

    Raise OSError if the file cannot be mapped.
    """

    def __init__(self, descriptor: int, offset: int, byte_count: int) -> None:
        before = offset % mmap.PAGESIZE
        pages = -(-(before + byte_count) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._pages = _Pages(descriptor, offset - before, pages)
        self.data: NDArray[np.uint8] = np.asarray(self._pages)[before : before + byte_count]

    @property
    def is_lost(self) -> bool:
        """Whether pages were missing when they were touched, so that nothing that was read or written counts."""
        return self._pages.is_lost
