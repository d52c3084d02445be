"""The one-sided questions about casts, and that they agree with the two-sided ones, which test_vectors checks."""

from __future__ import annotations

import pytest

from requant.mlir import parse_type
from requant.mlir.casts import Cast, cast_reason, dcast_reason, qcast_reason, scast_reason


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
