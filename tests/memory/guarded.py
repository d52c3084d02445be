"""Every array that a kernel gets, between pages that nobody may touch.

`install` replaces the call of a kernel. Each array is copied to memory that begins right behind a protected region,
and the kernel runs; then to memory that ends right before one, and it runs again, on the same numbers. An access out of
bounds ends the process, by whatever instruction it is made: numba's own checks do not see those of intrinsics. And the
two runs must give the same, bit for bit, so that nothing is read that was not given.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.np.numpy_support import as_dtype
from numpy.typing import NDArray

from requant.kernels.convert.quantize.native import QUANTIZE
from requant.kernels.jit.jit import Kernel, _registry

Array = NDArray[Any]

_GUARD = 1 << 20
_ROOM = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_PROT_NONE = 0


STOPPING = frozenset(QUANTIZE.values())
"""Kernels that return first how many elements they converted, which is not always all."""


class Span:
    """Writable memory between two protected regions."""

    def __init__(self, size: int) -> None:
        self._size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, self._size + 2 * _GUARD)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for start in (address, address + _GUARD + self._size):
            if _LIBC.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(_GUARD), _PROT_NONE) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def holds(self, size: int) -> bool:
        return size <= self._size

    def copy_of(self, array: Array, at_end: bool) -> Array:
        """The array, right before the protected region behind it, or right behind the one before it."""
        begin = _GUARD + (self._size - array.nbytes if at_end else 0)
        copied: Array = np.frombuffer(self._memory, array.dtype, array.size, begin)
        copied[...] = array
        return copied


class Guard:
    """Calls kernels with guarded arrays. `called` counts the calls of each specialisation."""

    def __init__(self) -> None:
        self.called: dict[str, int] = {}
        self._names: dict[tuple[int, int], str] = {}
        self._spans: list[Span] = []

    def __call__(self, kernel: Kernel, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        which = id(kernel), _signature_of(kernel, arguments)
        if which not in self._names:
            self._names[which] = name_of(kernel, which[1])
        name = self._names[which]
        self.called[name] = self.called.get(name, 0) + 1
        arrays = [each for each in arguments if isinstance(each, np.ndarray)]
        if _overlap(kernel, arguments):
            raise AssertionError(f"{name} writes to an array that it also reads as another")
        first = self._copies(arguments, at_end=False)
        returned = call(*first)
        # Kept apart, for the second run takes the same spans.
        results = [each.tobytes() for each in first if isinstance(each, np.ndarray)]
        second = self._copies(arguments, at_end=True)
        again = call(*second)
        # Where a kernel stops depends on the address, and what it wrote behind that place has no meaning.
        stopped = kernel in STOPPING and min(returned[0], again[0]) < arrays[0].size
        for given, found, before in zip(arrays, (x for x in second if isinstance(x, np.ndarray)), results, strict=True):
            if found.tobytes() != before and not stopped:
                raise AssertionError(f"{name} gave two results for the same arguments")
            if given.flags.writeable:
                given[...] = found
        if returned != again and not stopped:
            raise AssertionError(f"{name} returned {returned}, then {again}")
        return again

    def _copies(self, arguments: tuple[Any, ...], at_end: bool) -> tuple[Any, ...]:
        copies: list[Any] = []
        for index, each in enumerate(arguments):
            while len(self._spans) <= index:
                self._spans.append(Span(_ROOM))
            if isinstance(each, np.ndarray):
                if not self._spans[index].holds(each.nbytes):
                    self._spans[index] = Span(2 * each.nbytes)
                each = self._spans[index].copy_of(each, at_end)
            copies.append(each)
        return tuple(copies)


def _overlap(kernel: Kernel, arguments: tuple[Any, ...]) -> bool:
    """Whether an array that the kernel writes shares memory with another one."""
    kinds = kernel._signatures[0].args
    pairs = [(kind, each) for kind, each in zip(kinds, arguments, strict=True) if isinstance(each, np.ndarray)]
    return any(
        kind.mutable and index != other and np.may_share_memory(each, another)
        for index, (kind, each) in enumerate(pairs)
        for other, (_, another) in enumerate(pairs)
    )


def _signature_of(kernel: Kernel, arguments: tuple[Any, ...]) -> int:
    """Which signature a call has: the one whose first array has the dtype of the argument."""
    if len(kernel._signatures) == 1:
        return 0
    given = np.dtype(arguments[0].dtype)
    return next(i for i, each in enumerate(kernel._signatures) if as_dtype(each.args[0].dtype) == given)


def name_of(kernel: Kernel, signature: int = 0) -> str:
    """The module and the name of a kernel, which of those of that name it is, and what it first takes."""
    function = kernel._dispatcher.py_func
    code = function.__code__
    same = [each for each in _registry if each._dispatcher.py_func.__code__.co_firstlineno == code.co_firstlineno]
    same = [each for each in same if each._dispatcher.py_func.__code__.co_filename == code.co_filename]
    place = f"{function.__module__.rpartition('.')[2]}.{function.__name__} {same.index(kernel)}"
    taken = kernel._signatures[signature].args[0]
    return f"{place} of {getattr(taken, 'dtype', taken)}"


def all_names() -> list[str]:
    """Those of all specialisations of the kernels that were imported."""
    return [name_of(each, index) for each in _registry for index in range(len(each._signatures))]


def install() -> Guard:
    """Guard every call of a kernel in this process, whether through `Kernel` or by its compiled code."""
    guard = Guard()

    def guarded(kernel: Kernel) -> Callable[..., Any]:
        kernel.compile()
        call = kernel._call
        return lambda *arguments: guard(kernel, call, arguments)

    compiled: dict[int, Callable[..., Any]] = {}

    def call_of(kernel: Kernel) -> Callable[..., Any]:
        return compiled.setdefault(id(kernel), guarded(kernel)) if id(kernel) not in compiled else compiled[id(kernel)]

    Kernel.__call__ = lambda kernel, *arguments: call_of(kernel)(*arguments)  # type: ignore[method-assign]
    Kernel.compiled = call_of  # type: ignore[assignment, method-assign]
    return guard


if os.name != "posix":
    raise ImportError("protected memory needs mprotect")
