"""Common mistakes: the error stands at the right character and says what was probably meant."""

from __future__ import annotations

import pytest

from requant.errors import TypeTextError
from requant.mlir import parse_type

# The caret mark `^` in each text is taken out; it stands before the first wrong character.
MISTAKES = [
    ("!quant.uniform<i8:f32, ^1>", "write `1.0`"),
    ("!quant.uniform<i8:f32, ^1e5>", "write `1.0e5`"),
    ("!quant.uniform<i8:f32:0, {1.0, ^2}>", "write `2.0`"),
    ("!quant.uniform<i8:f32, ^.5>", "write `0.5`"),
    ("!quant.uniform<i8:f32, ^+1.0>", "no `+`"),
    ("!quant.uniform<i8:f32, 1.0:^+1>", "no `+`"),
    ("!quant.uniform<i8:f32, 1.0:^1.0>", "no decimal point"),
    ("!quant.uniform<i8:f32, 1.0:^true>", "-1"),
    ("!quant.uniform<i8:f32, ^nan>", "NaN"),
    ("!quant.uniform<i8:f32, -^inf>", "NaN and infinity"),
    ('!quant.uniform<i8:f32, ^"1.0">', "not quoted"),
    ("!quant.uniform<i8:f32, ^0X3FF0000000000000>", "small `x`"),
    ("!quant.uniform<i8:f32, ^-0x3FF0000000000000>", "0x8000000000000000"),
    ("!quant.uniform<^int8:f32, 1.0>", "write `i8`"),
    ("!quant.uniform<^I8:f32, 1.0>", "write `i8`"),
    ("!quant.uniform<^s8:f32, 1.0>", "`si8`"),
    ("!quant.uniform<^uint8:f32, 1.0>", "write `u8`"),
    ("!quant.uniform<^U8:f32, 1.0>", "write `u8`"),
    ("!quant.uniform<^u 8:f32, 1.0>", "write `u8`"),
    ("!quant.uniform<^f32:i8, 1.0>", "storage comes first"),
    ("!quant.uniform<^quantile<i1:f32, {1.0,2.0}>:f32, 1.0>", "`!quant.quantile<...>`"),
    ("!quant.uniform<i8:^float32, 1.0>", "write `f32`"),
    ("!quant.uniform<i8:^i32, 1.0>", "expressed type"),
    ("!quant.uniform<i8^, 1.0>", "`i8:f32`"),
    ("!quant.uniform<i8:f32, ^{1.0}>", "without braces"),
    ("!quant.uniform<i8:f32, ^{1.0, 2.0}>", "`f32:0, {...}`"),
    ("!quant.uniform<i8:f32:0, ^1.0>", "list"),
    ("!quant.uniform<i8:f32:0, {1.0,^}>", "does not end with a comma"),
    ("!quant.uniform<i8:f32:^-1, {1.0}>", "axes count from 0"),
    ("!quant.uniform<i8:f32:{0:1}, {1.0:^300}>", "must fit"),
    ("!quant.uniform^ <i8:f32, 1.0>", "no blanks"),
    ("^! quant.uniform<i8:f32, 1.0>", "no blanks"),
    ("!quant.^ uniform<i8:f32, 1.0>", "no blanks"),
    ("!quant.^Uniform<i8:f32, 1.0>", "lowercase"),
    ("^quant.uniform<i8:f32, 1.0>", "start with `!`"),
    ("^float32", "write `f32`"),
    ("^u8", "`ui8`"),
    ("tensor<4x^uint8>", "`ui8`"),
    ("tensor<4x^int8>", "write `i8`"),
    ("^Tensor<4xf32>", "write `tensor`"),
    ("tensor<2^,3xf32>", "joined by `x`"),
    ("tensor<^[2,3]xf32>", "no brackets"),
    ("tensor<2x3^>", "element type is missing"),
    ("tensor<2^Xf32>", "small `x`"),
    ("^memref<4x!quant.uniform<i8:f32, 1.0>>", "tensor"),
    ("^vector<4x!quant.uniform<i8:f32, 1.0>>", "tensor"),
    ("^complex<!quant.uniform<i8:f32, 1.0>>", "complex"),
    ("^(i8) -> i8", "functions"),
]


@pytest.mark.parametrize(("marked", "hint"), MISTAKES)
def test_hint(marked: str, hint: str) -> None:
    text = marked.replace("^", "", 1)
    with pytest.raises(TypeTextError) as caught:
        parse_type(text)
    assert caught.value.offset == marked.index("^")
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    assert caught.value.caret == f"{text}\n{' ' * caught.value.offset}^"


@pytest.mark.parametrize(
    ("marked", "detail"),
    [
        ("!quant.uniform<^i33:f32, 1.0>", "storage of 33 bits"),
        ("!quant.uniform<i8<^-129:127>:f32, 1.0>", "-129 is below -128"),
        ("!quant.uniform<i8<-128:^128>:f32, 1.0>", "128 is above 127"),
        ("!quant.uniform<i8<^2:1>:f32, 1.0>", "2 is not below maximum 1"),
        ("!quant.uniform<i8:f32:0, {1.0, ^0.0}>", "scale 0.0 is outside"),
        ("!quant.uniform<i8:f32, ^0x7FF8000000000000>", "NaN"),
        ("!quant.uniform<i8:f32, 1.0:^9223372036854775808>", "signed 64-bit"),
        ("!quant.uniform<i8:f32:^2147483648, {1.0}>", "signed 32-bit"),
        ("!quant.uniform<i8:f32:{0:^0}, {1.0}>", "block size 0"),
        ("!quant.uniform<f8E5M2:f32:^{0:1}, {1.0}>", "integer storage"),
        ("!quant.uniform<i8:f32:0, {{1.0, 2.0}, ^{3.0}}>", "ragged list"),
        ("!quant.calibrated<f32<^1.0:1.0>>", "not greater"),
        ("!quant.quantile<i2:f32, ^{1.0}>", "2^2"),
        ("!quant.quantile<i2:f32, ^{1.0}, <0:1>>", "ask for 2"),
        ("!quant.any<i8>^x", "nothing after the type"),
        ("!quant.uniform<i8:f32, 1.0^", "the `<` at offset 14 is not closed"),
        ("!quant.uniform<i8:f32:0, {1.0^)>", "expected `}`"),
        ("tensor<4xf32^", "found the end of the text"),
    ],
)
def test_detail(marked: str, detail: str) -> None:
    mark = marked.rindex("^") if detail == "2^2" else marked.index("^")
    text = marked[:mark] + marked[mark + 1 :]
    with pytest.raises(TypeTextError) as caught:
        parse_type(text)
    assert caught.value.offset == mark
    assert detail in caught.value.detail
