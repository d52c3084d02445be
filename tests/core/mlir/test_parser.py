"""What the parser makes of a text, and the limits of the language that the vectors do not show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.errors import TypeTextError
from requant.formats.elements import FLOATS, IndexElement, IntegerElement, Signedness
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
    parse_type,
    print_type,
)
from requant.mlir.lexer import MAXIMUM_DEPTH
from requant.mlir.parser import MAXIMUM_RANK
from requant.mlir.verifier import fault
from tests.support.mlir_strategies import mutated_texts, type_texts

F32 = FLOATS["f32"]
I8 = StorageType(IntegerElement(8), True, -128, 127)
U8 = StorageType(IntegerElement(8), False, 0, 255)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32", F32),
        ("index", IndexElement()),
        ("i007", IntegerElement(7)),
        ("ui8", IntegerElement(8, Signedness.UNSIGNED)),
        ("si64", IntegerElement(64, Signedness.SIGNED)),
        (" tensor < 4 x? x f32 > // end", TensorType((4, None), F32)),
        ("tensor<*xf32>", TensorType(None, F32)),
        ("tensor<f32>", TensorType((), F32)),
        ("tensor<0x10xf32>", TensorType((0, 10), F32)),
        ("tensor<0x0xf32>", TensorType((0, 0), F32)),
        ("tensor<4xf32,>", TensorType((4,), F32)),
        ('tensor<4xf32, "a>,"// b\n>', TensorType((4,), F32, '"a>,"')),
        ("tensor<4xf32, affine_map<(d0) -> (d0)>>", TensorType((4,), F32, "affine_map<(d0) -> (d0)>")),
        ("tuple<>", TupleType(())),
        ("tuple<i8,tuple<f32>>", TupleType((IntegerElement(8), TupleType((F32,))))),
        ("!quant.any<u8>", AnyType(U8, None)),
        ("!quant<any <i8:f32> >", AnyType(I8, F32)),
        ("!quant.uniform<i8:f32, 0.5:-3>", UniformType(I8, F32, 0.5, -3)),
        ("!quant.uniform<u8:f32, 0x3FE0000000000000:0x1F>", UniformType(U8, F32, 0.5, 31)),
        ("!quant.uniform<i8:f32:1, {{0.5,1.0:2}}>", UniformPerAxisType(I8, F32, 1, (0.5, 1.0), (0, 2))),
        ("!quant.calibrated<f32<-1.0:2.0>>", CalibratedType(F32, -1.0, 2.0)),
        (
            "!quant.uniform<u8:f32:{1:2, 0:4}, {{0.1:200},{1.0:-56},{2.0:7}}>",
            UniformSubChannelType(
                U8, F32, ((1, 2), (0, 4)), (3, 1), (0.10000000149011612, 1.0, 2.0), (200, 200, 7)
            ),
        ),
        (
            "!quant.quantile<ui8:f16, {1.0, -2.0}, <3:4>>",
            QuantileType(IntegerElement(8, Signedness.UNSIGNED), FLOATS["f16"], (1.0, -2.0), 3, 4),
        ),
    ],
)  # fmt: skip
def test_value(text: str, expected: object) -> None:
    assert parse_type(text) == expected


@pytest.mark.parametrize(
    ("storage", "low", "high", "signed"),
    [("i2", 0, 3, False), ("si2", -2, 1, True), ("ui2", 0, 3, False), ("f4E2M1FN", -8, 7, True)],
)
def test_codes_of_a_quantile(storage: str, low: int, high: int, signed: bool) -> None:
    """Default bounds of a quantile storage, as iree-opt 3.13 has them: signless codes are unsigned."""
    table = ",".join(["1.0"] * (high - low + 1))
    text = f"!quant.any<!quant.quantile<{storage}:f32, {{{table}}}>"
    type_ = parse_type(f"{text}<{low}:{high}>>")
    assert isinstance(type_, AnyType)
    assert (type_.storage.signed, type_.storage.default_bounds) == (signed, (low, high))
    assert type_ == parse_type(f"{text}>")
    with pytest.raises(TypeTextError):
        parse_type(f"{text}<{low - 1}:{high}>>")
    with pytest.raises(TypeTextError):
        parse_type(f"{text}<{low}:{high + 1}>>")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "u8",
        "tensor<4xu8>",
        "tensor<4>",
        "tensor<4x>",
        "tensor<4xf32",
        "tensor<4xf32>>",
        "tensor<4xtensor<4xf32>>",
        "tensor<4xtuple<>>",
        "tensor<*x4xf32>",
        'tensor<*xf32, "e">',
        'tensor<4xf32, "e", "f">',
        'tensor<4xf32, "e>',
        "tensor<9223372036854775808xf32>",
        "tensor<4.0xf32>",
        "tensor<4xf32>\0",
        "tuple<i8,>",
        "i16777216",
        "vector<4xf32>",
        "memref<4xf32>",
        "complex<f32>",
        "none",
        "() -> ()",
        "!stablehlo.token",
        "!quant.any<i8>x",
        "!quant<any<i8> x>",
        "!quant<any<i8>, 3>",
        "!quant.any<i8 // >\n>",
        '!quant.any<i8 // "\n>',
        "!quant.any<\fi8>",
        "!quant.any<i8,>",
        "tensor<4x!quant.any<i8 // >\n>",
        f"!quant.uniform<i8:f32, {'0' * 64}.0>",
        "!quant.uniform<i8:f32, 1.0:" + "0" * 65 + ">",
        "!quant.uniform<u8:f32:{0:1}, {1.0:-129}>",
        "!quant.uniform<u8:f32:{0:1}, {1.0:256}>",
        "!quant.quantile<i16777215:f32, {1.0}>",
        "!quant.quantile<i1:f32, {0x7FF0000000000000, 1.0}>",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(TypeTextError):
        parse_type(text)


def test_limits_are_where_they_are_said_to_be() -> None:
    assert parse_type(f"tensor<{'1x' * MAXIMUM_RANK}f32>") == TensorType((1,) * MAXIMUM_RANK, F32)
    with pytest.raises(TypeTextError, match=r"more than 64 dimensions"):
        parse_type(f"tensor<{'1x' * (MAXIMUM_RANK + 1)}f32>")
    parse_type("tuple<" * (MAXIMUM_DEPTH - 1) + ">" * (MAXIMUM_DEPTH - 1))
    with pytest.raises(TypeTextError, match=r"64 deep"):
        parse_type("tuple<" * (MAXIMUM_DEPTH + 1) + ">" * (MAXIMUM_DEPTH + 1))
    parse_type(f"tensor<4xf32, {'[' * (MAXIMUM_DEPTH - 1)}{']' * (MAXIMUM_DEPTH - 1)}>")
    with pytest.raises(TypeTextError, match=r"64 deep"):
        parse_type(f"tensor<4xf32, {'[' * MAXIMUM_DEPTH}{']' * MAXIMUM_DEPTH}>")
    lists = MAXIMUM_DEPTH - 1
    assert print_type(parse_type(f"!quant.uniform<i8:f32:{{}}, {'{' * lists}1.0{'}' * lists}>"))
    assert parse_type(f"!quant.uniform<i8:f32, {'0' * 62}1.:{'0' * 63}1>") == UniformType(I8, F32, 1.0, 1)


@given(type_texts | mutated_texts)
def test_a_type_without_fault_or_an_error_with_a_place(text: str) -> None:
    type_ = _parsed_or_error(text)
    if not isinstance(type_, TypeTextError):
        assert fault(type_) is None
        assert print_type(parse_type(print_type(type_))) == print_type(type_)
        return
    assert 0 <= type_.offset <= len(text)
    shown, pointer = type_.caret.split("\n")
    assert pointer.strip() == "^"
    assert len(pointer) <= len(shown) + 1
    assert f"at offset {type_.offset}" in type_.detail


@given(st.text(max_size=60) | st.text(alphabet='!quant.iformle<>{}:,0123x-f \n/"', max_size=60))
def test_any_text_is_a_type_or_a_type_text_error(text: str) -> None:
    found = _parsed_or_error(text)
    assert not isinstance(found, TypeTextError) or 0 <= found.offset <= len(text)


def _parsed_or_error(text: str) -> Type | TypeTextError:
    try:
        return parse_type(text)
    except TypeTextError as error:
        return error
