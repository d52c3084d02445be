"""What the cache of machine code uses of numba beyond its public interface (docs/architecture.md).

When one of these fails after an update, read numba's changes in `numba.core.caching` and `numba.core.compiler` before
anything here is adapted: stale or foreign machine code is a wrong bit.
"""

from __future__ import annotations

import inspect
from typing import Any

import numba
import numpy as np
from llvmlite import binding
from numba.core import config
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from requant.kernels.jit.machine_code_cache import _OPTIONS, MachineCodeCache


def test_a_cache_is_asked_for_these_methods_alone() -> None:
    assert _Cache.__abstractmethods__ == {"cache_path", "load_overload", "save_overload", "enable", "disable", "flush"}
    assert not MachineCodeCache.__abstractmethods__
    assert list(inspect.signature(_Cache.load_overload).parameters) == ["self", "sig", "target_context"]
    assert list(inspect.signature(_Cache.save_overload).parameters) == ["self", "sig", "data"]


class Remembering(_Cache):
    """Has nothing, and keeps what it is given."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.given: list[Any] = []

    cache_path = ""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        self.asked.append((sig, target_context))

    def save_overload(self, sig: Any, data: Any) -> None:
        self.given.append((sig, data))

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def flush(self) -> None: ...


def test_a_dispatcher_asks_the_cache_that_it_was_given_and_a_result_can_be_rebuilt() -> None:
    def twice(x: Any) -> Any:
        return x + x

    dispatcher: Any = numba.njit(nogil=True)(twice)
    cache = Remembering()
    dispatcher._cache = cache
    dispatcher.compile((numba.int64,))
    ((asked, context),) = cache.asked
    ((saved, given),) = cache.given
    assert asked == saved
    assert context is cpu_target.target_context
    assert type(given) is CompileResult
    result: Any = given
    assert not result.library.has_dynamic_globals
    assert result.codegen.magic_tuple() == context.codegen().magic_tuple()
    # The library comes first: its name, and the object code beside the LLVM code, which is not kept.
    reduced = result._reduce()
    (name, kind, (code, bitcode)), *_ = reduced
    assert (type(name), kind, type(code), type(bitcode)) == (str, "object", bytes, bytes)
    assert any(each.name for each in binding.parse_bitcode(bitcode).functions)
    assert isinstance(dumps(reduced[1:]), bytes)  # type: ignore[no-untyped-call]
    assert "target_context" in inspect.signature(CompileResult._rebuild).parameters
    assert list(inspect.signature(rtsys.initialize).parameters) == ["ctx"]
    assert dispatcher(np.int64(21)) == 42


def test_every_option_that_changes_machine_code_is_one_of_numba() -> None:
    missing = [option for option in _OPTIONS if not hasattr(config, option)]
    # What is not set in the environment is absent.
    assert set(missing) <= {"CPU_FEATURES", "USING_SVML"}


def test_the_features_of_the_target_are_its_last_part() -> None:
    triple, name, features = cpu_target.target_context.codegen().magic_tuple()
    assert triple == binding.get_process_triple()
    assert isinstance(name, str)
    assert all(each[:1] in "+-" for each in features.split(",") if each)
