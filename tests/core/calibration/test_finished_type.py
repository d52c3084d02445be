"""Scales and zero points put into a type."""

from __future__ import annotations

import pytest

from requant.calibration.finished_type import Granularity, PerAxis, PerBlock, PerTensor, finish_type
from requant.errors import ParameterError, PreconditionError
from requant.formats.elements import FLOATS
from requant.mlir import parse_storage, parse_type, print_type
from requant.mlir.fit import check_fits
from requant.mlir.types import TensorType
from requant.mlir.verifier import fault

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
