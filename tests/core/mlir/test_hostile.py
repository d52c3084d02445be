"""Texts made to hurt: each must be answered by TypeTextError, soon, and never by RecursionError."""

from __future__ import annotations

from random import Random

import pytest

from requant.errors import TypeTextError
from requant.mlir import TensorType, Type, UniformPerAxisType, parse_type, print_type
from tests.support.cases import EXHAUSTIVE
from tests.support.cpu_time import within_cpu_seconds

_MEGABYTE = 1 << 20
_SIZE = _MEGABYTE if EXHAUSTIVE else _MEGABYTE // 4
_LIST = "!quant.uniform<i8:f32:0, {"
_BLOCKS = "!quant.uniform<i8:f32:{0:1}, {"

HOSTILE = {
    "angles": "<" * _SIZE,
    "angles in a type": "!quant.uniform" + "<" * _SIZE,
    "types in types": "!quant.uniform<" * (_SIZE // 15),
    "long spellings in each other": "!quant<uniform<" * 30_000 + ">>" * 30_000,
    "tuples": "tuple<" * (_SIZE // 6),
    "tensors": "tensor<" * (_SIZE // 7),
    "braces": "!quant.uniform<i8:f32:0, " + "{" * _SIZE,
    "balanced braces": "!quant.uniform<i8:f32:0, " + "{" * (_SIZE // 2) + "}" * (_SIZE // 2) + ">",
    "wrong bracket": "!quant.any<i8" + "}" * _SIZE,
    "digits": "1" * _SIZE,
    "dimension": "tensor<" + "1" * _SIZE + "xf32>",
    "scale": "!quant.uniform<i8:f32, " + "1" * _SIZE + ".0>",
    "fraction": "!quant.uniform<i8:f32, 1." + "1" * _SIZE + ">",
    "exponent": "!quant.uniform<i8:f32, 1.0e" + "1" * _SIZE + ">",
    "zero point": "!quant.uniform<i8:f32, 1.0:" + "1" * _SIZE + ">",
    "zero point in a list": _LIST + "1.0:" + "1" * _SIZE + ",1.0}>",
    "bits": "!quant.uniform<i8:f32, 0x" + "F" * _SIZE + ">",
    "width": "i" + "8" * _SIZE,
    "signs": "!quant.uniform<i8:f32, " + "-" * _SIZE + ">",
    "word": "tensor<" + "x" * _SIZE,
    "rank": "tensor<" + "4x" * 100_000 + "f32>",
    "NUL": "\0" * _SIZE,
    "NUL in a type": "!quant.any<i8" + "\0" * _SIZE,
    "not ASCII": "é" * _SIZE,
    "digits that are not ASCII": "!quant.uniform<i٨:f32, 1.0>",
    "blanks": " " * _SIZE,
    "blanks in a list": _LIST + "1.0 ," * 10 + " " * _SIZE + "}>",
    "comments": "//\n" * (_SIZE // 3),
    "one comment": "//" * (_SIZE // 2),
    "quotes": 'tensor<4xf32, "' + '\\"' * (_SIZE // 2),
    "encoding": "tensor<4xf32, " + "[" * _SIZE,
    "braces that comments close": _BLOCKS + "{//}\n" * 200_000 + "1.0" + "}//{\n" * 200_000 + "}>",
    "ragged at the end": _BLOCKS + "{1.0}," * 50_000 + "1.0}>",
    "wrong at the end": _LIST + "1.0:1," * 150_000 + "1}>",
    "blocks": "!quant.uniform<i8:f32:{" + "0:1," * 250_000 + "0:1}, {1.0}>",
    "a parameter too many": _LIST + "1.0," * 65_536 + "1.0}>",
    "bits of f128": "!quant.uniform<i8:f128:{}, {" + "0x1," * 260_000 + "0x1}>",
    "lists in deep lists": _BLOCKS + ("{" * 10 + "0x1" + "}" * 10 + ",") * 43_000 + "1.0}>",
    "an entry too many": "!quant.quantile<i17:f32, {" + "1.0," * 65_536 + "1.0}>",
    "table": "!quant.quantile<i8:f32, {" + "1.0," * 100_000 + "1.0}>",
    "wide table": "!quant.any<!quant.quantile<i16777215:f32, {1.0}>>",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text(name: str) -> None:
    def refused() -> None:
        with pytest.raises(TypeTextError) as caught:
            parse_type(HOSTILE[name])
        assert len(caught.value.detail) < 400
        assert len(caught.value.caret) < 1700

    assert within_cpu_seconds(refused, 1.0)


def test_a_list_of_65536_channels_is_read_and_printed_fast() -> None:
    """Measured: 0.08 s to read, 0.2 s to print. The bounds leave room for a busy machine."""
    random = Random(7)
    parameters = ", ".join(f"{random.uniform(0.001, 0.1):.6f}:{random.randint(-128, 127)}" for _ in range(65_536))
    text = f"tensor<65536x!quant.uniform<i8:f32:0, {{{parameters}}}>>"
    read: list[Type] = []
    assert within_cpu_seconds(lambda: read.append(parse_type(text)), 0.5)
    type_ = read[-1]
    assert isinstance(type_, TensorType)
    assert isinstance(type_.element, UniformPerAxisType)
    assert len(type_.element.scales) == 65_536
    printed: list[str] = []
    assert within_cpu_seconds(lambda: printed.append(print_type(type_)), 1.5)
    assert parse_type(printed[-1]) == type_


def test_the_limit_of_lists_is_named() -> None:
    for text in (_LIST + "1.0," * 65_536 + "1.0}>", _LIST + "0x3FF0000000000000," * 65_536 + "1.0}>"):
        with pytest.raises(TypeTextError, match="65536") as caught:
            parse_type(text)
        assert caught.value.offset == text.rindex(",") + 1


def _bits(value: int) -> str:
    return f"0x{value:X}"


COSTLY = {
    "f128": "!quant.uniform<i8:f128:{}, {" + ",".join(map(_bits, range(1, 65_537))) + "}>",
    "f80": "!quant.uniform<i8:f80:{}, {" + ",".join(map(_bits, range(1, 65_537))) + "}>",
    "f64": "!quant.uniform<i8:f64:0, {" + ",".join(map(_bits, range(1, 65_537))) + "}>",
    "tuple": "tuple<" + ",".join(["!quant.uniform<i8:f128:{},{0x1}>"] * 31_000) + ">",
    "tuple of lists": "tuple<" + ",".join(["!quant.uniform<i8:f128:{},{" + "0x1," * 65_000 + "0x1}>"] * 4) + ">",
}


@pytest.mark.parametrize("name", list(COSTLY) if EXHAUSTIVE else ["f128"])
def test_costly_text_that_is_a_type(name: str) -> None:
    """Measured: at most 1.3 s to read and print, of which most is reading. The bound leaves room for a busy machine."""
    assert len(COSTLY[name]) <= _MEGABYTE + 8
    seen: list[tuple[Type, str]] = []

    def read_and_print() -> None:
        type_ = parse_type(COSTLY[name])
        seen.append((type_, print_type(type_)))

    assert within_cpu_seconds(read_and_print, 4.0)
    type_, canonical = seen[-1]
    if name != "tuple of lists":
        assert parse_type(canonical) == type_
