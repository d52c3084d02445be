"""Ranges to scales, zero points and finished types: the real systems' vectors, and every rule in exact numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from requant.calibration.finished_type import Granularity, PerAxis, PerBlock, PerTensor, finish_type
from requant.calibration.ranges import RANGE_RULES, RangeOptions, RangeParameters, range_rule_named
from requant.errors import ParameterError, PreconditionError
from requant.formats.elements import FLOATS
from requant.mlir import parse_storage, parse_type, print_type
from requant.mlir.fit import check_fits
from requant.mlir.types import TensorType
from requant.mlir.verifier import fault
from tests.oracles import ranges as oracle
from tests.oracles.quantization import from_bits
from tests.support.cases import examples
from tests.support.ranges import derive_range
from tests.vector_cases import load, range_cases


def test_vectors() -> None:
    cases = range_cases()
    counts = Counter(case.scheme for case in cases)
    assert counts == {
        "torch": 77 + 272,
        "torch_observer": 245,
        "torch_decomposed": 65,
        "litert": 206,
        "litert_fake_quant": 104,
        "onnxruntime": 816,
    }
    for case in cases:
        found = derive_range(
            case.scheme, case.minimum, case.maximum, parse_storage(case.storage), RangeOptions(**case.options)
        )
        assert found.scales[0] == case.scale, case
        assert case.zero_point is None or found.zero_points[0] == case.zero_point, case
        if case.bounds is not None:
            assert (found.storage.minimum, found.storage.maximum) == case.bounds, case
        if case.nudged is not None:
            assert found.nudged_minimums is not None
            assert found.nudged_maximums is not None
            assert (found.nudged_minimums[0], found.nudged_maximums[0]) == case.nudged, case


def test_vectors_per_channel() -> None:
    for row in load("choose_qparams")["torch_per_channel"]:
        data = np.array([from_bits(pattern) for pattern in row["x"]]).reshape(row["shape"])
        options = RangeOptions(symmetric=row["qscheme"] == "per_channel_symmetric")
        found = range_rule_named("torch_observer").derive_all(
            data.min(axis=1), data.max(axis=1), parse_storage("i8"), options
        )
        assert found.scales.tolist() == [from_bits(pattern) for pattern in row["scale"]]
        assert found.zero_points.tolist() == row["zp"]


def test_vectors_of_mlir() -> None:
    """The converter that ran MLIR's function keeps scales as f32."""
    rows = load("mlir_fake_quant")["cases"]
    assert len(rows) == 55
    for row in rows:
        found = derive_range("mlir", from_bits(row["min"]), from_bits(row["max"]), parse_storage(row["storage"]))
        assert float(np.float32(found.scales[0])) == from_bits(row["scale"])
        assert found.zero_points[0] == row["zp"], row


def test_vectors_in_blocks() -> None:
    rows = load("choose_qparams")["ort_blocked"]
    assert len(rows) == 6
    for row in rows:
        data = np.array([from_bits(pattern) for pattern in row["w"]]).reshape(row["shape"])
        starts = np.arange(0, row["shape"][0], row["block"])
        lows, highs = np.minimum.reduceat(data, starts), np.maximum.reduceat(data, starts)
        assert list(lows.shape) == row["scale_shape"]
        storage = {"int4": "i4", "uint4": "u4", "int8": "i8"}[row["dtype"]]
        found = range_rule_named("onnxruntime_blocked").derive_all(
            lows.ravel(), highs.ravel(), parse_storage(storage), RangeOptions(symmetric=row["symmetric"])
        )
        assert found.scales.tolist() == [from_bits(pattern) for pattern in row["scale"]]
        assert found.zero_points.tolist() == row["zp"]


Case = tuple[str, str, dict[str, Any], Callable[[float, float], Any]]

EPSILON = 2.0**-23
SMALLEST_NORMAL = 2.0**-126
LARGEST = math.nextafter(math.inf, 0.0)
# With 65,536 levels up to 0x1.132118p+0, the quotient of this end by the f32 scale rounds across a tie in f32.
BETWEEN_F32_AND_F64 = float.fromhex("-0x1.6c21p+0")


def _observer(lowest: int, highest: int, middle: int | None, epsilon: float = EPSILON) -> Callable[[float, float], Any]:
    return lambda low, high: oracle.torch_observer(low, high, lowest, highest, middle=middle, epsilon=epsilon)


def _onnxruntime(
    lowest: int, highest: int, symmetric: bool = False, least_width: float | None = None, blocked: bool = False
) -> Callable[[float, float], Any]:
    return lambda low, high: oracle.onnxruntime(
        low, high, lowest, highest, symmetric=symmetric, least_width=least_width, blocked=blocked
    )


