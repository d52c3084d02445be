"""Profiles `gfloat` and `ofp8` against gfloat: every format, every rounding, saturating or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.formats.elements import FLOATS, Specials
from requant.profiles import PROFILES, Rounding
from tests.interop.casts.cast_data import is_nan, narrowed, real_data
from tests.interop.comparison import Array, Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.support.cases import EXHAUSTIVE

pytestmark = pytest.mark.interop

gfloat: Any = pytest.importorskip("gfloat")

MODES = {
    Rounding.NEAREST_EVEN: gfloat.RoundMode.TiesToEven,
    Rounding.NEAREST_AWAY: gfloat.RoundMode.TiesToAway,
    Rounding.TOWARD_ZERO: gfloat.RoundMode.TowardZero,
    Rounding.FLOOR: gfloat.RoundMode.TowardNegative,
    Rounding.CEILING: gfloat.RoundMode.TowardPositive,
    Rounding.STOCHASTIC: gfloat.RoundMode.StochasticFastest,
}
FINITE = [name for name, each in FLOATS.items() if each.specials is Specials.FINITE]
TARGETS = [name for name in PROFILES["gfloat"].cast_rule().formats if EXHAUSTIVE or name != "f32"]
SEED = 77


def format_info(name: str) -> Any:
    """A format in gfloat's terms."""
    element = FLOATS[name]
    high_nans = {Specials.IEEE: (1 << element.mantissa_bits) - 1, Specials.FN: 1}
    return gfloat.FormatInfo(
        name,
        k=element.width,
        precision=element.precision,
        bias=element.bias,
        is_signed=True,
        domain=gfloat.Domain.Extended if element.specials is Specials.IEEE else gfloat.Domain.Finite,
        has_nz=element.specials is not Specials.FNUZ,
        num_high_nans=high_nans.get(element.specials, 0),
        has_subnormals=True,
        is_twos_complement=False,
    )


def drawn(size: int, bits: int) -> Array:
    """The highest bits of SplitMix64's first outputs."""
    with np.errstate(over="ignore"):
        z = np.uint64(SEED) + np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(64 - bits)).astype(np.int64)


def by_gfloat(real: Array, target: str, rounding: Rounding, saturate: bool, bits: int) -> Array:
    """The codes of f64. Stochastic rounding of f64 near a tie would round its own sum: those come from f32."""
    info = format_info(target)
    random: dict[str, Any] = {}
    if rounding is Rounding.STOCHASTIC:
        random = {"srbits": drawn(real.size, bits), "srnumbits": bits}
    with np.errstate(all="ignore"):
        rounded = gfloat.round_ndarray(info, real, MODES[rounding], saturate, **random)
        codes = gfloat.encode_ndarray(info, rounded)
    return np.asarray(codes).astype(FLOATS[target].code_dtype)


def as_f64(data: Array, source: str) -> Array:
    with np.errstate(invalid="ignore"):
        wide = (data.astype(np.uint32) << 16).view(np.float32) if source == "bf16" else data
        return wide.astype(np.float64)


@pytest.mark.parametrize("rounding", MODES)
@pytest.mark.parametrize("target", TARGETS)
def test_narrow(target: str, rounding: Rounding) -> None:
    name = "gfloat"
    saturations = (True,) if target in FINITE else (False, True)
    comparison = Comparison(f"gfloat {target} {rounding}", systems.GFLOAT, profile(name, "cast"))
    for source in ("f16", "bf16", "f32", "f64"):
        if source == target or (target == "f32" and source != "f64"):
            continue
        if rounding is Rounding.STOCHASTIC and source == "f64" and target != "f32":
            continue
        for data in real_data(source, "f16" if target == "f32" else target):
            if target in FINITE:
                data = data[~is_nan(as_f64(data, source))]
            for saturate in saturations:
                ours = narrowed_by(name, data, source, target, rounding, None if target in FINITE else saturate)
                theirs = by_gfloat(as_f64(data, source), target, rounding, saturate, 8)
                comparison.add((source, saturate), data, ours, theirs)
    comparison.finish(1_000_000 if EXHAUSTIVE else 100_000)


@pytest.mark.parametrize("rounding", MODES)
@pytest.mark.parametrize("target", ["f8E4M3FN", "f8E5M2"])
def test_ofp8(target: str, rounding: Rounding) -> None:
    """The document leaves the sign and the code of NaN open."""
    comparison = Comparison(f"OFP8 {target} {rounding}", systems.GFLOAT, profile("ofp8", "cast"))
    for source in ("f16", "bf16", "f32"):
        for data in real_data(source, target):
            for saturate in (False, True):
                ours = narrowed_by("ofp8", data, source, target, rounding, saturate)
                theirs = by_gfloat(as_f64(data, source), target, rounding, saturate, 8)
                largest = FLOATS[target].largest_code + (FLOATS[target].infinity_code is not None)
                nan = ((ours & 0x7F) > largest) & ((theirs & 0x7F) > largest)
                comparison.add((source, saturate), data, ours, theirs, {"nan_bits": nan})
    comparison.finish(1_000_000 if EXHAUSTIVE else 100_000)


def narrowed_by(name: str, data: Array, source: str, target: str, rounding: Rounding, saturate: bool | None) -> Array:
    """Our answer, with the random bits that gfloat gets."""
    random = {"seed": SEED, "random_bits": 8} if rounding is Rounding.STOCHASTIC else {}
    return narrowed(data, source, target, name, saturate=saturate, rounding=rounding, **random)
