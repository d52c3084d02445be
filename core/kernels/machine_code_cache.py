"""numba's cache of compiled functions, with nothing in it but what a start needs: 2 ms for a kernel, not 5.

numba keeps the LLVM code of a function beside its machine code, for other functions that want to inline it, and reads
it at each start. Nothing is inlined from a kernel, so only the names of its symbols are kept of that. numba also looks
for new extensions of itself before each function that it loads; here before the first.

numba knows a function that was made in another one by the pickle of what it captures, and that of a captured function
is another one in each process. Here a captured function counts as its name and what it captures itself; what its source
says is in the name of the cache's directory (`core.kernels._jit`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from llvmlite import binding
from numba import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache


class _MachineCode(CompileResultCacheImpl):
    """What of a compiled function is kept."""

    def reduce(self, compiled: Any) -> tuple[Any, ...]:
        """Return what is written to the cache."""
        (name, kind, (code, bitcode)), *rest = super().reduce(compiled)  # type: ignore[no-untyped-call]
        assert kind == "object"
        return (name, kind, (code, _symbols_alone(bitcode))), *rest


def cache_of(function: Callable[..., Any]) -> Any:
    """Return the cache of a kernel's function. numba takes it in the place of its own."""
    return _MachineCodeCache(function)  # type: ignore[no-untyped-call]


class _MachineCodeCache(FunctionCache):
    """The cache of one kernel."""

    _impl_class = _MachineCode
    _refreshed = False

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return signature, codegen.magic_tuple(), described(self._py_func)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return the compiled function of that signature, or None if there is none."""
        if _MachineCodeCache._refreshed:
            return self._load_overload(signature, target_context)  # type: ignore[no-untyped-call]
        _MachineCodeCache._refreshed = True
        return super().load_overload(signature, target_context)  # type: ignore[no-untyped-call]


def described(captured: Any) -> str:
    """Return what tells a function, or another value that a function captures, from those with other machine code.

    Raise TypeError for a value that has no such description.
    """
    if captured is None or isinstance(captured, bool | int | float | str):
        return repr(captured)
    if isinstance(captured, tuple):
        return f"({', '.join(map(described, captured))})"
    if isinstance(captured, type):
        return f"{captured.__module__}.{captured.__qualname__}"
    if isinstance(captured, types.Type):
        return str(captured)
    function = getattr(captured, "py_func", None) or getattr(captured, "_defn", None) or captured
    if not isinstance(function, FunctionType):
        raise TypeError(f"a kernel captures {captured!r}")
    captures = [described(cell.cell_contents) for cell in function.__closure__ or ()]
    place = f"{function.__module__}.{function.__qualname__}:{function.__code__.co_firstlineno}"
    return f"{place}({', '.join(captures)}){described(function.__defaults__ or ())}"


def _symbols_alone(bitcode: bytes) -> bytes:
    """Return a module that defines the symbols of another one, and nothing of what they stand for."""
    module = binding.parse_bitcode(bitcode)
    lines = [f'define void @"{each.name}"() {{ ret void }}' for each in module.functions if not each.is_declaration]
    lines += [f'@"{each.name}" = common global ptr null' for each in module.global_variables if not each.is_declaration]
    alone: bytes = binding.parse_assembly("\n".join(lines)).as_bitcode()
    return alone
