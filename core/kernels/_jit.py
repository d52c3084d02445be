"""The one decorator under every kernel, and the one place that names numba's options.

A kernel is a serial loop over 1-D C-contiguous arrays and scalars. It releases the GIL, never checks bounds, never uses
fast-math, and is compiled for a fixed list of signatures: by `compile_kernels` before the service is ready, or by its
first call. It refuses any other argument types instead of compiling for them in the middle of a request.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.core import config
from numba.core.registry import cpu_target
from numba.core.typing.templates import Signature

from core.kernels.machine_code_cache import cache_of

Function = TypeVar("Function", bound=Callable[..., Any])

# What numba compiles has numba's types; to the type checker it is opaque.
Number = Any
Array = Any

# An operation that numba does not have, written in LLVM's terms; those are opaque too.
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.extending.intrinsic

_HERE = Path(__file__).parent
_registry: list[Kernel] = []
_lock = threading.Lock()


def _use_cache_of_these_sources() -> None:
    """Give each state of the kernels' sources its own cache directory.

    numba notices a change in the file that defines a kernel, not in the files that it takes primitives from
    (spec/service.md 2.6). A stale rounding primitive would be a wrong bit, so the directory's name is a digest of all
    the sources. A directory that cannot be written disables the cache in numba; then nothing is set and each start
    compiles.
    """
    digest = hashlib.sha256()
    for source in sorted(_HERE.glob("*.py")):
        digest.update(source.read_bytes())
    root = Path(getattr(config, "CACHE_DIR", "") or _HERE / "__pycache__")
    directory = root / f"kernels-{digest.hexdigest()[:16]}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(directory, os.W_OK):
        config.CACHE_DIR = str(directory)  # type: ignore[attr-defined]


_use_cache_of_these_sources()


def target_features() -> frozenset[str]:
    """Return the names of the CPU features that kernels are compiled for, such as `avx2`: this CPU's, or those set."""
    *_, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(each[1:] for each in features.split(",") if each.startswith("+"))


def device(function: Function) -> Function:
    """Make `function` callable from kernels, into which LLVM inlines it, so that a constant argument is one there."""
    compiled: Any = numba.njit(nogil=True, error_model="numpy", forceinline=True)(function)
    return cast(Function, compiled)


def readable(dtype: types.Type) -> types.Array:
    """Return the type of an input: 1-D, C-contiguous, possibly read-only (as arrays over received bytes are)."""
    return types.Array(dtype, 1, "C", readonly=True)


def writable(dtype: types.Type) -> types.Array:
    """Return the type of an output: 1-D, C-contiguous."""
    return types.Array(dtype, 1, "C")


class Kernel:
    """A function with its fixed signatures. Calling it is calling the compiled code."""

    def __init__(self, function: Callable[..., Any], signatures: Sequence[Signature]) -> None:
        self._signatures = signatures
        dispatcher: Any = numba.njit(nogil=True, error_model="numpy", fastmath=False)(function)
        dispatcher._cache = cache_of(function)
        self._dispatcher = dispatcher
        self._call: Any = self._compile_and_call
        self._ready = False
        _registry.append(self)

    def compile(self) -> int:
        """Compile, or load from the cache, every signature. Return how many there are."""
        with _lock:
            if not self._ready:
                for signature in self._signatures:
                    self._dispatcher.compile(signature)
                self._dispatcher.disable_compile()
                self._call = self._dispatcher
                if len(self._signatures) == 1:
                    # Numba's choice between signatures takes as long as the arithmetic of a thousand elements.
                    (compiled,) = self._dispatcher.overloads.values()
                    self._call = compiled.entry_point
                self._ready = True
        return len(self._signatures)

    def compiled(self) -> Callable[..., Any]:
        """Return the compiled code itself, for plans of tensors so small that a call of `Kernel` would count."""
        self.compile()
        return cast(Callable[..., Any], self._call)

    def assembly(self) -> str:
        """Compile the first signature anew and return the machine code as text; code from the cache has none."""
        fresh: Any = numba.njit(nogil=True, error_model="numpy")(self._dispatcher.py_func)
        fresh.compile(self._signatures[0])
        (text,) = fresh.inspect_asm().values()
        return str(text)

    def _compile_and_call(self, *arguments: Any) -> Any:
        self.compile()
        return self._call(*arguments)

    def __call__(self, *arguments: Any) -> Any:
        """Run the kernel. One with a single signature takes arrays of its item sizes, whatever their elements are."""
        return self._call(*arguments)


def kernel(
    *argument_lists: Sequence[types.Type], returns: types.Type = types.void
) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel for each list of argument types."""
    return lambda function: Kernel(function, [returns(*arguments) for arguments in argument_lists])


def compile_kernels() -> int:
    """Compile, or load from the cache, all kernels that were imported. Return the number of specialisations."""
    return sum(each.compile() for each in _registry)