def _torch(lowest: int, highest: int, power: bool = False, sparse: bool = False) -> Callable[[float, float], Any]:
    return lambda low, high: oracle.torch(low, high, lowest, highest, power_of_two=power, preserve_sparsity=sparse)


def _litert(lowest: int, highest: int) -> Callable[[float, float], Any]:
    return lambda low, high: oracle.litert(low, high, lowest, highest)


def _mlir(lowest: int, highest: int) -> Callable[[float, float], Any]:
    return lambda low, high: oracle.mlir(low, high, lowest, highest)


def _nudge(lowest: int, highest: int) -> Callable[[float, float], Any]:
    return lambda low, high: oracle.nudge(low, high, lowest, highest)


def _tensorflow(lowest: int, highest: int) -> Callable[[float, float], Any]:
    return lambda low, high: oracle.tensorflow_nudge(low, high, lowest, highest)


CASES: list[Case] = [
    ("litert", "i8", {}, _litert(-128, 127)),
    ("litert", "u8", {"narrow": True}, _litert(1, 255)),
    ("litert", "i16<-32767:32767>", {}, _litert(-32767, 32767)),
    ("litert", "i32", {}, _litert(-(1 << 31), (1 << 31) - 1)),
    ("litert_converter", "i8", {}, lambda a, b: oracle.litert_converter(a, b, symmetric=False, highest=127)),
    (
        "litert_converter",
        "i8",
        {"symmetric": True},
        lambda a, b: oracle.litert_converter(a, b, symmetric=True, highest=127),
    ),
    (
        "litert_converter",
        "i16",
        {"symmetric": True},
        lambda a, b: oracle.litert_converter(a, b, symmetric=True, highest=32767),
    ),
    ("litert_hybrid", "i8", {}, lambda a, b: oracle.litert_hybrid(a, b, symmetric=False)),
    ("litert_hybrid", "i8", {"symmetric": True}, lambda a, b: oracle.litert_hybrid(a, b, symmetric=True)),
    ("litert_fake_quant", "u8", {}, _nudge(0, 255)),
    ("litert_fake_quant", "u3", {"narrow": True}, _nudge(1, 7)),
    ("litert_fake_quant", "u16", {}, _nudge(0, 65535)),
    ("tf_fake_quant", "u8", {}, _tensorflow(0, 255)),
    ("tf_fake_quant", "u8<1:255>", {}, _tensorflow(1, 255)),
    ("tf_fake_quant", "u2", {}, _tensorflow(0, 3)),
    ("onnxruntime", "u8", {}, _onnxruntime(0, 255)),
    ("onnxruntime", "i8", {"symmetric": True}, _onnxruntime(-127, 127, True)),
    ("onnxruntime", "i8<-100:127>", {"symmetric": True}, _onnxruntime(-100, 127, True)),
    ("onnxruntime", "u8", {"symmetric": True}, _onnxruntime(0, 255, True)),
    ("onnxruntime", "i4", {"reduced": True}, _onnxruntime(-4, 3)),
    ("onnxruntime", "i16", {}, _onnxruntime(-32768, 32767)),
    ("onnxruntime", "u16", {"symmetric": True, "reduced": True}, _onnxruntime(0, 32767, True)),
    ("onnxruntime", "u8", {"minimum_real_range": 1e-3}, _onnxruntime(0, 255, False, 1e-3)),
    ("onnxruntime", "i8", {"minimum_real_range": 0.1, "symmetric": True}, _onnxruntime(-127, 127, True, 0.1)),
    ("onnxruntime_blocked", "u4", {}, _onnxruntime(0, 15, blocked=True)),
    ("onnxruntime_blocked", "i8", {"symmetric": True}, _onnxruntime(-127, 127, True, blocked=True)),
    ("onnxruntime_blocked", "u16", {}, _onnxruntime(0, 65535, blocked=True)),
    ("onnx_dynamic", "u8", {}, lambda a, b: oracle.onnx_dynamic(a, b, empty=1.0, undefined=255)),
    (
        "onnx_dynamic_reference",
        "ui8",
        {},
        lambda a, b: oracle.onnx_dynamic(a, b, empty=float(np.float32(1) / np.float32(255)), undefined=255),
    ),
    ("onnx_dynamic_function", "u8", {}, lambda a, b: oracle.onnx_dynamic(a, b, empty=0.0, undefined=0)),
    ("torch", "u8", {}, _torch(0, 255)),
    ("torch", "u8", {"reduced": True}, _torch(0, 127)),
    ("torch", "i8", {"reduced": True}, _torch(-64, 63)),
    ("torch", "i8<-127:127>", {"reduced": True}, _torch(-63, 63)),
    ("torch", "i8", {"preserve_sparsity": True}, _torch(-128, 127, False, True)),
    ("torch", "u8", {"power_of_two": True}, _torch(0, 255, True)),
    ("torch", "u4", {"power_of_two": True, "preserve_sparsity": True}, _torch(0, 15, True, True)),
    ("torch", "u31", {"preserve_sparsity": True}, _torch(0, (1 << 31) - 1, False, True)),
    ("torch_observer", "u8", {}, _observer(0, 255, None)),
    ("torch_observer", "i8", {"reduced": True}, _observer(-64, 63, None)),
    ("torch_observer", "i8<-127:100>", {"reduced": True}, _observer(-64, 50, None)),
    ("torch_observer", "i8", {"symmetric": True}, _observer(-128, 127, 0)),
    ("torch_observer", "u8", {"symmetric": True}, _observer(0, 255, 128)),
    ("torch_observer", "u8<0:120>", {"symmetric": True}, _observer(0, 120, 60)),
    ("torch_observer", "u8<0:121>", {"reduced": True}, _observer(0, 60, None)),
    ("torch_observer", "u16", {"symmetric": True}, _observer(0, 65535, 1 << 15)),
    ("torch_observer", "i16", {"reduced": True}, _observer(-32768, 32767, None)),
    ("torch_observer", "u4", {"symmetric": True}, _observer(0, 15, 0)),
    ("torch_observer", "i32", {}, _observer(-(1 << 31), (1 << 31) - 1, None)),
    ("torch_observer", "i32<0:2147483647>", {}, _observer(0, (1 << 31) - 1, None)),
    ("torch_observer", "i8", {"epsilon": 2.0**-12}, _observer(-128, 127, None, 2.0**-12)),
    ("torch_observer", "i8", {"epsilon": 1e-10, "symmetric": True}, _observer(-128, 127, 0, 1e-10)),
    ("torch_decomposed", "i8<-127:127>", {"symmetric": True}, _observer(-127, 127, 0)),
    ("torch_decomposed", "u8<0:15>", {"symmetric": True}, _observer(0, 15, 128)),
    ("torch_decomposed", "u16", {"symmetric": True}, _observer(0, 65535, 0)),
    ("torch_decomposed", "i32", {}, _observer(-(1 << 31), (1 << 31) - 1, None)),
    ("torch_per_token", "i8", {}, lambda a, b: oracle.torch_per_token(a, b, symmetric=False)),
    ("torch_per_token", "i8", {"symmetric": True}, lambda a, b: oracle.torch_per_token(a, b, symmetric=True)),
    ("onednn", "u8", {}, lambda a, b: oracle.onednn(a, b, highest=255)),
    ("onednn", "i8", {}, lambda a, b: oracle.onednn(a, b, highest=127)),
    ("mlir", "i8", {}, _mlir(-128, 127)),
    ("mlir", "u8", {"narrow": True}, _mlir(1, 255)),
    ("mlir", "i16", {}, _mlir(-32768, 32767)),
    ("mlir", "u32", {}, _mlir(0, (1 << 32) - 1)),
]


