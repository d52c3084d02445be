"""Every scheme against the oracle: how multipliers are derived, and what is made of integers by them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from requant.convert.requantize import plan_requantize
from requant.errors import ParameterError, PreconditionError
from requant.mlir import parse_type
from requant.plan.plan import Plan
from requant.schemes import SCHEMES, Float, Multiplier
from tests.oracles import schemes as scheme_oracle
from tests.support.cases import EXHAUSTIVE, examples, sample
from tests.support.drawn_types import tensor
from tests.support.near_ties import INT32, near_ties

I8 = (-128, 127)
INT64 = (-(2**63), 2**63 - 1)
FACTORS = (0.5, 0.0123, 1 / 3, 0.75, 127.0 / 128, 2.0**-9, 0.9999999, 3e-5, 1.0, 1.5, 7.3, 100.0)


def plan(scheme: str, source: str, target: str, multipliers: list[tuple[int, int]], axis: int | None = None) -> Plan:
    given_multipliers = [Multiplier(*pair) for pair in multipliers]
    return plan_requantize(tensor(source), parse_type(target), multipliers=given_multipliers, scheme=scheme, axis=axis)


def run(planned: Plan, values: list[int]) -> list[int]:
    stored = np.empty(planned.elements, planned.output_dtype)
    planned.run(np.array(values, planned.input_dtype), stored)
    listed: list[int] = stored.tolist()
    return listed


def uniform(storage: str, zero_point: int) -> str:
    return f"!quant.uniform<{storage}:f32, 1.0:{zero_point}>"


def check(scheme: str, storage: str, target: str, values: list[int], m: int, shift: int, z_in: int, z_out: int) -> int:
    """Compare what is defined, and demand the index of the first value that is not. Return how many were compared."""
    lowest, highest = (parse_type(uniform(target, 0)).storage.default_bounds,)[0]  # type: ignore[union-attr]
    source = uniform(storage, z_in) if int(storage[1:]) <= 32 else storage
    expected = [
        scheme_oracle.requantized(scheme, q, z_in, m, shift, z_out, (lowest, highest), math.ldexp(m, -shift))
        for q in values
    ]
    kept = [(q, y) for q, y in zip(values, expected, strict=True) if y is not None]
    planned = plan(scheme, f"tensor<{len(kept)}x{source}>", uniform(target, z_out), [(m, shift)])
    assert run(planned, [q for q, _ in kept]) == [y for _, y in kept]
    if len(kept) < len(values):
        first = expected.index(None)
        planned = plan(scheme, f"tensor<{len(values)}x{source}>", uniform(target, z_out), [(m, shift)])
        with pytest.raises(PreconditionError) as caught:
            run(planned, values)
        assert caught.value.index == first
    return len(kept)


def derived(scheme: str) -> list[scheme_oracle.Derived]:
    pairs = [scheme_oracle.derive(scheme, factor) for factor in FACTORS]
    return [pair for pair in pairs if pair is not None]


doubles = st.one_of(
    st.floats(-4.0, 2.0**29),
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(lambda k, e: math.ldexp(2 * k + 1, e), st.integers(2**31, 2**32 - 1), st.integers(-70, 0)),
    st.builds(lambda k, e: math.ldexp(2 * k + 1, e), st.integers(2**15, 2**16 - 1), st.integers(-40, 0)),
    st.builds(lambda e, up: math.nextafter(2.0**e, up), st.integers(-40, 40), st.sampled_from((0.0, math.inf))),
    st.integers(-150, 40).map(lambda e: 2.0**e),
)


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=examples(150))
@given(factor=doubles)
@example(0.0)
@example(1 - 2.0**-32)
@example(2.0**-32)
@example(0.99 * 2.0**-32)
@example(5e-324)
@example(2.0**31 - 2.0**-22)
# At the bounds of what XNNPACK, TOSA and gemmlowp take, and one f32 within or beyond.
@example(256.0)
@example(256 - 2.0**-16)
@example(128.0)
@example(128 + 2.0**-16)
@example(2.0**-8)
@example(2.0**-8 - 2.0**-33)
@example(1.0)
@example(1 - 2.0**-24)
@example(2.0**13)
@example(2.0**14)
@example(2.0**29)
@example(2.0**30)
def test_derivation(scheme: str, factor: float) -> None:
    expected = scheme_oracle.derive(scheme, factor)
    try:
        multiplier = SCHEMES[scheme].derive(factor)
    except ParameterError:
        assert expected is None
        return
    assert expected is not None
    assert (multiplier.multiplier, multiplier.shift) == expected[:2]
    assert SCHEMES[scheme].represented(multiplier) == scheme_oracle.represented(scheme, expected)


scales = st.floats(2.0**-60, 2.0**60)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(scale_in=scales, other=st.one_of(st.none(), scales), scale_out=scales)
@example(5e-324, 1e308, 1e-300)
@example(1e30, 1e30, 1e-10)
def test_factor_of_scales(scheme: str, scale_in: float, other: float | None, scale_out: float) -> None:
    try:
        expected = scheme_oracle.factor(scheme, scale_in, other, scale_out)
    except (OverflowError, ZeroDivisionError, ValueError):
        # The oracle's fractions have no infinities and no division by zero.
        with pytest.raises(ParameterError):
            SCHEMES[scheme].derive(SCHEMES[scheme].factor.of(scale_in, other, scale_out))
        return
    assert SCHEMES[scheme].factor.of(scale_in, other, scale_out) == expected


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_int16(scheme: str) -> None:
    """All 2^16 inputs of i16 to i8 by one multiplier. tests/interop has them by a set of multipliers."""
    pair = derived(scheme)[1]
    values = sample(range(-(2**15), 2**15), 4000)
    compared = check(scheme, "i16", "i8", list(values), pair.multiplier, pair.shift, 0, -3)
    assert compared == (sum(-256 <= v < 256 for v in values) if scheme == "xnnpack_cvt8" else len(values))


WIDTHS = [
    ("i32", "i8"),
    ("i32", "u8"),
    ("i32", "i16"),
    ("i32", "i32"),
    ("i64", "i8"),
    ("i48", "i16"),
    ("i64", "u32"),
    ("u32", "u32"),
    ("u16", "u8"),
    ("i8", "u16"),
    ("u8", "i4"),
    ("u4", "u2"),
    ("i17", "i23"),
    ("i1", "u1"),
]


@pytest.mark.parametrize(("scheme", "storage", "target"), sample([(s, *w) for w in WIDTHS for s in SCHEMES], 75))
def test_every_width(scheme: str, storage: str, target: str) -> None:
    rng = np.random.default_rng(7)
    width = int(storage[1:])
    bounds = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if storage[0] == "i" else (0, 2**width - 1)
    z_in = 0 if width > 32 else max(bounds[0], min(bounds[1], 3))
    z_out = 1 if target != "i1" else 0
    for pair in derived(scheme):
        ties = near_ties(rng, pair.multiplier, pair.right, 60, bounds)
        values = [min(max(v + z_in, bounds[0]), bounds[1]) for v in ties]
        check(scheme, storage, target, values, pair.multiplier, pair.shift, z_in, z_out)


@st.composite
def multiplications(draw: st.DrawFn, scheme: str) -> tuple[int, int, int, list[int]]:
    """A multiplier and shift of the whole domain, values at and near its ties and at its bounds, and zero points."""
    rule = SCHEMES[scheme]
    low, high = rule.multipliers
    m = draw(st.one_of(st.integers(low, high), st.integers(max(low, high // 2), high), st.just(low), st.just(high)))
    shift = draw(st.integers(*rule.shifts))
    try:
        rule.check(Multiplier(m, shift))
    except ParameterError:
        m = 0
    right = rule.right_shift(shift)
    bounds = draw(st.sampled_from((INT32, (-(2**47), 2**47 - 1), INT64)))
    ties = st.builds(
        lambda k, d: ((2 * k + 1) << max(right - 1, 0)) // (m or 1) + d,
        st.integers(-(2**16), 2**16),
        st.integers(-1, 1),
    )
    anywhere = st.one_of(
        ties, st.integers(*INT32), st.sampled_from((*bounds, -(2**31) - 1, 2**31, 2**47, -(2**47) - 1))
    )
    values = [v for v in draw(st.lists(anywhere, min_size=1, max_size=20)) if bounds[0] <= v <= bounds[1]]
    z_out = draw(st.sampled_from((0, 3, -128, 2**31 - 1, -(2**31))))
    return m, shift, z_out, values


@pytest.mark.sample(4)
@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=examples(50))
@given(data=st.data())
def test_ties_and_bounds(scheme: str, data: st.DataObject) -> None:
    m, shift, z_out, values = data.draw(multiplications(scheme))
    check(scheme, "i64", "i32" if abs(z_out) > 128 else "i8", values, m, shift, 0, z_out)
    narrow = [v for v in values if INT32[0] <= v <= INT32[1]]
    check(scheme, "i32", "i32" if abs(z_out) > 128 else "i16", narrow, m, shift, 0, z_out)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("shape", "axis"), [((3, 7), 1), ((7, 3), 0), ((2, 5, 40), 1)])
def test_multipliers_along_an_axis(scheme: str, shape: tuple[int, ...], axis: int) -> None:
    """Plain integers, one multiplier for each index of a dimension that no type names."""
    rng = np.random.default_rng(8)
    pairs = [derived(scheme)[index % 3] for index in range(shape[axis])]
    channel = np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape
    ).ravel()
    values = [near_ties(rng, pairs[c].multiplier, pairs[c].right, 1, (-127, 127))[0] for c in channel.tolist()]
    listed = [(pair.multiplier, pair.shift) for pair in pairs]
    planned = plan(scheme, f"tensor<{'x'.join(map(str, shape))}xi64>", uniform("i8", 3), listed, axis)
    assert run(planned, values) == [
        scheme_oracle.requantized(scheme, q, 0, pairs[c].multiplier, pairs[c].shift, 3, I8)
        for q, c in zip(values, channel.tolist(), strict=True)
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_per_channel_accumulators_from_scales(scheme: str) -> None:
    """What tests/interop runs with 16 million accumulators: scales along an axis, at and near ties."""
    rng = np.random.default_rng(9)
    scales_in = [float(np.float32(s)) for s in rng.uniform(0.004, 0.9, 50)]
    listed = ", ".join(f"{s:.17e}" for s in scales_in)
    rows = 60 if EXHAUSTIVE else 20
    planned = plan_requantize(
        tensor(f"tensor<{rows}x50x!quant.uniform<i32:f32:1, {{{listed}}}>>"),
        parse_type(uniform("i8", -3)),
        scheme=scheme,
    )
    pairs = [scheme_oracle.derive(scheme, scheme_oracle.factor(scheme, s, None, 1.0)) for s in scales_in]
    bounds = (-255, 255) if scheme == "xnnpack_cvt8" else (-(2**20), 2**20)
    columns = [near_ties(rng, p.multiplier, p.right, rows, bounds) for p in pairs if p is not None]
    values = np.array(columns).T.ravel().tolist()
    stored = run(planned, values)
    for index, (q, found) in enumerate(zip(values, stored, strict=True)):
        pair = pairs[index % 50]
        assert pair is not None
        exact = scheme_oracle.factor(scheme, scales_in[index % 50], None, 1.0)
        expected = scheme_oracle.requantized(scheme, q, 0, pair.multiplier, pair.shift, -3, I8, exact)
        assert found == expected, (q, pair)


def is_float(value: Fraction, bits: int, smallest: int, largest: int) -> bool:
    """Whether a number is a float of `bits`, a multiple of 2^smallest and below 2^largest."""
    units = value / Fraction(2) ** smallest
    if units.denominator != 1 or abs(value) >= Fraction(2) ** largest:
        return False
    magnitude = abs(units.numerator)
    return magnitude == 0 or (magnitude // (magnitude & -magnitude)).bit_length() <= bits


_FORMATS: dict[type, tuple[int, int, int]] = {np.float32: (24, -149, 128), np.float64: (53, -1074, 1024)}
_OF_FLOATS = [name for name, scheme in SCHEMES.items() if isinstance(scheme.stage, Float) and scheme.stage.precision]


@pytest.mark.parametrize("scheme", _OF_FLOATS)
@given(data=st.data())
def test_a_multiplier_that_is_no_float_is_refused(scheme: str, data: st.DataObject) -> None:
    found = SCHEMES[scheme]
    assert isinstance(found.stage, Float)
    assert found.stage.precision is not None
    multiplier = data.draw(st.integers(*found.multipliers) | st.sampled_from([*found.multipliers, 0, 1, 3]))
    shift = data.draw(st.integers(*found.shifts) | st.sampled_from(found.shifts))
    taken = is_float(found.represented(Multiplier(multiplier, shift)), *_FORMATS[found.stage.precision])
    try:
        found.check(Multiplier(multiplier, shift))
    except ParameterError:
        assert not taken
    else:
        assert taken


def test_fractions_are_as_exact_as_they_say() -> None:
    """The oracle's own rounding, against fractions."""
    for value in (0, 1, -1, 3, 5, 2**24 + 1, 2**24 + 3, -(2**25) - 2, 2**53 + 1, 123456789123456789):
        for shift in (0, 1, 2, 7, 30):
            exact = Fraction(value, 2**shift)
            assert scheme_oracle.even(value, shift) == round(exact)
            assert scheme_oracle.up(value, shift) == math.floor(exact + Fraction(1, 2))
        assert scheme_oracle.rounded(value, 24) == int(np.float32(value))
        assert scheme_oracle.rounded(value, 53) == int(np.float64(value))
