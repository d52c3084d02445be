"""The quant dialect's types: `!quant.` and what follows."""

from __future__ import annotations

import re
from collections.abc import Callable

from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.formats.float_format import round_to_format
from requant.mlir.diagnostics import shown
from requant.mlir.hints import after_parameters_hint, expressed_hint, parameters_hint, storage_hint
from requant.mlir.lexer import MAXIMUM_DEPTH, MAXIMUM_LIST_LENGTH, Token, TokenKind, TokenStream, body_end
from requant.mlir.parameter_list import ParameterReader
from requant.mlir.terminals import element_at, read_float, read_integer
from requant.mlir.types import (
    AnyType,
    CalibratedType,
    QuantileType,
    QuantizedType,
    StorageElement,
    StorageType,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)
from requant.mlir.verifier import (
    FLOAT_STORAGES,
    axis_fault,
    block_fault,
    blockwise_storage_fault,
    blockwise_zero_point_range,
    calibrated_fault,
    maximum_fault,
    minimum_fault,
    order_fault,
    table_entry_fault,
    table_length_fault,
    width_fault,
)

_UNSIGNED_STORAGE = re.compile(r"u([0-9]{1,10})\Z", re.ASCII)


def read_quantized(stream: TokenStream) -> QuantizedType:
    """Take a type that starts with `!`. Raises TypeTextError."""
    return _read_body(stream, _READERS)


def _read_body(stream: TokenStream, readers: dict[str, Callable[[TokenStream], QuantizedType]]) -> QuantizedType:
    """Take `!quant.mnemonic<...>` or the long `!quant<mnemonic<...>>`, with a mnemonic of `readers`."""
    name = stream.token
    dialect, dot, mnemonic = name.text[1:].partition(".")
    if dialect != "quant":
        raise stream.error(name.start, f"unknown dialect in {shown(name.text)}; only types of `!quant` are supported")
    opening = name.end
    if dot:
        _check_mnemonic(stream, name.start + len("!quant."), mnemonic, readers)
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
        stream.expect(">", "to close `!quant<`")
    # A bracket in a comment makes MLIR see another end than the type has. It then goes on in the middle of the comment.
    if stream.previous_end != end:
        raise stream.error(min(stream.previous_end, end) - 1, "unbalanced brackets: one of them is in a comment")
    return result


def _check_mnemonic(
    stream: TokenStream, start: int, mnemonic: str, readers: dict[str, Callable[[TokenStream], QuantizedType]]
) -> None:
    if mnemonic not in readers:
        names = ", ".join(f"`{reader}`" for reader in readers)
        detail = f"expected {names}, found {shown(mnemonic)}"
        hint = "names are lowercase" if mnemonic.lower() in readers else None
        if not mnemonic:
            hint = "no blanks from the `!` to the `<`: `!quant.uniform<`"
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
    if found := blockwise_storage_fault(storage.element):
        raise stream.error(stream.token.start, found)
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
        if found := block_fault(size):
            raise stream.error(start, found)
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
    if found := axis_fault(axis):
        raise stream.error(start, found, f"axes count from 0: write the rank of the tensor minus {-axis}")
    return axis


def _read_calibrated(stream: TokenStream) -> CalibratedType:
    stream.expect("<", "after `calibrated`")
    expressed = _read_expressed(stream)
    opening = stream.expect("<", "and a range after the expressed type")
    minimum = read_float(stream, "minimum")
    stream.expect(":", "between minimum and maximum")
    maximum = read_float(stream, "maximum")
    if found := calibrated_fault(minimum, maximum):
        raise stream.error(opening.end, found)
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
    if found := table_length_fault(result):
        raise stream.error(opening.start, found)
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
        if found := table_entry_fault(entries[-1]):
            raise stream.error(start, found)
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
        quantile = _read_body(stream, _QUANTILE_READER)
        assert isinstance(quantile, QuantileType)
        element, signed, width = quantile, quantile.signed, quantile.storage.width
    else:
        element, signed = _storage_element(stream, stream.token)
        width = element.width
        stream.advance()
    if found := width_fault(width):
        raise stream.error(start, found)
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
    if storage is not None and (found := minimum_fault(minimum, storage)):
        raise stream.error(minimum_start, found)
    if storage is not None and (found := maximum_fault(maximum, storage)):
        raise stream.error(maximum_start, found)
    if found := order_fault(minimum, maximum):
        raise stream.error(minimum_start, found)
    stream.expect(">", "to close the bounds")
    return minimum, maximum


_QUANTILE_READER: dict[str, Callable[[TokenStream], QuantizedType]] = {"quantile": _read_quantile}
_READERS: dict[str, Callable[[TokenStream], QuantizedType]] = {
    "uniform": _read_uniform,
    "any": _read_any,
    "calibrated": _read_calibrated,
    **_QUANTILE_READER,
}
