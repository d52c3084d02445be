"""Known answers, computed anew on this machine at each start.

A profile's bits never change, but the machine code that makes them does: with the CPU, with numba, with a cache that
was made elsewhere. So each start runs every kernel, through the same plans as requests and by the rules of every
system, and compares a digest of all output bytes with the one stated here. The test of this module derives every digest
from the exact oracle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from requant.errors import SelfTestError
from requant.kernels.jit.cache_directory import CacheDirectoryError
from requant.kernels.jit.compilation import Compilation
from requant.kernels.jit.jit import NotCompiledError, at_low_priority, without_waiting
from requant.kernels.jit.warmup import load_kernels, recompile_kernels, start_compilation
from requant.self_test.known_calls import KNOWN_CALLS
from requant.self_test.known_conversions import KNOWN_ANSWERS
from requant.self_test.known_gguf import KNOWN_GGUF
from requant.self_test.known_sums import KNOWN_SUMS
from requant.self_test.known_weights import KNOWN_SCALES, KNOWN_WEIGHT_LAYOUTS, KNOWN_WEIGHTS

__all__ = ["CacheDirectoryError", "Compilation", "load_kernels", "loading_kernels", "prepare_kernels", "run_self_test"]

_log = logging.getLogger(__name__)


class _Check(NamedTuple):
    name: str
    actual: Callable[[], str]
    expected: str

    def run(self) -> None:
        """Raise SelfTestError if the answer is wrong, NotCompiledError as `without_waiting` says."""
        try:
            actual = self.actual()
        except NotCompiledError:
            raise
        except Exception as error:
            # Wrong numbers of a kernel can be refused, as input would be, by what comes after it.
            raise SelfTestError(f"{self.name} failed: {error}") from error
        if actual != self.expected:
            raise SelfTestError(f"{self.name} gave {actual}; expected {self.expected}")


def _checks() -> Iterator[_Check]:
    """Yield the known answers, conversions first, because their kernels are compiled first."""
    for known in KNOWN_ANSWERS:
        name = f"{known.operation} of {known.input_element} to {known.output_element} under {known.profile}"
        yield _Check(name, known.actual, known.digest)
    for each in KNOWN_SUMS:
        kind = "products" if each.weights is None else f"convolution with {each.weights} weights"
        yield _Check(f"{kind} of {each.lhs} by {each.rhs} in {each.accumulator}", each.actual, each.digest)
    for call in (*KNOWN_CALLS, *KNOWN_WEIGHTS, *KNOWN_WEIGHT_LAYOUTS, *KNOWN_SCALES, *KNOWN_GGUF):
        yield _Check(call.name, call.actual, call.digest)


def run_self_test() -> None:
    """Repeat every known answer. Raise SelfTestError naming the first that is wrong or that fails."""
    for check in _checks():
        check.run()


def prepare_kernels(
    workers: int, begin: Callable[[Compilation], None], answering: Callable[[bool], None] = lambda _: None
) -> int:
    """Load or compile every kernel, and check the known answers. Return the number of kernels.

    `begin` is called with the compilation. If kernels have to be compiled, `answering` is called with True once the
    known answers of those from the cache have been checked: requests may use kernels from then on. Each of the rest is
    checked as soon as its kernels are compiled.

    If an answer is wrong and any machine code was cached before this start, call `answering` with False and recompile
    all kernels, once. Raise SelfTestError if that does not help, CacheDirectoryError for a directory of kernels that
    others could have written to.
    """
    compilation = start_compilation(workers)
    begin(compilation)
    try:
        if not compilation.complete:
            unchecked = list(_run_what_is_compiled())
            answering(True)
            # Requests go first.
            with at_low_priority():
                for check in unchecked:
                    check.run()
        else:
            run_self_test()
        return compilation.finish()
    except SelfTestError as error:
        if not compilation.used_cache:
            raise
        answering(False)
        _log.warning("Cached machine code failed the self-test: %s. Recompiling all kernels.", error)
        compilation.finish()
        count = recompile_kernels()
        run_self_test()
        return count


def loading_kernels() -> Iterator[int]:
    """Load every kernel from the cache and check the known answers, in steps. Yield 0 after each; in the end, how many.

    The last is 0 if some are not in the cache. Raise SelfTestError if an answer is wrong.
    """
    compilation = load_kernels()
    for _ in compilation.load():
        yield 0
    if compilation.complete:
        for check in _checks():
            check.run()
            yield 0
        yield compilation.finish()


def _run_what_is_compiled() -> Iterator[_Check]:
    """Run the checks whose kernels are compiled. Yield the others."""
    with without_waiting():
        for check in _checks():
            try:
                check.run()
            except NotCompiledError:
                yield check
