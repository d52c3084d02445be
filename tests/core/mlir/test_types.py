"""Types: what casts, tensors, StableHLO and the verifier take of them."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from requant.errors import TypeFitError
from requant.formats.elements import FLOATS, IntegerElement
from requant.mlir import (
    AnyType,
    BlockScaledType,
    CalibratedType,
    QuantileType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    UniformPerAxisType,
    UniformSubChannelType,
    UniformType,
    parse_type,
)
from requant.mlir.casts import Cast, cast_reason, dcast_reason, qcast_reason, scast_reason
from requant.mlir.fit import check_fits, fit_fault
from requant.mlir.stablehlo import stablehlo_reason
from requant.mlir.types import MXINT8
from requant.mlir.verifier import fault, scale_fault
from tests.support.drawn_types import tensor

F32 = FLOATS["f32"]
I8 = StorageType.unbounded(IntegerElement(8), signed=True)
U8 = StorageType.unbounded(IntegerElement(8), signed=False)
UNIFORM = UniformType(I8, F32, 1.0, 0)
PER_AXIS = UniformPerAxisType(I8, F32, 0, (1.0, 2.0), (0, 1))
BLOCKS = UniformSubChannelType(U8, F32, ((0, 2),), (2, 1), (1.0, 2.0), (0, 255))
QUANTILE = QuantileType(IntegerElement(1), F32, (1.0, 2.0))


RIGHT = [
    UNIFORM, PER_AXIS, BLOCKS, QUANTILE, AnyType(I8, None), TupleType((UNIFORM,)), BlockScaledType(MXINT8, (2.0,)),
]  # fmt: skip


@pytest.mark.parametrize("type_", RIGHT)
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
        (BlockScaledType("f16"), "f16"),
        (BlockScaledType("f8E5M2", (1.0, 3.0)), "scale 3.0"),
        (BlockScaledType("f8E5M2", (0.0,)), "scale 0.0"),
        (BlockScaledType("f8E5M2", (nan,)), "scale nan"),
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


@pytest.mark.parametrize(
    ("text", "float_cast", "storage_cast"),
    [
        ("!quant.uniform<i8:f32, 1.0>", None, None),
        ("tensor<2x!quant.uniform<u8:f32:0, {1.0,2.0}>>", None, None),
        ("!quant.uniform<ui8:f32, 1.0>", None, "ui8"),
        ("!quant.uniform<f8E4M3FN:f32, 1.0>", None, "f8E4M3FN"),
        ("!quant.uniform<!quant.quantile<i1:f32, {1.0,2.0}>:f32, 1.0>", None, "signless"),
        ("!quant.any<i8>", "no expressed type", None),
        ("!quant.calibrated<f32<0.0:1.0>>", None, "no storage"),
        ("!quant.quantile<i1:f32, {1.0,2.0}>", "bare quantile", "bare quantile"),
        ("!quant.uniform<i8:f32:0, {1.0}>", "scalar", "scalar"),
        ("tensor<3x!quant.uniform<i8:f32:0, {1.0}>>", "3 elements", "3 elements"),
        ("f32", "not a quantized type: f32", "not a quantized type: f32"),
        ("index", "index", "index"),
        ("tuple<f32>", "a tuple", "a tuple"),
        ("!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2>", "block-scaled", "block-scaled"),
    ],
)
def test_one_sided(text: str, float_cast: str | None, storage_cast: str | None) -> None:
    type_ = parse_type(text)
    for reason, expected in [
        (qcast_reason(type_), float_cast),
        (dcast_reason(type_), float_cast),
        (scast_reason(type_), storage_cast),
    ]:
        assert (reason is None) == (expected is None), reason
        assert (expected or "") in (reason or "")


@pytest.mark.parametrize(
    ("cast", "operand", "result", "part"),
    [
        (Cast.QCAST, "i32", "!quant.uniform<i8:f32, 1.0>", "i32"),
        (Cast.QCAST, "tensor<4xf32>", "tensor<?x!quant.uniform<i8:f32, 1.0>>", "[4] and [?]"),
        (Cast.DCAST, "tensor<4x!quant.uniform<i8:f32, 1.0>>", "f32", "a scalar and [4]"),
        (Cast.DCAST, "!quant.any<i8>", "f32", "missing"),
        (Cast.SCAST, "tuple<>", "!quant.any<i8>", "a tuple"),
        (Cast.SCAST, "i16", "!quant.any<i8>", "i16"),
        (Cast.SCAST, "tensor<*xi8>", "tensor<4x!quant.any<i8>>", "unranked"),
        (Cast.SCAST, "i8", "i8", "0 are quantized"),
        (Cast.SCAST, "!quant.any<i8>", "!quant.any<i8>", "2 are quantized"),
    ],
)
def test_reason_of_two_sides(cast: Cast, operand: str, result: str, part: str) -> None:
    assert part in (cast_reason(cast, parse_type(operand), parse_type(result)) or "")


def test_encodings_are_not_compared() -> None:
    """As iree-opt 3.13 has it: executed with two different encodings and with one."""
    quantized = parse_type('tensor<2x!quant.uniform<i8:f32, 1.0>, "e">')
    for text in ("tensor<2xf32>", 'tensor<2xf32, "d">', 'tensor<2xf32, "e">'):
        assert cast_reason(Cast.QCAST, parse_type(text), quantized) is None


_PER_AXIS = "!quant.uniform<i8:f32:1, {1.0,2.0,3.0}>"
_BLOCKS = "!quant.uniform<i8:f32:{0:1, 1:2}, {{1.0,2.0},{3.0,4.0}}>"


@pytest.mark.parametrize(
    "text",
    [
        "tensor<4xf32>",
        "tensor<*x!quant.uniform<i8:f32, 1.0>>",
        f"tensor<2x3x{_PER_AXIS}>",
        f"tensor<0x3x{_PER_AXIS}>",
        f"tensor<2x?x{_PER_AXIS}>",
        f"tensor<*x{_PER_AXIS}>",
        f"tensor<2x4x{_BLOCKS}>",
        f"tensor<?x4x{_BLOCKS}>",
        "tensor<4x2x!quant.uniform<i8:f32:{0:2,0:4}, {{1.0}}>>",
        "tensor<4x?x!quant.uniform<i8:f32:{0:2}, {{1.0},{2.0}}>>",
    ],
)
def test_fits(text: str) -> None:
    check_fits(tensor(text))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (f"tensor<3x{_PER_AXIS}>", ("axis 1", "rank 1")),
        (f"tensor<2x4x{_PER_AXIS}>", ("3 scales", "4 elements")),
        (f"tensor<*x{_BLOCKS}>", ("ranked",)),
        (f"tensor<2x{_BLOCKS}>", ("axis 1", "rank 1")),
        (f"tensor<2x5x{_BLOCKS}>", ("5 elements", "blocks of 2")),
        (f"tensor<0x4x{_BLOCKS}>", ("0 elements",)),
        (f"tensor<2x4x1x{_BLOCKS}>", ("rank 2", "rank 3")),
        (f"tensor<2x8x{_BLOCKS}>", ("2 scales", "ask for 4")),
        ("tensor<4x?x!quant.uniform<i8:f32:{0:2}, {{1.0,1.0},{2.0,2.0}}>>", ("2 scales", "axis 1", "ask for 1")),
    ],
)
def test_does_not_fit(text: str, numbers: tuple[str, ...]) -> None:
    with pytest.raises(TypeFitError) as caught:
        check_fits(tensor(text))
    for number in numbers:
        assert number in caught.value.detail


def test_scalars() -> None:
    assert fit_fault(parse_type("!quant.uniform<i8:f32, 1.0>")) is None
    assert "scalar" in (fit_fault(parse_type(_PER_AXIS)) or "")
    assert "ranked tensor" in (fit_fault(parse_type(_BLOCKS)) or "")


@pytest.mark.parametrize(
    "text",
    [
        "tensor<4xf32>",  # jaxlib
        "tensor<4xui8>",  # jaxlib
        "tensor<4xi1>",  # jaxlib
        "tensor<4xi64>",  # jaxlib
        "tensor<2xui2>",  # jaxlib
        "tensor<2xf8E8M0FNU>",  # jaxlib
        "tensor<2xf4E2M1FN>",  # jaxlib
        "tensor<4x!quant.uniform<i8:f32, 1.0>>",  # jaxlib
        "tensor<4x!quant.uniform<ui8:f32, 1.0>>",  # jaxlib
        "tensor<2x!quant.uniform<u2:f32, 1.0>>",  # jaxlib
        "tensor<2x!quant.uniform<i32:f64, 1.0>>",  # jaxlib
        "tensor<4x!quant.uniform<i8:f80, 1.0>>",  # jaxlib
        'tensor<2x!quant.uniform<i8:f32, 1.0>, "e">',  # jaxlib
        "tensor<?x!quant.uniform<i8:f32:0, {1.0,2.0}>>",
        "tensor<2x!quant.uniform<i8<-8:7>:f32:0, {1.0:-8,2.0:7}>>",
        "!quant.uniform<i8:f32, 1.0>",
        "tuple<tensor<4xf32>>",
    ],
)
def test_taken(text: str) -> None:
    assert stablehlo_reason(parse_type(text)) is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("tensor<*xf32>", "ranked"),  # jaxlib
        ("tensor<*x!quant.uniform<i8:f32, 1.0>>", "ranked"),  # jaxlib
        ("tensor<4xi7>", "i7"),  # jaxlib
        ("tensor<4xui1>", "ui1"),  # jaxlib
        ("tensor<4xi128>", "i128"),  # jaxlib
        ("tensor<4xsi8>", "si8"),  # jaxlib
        ("tensor<4xindex>", "index"),  # jaxlib
        ("tensor<4xtf32>", "tf32"),  # jaxlib
        ("tensor<4xf80>", "f80"),  # jaxlib
        ("tensor<2xf128>", "f128"),  # jaxlib
        ("tensor<4x!quant.uniform<i8:f32, 1.0:300>>", "zero point 300 is outside"),  # jaxlib
        ("tensor<4x!quant.uniform<i8<-8:7>:f32, 1.0:8>>", "zero point 8 is outside"),  # jaxlib
        ("tensor<4x!quant.uniform<i3:f32, 1.0>>", "3 bits"),  # jaxlib
        ("tensor<4x!quant.uniform<si8:f32, 1.0>>", "si8"),  # jaxlib
        ("tensor<4x!quant.uniform<f8E4M3FN:f32, 1.0>>", "stores integers"),  # jaxlib
        ("tensor<2x!quant.any<i8:f32>>", "uniform"),  # jaxlib
        ("tensor<2x!quant.calibrated<f32<0.0:1.0>>>", "uniform"),  # jaxlib
        ("tensor<2x!quant.uniform<i8:f32:{0:1}, {1.0,2.0}>>", "sub-channel"),  # jaxlib
        ("tensor<2x!quant.quantile<ui1:f32, {1.0,2.0}>>", "uniform"),  # jaxlib
        ("tensor<2x!quant.uniform<i8:f32:0, {1.0,2.0:300}>>", "zero point 300 is outside"),
        ("tensor<2x!quant.uniform<i8:f32:1, {1.0,2.0}>>", "rank 1"),
        ("tensor<4x!quant.uniform<i8:f32:0, {1.0,2.0}>>", "4 elements"),
        ("tuple<tensor<4xf32>, i7>", "i7"),
    ],
)
def test_refused(text: str, part: str) -> None:
    assert part in (stablehlo_reason(parse_type(text)) or "")
