"""Types that were made with a fault: the verifier names it. What the parser makes has none (test_parser)."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from requant.formats.elements import FLOATS, IntegerElement
from requant.mlir import (
    AnyType,
    CalibratedType,
    QuantileType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    UniformPerAxisType,
    UniformSubChannelType,
    UniformType,
)
from requant.mlir.verifier import fault, scale_fault

F32 = FLOATS["f32"]
I8 = StorageType.unbounded(IntegerElement(8), signed=True)
U8 = StorageType.unbounded(IntegerElement(8), signed=False)
UNIFORM = UniformType(I8, F32, 1.0, 0)
PER_AXIS = UniformPerAxisType(I8, F32, 0, (1.0, 2.0), (0, 1))
BLOCKS = UniformSubChannelType(U8, F32, ((0, 2),), (2, 1), (1.0, 2.0), (0, 255))
QUANTILE = QuantileType(IntegerElement(1), F32, (1.0, 2.0))


@pytest.mark.parametrize("type_", [UNIFORM, PER_AXIS, BLOCKS, QUANTILE, AnyType(I8, None), TupleType((UNIFORM,))])
def test_right(type_: Type) -> None:
    assert fault(type_) is None


@pytest.mark.parametrize(
    ("type_", "part"),
    [
        (IntegerElement(1 << 24), "16777215"),
        (replace(UNIFORM, scale=0.0), "scale 0.0"),
        (replace(UNIFORM, scale=nan), "NaN"),
        (replace(UNIFORM, storage=replace(I8, minimum=-129)), "-129"),
        (replace(UNIFORM, storage=replace(I8, maximum=128)), "128"),
        (replace(UNIFORM, storage=replace(I8, minimum=5, maximum=5)), "not below"),
        (replace(UNIFORM, storage=StorageType(IntegerElement(33), True, 0, 1)), "33 bits"),
        (replace(UNIFORM, storage=StorageType(IntegerElement(0), True, 0, 1)), "0 bits"),
        (replace(UNIFORM, storage=StorageType(FLOATS["f16"], True, 0, 1)), "f16"),
        (replace(PER_AXIS, axis=-1), "axis -1"),
        (replace(PER_AXIS, scales=(), zero_points=()), "0 scales"),
        (replace(PER_AXIS, zero_points=(1,)), "1 zero points"),
        (replace(PER_AXIS, scales=(1.0, inf)), "inf"),
        (replace(BLOCKS, blocks=((0, 0),)), "block size 0"),
        (replace(BLOCKS, blocks=((-1, 1),)), "axis -1"),
        (replace(BLOCKS, scale_shape=(3,)), "do not fill"),
        (replace(BLOCKS, scale_shape=()), "do not fill"),
        (replace(BLOCKS, scales=(1.0, 0.1)), "no value of f32"),
        (replace(BLOCKS, zero_points=(0, 256)), "zero point 256"),
        (replace(BLOCKS, zero_points=(0, -1)), "zero point -1"),
        (replace(BLOCKS, storage=StorageType.unbounded(FLOATS["f8E5M2"], signed=True)), "integer storage"),
        (CalibratedType(F32, 1.0, 1.0), "not greater"),
        (replace(QUANTILE, table=(1.0,)), "2^1"),
        (replace(QUANTILE, table=(1.0, inf)), "finite"),
        (replace(QUANTILE, minimum=0, maximum=2), "ask for 3"),
        (replace(QUANTILE, minimum=1, maximum=1), "not below"),
        (TensorType((1 << 63,), F32), "invalid dimension"),
        (TensorType(None, F32, '"e"'), "encoding"),
        (TensorType((2,), replace(UNIFORM, scale=-1.0)), "scale -1.0"),
        (TupleType((F32, replace(UNIFORM, scale=-1.0))), "scale -1.0"),
    ],
)
def test_wrong(type_: Type, part: str) -> None:
    found = fault(type_)
    assert found is not None
    assert part in found


@pytest.mark.parametrize("name", FLOATS)
def test_scale_interval_is_closed(name: str) -> None:
    element = FLOATS[name]
    assert scale_fault(element.smallest, element) is None
    assert scale_fault(element.largest, element) is None
    assert scale_fault(-1.0, element) is not None
