"""Texts of types: tokens, what the parser makes of them, what is printed, and where an error stands."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from requant.errors import TypeTextError
from requant.formats.elements import FLOATS, FloatElement, IndexElement, IntegerElement, Signedness
from requant.formats.float_format import round_to_format
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
    print_type,
)
from requant.mlir.diagnostics import WINDOW, caret, shown, text_error
from requant.mlir.lexer import MAXIMUM_DEPTH, TokenKind, TokenStream
from requant.mlir.parser import MAXIMUM_RANK
from requant.mlir.verifier import fault
from tests.support.mlir_strategies import mutated_texts, type_texts


def _tokens(text: str) -> list[tuple[str, str, int]]:
    stream, found = TokenStream(text), []
    while stream.token.kind is not TokenKind.END:
        token = stream.advance()
        found.append((token.kind.value, token.text, token.start))
    return found


def test_kinds_and_places() -> None:
    assert _tokens(" !quant.any // c\n 0x1F -1.5e+3:?i8->") == [
        ("dialect_type", "!quant.any", 1),
        ("hexadecimal", "0x1F", 18),
        ("punctuation", "-", 23),
        ("float", "1.5e+3", 24),
        ("punctuation", ":", 30),
        ("punctuation", "?", 31),
        ("word", "i8", 32),
        ("punctuation", "->", 34),
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1.0e+", ["1.0", "e", "+"]),
        ("1.0f", ["1.0", "f"]),
        ("1e5", ["1", "e5"]),
        ("1.e5", ["1.e5"]),
        (".5", [".", "5"]),
        ("0x", ["0", "x"]),
        ("0X1", ["0", "X1"]),
        ("1_0", ["1", "_0"]),
        ("4x4xf32", ["4", "x4xf32"]),
        ("a.b$c_1", ["a.b$c_1"]),
        ("/ /", ["/", "/"]),
        ("\f", ["\f"]),
        ("é", ["é"]),
    ],
)
def test_division_into_tokens(text: str, parts: list[str]) -> None:
    assert [token for _, token, _ in _tokens(text)] == parts


def test_long_numbers_are_refused() -> None:
    assert _tokens("1" * 64)
    with pytest.raises(TypeTextError, match="at most 64"):
        TokenStream("1" * 65)
    assert _tokens("a" * 65)


def test_expect_names_what_was_expected_and_found() -> None:
    stream = TokenStream("< i8")
    stream.expect("<", "here")
    with pytest.raises(TypeTextError, match="expected `>` to close, found `i8`, at offset 2"):
        stream.expect(">", "to close")


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
        (
            "tensor<?x32x!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2>>",
            TensorType((None, 32), BlockScaledType("f8E5M2")),
        ),
        (
            "!tosa<block_scaled< BLOCK_SHAPE_32 : f8E8M0FNU : !tosa.mxint8,{1.5,0.0 , 0x4008000000000000}> >",
            BlockScaledType("!tosa.mxint8", (2.0, 2.0**-127, 4.0)),
        ),
    ],
)  # fmt: skip
def test_value(text: str, expected: object) -> None:
    assert parse_type(text) == expected


BLOCK_SCALES = {
    "1.0": "1.000000e+00", "3.0": "4.000000e+00", "1.5": "2.000000e+00", "1.4999": "1.000000e+00",
    "0.1": "1.250000e-01", "0.0": "5.877470e-39", "6.0e-39": "5.877470e-39", "0x3F800000": "5.877470e-39",
    "1048576.0": "1.048580e+06", "1.7014118346046923e+38": "1.701410e+38", "2.5e+38": "1.701410e+38",
}  # fmt: skip
"""Scales of block-scaled types, and what iree-opt 3.13 prints for them."""


@pytest.mark.parametrize("scale", BLOCK_SCALES)
def test_scales_of_blocks_are_printed_as_powers_of_two(scale: str) -> None:
    text = "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f4E2M1FN, {{{}}}>"
    printed = print_type(parse_type(text.format(scale)))
    assert printed == text.format(BLOCK_SCALES[scale])
    assert parse_type(printed) == parse_type(text.format(scale))


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
        "!tosa.mxint8",
        "!tosa.shape<3>",
        "!tosa.block_scaled <BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2>",
        "!tosa.block_scaled<BLOCK_SHAPE_16:f8E8M0FNU:f8E5M2>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E4M3FN:f8E5M2>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:i8>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f16>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2,>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2, {}>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2, {1}>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2, {1.0,}>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2, {-1.0}>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2, {2.6e+38}>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2, {0x7FF0000000000000}>",
        "!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2, {0x7FF8000000000000}>",
        "!quant.uniform<!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:f8E5M2>:f32, 0.5>",
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


def test_storage_names() -> None:
    signless = IntegerElement(8)
    for storage, name in [
        (StorageType.unbounded(signless, signed=True), "i8"),
        (StorageType.unbounded(signless, signed=False), "u8"),
        (StorageType.unbounded(IntegerElement(8, Signedness.UNSIGNED), signed=False), "ui8"),
        (StorageType.unbounded(IntegerElement(8, Signedness.SIGNED), signed=True), "si8"),
        (StorageType.unbounded(FLOATS["f8E4M3FN"], signed=True), "f8E4M3FN"),
        (StorageType(signless, True, -127, 127), "i8<-127:127>"),
        (StorageType(signless, False, 0, 255), "u8"),
    ]:
        assert print_type(UniformType(storage, F32, 1.0, 0)) == f"!quant.uniform<{name}:f32, 1.000000e+00>"


def test_a_table_in_a_storage_keeps_its_values() -> None:
    """MLIR prints the table of a quantile storage with six digits. That text is another type; ours is the same."""
    quantile = QuantileType(IntegerElement(1), F32, (1 / 3, 0.998))
    type_ = UniformType(StorageType.unbounded(quantile, signed=False), F32, 1.0, 0)
    text = "!quant.uniform<!quant.quantile<i1:f32, {0.33333333333333331,0.998}>:f32, 1.000000e+00>"
    assert print_type(type_) == text
    assert parse_type(text) == type_


def test_unsigned_sub_channel_zero_points_are_printed_as_signed() -> None:
    storage = StorageType.unbounded(IntegerElement(4), signed=False)
    type_ = UniformSubChannelType(storage, F32, ((1, 2),), (1, 3), (1.0, 1.0, 1.0), (15, 8, 7))
    text = "!quant.uniform<u4:f32:{1:2}, {{1.000000e+00:-1, 1.000000e+00:-8, 1.000000e+00:7}}>"
    assert print_type(type_) == text
    assert parse_type(text) == type_


def test_shape_and_encoding() -> None:
    assert print_type(TensorType((2, None, 0), F32, '"e"')) == 'tensor<2x?x0xf32, "e">'
    assert print_type(TensorType(None, F32)) == "tensor<*xf32>"


@given(type_texts)
def test_canonical_text_reads_back_to_the_same_type(text: str) -> None:
    try:
        type_ = parse_type(text)
    except TypeTextError:
        assume(False)
    canonical = print_type(type_)
    assert parse_type(canonical) == type_ or "0x7FF" in canonical or "0xFFF" in canonical  # NaN in a calibrated type
    assert print_type(parse_type(canonical)) == canonical


@st.composite
def _made_types(draw: st.DrawFn) -> Type:
    expressed: FloatElement = draw(st.sampled_from(list(FLOATS.values())))
    width = draw(st.integers(1, 32))
    storage = StorageType.unbounded(IntegerElement(width), signed=draw(st.booleans()))
    scales = st.floats(max(expressed.smallest, 5e-324), expressed.largest, allow_infinity=False)
    if draw(st.booleans()):
        zero_points = st.integers(-(1 << 63), (1 << 63) - 1)
        count = draw(st.integers(1, 4))
        return UniformPerAxisType(
            storage,
            expressed,
            draw(st.integers(0, 5)),
            tuple(draw(scales) for _ in range(count)),
            tuple(draw(zero_points) for _ in range(count)),
        )
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    count = 1
    for size in shape:
        count *= size
    blocks = tuple(draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 64)), max_size=3)))
    return UniformSubChannelType(
        storage,
        expressed,
        blocks,
        shape,
        tuple(round_to_format(draw(scales), expressed) for _ in range(count)),
        tuple(draw(st.integers(*storage.default_bounds)) for _ in range(count)),
    )


@given(_made_types())
def test_a_type_without_fault_survives_its_text(type_: Type) -> None:
    assert fault(type_) is None
    assert parse_type(print_type(type_)) == type_


def test_window_around_a_far_place() -> None:
    text = "a" * 1000 + "!" + "b" * 1000
    line, pointer = caret(text, 1000).split("\n")
    assert len(line) == WINDOW
    assert line[len(pointer) - 1] == "!"


def test_control_characters_are_escaped() -> None:
    assert caret("a\n\0b\x1b[31m", 3) == "a\\n\\x00b\\x1b[31m\n       ^"


def test_end_of_text() -> None:
    assert caret("abc", 3) == "abc\n   ^"
    assert caret("", 0) == "\n^"


def test_error_holds_everything() -> None:
    error = text_error("i9x", 2, "wrong", "write `i9`")
    assert (error.detail, error.offset, error.caret, error.hint) == (
        "wrong, at offset 2",
        2,
        "i9x\n  ^",
        "write `i9`",
    )


def test_shown_is_short() -> None:
    assert shown("") == "the end of the text"
    assert shown("a") == "`a`"
    assert len(shown("a" * 1000)) < 40


@given(st.text(max_size=300), st.data())
def test_caret_points_at_the_character(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(text)))
    line, pointer = caret(text, offset).split("\n")
    assert line.isprintable()
    assert pointer == " " * (len(pointer) - 1) + "^"
    if offset < len(text) and " " <= text[offset] <= "~":
        assert line[len(pointer) - 1] == text[offset]
    assert len(line) <= 10 * WINDOW


# The caret mark `^` in each text is taken out; it stands before the first wrong character.
MISTAKES = [
    ("!quant.uniform<i8:f32, ^1>", "write `1.0`"),
    ("!quant.uniform<i8:f32, ^1e5>", "write `1.0e5`"),
    ("!quant.uniform<i8:f32:0, {1.0, ^2}>", "write `2.0`"),
    ("!quant.uniform<i8:f32, ^3:0.5>", "the scale comes first, then the zero point: `0.5:3`"),
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
    ("tensor<4x^int8>", "integers that stand for themselves are `i8`"),
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
