"""compare against an oracle in exact integers: every pair of 8-bit numbers, every 16-bit float."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.comparison.comparison import PIECE, plan_comparison
from requant.convert.small_floats import decode_table
from requant.errors import ParameterError, RequantError, TensorDataError, TypeFitError, UnsupportedError
from tests.support.cases import sample_array
from tests.support.comparison import check_error, check_histogram, compared, plan, tensor
from tests.support.float_samples import sixteen_bits

SMALL_FLOATS = {
    "f8E5M2": 8, "f8E4M3": 8, "f8E4M3FN": 8, "f8E5M2FNUZ": 8, "f8E4M3FNUZ": 8, "f8E4M3B11FNUZ": 8, "f8E3M4": 8,
    "f8E8M0FNU": 8, "f6E2M3FN": 6, "f6E3M2FN": 6, "f4E2M1FN": 4,
}  # fmt: skip


def ulps_between(x: float, y: float, magnitudes: dict[float, int]) -> int | None:
    """The distance of two values of a type whose magnitudes are numbered."""
    if math.isnan(x) or math.isnan(y):
        return 0 if math.isnan(x) and math.isnan(y) else None
    first, second = (int(math.copysign(magnitudes[abs(v)], v)) if v else magnitudes[0.0] for v in (x, y))
    return second - first


@pytest.mark.parametrize("element", ["i8", "ui8", "!quant.uniform<i8:f32, 1.0>", "!quant.uniform<u8:f32, 1.0:7>"])
def test_every_pair_of_8_bit_integers(element: str) -> None:
    dtype = plan(element, element, 1).a.dtype
    every = np.arange(256, dtype=np.uint8).view(dtype)
    a, b = sample_array(np.repeat(every, 256), 8000), sample_array(np.tile(every, 256), 8000)
    report = compared(element, element, a, b, 1000)
    x, y = a.tolist(), b.tolist()
    different = [i for i in range(a.size) if x[i] != y[i]]
    assert report.mismatches == report.bit_mismatches == len(different)
    assert [each.index for each in report.first] == different[:1000]
    assert [(each.a, each.b) for each in report.first] == [(str(x[i]), str(y[i])) for i in different[:1000]]
    check_histogram(report.histogram, [q - p for p, q in zip(x, y, strict=True)])
    zero = 7 if "7" in element else 0
    check_error(report, [v - zero for v in x], [v - zero for v in y])


def test_every_f16_and_bf16_beside_its_neighbours() -> None:
    for name in ("f16", "bf16"):
        values = decode_table(name).tolist()
        magnitudes = {v: i for i, v in enumerate(sorted({abs(v) for v in values if not math.isnan(v)}))}
        stored = sixteen_bits()
        for shift in (1, -1, 2, 0x8000, 0x7FFF):
            other = ((stored.astype(np.int64) - shift) % (1 << 16)).astype(np.uint16)
            planned = plan(name, name, stored.size)
            report = planned.run(stored.view(planned.a.dtype), other.view(planned.a.dtype))
            differences = [ulps_between(values[p], values[q], magnitudes) for p, q in zip(stored, other, strict=True)]
            check_histogram(report.histogram, differences)
            assert report.mismatches == sum(difference != 0 for difference in differences)
            assert report.bit_mismatches == stored.size
        check_error(report, [values[p] for p in stored], [values[q] for q in other])


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_every_pair_of_small_floats(name: str) -> None:
    count = 1 << SMALL_FLOATS[name]
    values = [float(v) for v in decode_table(name)]
    magnitudes = {v: i for i, v in enumerate(sorted({abs(v) for v in values if not math.isnan(v)}))}
    a, b = (sample_array(each, 4000) for each in (np.repeat(np.arange(count), count), np.tile(np.arange(count), count)))
    report = compared(name, name, a, b)
    differences = [ulps_between(values[p], values[q], magnitudes) for p, q in zip(a, b, strict=True)]
    check_histogram(report.histogram, differences)
    assert report.mismatches == sum(difference != 0 for difference in differences)
    assert report.bit_mismatches == np.count_nonzero(a != b)
    check_error(report, [values[p] for p in a], [values[q] for q in b])


def ordered(bits: int, width: int) -> int:
    """The key of a float's bits."""
    magnitude = bits & ((1 << (width - 1)) - 1)
    return -magnitude if bits >> (width - 1) else magnitude