def ends(width: Literal[32, 64]) -> st.SearchStrategy[float]:
    """Numbers at which rules change: powers of two and their neighbours, short fractions, subnormals, and any."""
    powers = st.builds(
        lambda exponent, step, sign: sign * math.ldexp(1.0 + step * 2.0**-23, exponent),
        st.integers(-149, 127),
        st.integers(0, 2),
        st.sampled_from([-1.0, 1.0]),
    ).map(lambda value: float(np.float32(value)))
    steps = st.builds(
        lambda count, scale: count * scale / 2, st.integers(-600, 600), st.sampled_from([1.0, 0.25, 6.1e-5])
    )
    return st.one_of(
        st.just(0.0),
        powers.filter(math.isfinite),
        steps.map(lambda value: float(np.float32(value))),
        st.floats(width=width, allow_nan=False, allow_infinity=False),
        st.floats(-1e3, 1e3, width=width),
    )


F32_RANGES = st.tuples(ends(32), ends(32)).map(sorted)
F64_RANGES = st.tuples(ends(64), ends(64)).map(sorted)


def check(scheme: str, storage: str, options: dict[str, Any], low: float, high: float, expected: Any) -> None:
    def found() -> RangeParameters:
        return derive_range(scheme, low, high, parse_storage(storage), RangeOptions(**options))

    if expected is None:
        with pytest.raises((PreconditionError, ParameterError)):
            found()
        return
    result = found()
    assert (result.scales[0], result.zero_points[0]) == expected[:2]
    if len(expected) == 4:
        assert result.nudged_minimums is not None
        assert result.nudged_maximums is not None
        assert (result.nudged_minimums[0], result.nudged_maximums[0]) == expected[2:]


