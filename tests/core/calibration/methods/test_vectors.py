"""The ranges that onnxruntime, torch and the Model Optimizer found in data, and what they made of them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from requant.calibration.finished_type import PerAxis, PerBlock
from requant.calibration.methods import CALIBRATION_METHODS
from tests.core.calibration.methods.observation import find, target
from tests.oracles.quantization import from_bits
from tests.vector_cases import calibration_cases, load


def test_ranges() -> None:
    cases = calibration_cases()
    assert Counter(case.method for case in cases) == {
        "moving_average": 6,
        "torch_histogram": 8,
        "percentile": 17,
        "entropy": 9,
        "entropy_model_optimizer": 30,
    }
    for case in cases:
        wanted = target("u8", CALIBRATION_METHODS[case.method].scheme)
        found = find(case.method, case.tensors, wanted, **case.options)
        assert (found.minimums.tolist(), found.maximums.tolist()) == ([case.minimum], [case.maximum]), case
        assert found.left_out == 0
        if case.scale is not None:
            parameters = wanted.parameters(found.minimums, found.maximums)
            assert (parameters.scales.tolist(), parameters.zero_points.tolist()) == ([case.scale], [case.zero_point])


def test_per_channel() -> None:
    rows = load("choose_qparams")["torch_per_channel"]
    assert len(rows) == 2
    for row in rows:
        data = np.array([from_bits(pattern) for pattern in row["x"]], np.float32).reshape(row["shape"])
        wanted = target("i8", granularity=PerAxis(0, 4), symmetric=row["qscheme"] == "per_channel_symmetric")
        for method in ("min_max", "moving_average"):
            found = find(method, [data], wanted, (1, 6))
            parameters = wanted.parameters(found.minimums, found.maximums)
            assert parameters.scales.tolist() == [from_bits(pattern) for pattern in row["scale"]]
            assert parameters.zero_points.tolist() == row["zp"]


def test_blocks() -> None:
    rows = load("choose_qparams")["ort_blocked"]
    assert len(rows) == 6
    for row in rows:
        data = np.array([from_bits(pattern) for pattern in row["w"]], np.float32).reshape(row["shape"])
        sizes = tuple(row["block"] if axis == row["axis"] else 1 for axis in range(2))
        storage = {"int4": "i4", "uint4": "u4", "int8": "i8"}[row["dtype"]]
        blocks = PerBlock(data.shape, sizes)
        assert list(blocks.scale_shape) == row["scale_shape"]
        wanted = target(storage, "onnxruntime_blocked", blocks, symmetric=row["symmetric"])
        found = find("min_max", [data], wanted, sizes)
        parameters = wanted.parameters(found.minimums, found.maximums)
        assert parameters.scales.tolist() == [from_bits(pattern) for pattern in row["scale"]]
        assert parameters.zero_points.tolist() == row["zp"]
