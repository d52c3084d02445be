"""Ranges to scales and zero points: the real systems' vectors."""

from __future__ import annotations

from collections import Counter

import numpy as np

from requant.calibration.ranges import RangeOptions, range_rule_named
from requant.mlir import parse_storage
from tests.oracles.quantization import from_bits
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
