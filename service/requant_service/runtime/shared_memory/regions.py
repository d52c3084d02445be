"""System shared memory that clients have registered: regions by name, mapped for as long as they are registered.

Triton's clients create an object of shared memory, register a part of it as a region, and name the region in place of a
tensor's bytes. This module knows no protocol. A key is the name of an object (shm_open(3)), so a file right below
`/dev/shm`, and never a path. The sizes that a client states are compared with the object when a region is registered
and at each use, because the client can truncate the object at any time. If it does so while pages are in use, they
become zeros (`requant_service.runtime.shared_memory`), `Span.check` raises, and the next use maps the object anew.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import InvalidRequestError, LimitError, SharedMemoryError, UnknownNameError, excerpt
from requant_service.runtime.shared_memory.bus_errors import MAX_MAPPINGS, BusErrors, bus_errors
from requant_service.runtime.shared_memory.registry import RegionStatus, RegistryClient

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


DIRECTORY = Path("/dev/shm")
"""Where Linux has the objects of shm_open(3)."""

LONGEST_NAME = 256
_LONGEST_KEY = 255
# Not blocked by a FIFO, no controlling terminal, and no link anywhere: the name is the last part of the path.
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY

_REASONS = {
    errno.ENOENT: "there is no such object",
    errno.ELOOP: "it is a symbolic link",
    errno.EISDIR: "it is a directory",
    errno.ENXIO: "it is not a shared memory object",
    errno.ENAMETOOLONG: "the key is too long",
}


class _Region:
    """A registered region with the open object, which it closes in the end.

    `number`: its own in the registry, where another worker has registered it; 0: it is new. Raise SharedMemoryError if
    the object of a new one ends before the region does, or if it cannot be mapped.
    """

    def __init__(self, status: RegionStatus, descriptor: int, number: int = 0) -> None:
        self.status = status
        self.number = number
        self.descriptor = descriptor
        file_status = os.fstat(descriptor)
        self.identity = file_status.st_dev, file_status.st_ino
        if not number and status.offset + status.byte_size > file_status.st_size:
            raise SharedMemoryError(
                f"{_shown(status.byte_size)} bytes at offset {_shown(status.offset)} end beyond the object "
                f"{excerpt(status.key)}, which has {file_status.st_size}",
                pointer="/offset" if status.offset >= file_status.st_size else "/byte_size",
            )
        self.mapping = self._mapped()

    def __del__(self) -> None:
        os.close(self.descriptor)

    def size(self) -> int:
        """Return the bytes that the object has now."""
        return os.fstat(self.descriptor).st_size

    def present_mapping(self) -> Mapping:
        """Return the mapping, made anew if pages of the last one were missing."""
        if self.mapping.is_lost:
            self.mapping = self._mapped()
        return self.mapping

    def _mapped(self) -> Mapping:
        status = self.status
        try:
            return Mapping(self.descriptor, status.offset, status.byte_size)
        except OSError as error:
            raise SharedMemoryError(f"region {excerpt(status.name)}: it cannot be mapped: {error.strerror}") from None


class Span:
    """A part of a region while a request uses it. `data` is its bytes, in the memory that the client has mapped too."""

    def __init__(self, region: _Region, offset: int, byte_size: int) -> None:
        self.region = region.status.name
        self._mapping = region.present_mapping()
        self.data: NDArray[np.uint8] = self._mapping.data[offset : offset + byte_size]
        self._identity = region.identity
        self._first = region.status.offset + offset
        self._end = self._first + byte_size

    def overlaps(self, other: Span) -> bool:
        """Whether both have a byte of the same object, even if by different regions."""
        return self._identity == other._identity and self._first < other._end and other._first < self._end

    def check(self) -> None:
        """Raise SharedMemoryError if pages of the region were missing since the span was made."""
        if self._mapping.is_lost:
            raise SharedMemoryError(
                f"region {excerpt(self.region)} shrank while it was used, or {DIRECTORY} is full; nothing that was "
                f"read from it or written to it is valid"
            )


class SharedMemory:
    """The registered regions, at most `max_regions`. Names of regions are the clients' own, and shared by them all.

    With a `registry` they are those of all worker processes. Then any method may raise UnavailableError.
    """

    def __init__(self, max_regions: int) -> None:
        self._max_regions = max_regions
        self._regions: dict[str, _Region] = {}
        self._lock = threading.Lock()
        self._generation = 0
        self.registry: RegistryClient | None = None
        bus_errors()

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Register `byte_size` bytes at `offset` of the object `key` as the region `name`.

        Raise SharedMemoryError if the name is taken or the object does not allow it, LimitError if there are as many
        regions as there may be, and InvalidRequestError for what cannot be a name, a key, an offset or a size. Pointers
        are those of a registration as JSON.
        """
        if not 0 < len(name) <= LONGEST_NAME:
            raise _invalid("", f"the name of a region has 1 to {LONGEST_NAME} characters")
        file_name = _file_name(key)
        if offset < 0:
            raise _invalid("/offset", "an offset is a number of bytes from 0 on")
        if byte_size < 1:
            raise _invalid("/byte_size", "a region has at least 1 byte")
        status = RegionStatus(name, key, offset, byte_size)
        with self._lock:
            while True:
                regions = self._present()
                if name in regions:
                    raise SharedMemoryError(f"region {excerpt(name)} is registered already; unregister it first")
                if len(regions) >= self._max_regions:
                    limit = self._max_regions
                    raise LimitError(f"{limit} regions are registered; that is the limit", limit=limit)
                region = _Region(status, _opened(file_name, key))
                if self.registry is None:
                    regions[name] = region
                    return
                if self.registry.register(self._generation, status, region.descriptor):
                    return

    def _present(self) -> dict[str, _Region]:
        """Return the regions by their names, those that other workers have registered too. Called with the lock."""
        registry = self.registry
        while registry is not None and registry.generation != self._generation:
            known = {region.number: region for region in self._regions.values()}
            generation, numbers = registry.regions()
            regions = []
            for number in numbers:
                if number in known:
                    regions.append(known[number])
                elif (registered := registry.region(number)) is not None:
                    regions.append(_Region(*registered, number))
            self._regions = {region.status.name: region for region in regions}
            self._generation = generation
        return self._regions

    def unregister(self, name: str) -> None:
        """Forget a region. Requests that use it go on. Raise UnknownNameError if there is none of the name.

        Unmapping takes milliseconds for a large region; only the caller waits for it.
        """
        with self._lock:
            dropped = [self._named(name)]
            while self.registry is not None and not self._give_up(dropped):
                dropped = [self._named(name)]
            self._regions.pop(name, None)
        del dropped

    def unregister_all(self) -> None:
        """Forget all regions."""
        with self._lock:
            dropped = list(self._present().values())
            while self.registry is not None and dropped and not self._give_up(dropped):
                dropped = list(self._present().values())
            self._regions = {}
        del dropped

    def _give_up(self, regions: Sequence[_Region]) -> bool:
        """Return whether the registry has given up these regions: not if there were changes since they were seen."""
        assert self.registry is not None
        return self.registry.unregister(self._generation, [region.number for region in regions])

    def status(self, name: str) -> RegionStatus:
        """Return what a region was registered as. Raise UnknownNameError if there is none of the name."""
        with self._lock:
            return self._named(name).status

    def statuses(self) -> list[RegionStatus]:
        """Return what all regions were registered as, in the order of registration."""
        with self._lock:
            return [region.status for region in self._present().values()]

    def span(self, name: str, offset: int, byte_size: int) -> Span:
        """Return `byte_size` bytes at `offset` of a region, for the time of one request.

        Raise UnknownNameError if there is no such region, InvalidRequestError if it has fewer bytes, SharedMemoryError
        if the object has fewer by now.
        """
        with self._lock:
            region = self._named(name)
            status = region.status
            if offset + byte_size > status.byte_size:
                raise InvalidRequestError(
                    f"{_shown(byte_size)} bytes at offset {_shown(offset)} end beyond region {excerpt(name)}, "
                    f"which has {status.byte_size}"
                )
            if status.offset + offset + byte_size > (size := region.size()):
                raise SharedMemoryError(
                    f"region {excerpt(name)}: the object {excerpt(status.key)} has shrunk to {size} bytes"
                )
            return Span(region, offset, byte_size)

    @property
    def mapped_bytes(self) -> int:
        """The bytes of all regions."""
        return sum(status.byte_size for status in self.statuses())

    def __len__(self) -> int:
        with self._lock:
            return len(self._present())

    def _named(self, name: str) -> _Region:
        region = self._present().get(name)
        if region is None:
            raise UnknownNameError(f"no shared memory region of the name {excerpt(name)!r} is registered")
        return region


