"""matmul against exact integers, the vectors, and its own trace."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.errors import PreconditionError, RequantError, TypeFitError, UnsupportedError
from requant.integer.accumulation import settle
from requant.integer.matmul import matmul_integers, plan_matmul
from requant.integer.trace import trace_product
from requant.kernels.contract import tile
from requant.mlir import parse_type
from requant.profiles.rule import Accumulator, SumOverflow
from tests.oracles import contractions as product_oracle
from tests.oracles.contractions import Side
from tests.support.cases import examples, sample
from tests.support.drawn_types import tensor
from tests.vector_cases import load

Array = np.ndarray[Any, Any]
DTYPES = (np.int8, np.uint8, np.int16, np.uint16)
SHAPES = (
    ((3, 7), (7, 5)),
    ((130, 2100), (2100, 70)),
    ((2, 1, 4, 9), (3, 9, 66)),
    ((5, 4, 9), (9, 3)),
    ((2, 3), (1, 1, 3, 2)),
    ((1, 1), (1, 1)),
    ((7, 1025), (1025, 65)),
    ((1, 3), (3, 5000)),
    ((4, 0), (0, 3)),
    ((0, 4), (4, 3)),
    ((2, 3), (3, 0)),
    ((0, 2, 3), (0, 3, 4)),
)


@pytest.mark.parametrize(
    ("of_a", "of_b", "accumulator"), sample(list(itertools.product(DTYPES, DTYPES, Accumulator)), 10)
)
def test_sums_are_exact(of_a: Any, of_b: Any, accumulator: Accumulator) -> None:
    """Every pair of dtypes, at the bounds and inside, with a zero point for each row and column."""
    rng = np.random.default_rng(3)
    limits_a, limits_b = np.iinfo(of_a), np.iinfo(of_b)
    for (shape_a, shape_b), extreme in itertools.product(SHAPES, (False, True)):
        a = rng.integers(limits_a.min, limits_a.max + 1, shape_a).astype(of_a)
        b = rng.integers(limits_b.min, limits_b.max + 1, shape_b).astype(of_b)
        if extreme:
            a[...], b[...] = rng.choice([limits_a.min, limits_a.max]), rng.choice([limits_b.min, limits_b.max])
        zeros_a = rng.integers(limits_a.min, limits_a.max + 1, (*shape_a[:-1], 1))
        zeros_b = rng.integers(limits_b.min, limits_b.max + 1, (*shape_b[:-2], 1, shape_b[-1]))
        found = matmul_integers(a, b, zeros_a, zeros_b, accumulator=accumulator)
        # int64 holds every sum of these sizes, and its own conversion to int32 is modulo 2^32.
        expected = np.matmul(a.astype(np.int64) - zeros_a, b.astype(np.int64) - zeros_b)
        dtype = np.int32 if accumulator is Accumulator.I32 else np.int64
        assert found.dtype == dtype
        assert found.shape == expected.shape
        assert np.array_equal(found, expected.astype(dtype)), (shape_a, shape_b)


def test_both_kinds_of_tiles_give_the_same() -> None:
    """Bytes have instructions of their own on some processors; pairs of 16-bit numbers are computed by all."""
    rng = np.random.default_rng(4)
    a, b = rng.integers(-128, 128, (67, 1000)).astype(np.int8), rng.integers(0, 256, (1000, 131)).astype(np.uint8)
    expected = a.astype(np.int64) @ b.astype(np.int64)
    assert np.array_equal(matmul_integers(a, b), expected)
    assert np.array_equal(matmul_integers(a.astype(np.int16), b), expected)
    assert tile.TILE_COLUMNS % 4 == 0


def test_sums_in_python_integers() -> None:
    """A product computed without numpy."""
    a, b, za, zb = [[1, -128, 127], [0, 5, -7]], [[255, 0], [1, 2], [3, 254]], [3, -4], [128, 255]
    expected = [
        [sum((a[m][k] - za[m]) * (b[k][n] - zb[n]) for k in range(3)) for n in range(2)] for m in range(2)
    ]  # fmt: skip
    found = matmul_integers(np.array(a, np.int8), np.array(b, np.uint8), np.array([[3], [-4]]), np.array(zb))
    assert found.tolist() == expected


STORAGES = ("i2", "u2", "i4", "u4", "i7", "i8", "u8", "i12", "i16", "u16")
PROFILES = (*product_oracle.SCHEMES, "onednn")


def bounds_of(storage: str) -> tuple[int, int]:
    width = int(storage[1:])
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if storage[0] == "i" else (0, (1 << width) - 1)


def quantized(storage: str, side: Side, axis: int, bounds: tuple[int, int] | None = None) -> str:
    narrowed = "" if bounds is None else f"<{bounds[0]}:{bounds[1]}>"
    parameters = ", ".join(f"{scale!r}:{zero}" for scale, zero in zip(side.scales, side.zeros, strict=True))
    if len(side.scales) == 1:
        return f"!quant.uniform<{storage}{narrowed}:f32, {parameters}>"
    return f"!quant.uniform<{storage}{narrowed}:f32:{axis}, {{{parameters}}}>"


@st.composite
def sides(draw: st.DrawFn, storage: str, count: int) -> Side:
    scales = draw(
        st.lists(
            st.one_of(st.sampled_from([0.5, 0.25, 1.0, 2.0, 0.0625]), st.floats(2.0**-10, 4.0, width=32)),
            min_size=count,
            max_size=count,
        )
    )
    lowest, highest = bounds_of(storage)
    zeros = draw(st.lists(st.integers(lowest, highest), min_size=count, max_size=count))
    return Side(scales, zeros)


@settings(max_examples=examples(500))
@given(data=st.data())
def test_every_profile_against_integers(data: st.DataObject) -> None:
    """Quantized operands of any storage, per tensor or along rows and columns, with a bias, to any storage."""
    profile = data.draw(st.sampled_from(PROFILES))
    of_a, of_b = (data.draw(st.sampled_from(STORAGES)) for _ in range(2))
    of_y = data.draw(st.sampled_from(("i8", "u8") if profile == "onednn" else STORAGES))
    m, k, n = (data.draw(st.integers(1, 5)) for _ in range(3))
    rows = m if profile != "onednn" and data.draw(st.booleans()) else 1
    columns = n if data.draw(st.booleans()) else 1
    a_side, b_side = data.draw(sides(of_a, rows)), data.draw(sides(of_b, columns))
    y_side = data.draw(sides(of_y, 1))
    undelegated = product_oracle.is_undelegated(profile, of_a, of_b, b_side.zeros, k)
    lowest, highest = bounds_of(of_y)
    narrow = sorted(data.draw(st.tuples(st.integers(lowest, highest), st.integers(lowest, highest))))
    if narrow[0] == narrow[1] or not narrow[0] <= y_side.zeros[0] <= narrow[1]:
        narrow = [lowest, highest]
    a = [[data.draw(st.integers(*bounds_of(of_a))) for _ in range(k)] for _ in range(m)]
    b = [[data.draw(st.integers(*bounds_of(of_b))) for _ in range(n)] for _ in range(k)]
    bias = data.draw(st.one_of(st.none(), st.lists(st.integers(-(2**31), 2**31 - 1), min_size=n, max_size=n)))
    plan = None
    try:
        plan = plan_matmul(
            tensor(f"tensor<{m}x{k}x{quantized(of_a, a_side, 0)}>"),
            tensor(f"tensor<{k}x{n}x{quantized(of_b, b_side, 1)}>"),
            parse_type(quantized(of_y, y_side, 1, (narrow[0], narrow[1]))),
            profile,
            bias=None if bias is None else tensor(f"tensor<{n}xi32>"),
            accumulator=Accumulator.I32,
        )
    except RequantError as error:
        failed = error.code
    expected: list[int | None] = []
    overflowed = []
    for i, j in itertools.product(range(m), range(n)):
        acc = sum((a[i][x] - a_side.zero(i)) * (b[x][j] - b_side.zero(j)) for x in range(k))
        acc += 0 if bias is None else bias[j]
        overflowed.append(not -(2**31) <= acc < 2**31)
        acc = product_oracle.wrapped(acc)
        scales = a_side.scale(i), b_side.scale(j), y_side.scale(0)
        arguments = acc, *scales, y_side.zero(0), (narrow[0], narrow[1])
        if profile == "onednn":
            expected.append(product_oracle.onednn(*arguments))
        else:
            scheme = product_oracle.output_stage(profile, "matmul", undelegated=undelegated)
            of_product = scheme == "arm_vector" and columns == 1
            factor = product_oracle.batched_factor(*scales) if of_product else None
            expected.append(product_oracle.scaled(scheme, *arguments, factor))
    if plan is None:
        assert failed == "parameter_invalid"
        assert None in expected
        return
    arrays = [np.array(each, integers.dtype).ravel() for each, integers in
              ((a, plan.accumulation.lhs), (b, plan.accumulation.rhs))]  # fmt: skip
    added = None if bias is None else np.array(bias, np.int32)
    target = np.empty(m * n, plan.output_dtype)
    undefined = [
        index
        for index, value in enumerate(expected)
        if value is None or (overflowed[index] and (undelegated or profile in product_oracle.ERRORS_ON_OVERFLOW))
    ]
    if undefined:
        with pytest.raises(PreconditionError) as caught:
            plan.run(arrays[0], arrays[1], added, target)
        # An overflow is found before anything is scaled.
        first = next((i for i in undefined if overflowed[i]), undefined[0])
        assert caught.value.index in (first, undefined[0])
        return
    report = plan.run(arrays[0], arrays[1], added, target)
    assert target.tolist() == expected
    assert report.elements == m * n
    trace = trace_product(plan, arrays[0], arrays[1], added, target)
    _check_trace(trace, a, b, a_side, b_side, bias, target, narrow)


def _check_trace(
    trace: Any, a: Any, b: Any, a_side: Side, b_side: Side, bias: Any, target: Array, bounds: list[int]
) -> None:
    """Each stage from its definition, and each from the one before."""
    found = {stage.name: stage.elements for stage in trace.stages}
    m, k, n = len(a), len(b), len(b[0])
    places = list(itertools.product(range(m), range(n)))

    def stage(name: str, of: Any) -> None:
        expected = [product_oracle.wrapped(of(i, j)) for i, j in places]
        assert found[name].tolist() == expected, name

    stage("accumulator", lambda i, j: sum(a[i][x] * b[x][j] for x in range(k)))
    stage("lhs_zero_point_correction", lambda i, j: -a_side.zero(i) * sum(b[x][j] for x in range(k)))
    stage("rhs_zero_point_correction", lambda i, j: -b_side.zero(j) * sum(a[i]))
    stage("zero_points_correction", lambda i, j: k * a_side.zero(i) * b_side.zero(j))
    corrections = ("accumulator", "lhs_zero_point_correction", "rhs_zero_point_correction", "zero_points_correction")
    total = sum(found[name].astype(np.int64) for name in corrections)
    assert np.array_equal(found["corrected"], total.astype(np.int32))
    if bias is not None:
        assert np.array_equal(found["biased"], (found["corrected"] + found["bias"]).astype(np.int32))
    if "after_zero_point" in found:
        assert np.array_equal(np.clip(found["after_zero_point"], bounds[0], bounds[1]), target)
    assert np.array_equal(found["after_clamp"], target)


@pytest.mark.parametrize(
    ("profile", "bias", "expected", "scheme", "accumulator"),
    [
        ("litert", None, -23693, "litert_float", "i64"),
        ("litert_xnnpack", None, -23692, "arm_vector", "i32"),
        ("litert_xnnpack", "i32", -23692, "arm_vector", "i32"),
        ("litert_xnnpack", "i64", -23693, "litert_float", "i64"),
    ],
)
def test_16_bits_by_8_in_litert(profile: str, bias: str | None, expected: int, scheme: str, accumulator: str) -> None:
    """The second rounding of a negative tie: -29250 * 81 / 100 is -23692.5."""
    plan = plan_matmul(
        tensor("tensor<1x1x!quant.uniform<i16:f32, 0.5>>"),
        tensor("tensor<1x1x!quant.uniform<i8:f32, 0.25>>"),
        parse_type("!quant.uniform<i16:f32, 12.5>"),
        profile,
        bias=None if bias is None else tensor(f"tensor<1x{bias}>"),
    )
    added = None if bias is None else np.zeros(1, np.int32 if bias == "i32" else np.int64)
    target = np.empty(1, np.int16)
    plan.run(np.array([-29250], np.int16), np.array([81], np.int8), added, target)
    assert target.tolist() == [expected]
    assert plan.stage is not None
    assert plan.stage.scheme is not None
    assert (plan.stage.scheme.name, plan.accumulation.accumulator) == (scheme, accumulator)


class TestOverflow:
    """K * 255 * 255 passes 2^31 - 1 from K = 33026 on."""

    MOST = 33025

    @pytest.mark.parametrize("depth", [MOST, MOST + 1])
    @pytest.mark.parametrize("overflow", SumOverflow)
    def test_at_the_bound(self, depth: int, overflow: SumOverflow) -> None:
        a, b = np.full((2, depth), 255, np.uint8), np.full((depth, 3), 255, np.uint8)
        a[0], exact = 0, depth * 255 * 255
        if overflow is SumOverflow.ERROR and depth > self.MOST:
            with pytest.raises(PreconditionError, match=f"the sum of element 3 is {exact}") as caught:
                matmul_integers(a, b, overflow=overflow)
            assert caught.value.index == 3
            return
        last = min(exact, 2**31 - 1) if overflow is SumOverflow.SATURATE else product_oracle.wrapped(exact)
        assert matmul_integers(a, b, overflow=overflow).tolist() == [[0] * 3, [last] * 3]
        assert matmul_integers(a, b, overflow=overflow, accumulator=Accumulator.I64)[1, 2] == exact

    def test_sums_on_the_way_do_not_matter(self) -> None:
        """Only the last sum has to be held, whatever the sum of stored numbers is before zero points are corrected."""
        a, b = np.full((1, 70000), 255, np.uint8), np.full((70000, 1), 255, np.uint8)
        found = matmul_integers(a, b, 254, 254, overflow=SumOverflow.ERROR)
        assert found.tolist() == [[70000]]

    def test_a_bias_counts(self) -> None:
        plan = plan_matmul(
            tensor("tensor<1x1xi8>"), tensor("tensor<1x1xi8>"), parse_type("i32"), bias=tensor("tensor<1xi32>")
        )
        one, target = np.ones(1, np.int8), np.empty(1, np.int32)
        plan.run(one, one, np.array([2**31 - 2], np.int32), target)
        assert target.tolist() == [2**31 - 1]
        with pytest.raises(PreconditionError):
            plan.run(one, one, np.array([2**31 - 1], np.int32), target)

    def test_saturation_of_both_ends(self) -> None:
        sums = np.array([-(2**40), -(2**31) - 1, -(2**31), 5, 2**31 - 1, 2**31, 2**40])
        expected = [-(2**31)] * 3 + [5] + [2**31 - 1] * 3
        assert settle(sums, SumOverflow.SATURATE, 0).tolist() == expected


@settings(max_examples=examples(300))
@given(
    bias=st.integers(-(2**31), 2**31 - 1),
    own=st.sampled_from([0.5, 0.25, 0.125, 0.1, 1e-3, 3.0]),
    scale_a=st.sampled_from([0.5, 0.25, 0.1]),
    scale_b=st.sampled_from([0.5, 1.0, 0.3]),
    profile=st.sampled_from(["litert", "onnx"]),
)
def test_a_bias_of_another_scale_is_rescaled(
    bias: int, own: float, scale_a: float, scale_b: float, profile: str
) -> None:
    plan = plan_matmul(
        tensor(f"tensor<1x1x!quant.uniform<i8:f32, {scale_a}>>"),
        tensor(f"tensor<1x1x!quant.uniform<i8:f32, {scale_b}>>"),
        parse_type("i64"),
        profile,
        bias=tensor(f"tensor<1x!quant.uniform<i32:f32, {own}>>"),
    )
    zero, target = np.zeros(1, np.int8), np.empty(1, np.int64)
    plan.run(zero, zero, np.array([bias], np.int32), target)
    # Systems keep scales as f32.
    a, b, s = (float(np.float32(each)) for each in (scale_a, scale_b, own))
    assert target[0] == product_oracle.rescaled_bias(bias, s, a * b, away=profile == "litert")


class TestVectors:
    """qgemm_conv.json: what onnxruntime, the reference evaluator and LiteRT gave."""

    def test_matmul_integer(self) -> None:
        cases = load("qgemm_conv")["onnx_matmul_integer"]
        for case in cases:
            a = np.array(case["a"], case["a_type"]).reshape(case["M"], case["K"])
            b = np.array(case["b"], case["b_type"]).reshape(case["K"], case["N"])
            found = matmul_integers(a, b, case["a_zp"], np.array(case["b_zp"]))
            assert found.ravel().tolist() == case["y"]
        assert len(cases) == 8

    @pytest.mark.parametrize(("profile", "column"), [("onnx", "ort"), ("onnx_reference", "ref")])
    def test_qlinear_matmul(self, profile: str, column: str) -> None:
        cases = load("qgemm_conv")["onnx_qlinear_matmul"]
        for case in cases:
            storage = "i8" if case["b_type"] == "int8" else "u8"
            b_side = Side([real(each) for each in case["b_scale"]], case["b_zp"])
            m, k, n = case["M"], case["K"], case["N"]
            plan = plan_matmul(
                tensor(f"tensor<{m}x{k}x{quantized('u8', Side([real(case['a_scale'])], [case['a_zp']]), 0)}>"),
                tensor(f"tensor<{k}x{n}x{quantized(storage, b_side, 1)}>"),
                parse_type(quantized("u8", Side([real(case["y_scale"])], [case["y_zp"]]), 0)),
                profile,
            )
            target = np.empty(m * n, np.uint8)
            plan.run(np.array(case["a"], np.uint8), np.array(case["b"], case["b_type"]), None, target)
            assert target.tolist() == case[column]
        assert len(cases) == 10

    @pytest.mark.parametrize(("profile", "column"), [("litert", "ref"), ("litert_xnnpack", "default")])
    def test_fully_connected(self, profile: str, column: str) -> None:
        cases = load("qgemm_conv")["litert_fully_connected"]
        for case in cases:
            w_side = Side([real(each) for each in case["w_scale"]], [0] * len(case["w_scale"]))
            rows, k, n = case["B"], case["K"], case["M"]
            plan = plan_matmul(
                tensor(f"tensor<{rows}x{k}x{quantized('i8', Side([real(case['in_scale'])], [case['in_zp']]), 0)}>"),
                tensor(f"tensor<{k}x{n}x{quantized('i8', w_side, 1)}>"),
                parse_type(quantized("i8", Side([real(case["out_scale"])], [case["out_zp"]]), 0)),
                profile,
                bias=tensor(f"tensor<{n}xi32>"),
            )
            weights = np.ascontiguousarray(np.array(case["w_MK"], np.int8).reshape(n, k).T).ravel()
            target = np.empty(rows * n, np.int8)
            plan.run(np.array(case["x"], np.int8), weights, np.array(case["bias"], np.int32), target)
            assert target.tolist() == case[column]
        assert len(cases) == 8


def real(bits: str) -> float:
    return float(np.array([int(bits, 16)], np.uint32).view(np.float32)[0])


@pytest.mark.parametrize(
    ("lhs", "rhs", "output", "error", "side"),
    [
        ("tensor<3xi8>", "tensor<3x2xi8>", "i32", TypeFitError, "lhs"),
        ("tensor<2x3xi8>", "tensor<3xi8>", "i32", TypeFitError, "rhs"),
        ("tensor<2x3xi8>", "tensor<4x2xi8>", "i32", TypeFitError, "rhs"),
        ("tensor<2x2x3xi8>", "tensor<3x3x2xi8>", "i32", TypeFitError, "rhs"),
        ("tensor<2x3xi8>", "tensor<3x2xi8>", "tensor<2x3xi32>", TypeFitError, "output"),
        ("tensor<2x3xi8>", "tensor<3x2xi8>", "i16", UnsupportedError, "output"),
        ("tensor<2x3xi8>", "tensor<3x2xi8>", "!quant.uniform<i8:f32, 1.0>", UnsupportedError, "lhs"),
        ("tensor<2x3xi32>", "tensor<3x2xi8>", "i32", UnsupportedError, "lhs"),
        ("tensor<2x3xf32>", "tensor<3x2xi8>", "i32", UnsupportedError, "lhs"),
        ("tensor<2x3x!quant.uniform<i8:f32:1, {1.0, 2.0, 3.0}>>", "tensor<3x2xi8>", "i32", UnsupportedError, "lhs"),
        ("tensor<2x3xi8>", "tensor<3x2x!quant.uniform<i8:f32:0, {1.0, 2.0, 3.0}>>", "i32", UnsupportedError, "rhs"),
        ("tensor<?x3xi8>", "tensor<3x2xi8>", "i32", TypeFitError, "lhs"),
    ],
)
def test_refused(lhs: str, rhs: str, output: str, error: type[RequantError], side: str) -> None:
    with pytest.raises(error) as caught:
        plan_matmul(tensor(lhs), tensor(rhs), parse_type(output))
    assert caught.value.side == side


def test_scales_of_rows_columns_and_outputs_meet() -> None:
    """A scale for each row, each column, and each column of the output: a multiplier for each element."""
    plan = plan_matmul(
        tensor("tensor<2x1x!quant.uniform<i8:f32:0, {0.5, 1.0}>>"),
        tensor("tensor<1x2x!quant.uniform<i8:f32:1, {1.0, 2.0}>>"),
        parse_type("!quant.uniform<i8:f32:1, {0.5:1, 4.0:-1}>"),
        "onnx",
    )
    target = np.empty(4, np.int8)
    plan.run(np.array([8, 8], np.int8), np.array([2, 2], np.int8), None, target)
    assert target.tolist() == [16 + 1, 4 - 1, 32 + 1, 8 - 1]


@pytest.mark.parametrize(
    ("weights", "depth", "columns", "expected"),
    [
        ("i8", 3, 1, 0), ("i4", 2, 1, 0), ("i4", 3, 1, 1),
        ("i2", 4, 2, 0), ("i2", 4, 1, 1), ("i2", 2, 2, 1), ("i2", 6, 2, 1),
    ],
)  # fmt: skip
def test_weights_that_xnnpack_leaves_have_ties_up(weights: str, depth: int, columns: int, expected: int) -> None:
    """0.5, which XNNPACK rounds to even and LiteRT's optimized kernels up. `columns`: scales of two columns."""
    rhs = quantized(weights, Side([1.0] * columns, [0] * columns), 1)
    plan = plan_matmul(
        tensor(f"tensor<1x{depth}x!quant.uniform<i8:f32, 1.0>>"),
        tensor(f"tensor<{depth}x2x{rhs}>"),
        parse_type("!quant.uniform<i8:f32, 2.0>"),
        "litert_xnnpack",
    )
    target = np.empty(2, plan.output_dtype)
    ones = np.eye(1, depth, dtype=np.int8).ravel()
    plan.run(ones, np.repeat(ones, 2), None, target)
    assert target.tolist() == [expected] * 2