def test_every_rule_has_a_case() -> None:
    assert {scheme for scheme, *_ in CASES} == set(RANGE_RULES)


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join([case[0], case[1], *case[2]]))
def test_rule(case: Case) -> None:
    scheme, storage, options, expected = case
    rule = RANGE_RULES[scheme]

    @settings(max_examples=examples(150))
    @given(F32_RANGES if rule.keeps_f32 else F64_RANGES)
    @example([0.0, 0.0])
    @example([-1.0, 1.0])
    @example([0.0, 2.0**-149])
    @example([-(2.0**-149), 0.0])
    @example([-1.5, 253.5])
    @example([0.0, 255 * SMALLEST_NORMAL])
    @example([BETWEEN_F32_AND_F64, float.fromhex("0x1.132118p+0")])
    @example([-1.5 * 2.0**127, 1.5 * 2.0**127])
    @example([-0.5, 2.0**128 - 2.0**104])
    @example([-LARGEST, LARGEST] if not rule.keeps_f32 else [0.0, 1.0])
    def run(pair: list[float]) -> None:
        low, high = pair
        if rule.contains_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if scheme == "onednn" and storage == "u8":
            low, high = abs(low), max(abs(low), abs(high))
        check(scheme, storage, options, low, high, expected(low, high))

    run()


F32 = FLOATS["f32"]


@pytest.mark.parametrize(
    ("storage", "expressed", "scales", "zero_points", "granularity", "text"),
    [
        ("u8", "f32", [0.5], [3], PerTensor(), "!quant.uniform<u8:f32, 5.000000e-01:3>"),
        ("i8<-127:127>", "f16", [0.25], [0], PerTensor(), "!quant.uniform<i8<-127:127>:f16, 2.500000e-01>"),
        ("i8", "f32", [1.0, 2.0], [0, -1], PerAxis(1, 2), "!quant.uniform<i8:f32:1, {1.000000e+00,2.000000e+00:-1}>"),
        (
            "i4",
            "f32",
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            [0, 1, 2, 3, 4, 5],
            PerBlock((5, 2), (2, 1)),
            "!quant.uniform<i4:f32:{0:2, 1:1}, {{1.000000e+00, 2.000000e+00:1}, {3.000000e+00:2, 4.000000e+00:3}, "
            "{5.000000e+00:4, 6.000000e+00:5}}>",
        ),
        (
            "i8",
            "f32",
            [1.0, 2.0],
            [0, 0],
            PerBlock((4, 64, 3), (4, 32, 100)),
            "!quant.uniform<i8:f32:{1:32}, {{{1.000000e+00}, {2.000000e+00}}}>",
        ),
        ("i8", "f32", [1.0], [0], PerBlock((4,), (4,)), "!quant.uniform<i8:f32:{}, {1.000000e+00}>"),
        ("u8", "f32", [1.0, 1.0], [200, 3], PerBlock((4,), (2,)), None),
    ],
)
def test_types(
    storage: str,
    expressed: str,
    scales: list[float],
    zero_points: list[int],
    granularity: Granularity,
    text: str | None,
) -> None:
    found = finish_type(parse_storage(storage), FLOATS[expressed], scales, zero_points, granularity)
    assert fault(found) is None
    assert text is None or print_type(found) == text
    assert parse_type(print_type(found)) == found
    if isinstance(granularity, PerBlock):
        check_fits(TensorType(granularity.shape, found), short_blocks=True)


def test_scales_of_blocks_are_rounded_to_the_expressed_type() -> None:
    found = finish_type(parse_storage("i8"), F32, [0.1, 0.1], [0, 0], PerBlock((4,), (2,)))
    assert print_type(found) == "!quant.uniform<i8:f32:{0:2}, {1.000000e-01, 1.000000e-01}>"
    assert fault(found) is None


@pytest.mark.parametrize("scale", [0.0, float("inf"), 1e-46, 1e39, float("nan"), -1.0])
def test_scales_that_no_type_has(scale: float) -> None:
    with pytest.raises(PreconditionError) as caught:
        finish_type(parse_storage("i8"), F32, [1.0, scale], [0, 0], PerAxis(0, 2))
    assert caught.value.index == 1


def test_counts() -> None:
    storage = parse_storage("i8")
    with pytest.raises(ParameterError):
        finish_type(storage, F32, [1.0, 1.0], [0, 0], PerTensor())
    with pytest.raises(ParameterError):
        finish_type(storage, F32, [1.0, 1.0], [0], PerAxis(0, 2))
    with pytest.raises(ParameterError):
        finish_type(storage, F32, [1.0] * 65537, [0] * 65537, PerAxis(0, 65537))
    with pytest.raises(ParameterError):
        finish_type(storage, F32, [1.0], [0], PerBlock((), ()))
    with pytest.raises(ParameterError):
        finish_type(parse_storage("f8E5M2"), F32, [1.0, 1.0], [0, 0], PerBlock((4,), (2,)))