def float_differences(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> list[int | None]:
    """ulps, from the bits of two arrays of f32 or f64."""
    width = 8 * a.itemsize
    found: list[int | None] = []
    for x, y, p, q in zip(a, b, a.view(f"u{a.itemsize}").tolist(), b.view(f"u{b.itemsize}").tolist(), strict=True):
        if np.isnan(x) or np.isnan(y):
            found.append(0 if np.isnan(x) and np.isnan(y) else None)
        else:
            found.append(ordered(q, width) - ordered(p, width))
    return found


@pytest.mark.parametrize("name", ["f32", "f64"])
@given(
    data=st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(-40, 40), st.booleans()), max_size=40),
    padding=st.sampled_from([0, 100, 1000, 1024, 2500]),
)
def test_floats(name: str, data: list[tuple[int, int, bool]], padding: int) -> None:
    unsigned = np.dtype("<u4" if name == "f32" else "<u8")
    mask = (1 << 8 * unsigned.itemsize) - 1
    a = np.array([bits & mask for bits, _, _ in data] + [0] * padding, unsigned).view(f"<f{unsigned.itemsize}")
    near = [(bits if beside else ~bits) + delta & mask for bits, delta, beside in data]
    b = np.array(near + [0] * padding, unsigned).view(a.dtype)
    report = compared(name, name, a, b, 7)
    differences = float_differences(a, b)
    check_histogram(report.histogram, differences)
    different = [i for i, difference in enumerate(differences) if difference != 0]
    assert report.mismatches == len(different)
    assert report.equal == (not different)
    assert [each.index for each in report.first] == different[:7]
    assert report.bit_mismatches == int((a.view(unsigned) != b.view(unsigned)).sum())
    for each in report.first:
        for text, value in ((each.a, a[each.index]), (each.b, b[each.index])):
            assert np.array(float(text), a.dtype) == value or (text == "NaN" and np.isnan(value))


@pytest.mark.parametrize(
    ("element_a", "element_b"),
    [("i8", "i8"), ("f32", "f32"), ("!quant.uniform<i8:f32, 1.0>", "!quant.uniform<i16:f32, 0.5>")],
)
def test_mismatches_far_apart(element_a: str, element_b: str) -> None:
    size = 3 * PIECE + 100
    at = [5, 1023, 1024, PIECE - 1, PIECE, 3 * PIECE, size - 1]
    planned = plan(element_a, element_b, size)
    a = (np.arange(size) % 50 - 25).astype(planned.a.dtype)
    b = a.astype(planned.b.dtype) * (2 if "i16" in element_b else 1)
    assert planned.run(a, b).equal
    a[at] = 60
    report = planned.run(a, b)
    assert [each.index for each in report.first] == at
    assert report.mismatches == len(at)
    one = b.astype(int) // (2 if "i16" in element_b else 1)
    check_error(report, a.astype(int).tolist(), one.tolist())
    assert [each.index for each in planned.run(a, b, 5).first] == at[:5]
    for spoilt in at[:-1]:
        a[spoilt] = b[spoilt] // (2 if "i16" in element_b else 1)
    report = planned.run(a, b)
    assert [each.index for each in report.first] == at[-1:]
    check_error(report, a.astype(int).tolist(), one.tolist())


def test_signed_zeros_and_nan_match_but_their_bits_may_differ() -> None:
    a = np.array([0x80000000, 0x7FC00000, 0x7FC00000, 0x3F800000], "<u4").view("<f4")
    b = np.array([0x00000000, 0xFFC00001, 0x7FC00000, 0x3F800000], "<u4").view("<f4")
    report = compared("f32", "f32", a, b)
    assert report.equal
    assert report.bit_mismatches == 2
    assert report.first == ()
    assert report.error.left_out == 2
    assert compared("f32", "f64", a, b.astype("<f8")).bit_mismatches is None


def test_texts_of_mismatches() -> None:
    found = compared("f32", "f32", [0.1, np.inf, np.nan], [-0.0, -np.inf, 1e30]).first
    assert [(each.a, each.b) for each in found] == [("0.1", "-0.0"), ("Infinity", "-Infinity"), ("NaN", "1e+30")]
    (found16,) = compared("f16", "f16", [0.1], [0.2]).first
    assert (found16.a, found16.b, found16.real_a, found16.real_b) == ("0.1", "0.2", None, None)
    (mixed,) = compared("!quant.uniform<u8:f32, 0.5:128>", "f32", [0], [3.25]).first
    assert (mixed.a, mixed.b, mixed.real_a, mixed.real_b) == ("0", "3.25", "-64.0", None)
    planned = plan("i8", "i8", 2, 3, 4)
    b = np.zeros(24, np.int8)
    b[17] = 1
    assert planned.run(np.zeros(24, np.int8), b).first[0].position == (1, 1, 1)


def test_floats_of_two_types_are_compared_in_one_that_holds_both() -> None:
    above_one = np.nextafter(np.float32(1), np.float32(2))
    assert compared("f16", "f32", [1.0], [above_one]).histogram.buckets[-1].low == 1
    assert compared("bf16", "f16", [0x3F80], [1 + 2.0**-10]).histogram.buckets[-1].low == 1 << 13
    assert compared("f32", "f64", [1.0], [1 + 2.0**-52]).histogram.buckets[-1].low == 1
    assert compared("f8E4M3FN", "f32", [0x7F], [np.nan]).equal
    assert compared("f4E2M1FN", "f64", np.arange(16), decode_table("f4E2M1FN")).equal


