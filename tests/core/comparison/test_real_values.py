"""compare of quantized elements by the real numbers that they stand for, and the sums of the error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from requant.comparison import comparison as compare
from tests.support.comparison import LARGEST, check_error, check_histogram, compared, plan
from tests.support.float_samples import SPECIAL, patterns


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
