"""The error of a quantization and of real numbers, against exact sums."""

from __future__ import annotations

import math
from fractions import Fraction
from math import log10

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from requant.comparison import comparison as compare
from requant.comparison.comparison import ErrorSums, conversion_error
from requant.comparison.real_values import parameter_indices, real_values
from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.kernels.statistics.error_sums import BLOCK
from requant.mlir import parse_type
from requant.mlir.types import UniformPerAxisType, UniformSubChannelType, UniformType
from tests.support.comparison import LARGEST, check_error, check_histogram, compared, plan
from tests.support.drawn_types import tensor
from tests.support.float_samples import SPECIAL, patterns


@pytest.mark.parametrize("storage", ["i8", "u8", "i16", "u16", "i32"])
@pytest.mark.parametrize("size", [7, 1000, 3000])
def test_the_error_of_a_quantization(storage: str, size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.normal(0, 100, (2, size)).astype(np.float32)
    x[0, 1:4] = np.nan, np.inf, -np.inf
    plan = plan_quantize(
        tensor(f"tensor<2x{size}xf32>"), parse_type(f"!quant.uniform<{storage}:f32:0, {{0.75:3,0.1}}>")
    )
    stored = np.empty(2 * size, plan.output_dtype)
    plan.run(x.ravel(), stored)
    found = conversion_error(plan, x.ravel(), stored)
    scales = (Fraction(0.75), Fraction(float(np.float32(0.1))))
    exact = [
        (Fraction(float(v)), (int(q) - (3, 0)[row]) * scales[row])
        for row in (0, 1)
        for v, q in zip(x[row], stored.reshape(2, size)[row], strict=True)
        if np.isfinite(v)
    ]
    errors = [abs(q - v) for v, q in exact]
    assert found.left_out == 3
    assert found.max_absolute_error == pytest.approx(float(max(errors)), rel=1e-14)
    assert found.mean_absolute_error == pytest.approx(float(sum(errors) / len(errors)), rel=1e-13)
    sqnr = 10 * log10(sum(v * v for v, _ in exact) / sum(e * e for e in errors))
    assert found.sqnr_db == pytest.approx(sqnr, rel=1e-12)


def test_an_exact_conversion_has_no_error() -> None:
    plan = plan_dequantize(tensor("tensor<4x!quant.uniform<i8:f32, 0.5:3>>"))
    stored = np.array([-128, 0, 3, 127], np.int8)
    real = np.empty(4, np.float32)
    plan.run(stored, real)
    found = conversion_error(plan, stored, real)
    assert (found.left_out, found.max_absolute_error, found.mean_absolute_error) == (0, 0.0, 0.0)
    assert found.sqnr_db is None


def test_blocks_may_come_in_any_order() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 10 * BLOCK + 77))
    side = real_values(tensor(f"tensor<{a.size}xf64>"), "a")
    reports = []
    for piece in (BLOCK, 3 * BLOCK, 16 * BLOCK):
        starts = list(range(0, a.size, piece))
        rng.shuffle(starts)
        sums = ErrorSums(side, side, a.size)
        for start in starts:
            sums.add(a[start : start + piece], b[start : start + piece], start)
        reports.append(sums.report())
    assert reports[0] == reports[1] == reports[2]


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    blocks=st.lists(st.integers(1, 8), min_size=4, max_size=4),
    named=st.lists(st.booleans(), min_size=4, max_size=4),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_parameters_of_elements(
    shape: list[int], blocks: list[int], named: list[bool], cut: tuple[float, float]
) -> None:
    """Against the index of each element, taken apart; last blocks may be short."""
    uniform = tensor("tensor<1x!quant.uniform<i8:f32, 1.0>>").element
    assert isinstance(uniform, UniformType)
    used = {axis: blocks[axis] for axis in range(len(shape)) if named[axis]}
    counts = tuple(-(-size // used.get(axis, size)) for axis, size in enumerate(shape))
    element = UniformSubChannelType(uniform.storage, uniform.expressed, tuple(used.items()), counts, (), ())
    size = int(np.prod(shape))
    start, stop = sorted(int(part * size) for part in cut)
    expected = []
    for flat in range(start, stop):
        position = np.unravel_index(flat, shape)
        block = [int(i) // used.get(axis, shape[axis]) for axis, i in enumerate(position)]
        expected.append(int(np.ravel_multi_index(block, counts)))
    assert parameter_indices(element, tuple(shape), start, stop).tolist() == expected


def test_parameters_along_an_axis() -> None:
    element = tensor("tensor<2x3x2x!quant.uniform<i8:f32:1, {0.5,0.25,0.125}>>").element
    assert isinstance(element, UniformPerAxisType)
    assert parameter_indices(element, (2, 3, 2), 1, 12).tolist() == [0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]


def test_error_of_floats_is_near_the_exact_sums() -> None:
    rng = np.random.default_rng(3)
    wild = patterns(2000, rng)
    a = np.concatenate([rng.normal(0, 10, 5000).astype(np.float32), SPECIAL, wild[np.abs(wild) < 1e15]])
    with np.errstate(invalid="ignore"):
        b = a + rng.normal(0, 1e-3, a.size).astype(np.float32)
        a64, b64 = a.astype(np.float64) * 1.7, b.astype(np.float64) * 1.7
    check_error(compared("f32", "f32", a, b), a.tolist(), b.tolist())
    check_error(compared("f64", "f64", a64, b64), a64.tolist(), b64.tolist())


@pytest.mark.parametrize("count", [1, 127, 128, 129, 1023, 1024, 1025, 50_000, 150_000, 250_000])
def test_sums_have_the_stated_order(count: int) -> None:
    """To the bit: 128 lanes in a block of 1024, halved; then the blocks from first to last."""
    rng = np.random.default_rng(count)
    a = rng.normal(0, 10.0 ** rng.integers(-8, 9, count), count)
    b = a + rng.normal(0, 1e-3, count)

    def total(terms: list[float]) -> float:
        result = 0.0
        for begin in range(0, len(terms), 1024):
            lanes = [0.0] * 128
            for i, term in enumerate(terms[begin : begin + 1024]):
                lanes[i % 128] += term
            half = 64
            while half:
                lanes = [lanes[i] + lanes[i + half] for i in range(half)]
                half //= 2
            result += lanes[0]
        return result

    errors = [y - x for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    error = compared("f64", "f64", a, b).error
    assert error.mean_absolute_error == total([abs(e) for e in errors]) / count
    assert error.max_absolute_error == max(abs(e) for e in errors)
    signal, noise = total([x * x for x in a.tolist()]), total([e * e for e in errors])
    assert error.sqnr_db == 10 * (math.log10(signal) - math.log10(noise))


def test_the_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    cases = [
        ("f32", "f32", patterns(200_000, rng), patterns(200_000, rng)),
        ("!quant.uniform<i8:f32, 0.1:3>", "!quant.uniform<i16:f32, 0.3>", *rng.integers(-128, 128, (2, 200_000))),
    ]
    for element_a, element_b, a, b in cases:
        whole = compared(element_a, element_b, a, b, 1000)
        monkeypatch.setattr(compare, "PIECE", 3072)
        assert compared(element_a, element_b, a, b, 1000) == whole
        monkeypatch.undo()


def test_equal_scales_along_other_axes_are_not_equal_parameters() -> None:
    rows, columns = (f"!quant.uniform<i8:f32:{axis}, {{0.5,0.25}}>" for axis in (0, 1))
    report = plan(rows, columns, 2, 2).run(np.array([4, 4, 4, 4], np.int8), np.array([4, 8, 2, 4], np.int8))
    assert report.equal
    assert plan(rows, rows, 2, 2).run(np.array([4, 4, 4, 4], np.int8), np.array([4, 8, 2, 4], np.int8)).mismatches == 2


def test_scales_beyond_what_is_finite() -> None:
    huge = "!quant.uniform<i8:f64, 1.0e307>"
    report = compared(huge, huge, [1, 100, -100], [1, 100, -100])
    assert report.equal
    assert report.error.left_out == 2


def test_what_overflows_is_absent() -> None:
    error = compared("f64", "f64", [1e308, 1.0], [-1e308, 1.0]).error
    assert (error.left_out, error.max_absolute_error, error.mean_absolute_error, error.sqnr_db) == (0, None, None, None)


SCALES = st.sampled_from([1.0, 0.5, 0.1, 0.0237, 3.0, 1e-30, 1e30])
STORED = st.lists(st.tuples(st.integers(-128, 127), st.integers(-128, 127)), max_size=30)


@given(scale_a=SCALES, scale_b=SCALES, zero_a=st.integers(-128, 127), zero_b=st.integers(-128, 127), stored=STORED)
@example(scale_a=1.0, scale_b=0.5, zero_a=0, zero_b=0, stored=[(0, 1), (0, 3), (0, 5), (0, -1), (0, -3), (2, 4)])
def test_quantized_by_two_scales(
    scale_a: float, scale_b: float, zero_a: int, zero_b: int, stored: list[tuple[int, int]]
) -> None:
    one, other = f"!quant.uniform<i8:f64, {scale_a:.17e}:{zero_a}>", f"!quant.uniform<i8:f64, {scale_b:.17e}:{zero_b}>"
    a, b = [x for x, _ in stored], [y for _, y in stored]
    report = compared(one, other, a, b)
    real_a, real_b = [(q - zero_a) * scale_a for q in a], [(q - zero_b) * scale_b for q in b]
    if (scale_a, zero_a) == (scale_b, zero_b):
        differences = [y - x for x, y in stored]
    else:
        differences = [round((y - x) / scale_a) for x, y in zip(real_a, real_b, strict=True)]
    check_histogram(report.histogram, differences)
    assert report.mismatches == sum(x != y for x, y in zip(real_a, real_b, strict=True))
    check_error(report, real_a, real_b)
    for each in report.first:
        assert (each.real_a, each.real_b) == (repr(real_a[each.index]), repr(real_b[each.index]))


def test_quantized_and_float() -> None:
    quantized = "!quant.uniform<i16:f32, 0.25:-5>"
    stored, floats = [-5, -4, -3, 0, 7, 1, 2], [0.0, 0.375, -np.inf, np.nan, 3.0, 1e30, np.inf]
    for element, a, b, sign in ((quantized, stored, floats, 1), ("f32", floats, stored, -1)):
        report = compared(element, "f32" if sign > 0 else quantized, a, b)
        infinity = sign * LARGEST
        # (0.375 - 0.25) / 0.25 is half a step, and goes to even.
        check_histogram(report.histogram, [0, 0, -infinity, None, 0, infinity, infinity])
        assert report.mismatches == 5
        assert (report.error.left_out, report.error.max_absolute_error) == (3, float(np.float32(1e30)) - 1.5)


def test_quantized_along_axes_and_in_blocks() -> None:
    rng = np.random.default_rng(11)
    a, b = rng.integers(-128, 128, (2, 6, 4)).astype(np.int8)
    scales, zeros = rng.uniform(0.1, 2, (3, 2)), rng.integers(-9, 9, (3, 2))
    listed = "},{".join(
        ",".join(f"{s!r}:{z}" for s, z in zip(*row, strict=True)) for row in zip(scales.tolist(), zeros, strict=True)
    )
    blocks = f"!quant.uniform<i8:f64:{{0:2,1:2}}, {{{{{listed}}}}}>"
    axis = "!quant.uniform<i8:f64:1, {0.5:1,0.25:2,0.125:3,1.0:4}>"
    real = {
        blocks: lambda q: (q - zeros.repeat(2, 0).repeat(2, 1)) * scales.repeat(2, 0).repeat(2, 1),
        axis: lambda q: (q - np.arange(1, 5)) * np.array([0.5, 0.25, 0.125, 1.0]),
    }
    step = {blocks: scales.repeat(2, 0).repeat(2, 1), axis: np.tile([0.5, 0.25, 0.125, 1.0], (6, 1))}
    for one, other in ((axis, blocks), (blocks, axis)):
        report = plan(one, other, 6, 4).run(a.ravel(), b.ravel(), 1000)
        x, y = real[one](a.astype(float)), real[other](b.astype(float))
        check_histogram(report.histogram, [round(v) for v in ((y - x) / step[one]).ravel().tolist()])
        check_error(report, x.ravel().tolist(), y.ravel().tolist())
        assert [each.real_a for each in report.first] == [repr(v) for v in x[x != y].ravel().tolist()]
    for same in (axis, blocks):
        report = plan(same, same, 6, 4).run(a.ravel(), b.ravel())
        check_histogram(report.histogram, (b.astype(int) - a).ravel().tolist())
        check_error(report, real[same](a.astype(float)).ravel().tolist(), real[same](b.astype(float)).ravel().tolist())
        assert report.bit_mismatches == (a != b).sum()
