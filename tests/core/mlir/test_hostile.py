"""Texts made to hurt: each must be answered by TypeTextError, soon, and never by RecursionError."""

from __future__ import annotations

from random import Random

import pytest

from core.errors import TypeTextError
from core.mlir import TensorType, UniformPerAxisType, parse_type, print_type
from tests.support.cases import sample
from tests.support.cpu_time import least_cpu_seconds

_MEGABYTE = 1 << 20
_LIST = "!quant.uniform<i8:f32:0, {"
_BLOCKS = "!quant.uniform<i8:f32:{0:1}, {"

HOSTILE = {
    "angles": "<" * _MEGABYTE,
    "angles in a type": "!quant.uniform" + "<" * _MEGABYTE,
    "types in types": "!quant.uniform<" * (_MEGABYTE // 15),
    "long spellings in each other": "!quant<uniform<" * 30_000 + ">>" * 30_000,
    "tuples": "tuple<" * (_MEGABYTE // 6),
    "tensors": "tensor<" * (_MEGABYTE // 7),
    "braces": "!quant.uniform<i8:f32:0, " + "{" * _MEGABYTE,
    "balanced braces": "!quant.uniform<i8:f32:0, " + "{" * (_MEGABYTE // 2) + "}" * (_MEGABYTE // 2) + ">",
    "wrong bracket": "!quant.any<i8" + "}" * _MEGABYTE,
    "digits": "1" * _MEGABYTE,
    "dimension": "tensor<" + "1" * _MEGABYTE + "xf32>",
    "scale": "!quant.uniform<i8:f32, " + "1" * _MEGABYTE + ".0>",
    "fraction": "!quant.uniform<i8:f32, 1." + "1" * _MEGABYTE + ">",
    "exponent": "!quant.uniform<i8:f32, 1.0e" + "1" * _MEGABYTE + ">",
    "zero point": "!quant.uniform<i8:f32, 1.0:" + "1" * _MEGABYTE + ">",
    "zero point in a list": _LIST + "1.0:" + "1" * _MEGABYTE + ",1.0}>",
    "bits": "!quant.uniform<i8:f32, 0x" + "F" * _MEGABYTE + ">",
    "width": "i" + "8" * _MEGABYTE,
    "signs": "!quant.uniform<i8:f32, " + "-" * _MEGABYTE + ">",
    "word": "tensor<" + "x" * _MEGABYTE,
    "rank": "tensor<" + "4x" * 100_000 + "f32>",
    "NUL": "\0" * _MEGABYTE,
    "NUL in a type": "!quant.any<i8" + "\0" * _MEGABYTE,
    "not ASCII": "é" * _MEGABYTE,
    "digits that are not ASCII": "!quant.uniform<i٨:f32, 1.0>",
    "blanks": " " * _MEGABYTE,
    "blanks in a list": _LIST + "1.0 ," * 10 + " " * _MEGABYTE + "}>",
    "comments": "//\n" * (_MEGABYTE // 3),
    "one comment": "//" * (_MEGABYTE // 2),
    "quotes": 'tensor<4xf32, "' + '\\"' * (_MEGABYTE // 2),
    "encoding": "tensor<4xf32, " + "[" * _MEGABYTE,
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


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text(name: str) -> None:
    def refused() -> None:
        with pytest.raises(TypeTextError) as caught:
            parse_type(HOSTILE[name])
        assert len(caught.value.detail) < 400
        assert len(caught.value.caret) < 1700

    assert least_cpu_seconds(refused) < 1.0


def test_a_list_of_65536_channels_is_read_and_printed_fast() -> None:
    """Measured: 0.08 s to read, 0.2 s to print. The bounds leave room for a busy machine."""
    random = Random(7)
    parameters = ", ".join(f"{random.uniform(0.001, 0.1):.6f}:{random.randint(-128, 127)}" for _ in range(65_536))
    text = f"tensor<65536x!quant.uniform<i8:f32:0, {{{parameters}}}>>"
    assert least_cpu_seconds(lambda: parse_type(text)) < 0.5
    type_ = parse_type(text)
    assert isinstance(type_, TensorType)
    assert isinstance(type_.element, UniformPerAxisType)
    assert len(type_.element.scales) == 65_536
    assert least_cpu_seconds(lambda: print_type(type_)) < 1.5
    canonical = print_type(type_)
    assert parse_type(canonical) == type_


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


@pytest.mark.parametrize("name", sample(list(COSTLY), 2))
def test_costly_text_that_is_a_type(name: str) -> None:
    """Measured: at most 1.3 s to read and print, of which most is reading. The bound leaves room for a busy machine."""
    assert len(COSTLY[name]) <= _MEGABYTE + 8
    assert least_cpu_seconds(lambda: print_type(parse_type(COSTLY[name]))) < 4.0
    type_ = parse_type(COSTLY[name])
    canonical = print_type(type_)
    if name != "tuple of lists":
        assert parse_type(canonical) == type_
