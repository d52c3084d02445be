"""The schemes of vnclip against the instruction in QEMU, in its four rounding modes, at all shifts."""

from __future__ import annotations

import numpy as np
import pytest

from requant.convert.requantize import plan_requantize
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.schemes import Multiplier
from tests.interop.comparison import Array, Comparison
from tests.interop.conformance import subject, systems
from tests.interop.riscv.machine import VXRM, narrowed, needs_machine, vnclip
from tests.interop.seed_of_the_day import generator
from tests.support.cases import EXHAUSTIVE, sample
from tests.support.near_ties import near_ties

pytestmark = [pytest.mark.interop, needs_machine]

MODES = {"vnclip_rnu": 0, "vnclip_rne": 1, "vnclip_rdn": 2, "vnclip_rod": 3}
COUNT = 6001 if EXHAUSTIVE else 401
LARGEST = {16: 15, 32: 31, 64: 62}
"""The shifts of vnclip from so many bits, as far as the scheme goes."""


def products(rng: np.random.Generator, width: int, shift: int, *, signed: bool) -> Array:
    """Integers at and beside ties, at the bounds of int32, or 62 bits, and anywhere; without a sign not below zero."""
    bits = min(width - 1, 61)
    bounds = (-(1 << bits) if signed else 0, (1 << bits) - 1)
    ties = near_ties(rng, 1, shift, COUNT // 2, bounds)
    spread = rng.integers(bounds[0], bounds[1], COUNT // 2, endpoint=True) >> rng.integers(0, bits, COUNT // 2)
    ends = [bounds[0], bounds[0] + 1, bounds[1] - 1, bounds[1]]
    return np.concatenate([ties, spread, ends]).astype(f"<i{width // 8}")


@pytest.mark.parametrize("scheme", MODES)
@pytest.mark.parametrize("width", LARGEST)
def test_vnclip(scheme: str, width: int) -> None:
    """From 16, 32 and 64 bits to half of them, signed and not."""
    comparison = Comparison(f"{scheme} i{width}", systems.QEMU, subject.scheme(scheme))
    shifts = sample(range(LARGEST[width] + 1), 4)
    for signed in (True, False):
        for shift in shifts:
            values = products(generator(width, shift, signed), width, shift, signed=signed)
            theirs = narrowed(values, vnclip(signed=signed), (VXRM, MODES[scheme]), shift)
            comparison.add((signed, shift), values, ours(scheme, values, shift, signed=signed), theirs)
    comparison.finish(2 * len(shifts) * (COUNT - 1))


def ours(scheme: str, values: Array, shift: int, *, signed: bool) -> Array:
    """Our answer, by the multiplier 1."""
    source = parse_type(f"tensor<{values.size}xi{values.itemsize * 8}>")
    assert isinstance(source, TensorType)
    target = parse_type(f"{'i' if signed else 'ui'}{values.itemsize * 4}")
    plan = plan_requantize(source, target, scheme=scheme, multipliers=[Multiplier(1, shift)])
    found = np.empty(values.size, plan.output_dtype)
    plan.run(values, found)
    return found.view(f"<u{found.itemsize}")