I64 = (-(1 << 63), -(1 << 63) + 1, -1, 0, 1, (1 << 53) - 1, 1 << 53, (1 << 54) - 1, 1 << 62, (1 << 63) - 1)


def test_differences_of_64_bits_are_exact_or_the_largest() -> None:
    pairs = [(x, y) for x in I64 for y in I64]
    report = compared("i64", "i64", [x for x, _ in pairs], [y for _, y in pairs])
    check_histogram(report.histogram, [y - x for x, y in pairs])
    pairs = [(x + (1 << 63), y + (1 << 63)) for x, y in pairs]
    unsigned = np.array(pairs, np.uint64)
    report = compared("ui64", "ui64", *unsigned.T.copy())
    check_histogram(report.histogram, [y - x for x, y in pairs])
    report = compared("ui64", "ui32", unsigned[:, 0].copy(), np.full(len(pairs), 5))
    check_histogram(report.histogram, [5 - x for x, _ in pairs])


@pytest.mark.parametrize(
    ("a", "b"), [("i8", "ui8"), ("ui8", "i16"), ("ui32", "i32"), ("ui16", "si32"), ("ui32", "i64"), ("i4", "ui4")]
)
def test_integers_of_two_types(a: str, b: str) -> None:
    planned = plan(a, b, 1)
    samples = [np.array([np.iinfo(s.dtype).min, np.iinfo(s.dtype).max, 0, 1], s.dtype) for s in (planned.a, planned.b)]
    x, y = np.repeat(samples[0], 4), np.tile(samples[1], 4)
    report = compared(a, b, x, y)
    differences = [q - p for p, q in zip(x.tolist(), y.tolist(), strict=True)]
    check_histogram(report.histogram, differences)
    assert report.mismatches == sum(map(bool, differences))
    check_error(report, x.tolist(), y.tolist())


def test_nothing_to_compare_is_equal() -> None:
    report = compared("f32", "f32", [], [])
    assert report.equal
    assert (report.histogram.buckets, report.histogram.undefined, report.first) == ((), 0, ())
    assert report.error.sqnr_db is None
    scalar = plan("i8", "i8").run(np.array([1], np.int8), np.array([2], np.int8))
    assert scalar.first[0].position == ()


@pytest.mark.parametrize(
    ("a", "b", "kind", "words"),
    [
        ("tensor<2x3xi8>", "tensor<3x2xi8>", TypeFitError, "a has shape 2x3, and b 3x2"),
        ("tensor<2xi8>", "tensor<i8>", TypeFitError, "b scalar"),
        ("tensor<?xi8>", "tensor<2xi8>", TypeFitError, "dynamic"),
        ("tensor<*xi8>", "tensor<2xi8>", TypeFitError, "unranked"),
        ("tensor<2x!quant.uniform<i8:f32:0, {0.5}>>", "tensor<2xf32>", TypeFitError, "1 scales"),
        ("tensor<2xi8>", "tensor<2xf32>", UnsupportedError, "i8 and f32"),
        ("tensor<2xi8>", "tensor<2x!quant.uniform<i8:f32, 0.5>>", UnsupportedError, "i8 and !quant"),
        ("tensor<2xui64>", "tensor<2xi8>", UnsupportedError, "ui64 and i8"),
        ("tensor<2xtf32>", "tensor<2xf32>", UnsupportedError, "a has elements of tf32"),
        ("tensor<2xf32>", "tensor<2xindex>", UnsupportedError, "b has elements of index"),
        ("tensor<2x!quant.any<i8:f32>>", "tensor<2xf32>", UnsupportedError, "a has elements"),
    ],
)
def test_what_cannot_be_compared(a: str, b: str, kind: type[RequantError], words: str) -> None:
    with pytest.raises(kind) as raised:
        plan_comparison(tensor(a), tensor(b))
    assert type(raised.value) is kind
    assert words in raised.value.detail


def test_arrays_and_numbers_that_are_not_as_said() -> None:
    planned = plan("f4E2M1FN", "f4E2M1FN", 3)
    good = np.zeros(3, np.uint8)
    for count in (-1, 1001):
        with pytest.raises(ParameterError):
            planned.run(good, good, count)
    for bad in (np.zeros(3, np.int8), np.zeros(4, np.uint8), np.zeros((3, 1), np.uint8), np.zeros(6, np.uint8)[::2]):
        with pytest.raises(TensorDataError, match="b must be"):
            planned.run(good, bad)
    with pytest.raises(TensorDataError, match="element 1 of b is 16; its type has 16 patterns"):
        planned.run(good, np.array([0, 16, 0], np.uint8))
