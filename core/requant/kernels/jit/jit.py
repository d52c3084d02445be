"""The one decorator under every kernel, and the one place that names numba's options.

A kernel is a serial loop over 1-D C-contiguous arrays and scalars. It releases the GIL, never checks bounds, never uses
fast-math, and is compiled for a fixed list of signatures: by its first call, unless `requant.kernels.jit.compilation`
has done so before or does so in other processes. It refuses any other argument types instead of compiling for them in
the middle of a request.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar, cast

import numba
from numba.core.registry import cpu_target
from numba.core.typing.templates import Signature

from requant.kernels.jit import baked
from requant.kernels.jit.cross_compilation import cross_compile_for
from requant.kernels.jit.machine_code_cache import MachineCodeCache, described
from requant.kernels.jit.signature import Binding, signature_of
from requant.kernels.jit.target import CROSS_COMPILES, TARGET_MACHINE

if CROSS_COMPILES:
    cross_compile_for(TARGET_MACHINE)
baked.use_packaged()

Function = TypeVar("Function", bound=Callable[..., Any])

# What numba compiles has numba's types; to the type checker it is opaque.
Number = Any
Array = Any

# An operation that numba does not have, written in LLVM's terms; those are opaque too.
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.extending.intrinsic

_registry: list[Kernel] = []
_lock = threading.Lock()

_compiles_elsewhere: Callable[[Kernel, bool], None] | None = None
_this_thread = threading.local()


class NotCompiledError(Exception):
    """A kernel was called inside `without_waiting` before it was compiled."""


@contextmanager
def without_waiting() -> Iterator[None]:
    """In this thread, let calls of kernels that are not compiled raise NotCompiledError."""
    _this_thread.waits = False
    try:
        yield
    finally:
        _this_thread.waits = True


@contextmanager
def at_low_priority() -> Iterator[None]:
    """In this thread, let calls of kernels that are not compiled wait for a compiler of low priority."""
    _this_thread.urgent = False
    try:
        yield
    finally:
        _this_thread.urgent = True


def compile_elsewhere(wait_for: Callable[[Kernel, bool], None] | None) -> None:
    """Let `wait_for` compile a kernel that is called before it is ready; its second argument is whether that is urgent.

    None: the call compiles it in place.
    """
    global _compiles_elsewhere
    _compiles_elsewhere = wait_for


def target_features() -> frozenset[str]:
    """Return the names of the CPU features that kernels may use, such as `avx2`: those of the baked level that is read,
    else this CPU's, or those that are set for numba."""
    if baked.in_use is not None:
        features = baked.in_use.features
    else:
        *_, features = cpu_target.target_context.codegen().magic_tuple()
    return frozenset(each[1:] for each in features.split(",") if each.startswith("+"))


def device(function: Function) -> Function:
    """Make `function` callable from kernels, into which LLVM inlines it, so that a constant argument is one there.

    Python cannot call it: the wrappers for that would be a fifth of what a kernel takes to compile.
    """
    compiled: Any = numba.njit(  # type: ignore[call-overload]  # numba's stubs leave out the last two
        nogil=True, error_model="numpy", forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(function)
    return cast(Function, compiled)


def inlined(function: Function) -> Function:
    """Make `function` a part of the kernels that call it before they are compiled, so that it is not itself compiled.

    For what is large and called from one place. A function that takes constants is a `device`.
    """
    compiled: Any = numba.njit(nogil=True, error_model="numpy", inline="always")(function)
    return cast(Function, compiled)


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector: the compiler keeps nearly all that it allocates until it is done, and
    traversing that again and again would take a sixth of its time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Kernel:
    """A function with its fixed signatures. Calling it is calling the compiled code."""

    def __init__(self, function: Callable[..., Any], bindings: Sequence[Binding]) -> None:
        self._function = function
        self._bindings = bindings
        self._call: Any = self._compile_and_call
        self._ready = False
        _registry.append(self)

    # Most processes import many kernels and call a few: what numba wants is made for those.
    @cached_property
    def _signatures(self) -> Sequence[Signature]:
        return [signature_of(self._function, each) for each in self._bindings]

    @cached_property
    def _dispatcher(self) -> Any:
        dispatcher: Any = numba.njit(  # type: ignore[call-overload]  # as above
            nogil=True, error_model="numpy", fastmath=False, no_cfunc_wrapper=True
        )(self._function)
        dispatcher._cache = MachineCodeCache(self._function)
        return dispatcher

    @property
    def name(self) -> str:
        """The function's module and name. Kernels of one template share it."""
        return f"{self._function.__module__}.{self._function.__qualname__}"

    @property
    def description(self) -> str:
        """What tells this kernel from every other one, in every process."""
        return f"{described(self._function)} {self._signatures}"

    @property
    def ready(self) -> bool:
        """Whether every signature is compiled."""
        return self._ready

    def is_cached(self) -> bool:
        """Whether the cache has a file for every signature."""
        cache, target = self._dispatcher._cache, self._dispatcher.targetctx
        return all(cache.has(signature, target) for signature in self._signatures)

    @property
    def specialisations(self) -> int:
        """How many signatures there are, each of which has machine code of its own."""
        return len(self._signatures)

    def compile(self) -> None:
        """Compile, or load from the cache, every signature."""
        with _lock, _garbage_collection_paused():
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

    def compiled(self) -> Callable[..., Any]:
        """Return the compiled code itself, for plans of tensors so small that a call of `Kernel` would count."""
        self._make_ready()
        return cast(Callable[..., Any], self._call)

    def assembly(self) -> str:
        """Compile the first signature anew and return the machine code as text; code from the cache has none."""
        fresh: Any = numba.njit(nogil=True, error_model="numpy")(self._function)
        fresh.compile(self._signatures[0])
        (text,) = fresh.inspect_asm().values()
        return str(text)

    def recompile(self) -> None:
        """Compile every signature anew, whatever there was before."""
        with _lock:
            self.__dict__.pop("_dispatcher", None)
            self._call, self._ready = self._compile_and_call, False
        self.compile()

    def _make_ready(self) -> None:
        if self._ready:
            return
        if not getattr(_this_thread, "waits", True):
            raise NotCompiledError(self.name)
        if _compiles_elsewhere is None:
            self.compile()
        else:
            _compiles_elsewhere(self, getattr(_this_thread, "urgent", True))

    def _compile_and_call(self, *arguments: Any) -> Any:
        self._make_ready()
        return self._call(*arguments)

    def __call__(self, *arguments: Any) -> Any:
        """Run the kernel. One with a single signature takes arrays of its item sizes, whatever their elements are."""
        return self._call(*arguments)


def kernel(*bindings: Binding) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare a kernel for the types that its annotations state (`requant.kernels.jit.signature`).

    With type variables among them, it is compiled once for each binding.
    """
    return lambda function: Kernel(function, bindings or ({},))


def all_kernels() -> Sequence[Kernel]:
    """Return every kernel of the modules that were imported, in the order in which they were: not always the same."""
    return _registry


def recompile_kernels() -> int:
    """Compile all kernels anew, and replace what the cache has. Return how many there are."""
    MachineCodeCache.reads = False
    for each in _registry:
        each.recompile()
    return len(_registry)
