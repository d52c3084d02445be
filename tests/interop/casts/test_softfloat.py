"""Profile `softfloat` against Berkeley SoftFloat, called in the wheel of softfloatpy, in its five IEEE roundings."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from requant.profiles import Rounding
from tests.interop.casts.cast_data import narrowed, real_data
from tests.interop.comparison import Array, Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.support.cases import EXHAUSTIVE

pytestmark = pytest.mark.interop

core = pytest.importorskip("softfloatpy._core")

MODES = {
    Rounding.NEAREST_EVEN: 0,
    Rounding.TOWARD_ZERO: 1,
    Rounding.FLOOR: 2,
    Rounding.CEILING: 3,
    Rounding.NEAREST_AWAY: 4,
}
"""softfloat_round_near_even, minMag, min, max and near_maxMag of softfloat.h."""
BITS: dict[str, Any] = {
    "f16": ctypes.c_uint16,
    "bf16": ctypes.c_uint16,
    "f32": ctypes.c_uint32,
    "f64": ctypes.c_uint64,
}
STEP = 1 if EXHAUSTIVE else 23
"""A call for each number: all of them take minutes."""


def converted(data: Array, source: str, target: str, rounding: Rounding) -> Array:
    """What SoftFloat makes of floats: their bits. Its types are structures of one integer, and passed like it."""
    library = ctypes.CDLL(core.__file__)
    ctypes.c_uint8.in_dll(library, "softfloat_roundingMode").value = MODES[rounding]
    function = getattr(library, f"{source}_to_{target}")
    function.argtypes, function.restype = [BITS[source]], BITS[target]
    patterns = data.view(f"<u{data.itemsize}").tolist()
    return np.fromiter(map(function, patterns), f"<u{ctypes.sizeof(BITS[target])}", data.size)


@pytest.mark.parametrize("rounding", MODES)
@pytest.mark.parametrize(("source", "target"), [("f64", "f32"), ("f64", "f16"), ("f32", "f16"), ("f32", "bf16")])
def test_narrow(source: str, target: str, rounding: Rounding) -> None:
    # What is compiled for RISC-V is that for Spike.
    subjects = profile("softfloat", "cast"), profile("riscv", "cast")
    comparison = Comparison(f"SoftFloat {source} to {target} {rounding}", systems.SOFTFLOAT, *subjects)
    for data in real_data(source, "f16" if target == "f32" else target):
        some = data if data.size < 100 else np.ascontiguousarray(data[::STEP])
        theirs = converted(some, source, target, rounding)
        for name in ("softfloat", "riscv"):
            assert np.array_equal(narrowed(some, source, target, name, rounding=rounding), theirs), name
        comparison.add(target, some, theirs, theirs)
    comparison.finish(1_000_000 // STEP)
