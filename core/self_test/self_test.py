"""Known answers, computed anew on this machine before any work is taken.

A profile's bits never change, but the machine code that makes them does: with the CPU, with numba, with a cache that
was made elsewhere. So each start runs every kernel, through the same plans as requests and by the rules of every
system, and compares a digest of all output bytes with the one stated here. The test of this module derives every digest
from the exact oracle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from core.errors import SelfTestError
from core.kernels.jit.warmup import came_from_cache, compile_kernels, recompile_kernels
from core.self_test.known_calls import KNOWN_CALLS
from core.self_test.known_conversions import KNOWN_ANSWERS
from core.self_test.known_sums import KNOWN_SUMS

_log = logging.getLogger(__name__)


def _check(name: str, run: Callable[[], str], expected: str) -> None:
    try:
        found = run()
    except Exception as error:
        # Wrong numbers of a kernel can be refused, as input would be, by what comes after it.
        raise SelfTestError(f"{name} failed: {error}") from error
    if found != expected:
        raise SelfTestError(f"{name} gave {found}; expected {expected}")


def run_self_test() -> None:
    """Repeat every known answer. Raise SelfTestError naming the first that is wrong or that fails."""
    for call in KNOWN_CALLS:
        _check(call.name, call.found, call.digest)
    for each in KNOWN_SUMS:
        kind = "products" if each.weights is None else f"convolution with {each.weights} weights"
        _check(f"{kind} of {each.lhs} by {each.rhs} in {each.accumulator}", each.found, each.digest)
    for known in KNOWN_ANSWERS:
        name = f"{known.operation} of {known.input_element} to {known.output_element} under {known.profile}"
        _check(name, known.found, known.digest)


def prepare_kernels() -> int:
    """Compile or load every kernel, and see that they give the known answers. Return the number of specialisations.

    If they do not, and machine code of the cache was among them, compile all of it anew, once. Raise SelfTestError if
    that does not help.
    """
    count = compile_kernels()
    try:
        run_self_test()
    except SelfTestError as error:
        if not came_from_cache():
            raise
        _log.warning("Cached machine code failed the self-test: %s. Recompiling all kernels.", error)
        recompile_kernels()
        run_self_test()
    return count