def _file_name(key: str) -> str:
    """Return the name of the file of an object, or raise InvalidRequestError."""
    name = key.removeprefix("/")
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise _invalid(
            "/key", f"a key is the name of an object in {DIRECTORY}, without slashes after the first character"
        )
    try:
        if len(name.encode()) > _LONGEST_KEY:
            raise _invalid("/key", f"a key has at most {_LONGEST_KEY} bytes")
    except UnicodeEncodeError:
        raise _invalid("/key", "the key is not valid Unicode") from None
    return name


def _opened(file_name: str, key: str) -> int:
    """Return a descriptor of an object that may be read and written, or raise SharedMemoryError."""
    try:
        directory = os.open(DIRECTORY, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            descriptor = os.open(file_name, _FLAGS, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror)
        if error.errno in (errno.EACCES, errno.EPERM):
            reason = f"the service, which runs as user {os.geteuid()}, may not read and write it"
        raise SharedMemoryError(f"the object {excerpt(key)} cannot be opened: {reason}", pointer="/key") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SharedMemoryError(f"the object {excerpt(key)} cannot be opened: {_REASONS[errno.ENXIO]}", pointer="/key")
    return descriptor


def _shown(number: int) -> str:
    return str(number) if number < 1 << 64 else "more than 2^64"


def _invalid(place: str, detail: str) -> InvalidRequestError:
    return InvalidRequestError.of_field(place, "invalid", detail)
