"""Types of MLIR from text: a hand-written descent that looks one token ahead.

Time is linear in the text. Depth is bounded by `MAXIMUM_DEPTH`, rank by `MAXIMUM_RANK`, and a number by 64 characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.formats.float_format import round_to_format
from requant.mlir.diagnostics import (
    after_parameters_hint,
    dimension_hint,
    expressed_hint,
    parameters_hint,
    shown,
    storage_hint,
    type_hint,
)
from requant.mlir.lexer import (
    BLANKS,
    DECIMAL,
    MAXIMUM_DEPTH,
    MAXIMUM_LIST_LENGTH,
    MAXIMUM_NUMBER_LENGTH,
    Token,
    TokenKind,
    TokenStream,
    body_end,
    element_at,
    encoding_end,
    read_float,
    read_integer,
)
from requant.mlir.types import (
    BLOCK_FORMATS,
    BLOCK_SCALE,
    BLOCK_SHAPE,
    AnyType,
    BlockScaledType,
    CalibratedType,
    QuantileType,
    QuantizedType,
    StorageElement,
    StorageType,
    TensorType,
    TupleType,
    Type,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)
from requant.mlir.verifier import (
    FLOAT_STORAGES,
    axis_fault,
    block_fault,
    block_scale_fault,
    blockwise_storage_fault,
    blockwise_zero_point_range,
    calibrated_fault,
    dimension_fault,
    encoding_fault,
    maximum_fault,
    minimum_fault,
    order_fault,
    scale_fault,
    table_entry_fault,
    table_length_fault,
    width_fault,
)

_PARAMETER_AND_COMMA = re.compile(
    rf"{BLANKS}(?P<scale>{DECIMAL}){BLANKS}(?::{BLANKS}(?P<zero_point>-?+[0-9]++){BLANKS})?+,"
)
T = TypeVar("T")

_INT64 = (-(1 << 63), (1 << 63) - 1)


class ParameterReader:
    """Reads parameters from a stream into `scales` and `zero_points`, flat.

    Scales must be legal for `expressed`. Zero points must lie in `zero_point_range`; outside
    sub-channel types that is all of int64, since the dialect does not compare them with the storage.
    """

    def __init__(
        self, stream: TokenStream, expressed: FloatElement, zero_point_range: tuple[int, int] = _INT64
    ) -> None:
        self.scales: list[float] = []
        self.zero_points: list[int] = []
        self._stream = stream
        self._expressed = expressed
        self._zero_point_range = zero_point_range

    def read_parameter(self) -> None:
        """Take one parameter. Raises TypeTextError."""
        stream = self._stream
        start = stream.token.start
        scale = read_float(stream, "scale")
        zero_point, zero_point_start = 0, start
        if stream.accept(":"):
            zero_point_start = stream.token.start
            zero_point = read_integer(stream, "zero point")
        self._add(scale, start, zero_point, zero_point_start)

    def read_list(self, depth: int = 1) -> tuple[int, ...]:
        """Take a list and return the shape of its nesting, which must be rectangular. Raises TypeTextError."""
        stream = self._stream
        hint = "write the parameters as a list: `{0.5, 0.25:3}`; a type without axis has one without braces"
        opening = stream.expect("{", "to open the list of scales", hint)
        if depth > MAXIMUM_DEPTH:
            raise stream.error(opening.start, f"lists nested more than {MAXIMUM_DEPTH} deep")
        count = 0
        inner: tuple[int, ...] | None = None
        while True:
            start = stream.token.start
            if stream.looks_at("{"):
                shape = self.read_list(depth + 1)
            else:
                count += self._read_run()
                self.read_parameter()
                shape = ()
            if inner is None:
                inner = shape
            elif shape != inner:
                raise stream.error(start, f"ragged list: {_named(inner)} before, {_named(shape)} here")
            count += 1
            stream.count_entries(1, start)
            if not stream.accept(","):
                break
        stream.expect("}", "or `,` in the list of scales")
        return (count, *inner)

    def _read_run(self) -> int:
        """Take as many parameters that a comma follows as stand here in plain decimal, and return their number."""
        text, position, count = self._stream.text, self._stream.token.start, 0
        while match := _PARAMETER_AND_COMMA.match(text, position):
            scale, zero_point = match.groups()
            if len(scale) > MAXIMUM_NUMBER_LENGTH or (zero_point and len(zero_point) > MAXIMUM_NUMBER_LENGTH):
                break
            self._add(float(scale), match.start("scale"), int(zero_point or 0), match.start("zero_point"))
            position = match.end()
            count += 1
        if count:
            self._stream.count_entries(count, position)
            self._stream.rewind(position)
        return count

    def _add(self, scale: float, start: int, zero_point: int, zero_point_start: int) -> None:
        if len(self.scales) == MAXIMUM_LIST_LENGTH:
            raise self._stream.error(start, f"a list of more than {MAXIMUM_LIST_LENGTH} parameters")
        if not self._expressed.smallest <= scale <= self._expressed.largest:
            raise self._stream.error(start, scale_fault(scale, self._expressed) or "")
        lowest, highest = self._zero_point_range
        if not lowest <= zero_point <= highest:
            raise self._stream.error(
                zero_point_start,
                f"zero point {zero_point} is outside {lowest} to {highest}",
                None
                if self._zero_point_range == _INT64
                else "MLIR would cut a sub-channel zero point to the width of the storage; here it must fit",
            )
        self.scales.append(scale)
        self.zero_points.append(zero_point)


def _named(shape: tuple[int, ...]) -> str:
    return f"lists of shape {list(shape)}" if shape else "scales"


_UNSIGNED_STORAGE = re.compile(r"u([0-9]{1,10})\Z", re.ASCII)


def read_quantized(stream: TokenStream) -> QuantizedType | BlockScaledType:
    """Take a type that starts with `!`. Raises TypeTextError."""
    if stream.token.text[1:].partition(".")[0] == "tosa":
        return _read_body(stream, "tosa", _TOSA_READERS)
    return _read_body(stream, "quant", _READERS)


def _read_body(stream: TokenStream, dialect: str, readers: Mapping[str, Callable[[TokenStream], T]]) -> T:
    """Take `!dialect.mnemonic<...>` or the long `!dialect<mnemonic<...>>`, with a mnemonic of `readers`."""
    name = stream.token
    found, dot, mnemonic = name.text[1:].partition(".")
    if found != dialect:
        supported = "only types of `!quant` and `!tosa.block_scaled` are supported"
        raise stream.error(name.start, f"unknown dialect in {shown(name.text)}; {supported}")
    opening = name.end
    if dot:
        _check_mnemonic(stream, name.start + len(f"!{dialect}."), mnemonic, readers)
    if stream.text[opening : opening + 1] != "<":
        hint = f"write `{name.text}<`: no blanks from the `!` to the `<`"
        raise stream.error(opening, f"expected `<` right after {shown(name.text)}", hint)
    end = body_end(stream.text, opening)
    stream.rewind(opening)
    if dot:
        result = readers[mnemonic](stream)
    else:
        stream.expect("<", "")
        word = stream.token
        _check_mnemonic(stream, word.start, word.text, readers)
        stream.advance()
        result = readers[word.text](stream)
        stream.expect(">", f"to close `!{dialect}<`")
    # A bracket in a comment makes MLIR see another end than the type has. It then goes on in the middle of the comment.
    if stream.previous_end != end:
        raise stream.error(min(stream.previous_end, end) - 1, "unbalanced brackets: one of them is in a comment")
    return result


def _check_mnemonic(
    stream: TokenStream, start: int, mnemonic: str, readers: Mapping[str, Callable[[TokenStream], Any]]
) -> None:
    if mnemonic not in readers:
        names = ", ".join(f"`{reader}`" for reader in readers)
        detail = f"expected {names}, found {shown(mnemonic)}"
        hint = "names are lowercase" if mnemonic.lower() in readers else None
        if not mnemonic:
            example = "!quant.uniform" if "uniform" in readers else "!tosa.block_scaled"
            hint = f"no blanks from the `!` to the `<`: `{example}<`"
        raise stream.error(start, detail, hint)


def _read_any(stream: TokenStream) -> AnyType:
    stream.expect("<", "after `any`")
    storage = read_storage(stream)
    expressed = _read_expressed(stream) if stream.accept(":") else None
    stream.expect(">", "to close `any<`" if expressed else "to close `any<`, or `:` and an expressed type")
    return AnyType(storage, expressed)


def _read_uniform(stream: TokenStream) -> UniformQuantizedType:
    stream.expect("<", "after `uniform`")
    storage = read_storage(stream)
    hint = "the expressed type follows the storage: `i8:f32`"
    stream.expect(":", "and the expressed type after the storage", hint)
    expressed = _read_expressed(stream)
    result: UniformQuantizedType
    if not stream.accept(":"):
        result = _read_per_tensor(stream, storage, expressed)
    elif stream.looks_at("{"):
        result = _read_sub_channel(stream, storage, expressed)
    else:
        result = _read_per_axis(stream, storage, expressed)
    stream.expect(">", "to close `uniform<`", after_parameters_hint(stream.text, stream.token.start))
    return result


def _read_per_tensor(stream: TokenStream, storage: StorageType, expressed: FloatElement) -> UniformType:
    stream.expect(",", "and a scale, or `:` and an axis")
    if stream.looks_at("{"):
        raise stream.unexpected("a scale", parameters_hint(stream.text, stream.token.start))
    reader = ParameterReader(stream, expressed)
    reader.read_parameter()
    return UniformType(storage, expressed, reader.scales[0], reader.zero_points[0])


def _read_per_axis(stream: TokenStream, storage: StorageType, expressed: FloatElement) -> UniformPerAxisType:
    axis = _read_axis(stream)
    stream.expect(",", "and a list of scales after the axis")
    reader = ParameterReader(stream, expressed)
    reader.read_list()
    return UniformPerAxisType(storage, expressed, axis, tuple(reader.scales), tuple(reader.zero_points))


def _read_sub_channel(stream: TokenStream, storage: StorageType, expressed: FloatElement) -> UniformSubChannelType:
    if problem := blockwise_storage_fault(storage.element):
        raise stream.error(stream.token.start, problem)
    blocks = _read_blocks(stream)
    stream.expect(",", "and a list of scales after the block sizes")
    reader = ParameterReader(stream, expressed, blockwise_zero_point_range(storage))
    shape = reader.read_list()
    scales = tuple([round_to_format(scale, expressed) for scale in reader.scales])
    period = 1 << storage.width
    zero_points = reader.zero_points if storage.signed else [value % period for value in reader.zero_points]
    return UniformSubChannelType(storage, expressed, blocks, shape, scales, tuple(zero_points))


def _read_blocks(stream: TokenStream) -> tuple[tuple[int, int], ...]:
    opening = stream.expect("{", "to open the block sizes")
    blocks: list[tuple[int, int]] = []
    while blocks or not stream.looks_at("}"):
        axis = _read_axis(stream)
        stream.expect(":", "and the block size after the axis")
        start = stream.token.start
        size = read_integer(stream, "block size")
        if problem := block_fault(size):
            raise stream.error(start, problem)
        blocks.append((axis, size))
        if len(blocks) > MAXIMUM_DEPTH:
            raise stream.error(opening.start, f"more than {MAXIMUM_DEPTH} block sizes")
        if not stream.accept(","):
            break
    stream.expect("}", "or `,` in the block sizes")
    return tuple(blocks)


def _read_axis(stream: TokenStream) -> int:
    start = stream.token.start
    axis = read_integer(stream, "axis", bits=32)
    if problem := axis_fault(axis):
        raise stream.error(start, problem, f"axes count from 0: write the rank of the tensor minus {-axis}")
    return axis


def _read_calibrated(stream: TokenStream) -> CalibratedType:
    stream.expect("<", "after `calibrated`")
    expressed = _read_expressed(stream)
    opening = stream.expect("<", "and a range after the expressed type")
    minimum = read_float(stream, "minimum")
    stream.expect(":", "between minimum and maximum")
    maximum = read_float(stream, "maximum")
    if problem := calibrated_fault(minimum, maximum):
        raise stream.error(opening.end, problem)
    stream.expect(">", "to close the range")
    stream.expect(">", "to close `calibrated<`")
    return CalibratedType(expressed, minimum, maximum)


def _read_quantile(stream: TokenStream) -> QuantileType:
    stream.expect("<", "after `quantile`")
    storage = _read_number_element(stream, "the storage")
    stream.expect(":", "and the type of the values after the storage")
    value = _read_number_element(stream, "the values")
    stream.expect(",", "and a table of values")
    opening = stream.expect("{", "to open the table of values")
    table = _read_table(stream)
    bounds = _read_bounds(stream, None) if stream.accept(",") else None
    result = QuantileType(storage, value, table, *(bounds or (None, None)))
    if problem := table_length_fault(result):
        raise stream.error(opening.start, problem)
    stream.expect(">", "to close `quantile<`")
    return result


def _read_table(stream: TokenStream) -> tuple[float, ...]:
    entries: list[float] = []
    while True:
        start = stream.token.start
        if len(entries) == MAXIMUM_LIST_LENGTH:
            raise stream.error(start, f"a table of more than {MAXIMUM_LIST_LENGTH} entries")
        stream.count_entries(1, start)
        entries.append(read_float(stream, "entry of the table"))
        if problem := table_entry_fault(entries[-1]):
            raise stream.error(start, problem)
        if not stream.accept(","):
            break
    stream.expect("}", "or `,` in the table")
    return tuple(entries)


def _read_number_element(stream: TokenStream, purpose: str) -> IntegerElement | FloatElement:
    element = element_at(stream)
    if not isinstance(element, IntegerElement | FloatElement):
        hint = expressed_hint(stream.token.text) or storage_hint(stream.text, stream.token.start, stream.token.text)
        raise stream.unexpected(f"an integer or float type for {purpose}", hint)
    stream.advance()
    return element


def _read_expressed(stream: TokenStream) -> FloatElement:
    word = stream.token
    element = FLOATS.get(word.text)
    if element is None:
        raise stream.unexpected("a float type as expressed type", expressed_hint(word.text))
    stream.advance()
    return element


def read_storage(stream: TokenStream) -> StorageType:
    """Take a storage with its bounds, as in `i8<-127:127>`. Raises TypeTextError."""
    start = stream.token.start
    element: StorageElement
    if stream.token.kind is TokenKind.DIALECT_TYPE:
        quantile = _read_body(stream, "quant", _QUANTILE_READER)
        element, signed, width = quantile, quantile.signed, quantile.storage.width
    else:
        element, signed = _storage_element(stream, stream.token)
        width = element.width
        stream.advance()
    if problem := width_fault(width):
        raise stream.error(start, problem)
    storage = StorageType.unbounded(element, signed=signed)
    if not stream.looks_at("<"):
        return storage
    return StorageType(element, signed, *_read_bounds(stream, storage))


def _storage_element(stream: TokenStream, word: Token) -> tuple[IntegerElement | FloatElement, bool]:
    if match := _UNSIGNED_STORAGE.match(word.text):
        return IntegerElement(int(match[1])), False
    element = element_at(stream)
    if isinstance(element, IntegerElement):
        return element, element.signed
    if isinstance(element, FloatElement) and element.name in FLOAT_STORAGES:
        return element, True
    expected = "a storage type (`i8`, `u8`, `si8`, `ui8` of 1 to 32 bits, `f8E4M3FN`, `f8E5M2`, `f4E2M1FN`, a quantile)"
    raise stream.unexpected(expected, storage_hint(stream.text, word.start, word.text))


def _read_bounds(stream: TokenStream, storage: StorageType | None) -> tuple[int, int]:
    """Take `<min:max>`, checked against the default bounds of `storage` when there is one."""
    stream.expect("<", "and bounds")
    minimum_start = stream.token.start
    minimum = read_integer(stream, "minimum")
    stream.expect(":", "between minimum and maximum")
    maximum_start = stream.token.start
    maximum = read_integer(stream, "maximum")
    if storage is not None and (problem := minimum_fault(minimum, storage)):
        raise stream.error(minimum_start, problem)
    if storage is not None and (problem := maximum_fault(maximum, storage)):
        raise stream.error(maximum_start, problem)
    if problem := order_fault(minimum, maximum):
        raise stream.error(minimum_start, problem)
    stream.expect(">", "to close the bounds")
    return minimum, maximum


_QUANTILE_READER: Mapping[str, Callable[[TokenStream], QuantileType]] = {"quantile": _read_quantile}
_READERS: Mapping[str, Callable[[TokenStream], QuantizedType]] = {
    "uniform": _read_uniform,
    "any": _read_any,
    "calibrated": _read_calibrated,
    **_QUANTILE_READER,
}


def _read_block_scaled(stream: TokenStream) -> BlockScaledType:
    stream.expect("<", "after `block_scaled`")
    for text, purpose in ((BLOCK_SHAPE, "the block shape"), (BLOCK_SCALE.name, "the type of the scales")):
        if stream.token.text != text:
            raise stream.unexpected(f"`{text}` as {purpose}")
        stream.advance()
        stream.expect(":", f"after {purpose}")
    value = stream.token.text
    if value not in BLOCK_FORMATS:
        raise stream.unexpected(f"the type of the elements ({', '.join(f'`{each}`' for each in BLOCK_FORMATS)})")
    stream.advance()
    scales: list[float] = []
    if stream.accept(","):
        stream.expect("{", "to open the list of scales")
        scales.append(_read_block_scale(stream))
        while stream.accept(","):
            if len(scales) == MAXIMUM_LIST_LENGTH:
                raise stream.error(stream.token.start, f"a list of more than {MAXIMUM_LIST_LENGTH} scales")
            scales.append(_read_block_scale(stream))
        stream.expect("}", "or `,` in the list of scales")
    stream.expect(">", "to close `block_scaled<`")
    return BlockScaledType(value, tuple(scales))


def _read_block_scale(stream: TokenStream) -> float:
    """Take a scale, and return the nearest number of its type, which has no zero."""
    start = stream.token.start
    stream.count_entries(1, start)
    scale = read_float(stream, "scale")
    if problem := block_scale_fault(scale):
        raise stream.error(start, problem)
    return max(round_to_format(scale, BLOCK_SCALE), BLOCK_SCALE.smallest)


_TOSA_READERS: Mapping[str, Callable[[TokenStream], BlockScaledType]] = {"block_scaled": _read_block_scaled}


MAXIMUM_RANK = 64

_REFUSED = {
    "memref": "a memref holds no quantized element and Requant has none; write `tensor<...>`",
    "vector": "a vector holds no quantized element and Requant has none; write `tensor<...>`",
    "complex": "Requant has no complex numbers",
    "none": "Requant has no `none`",
    "function": "Requant has no functions",
}


def parse_type(text: str) -> Type:
    """Return the type that `text` is.

    Raises TypeTextError with the offset of the first wrong character, a caret under it and often a hint. What is
    accepted is what the newest MLIR accepts, with the divergences of docs/types.md.
    """
    return _parse_short_type(text) if len(text) <= _SHORT_TEXT else _parse_type(text)


def _parse_type(text: str) -> Type:
    stream = TokenStream(text)
    result = _read_type(stream, depth=1)
    if stream.token.kind is not TokenKind.END:
        raise stream.unexpected("nothing after the type")
    return result


def parse_storage(text: str) -> StorageType:
    """Return the storage that `text` is, such as `i8` or `u8<0:127>`. Raises TypeTextError as `parse_type` does."""
    return _parse_short_storage(text) if len(text) <= _SHORT_TEXT else _parse_storage(text)


def _parse_storage(text: str) -> StorageType:
    stream = TokenStream(text)
    result = read_storage(stream)
    if stream.token.kind is not TokenKind.END:
        raise stream.unexpected("nothing after the storage")
    return result


# A client sends the same few types again and again, and reading one takes a tenth of a small request.
_SHORT_TEXT = 128
_parse_short_type = lru_cache(maxsize=1024)(_parse_type)
_parse_short_storage = lru_cache(maxsize=256)(_parse_storage)


def _read_type(stream: TokenStream, depth: int) -> Type:
    token = stream.token
    if token.kind is TokenKind.DIALECT_TYPE:
        return read_quantized(stream)
    if token.text == "tensor":
        stream.advance()
        return _read_tensor(stream)
    if token.text == "tuple":
        if depth > MAXIMUM_DEPTH:
            raise stream.error(token.start, f"tuples nested more than {MAXIMUM_DEPTH} deep")
        stream.advance()
        return _read_tuple(stream, depth)
    element = element_at(stream)
    if element is not None:
        stream.advance()
        return element
    word = "function" if token.text == "(" and depth < MAXIMUM_DEPTH else token.text
    if word in _REFUSED:
        raise stream.error(token.start, f"{shown(token.text)} is not a supported type", _REFUSED[word])
    raise stream.unexpected("a type", type_hint(stream.text, token.start, token.text))


def _read_tuple(stream: TokenStream, depth: int) -> TupleType:
    stream.expect("<", "after `tuple`")
    members: list[Type] = []
    if not stream.looks_at(">"):
        members.append(_read_type(stream, depth + 1))
        while stream.accept(","):
            members.append(_read_type(stream, depth + 1))
    stream.expect(">", "or `,` in the tuple")
    return TupleType(tuple(members))


def _read_tensor(stream: TokenStream) -> TensorType:
    opening = stream.expect("<", "after `tensor`")
    shape = _read_shape(stream)
    if stream.token.text in ("tensor", "tuple"):
        raise stream.error(stream.token.start, "a tensor holds no tensors or tuples")
    element = _read_type(stream, MAXIMUM_DEPTH)
    assert not isinstance(element, TensorType | TupleType)
    encoding = None
    if stream.looks_at(","):
        # An empty encoding is none, as in MLIR.
        encoding, end = encoding_end(stream.text, stream.token.end)
        stream.rewind(end)
    if not stream.accept(">"):
        raise stream.unexpected("`>` to close `tensor<`", dimension_hint(stream.text, stream.token.start))
    if problem := encoding_fault(shape, encoding or None):
        raise stream.error(opening.end, problem)
    return TensorType(shape, element, encoding or None)


def _read_shape(stream: TokenStream) -> tuple[int | None, ...] | None:
    """Take the dimensions, each with its `x`."""
    if stream.accept("*"):
        _take_x(stream)
        return None
    shape: list[int | None] = []
    while stream.looks_at("?") or stream.token.kind in (TokenKind.INTEGER, TokenKind.HEXADECIMAL):
        token = stream.token
        if len(shape) == MAXIMUM_RANK:
            raise stream.error(token.start, f"a tensor of more than {MAXIMUM_RANK} dimensions")
        if token.kind is TokenKind.HEXADECIMAL:
            # `0x8xf32` is the dimensions 0 and 8; a shape has no hexadecimal numbers.
            shape.append(0)
            stream.rewind(token.start + 1)
        else:
            stream.advance()
            shape.append(None if token.text == "?" else int(token.text))
            if problem := dimension_fault(shape[-1]):
                raise stream.error(token.start, problem)
        _take_x(stream)
    return tuple(shape)


def _take_x(stream: TokenStream) -> None:
    """Take the `x` that may be the first letter of the next word, as in `4xf32`."""
    token = stream.token
    if token.kind is not TokenKind.WORD or not token.text.startswith("x"):
        raise stream.unexpected("`x` after the dimension", dimension_hint(stream.text, token.start))
    stream.rewind(token.start + 1)
