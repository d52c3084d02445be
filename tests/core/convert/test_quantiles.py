"""Quantize and dequantize with a table as storage: all patterns of 16 bits, all thresholds, all codes, odd tables."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import NanPolicy, plan_quantize
from requant.errors import PreconditionError, TensorDataError, UnsupportedError
from requant.mlir import parse_type
from requant.plan.plan import Plan
from requant.profiles import PROFILES, Operation, Rounding
from tests.oracles import quantiles as quantile_oracle
from tests.oracles.quantiles import Table, nf4
from tests.oracles.quantization import Stored
from tests.support.cases import sample
from tests.support.drawn_types import tensor
from tests.support.float_samples import SPECIAL, neighbours, patterns, sixteen_bits

Array = NDArray[Any]
EXPRESSED = ("f16", "bf16", "f32", "f64")
# name: the table, the type of its codes, the numpy type that they are kept in
TABLES: dict[str, tuple[Table, str, str]] = {
    "nf4": (Table(tuple(nf4())), "i4", "|u1"),
    "in f8": (Table(tuple(nf4()), "f8E4M3FN"), "ui4", "|u1"),
    "signed codes": (Table(tuple(nf4()), "f16", -8), "si4", "|i1"),
    "unsorted": (Table((3.0, -1.0, 0.5, 2.0, -7.5, 1.0, 0.0, -0.25)), "ui3", "|u1"),
    "duplicates": (Table((1.0, 0.0, 1.0, -0.0, 2.0, 0.0, 2.0, 1.0), "bf16"), "i3", "|u1"),
    "all equal": (Table((0.5, 0.5)), "i1", "|u1"),
    "neighbours": (Table((1.0, 1.0000001192092896, 0.9999999403953552, 1.0000002384185791)), "i2", "|u1"),
    "integers": (Table((-100.0, 2.5, 3.5, 100.0), "i8"), "i2", "|u1"),
    "bounds of its own": (Table((-4.0, 0.0, 9.0), "f32", -1), "ui2", "|i1"),
    "narrowed": (Table(tuple(nf4()), "f32", 0, (3, 11)), "i4", "|u1"),
    "wide codes": (Table((-1.0, 0.25, 4.0), "f64", 70_000), "ui24", "<u4"),
    "far apart": (Table((-3e38, 1e-45, 3e38, 0.0), "f32"), "i2", "|u1"),
    "256": (Table(tuple(float(i * abs(i)) / 64 for i in range(-128, 128)), "f32", -128), "si8", "|i1"),
}  # fmt: skip
EXHAUSTED = ("nf4", "unsorted", "narrowed")
IN_RANGE_OF_F16 = [name for name in TABLES if name != "far apart"]


def storage(table: Table, codes: str) -> str:
    default = -(1 << int(codes[2:]) >> 1) if codes.startswith("si") else 0
    own = table.lowest != default or len(table.entries) != 1 << int(codes.lstrip("siu"))
    bounds = f", <{table.lowest}:{table.lowest + len(table.entries) - 1}>" if own else ""
    narrowed = f"<{table.bounds[0]}:{table.bounds[1]}>" if table.bounds else ""
    entries = ", ".join(f"{entry:.17e}" for entry in table.entries)
    return f"!quant.quantile<{codes}:{table.value}, {{{entries}}}{bounds}>{narrowed}"


def run(plan: Plan, source: Array) -> tuple[list[Any], list[int]]:
    target = np.empty(source.size, plan.output_dtype)
    report = plan.run(source, target)
    return target.tolist(), [report.saturated_low, report.saturated_high, report.nan]


def around(table: Table, scale: float, z: int, expressed: str) -> Array:
    """Numbers at and beside where y meets a value or the middle of two; specials and patterns."""
    values = np.unique([table.at(code, expressed) for code in table.codes])
    points = np.concatenate([values, (values[1:] / 2 + values[:-1] / 2), [0.0, 1.0]])
    with np.errstate(all="ignore"):
        reals = (points - z) * scale
        if expressed == "f64":
            near = [np.nextafter(reals, limit) for limit in (-np.inf, np.inf)]
            return np.concatenate([reals, *near, SPECIAL.astype(np.float64)])
        return np.concatenate([neighbours(reals.astype(np.float32)), SPECIAL, patterns(200, np.random.default_rng(5))])


def source_of(name: str, scale: float, z: int, expressed: str) -> tuple[Array, list[float]]:
    table = TABLES[name][0]
    array = sixteen_bits()
    if name not in EXHAUSTED or expressed not in ("f16", "bf16"):
        array = around(table, scale, z, expressed)
        if expressed in ("f32", "f64"):
            return array, [float(value) for value in array]
        with np.errstate(all="ignore"):
            array = array.astype(np.float16 if expressed == "f16" else ml_dtypes.bfloat16).view(np.uint16)
    if expressed == "f16":
        return array.view(np.float16), [float(value) for value in array.view(np.float16)]
    return array, [float(value) for value in (array.astype(np.uint32) << 16).view(np.float32)]


def check(plan: Plan, source: Array, expected: list[Stored]) -> None:
    stored, counts = run(plan, source)
    wrong = [
        (i, got, each.value) for i, (got, each) in enumerate(zip(stored, expected, strict=True)) if got != each.value
    ]
    assert not wrong, f"{len(wrong)} of {source.size} differ, first (index, got, expected): {wrong[:3]}"
    assert counts == [sum(getattr(each, name) for each in expected) for name in ("low", "high", "nan")]


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.parametrize(("name", "expressed"), sample(list(product(TABLES, EXPRESSED)), 17))
def test_quantize(name: str, expressed: str) -> None:
    """Of f16 and bf16 all 65,536 patterns, with one scale and a few tables; else every threshold, with three scales."""
    table, codes, dtype = TABLES[name]
    if expressed == "f16" and name not in IN_RANGE_OF_F16:
        return
    exhausted = name in EXHAUSTED and expressed in ("f16", "bf16")
    parameters = [(0.0237, 0)] if exhausted else [(1.0, 0), (0.0237, 3), (7e-3, -1)]
    for scale, z in parameters:
        source, values = source_of(name, scale, z, expressed)
        text = f"!quant.uniform<{storage(table, codes)}:{expressed}, {scale:.17e}:{z}>"
        plan = plan_quantize(tensor(f"tensor<{source.size}x{expressed}>"), parse_type(text), "quantile")
        assert plan.output_dtype == np.dtype(dtype)
        oracle = quantile_oracle.quantizer(table, expressed, scale, z)
        known: dict[float, Stored] = {}
        check(plan, source, [known.setdefault(x, oracle(x)) if x == x else oracle(x) for x in values])


@pytest.mark.parametrize("expressed", EXPRESSED)
@pytest.mark.parametrize("name", TABLES)
def test_dequantize_every_code(name: str, expressed: str) -> None:
    """Codes outside of narrowed bounds stand for their entries too."""
    table, codes, dtype = TABLES[name]
    if expressed == "f16" and name not in IN_RANGE_OF_F16:
        return
    stored = np.arange(table.lowest, table.lowest + len(table.entries)).astype(dtype)
    for scale, z in ((1.0, 0), (0.0237, 3), (7e-3, -1), (1.5, 1001)):
        text = f"tensor<{stored.size}x!quant.uniform<{storage(table, codes)}:{expressed}, {scale:.17e}:{z}>>"
        plan = plan_dequantize(tensor(text), None, "quantile")
        target = np.empty(stored.size, plan.output_dtype)
        assert plan.run(stored, target).nan == 0
        real = (target.astype(np.uint32) << 16).view(np.float32) if expressed == "bf16" else target
        expected = [quantile_oracle.dequantize(table, expressed, scale, z, code) for code in stored.tolist()]
        assert [float(value).hex() for value in real] == [value.hex() for value in expected]


@given(
    entries=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=8, max_size=8),
    scale=st.floats(2.0**-20, 2.0**20, width=32),
    z=st.integers(-(2**31), 2**31 - 1),
    x=st.lists(st.floats(width=32), min_size=1, max_size=8),
    nearby=st.booleans(),
)
def test_any_table(entries: list[float], scale: float, z: int, x: list[float], nearby: bool) -> None:
    table = Table(tuple(entries))
    if nearby:
        # Hits entries and middles: of a random table no random number does.
        x = [*x, *(entry * scale for entry in entries), *((a + b) / 2 * scale for a, b in pairwise(entries))]
        z = 0
    with np.errstate(over="ignore"):
        source = np.array(x, np.float32)
    text = f"!quant.uniform<{storage(table, 'i3')}:f32, {scale:.17e}:{z}>"
    plan = plan_quantize(tensor(f"tensor<{source.size}xf32>"), parse_type(text), "quantile")
    check(plan, source, [quantile_oracle.quantizer(table, "f32", scale, z)(float(value)) for value in source])


def test_the_identity_table_rounds_as_integers_do_but_for_ties() -> None:
    table = Table(tuple(float(i) for i in range(-8, 8)), "i4", -8)
    x = (np.arange(-1000, 1000) / 64).astype(np.float32)
    through, _ = run(
        plan_quantize(
            tensor(f"tensor<{x.size}xf32>"), parse_type(f"!quant.uniform<{storage(table, 'si4')}:f32, 1.0>"), "quantile"
        ),
        x,
    )
    down, _ = run(
        plan_quantize(
            tensor(f"tensor<{x.size}xf32>"),
            parse_type("!quant.uniform<i4:f32, 1.0>"),
            "stablehlo",
            rounding=Rounding.NEAREST_DOWN,
        ),
        x,
    )
    assert through == down


def test_per_axis_and_pieces() -> None:
    table, codes, _ = TABLES["nf4"]
    scales, zero_points = (0.5, 0.25, 2.0), (0, 1, -1)
    listed = ", ".join(f"{s}:{z}" for s, z in zip(scales, zero_points, strict=True))
    x = np.random.default_rng(6).normal(0, 1, 4 * 3 * 5).astype(np.float32)
    text = f"!quant.uniform<{storage(table, codes)}:f32:1, {{{listed}}}>"
    plan = plan_quantize(tensor("tensor<4x3x5xf32>"), parse_type(text), "quantile")
    channel = np.arange(x.size) // 5 % 3
    oracles = [quantile_oracle.quantizer(table, "f32", s, z) for s, z in zip(scales, zero_points, strict=True)]
    expected = [oracles[c](float(v)) for v, c in zip(x, channel, strict=True)]
    check(plan, x, expected)
    back = plan_dequantize(plan.output_type, None, "quantile")
    for piece in (1, 7, 60):
        stored, counts, real = np.empty(x.size, np.uint8), plan.new_counts(), np.empty(x.size, np.float32)
        for start in range(0, x.size, piece):
            part = slice(start, start + piece)
            plan.step(x[part], stored[part], start, counts)
            back.step(stored[part], real[part], start, back.new_counts())
        assert stored.tolist() == [each.value for each in expected]
        assert real.tolist() == [
            quantile_oracle.dequantize(table, "f32", scales[c], zero_points[c], code)
            for code, c in zip(stored.tolist(), channel, strict=True)
        ]


def test_nan_policies() -> None:
    table, codes, _ = TABLES["narrowed"]
    text = f"!quant.uniform<{storage(table, codes)}:f32, 1.0:0>"
    x = np.zeros(40_000, np.float32)
    x[[33_333, 39_000]] = np.nan
    for policy, expected in ((NanPolicy.PROFILE, 3), (NanPolicy.LOWEST, 3), (NanPolicy.ZERO_POINT, 7)):
        plan = plan_quantize(tensor("tensor<40000xf32>"), parse_type(text), "quantile", nan=policy)
        stored, counts = run(plan, x)
        assert (stored[33_333], stored[0], counts) == (expected, 7, [0, 0, 2])
    plan = plan_quantize(tensor("tensor<40000xf32>"), parse_type(text), "quantile", nan=NanPolicy.ERROR)
    with pytest.raises(PreconditionError) as caught:
        run(plan, x)
    assert caught.value.index == 33_333


def test_codes_that_the_table_does_not_have() -> None:
    table, codes, _ = TABLES["bounds of its own"]
    plan = plan_dequantize(tensor(f"tensor<3x!quant.uniform<{storage(table, codes)}:f32, 1.0>>"), None, "quantile")
    with pytest.raises(TensorDataError, match="element 1 is 2; its type holds -1 to 1"):
        run(plan, np.array([0, 2, -2], np.int8))


@pytest.mark.parametrize(
    ("stored", "rest", "reason"),
    [
        ("!quant.quantile<i1:f8E4M3FN, {0.0, 449.0}>", "f32, 1.0", "entry 1 of the quantile, 449.0"),
        ("!quant.quantile<i1:f32, {-70000.0, 0.0}>", "f16, 1.0", "entry 0 of the quantile, -70000.0"),
        ("!quant.quantile<i1:i4, {0.0, 8.0}>", "f32, 1.0", "range of i4"),
        ("!quant.quantile<i1:ui4, {0.0, -1.0}>", "f32, 1.0", "range of ui4"),
        ("!quant.quantile<i1:f8E8M0FNU, {0.0, 1.0}>", "f32, 1.0", "range of f8E8M0FNU"),
        ("!quant.quantile<i1:f32, {0.0, 1.0, 2.0}, <0:2>>", "f32, 1.0", "codes 0 to 2, which 1 bits do not hold"),
        ("!quant.quantile<ui1:f32, {0.0, 1.0, 2.0}, <-1:1>>", "f32, 1.0", "codes -1 to 1"),
        ("!quant.quantile<i1:f32, {0.0, 1.0}>", "f16, 1.0:70000", "zero point 70000"),
        ("!quant.quantile<i1:f32, {0.0, 1.0}>", "f32, 1.0:4294967296", "zero point 4294967296"),
    ],
)
def test_what_is_refused(stored: str, rest: str, reason: str) -> None:
    text = f"!quant.uniform<{stored}:{rest}>"
    expressed = rest.split(",")[0]
    with pytest.raises(UnsupportedError, match=reason) as caught:
        plan_quantize(tensor(f"tensor<4x{expressed}>"), parse_type(text), "quantile")
    assert caught.value.side == "output"
    with pytest.raises(UnsupportedError, match=reason) as caught:
        plan_dequantize(tensor(f"tensor<4x{text}>"), None, "quantile")
    assert caught.value.side == "input"


def test_other_profiles_and_other_roundings_are_refused() -> None:
    text = parse_type("!quant.uniform<!quant.quantile<i1:f32, {0.0, 1.0}>:f32, 1.0>")
    for name, profile in PROFILES.items():
        if name != "quantile" and Operation.QUANTIZE in profile.operations:
            with pytest.raises(UnsupportedError):
                plan_quantize(tensor("tensor<4xf32>"), text, name)
    with pytest.raises(UnsupportedError) as caught:
        plan_quantize(tensor("tensor<4xf32>"), text, "quantile", rounding=Rounding.FLOOR)
    assert caught.value.pointer == "/rounding"
    with pytest.raises(UnsupportedError, match="quantile here"):
        plan_quantize(tensor("tensor<4xf32>"), parse_type("!quant.uniform<i8:f32, 1.0>"), "quantile")


def test_the_largest_table() -> None:
    """65,536 entries, which is as many as a type may have: every middle is decided."""
    values = np.sort(np.random.default_rng(9).normal(0, 1, 65536)).astype(np.float32)
    entries = ", ".join(f"{float(value):.17e}" for value in values)
    text = f"!quant.uniform<!quant.quantile<ui16:f32, {{{entries}}}>:f32, 1.0>"
    x = neighbours(((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32))
    plan = plan_quantize(tensor(f"tensor<{x.size}xf32>"), parse_type(text), "quantile")
    stored, _ = run(plan, x)
    # Exact here: sums of neighbours fit a binary64, and so do the differences from them.
    right = np.searchsorted((values[1:].astype(np.float64) + values[:-1]) / 2, x.astype(np.float64), "left")
    first = np.searchsorted(values, values[right], "left")
    assert stored == first.tolist()
