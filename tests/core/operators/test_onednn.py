"""oneDNN Graph's operators: parameters as tensors and in groups, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.errors import ParameterError, RequantError, TypeFitError, UnknownNameError, UnsupportedError
from tests.oracles import profiles as profile_oracle
from tests.support.operator_calls import run, tensor

X = np.array([[0.25, 1.0, -2.5], [1e9, -1e9, 0.0]], np.float32)
SRC = {"src": tensor("f32", X)}


@pytest.mark.parametrize(("element", "storage"), [("i8", "i8"), ("ui8", "u8")])
def test_both_quantizations_are_the_oracles(element: str, storage: str) -> None:
    scales, zps = [0.1, 0.5, 0.0237], [3, -7, 0]
    static = run(
        "onednn.Quantize", SRC, {"dst_type": element, "qtype": "per_channel", "axis": -1, "scales": scales, "zps": zps}
    )
    dynamic = run(
        "onednn.DynamicQuantize",
        {**SRC, "scales": tensor("f32", scales), "zps": tensor("i32", zps)},
        {"dst_type": element, "qtype": "per_channel", "axis": 1},
    )
    target = profile_oracle.target(storage)
    expected = [
        [profile_oracle.onednn(float(x), scales[c], zps[c], target).value for c, x in enumerate(row)] for row in X
    ]
    assert static["dst"].tolist() == dynamic["dst"].tolist() == expected


@pytest.mark.parametrize("expressed", ["f32", "f16", "bf16"])
def test_groups(expressed: str) -> None:
    q = np.arange(-8, 8).reshape(4, 4)
    scales = np.array([[0.5, 2.0], [4.0, 1.0]], np.float32)
    codes = (scales.view(np.uint32) >> 16) if expressed == "bf16" else scales
    points = np.array([[1, -20], [0, 7]])
    found = run(
        "onednn.DynamicDequantize",
        {"src": tensor("i4", q), "scales": tensor(expressed, codes), "zps": tensor("i32", points)},
        {"qtype": "per_group", "group_shape": [2, 2]},
    )["dst"]
    if expressed == "bf16":
        found = (found.astype(np.uint32) << 16).view(np.float32)
    expected = [[(q[r, c] - points[r // 2, c // 2]) * scales[r // 2, c // 2] for c in range(4)] for r in range(4)]
    assert found.astype(np.float64).tolist() == expected


STATIC: dict[str, Any] = {"dst_type": "i8", "scales": [0.5]}
CHANNELS: dict[str, Any] = {"dst_type": "i8", "qtype": "per_channel", "scales": [0.5, 1.0, 2.0]}


@pytest.mark.parametrize(
    ("attributes", "error", "pointer"),
    [
        ({**STATIC, "scales": [0.5, 1.0]}, TypeFitError, "/attributes/scales"),
        ({**STATIC, "scales": []}, TypeFitError, "/attributes/scales"),
        ({**STATIC, "zps": [1, 2]}, TypeFitError, "/attributes/zps"),
        ({**STATIC, "scales": [0.0]}, ParameterError, "/attributes/scales"),
        ({**STATIC, "scales": [1e-60]}, ParameterError, "/attributes/scales"),
        ({**STATIC, "scales": [1e60]}, ParameterError, "/attributes/scales"),
        ({**STATIC, "zps": [1 << 31]}, ParameterError, "/attributes/zps"),
        ({**STATIC, "dst_type": "f8E5M2", "zps": [0]}, UnsupportedError, "/attributes/zps"),
        ({**STATIC, "dst_type": "i4"}, UnknownNameError, "/attributes/dst_type"),
        ({**STATIC, "qtype": "per_group"}, UnknownNameError, "/attributes/qtype"),
        ({**CHANNELS, "axis": 0}, TypeFitError, "/attributes/scales"),
        ({**CHANNELS, "axis": 2}, ParameterError, "/attributes/axis"),
        ({**CHANNELS, "axis": -3}, ParameterError, "/attributes/axis"),
        ({**CHANNELS, "zps": [0, 0]}, TypeFitError, "/attributes/zps"),
    ],
)
def test_what_quantize_refuses(attributes: Any, error: type[RequantError], pointer: str) -> None:
    with pytest.raises(error) as caught:
        run("onednn.Quantize", SRC, attributes)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("scales", "attributes", "error", "pointer"),
    [
        ([[1.0]], {"qtype": "per_group"}, TypeFitError, "/attributes/group_shape"),
        ([[1.0]], {"qtype": "per_group", "group_shape": [4]}, TypeFitError, "/attributes/group_shape"),
        ([[1.0]], {"qtype": "per_group", "group_shape": [4, 3]}, ParameterError, "/attributes/group_shape"),
        ([[1.0]], {"qtype": "per_group", "group_shape": [4, 0]}, ParameterError, "/attributes/group_shape"),
        ([[1.0]], {"qtype": "per_group", "group_shape": [4, 2]}, TypeFitError, "/inputs/scales"),
        ([[1.0]], {}, TypeFitError, "/inputs/scales"),
        ([0.0], {}, ParameterError, "/inputs/scales"),
        ([1.0, 1.0], {}, TypeFitError, "/inputs/scales"),
    ],
)
def test_what_dynamic_dequantize_refuses(scales: Any, attributes: Any, error: type[RequantError], pointer: str) -> None:
    inputs = {"src": tensor("i8", np.zeros((4, 4))), "scales": tensor("f32", scales)}
    with pytest.raises(error) as caught:
        run("onednn.DynamicDequantize", inputs, attributes)
    assert caught.value.pointer == pointer


def test_small_floats_and_empty_tensors() -> None:
    found = run("onednn.Quantize", {"src": tensor("f32", [1.0, 1e6, -0.0])}, {"dst_type": "f8E5M2", "scales": [1.0]})
    assert found["dst"].tolist() == [0x3C, 0x7C, 0x00]
    empty = run("onednn.Quantize", {"src": tensor("f32", np.zeros((0, 3)))}, CHANNELS)
    assert empty["dst"].shape == (0, 3)
