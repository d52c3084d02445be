"""Canonical text: what the newest MLIR prints for a type, to the letter; docs/types.md lists where not."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from math import isfinite, isinf

from requant.errors.cancellation import checked
from requant.formats.elements import FloatElement, IndexElement, IntegerElement, Signedness
from requant.formats.float_format import F64, power_of_ten, reads_back
from requant.mlir.types import (
    BLOCK_SCALE,
    BLOCK_SHAPE,
    AnyType,
    BlockScaledType,
    CalibratedType,
    QuantileType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)

# 59/196 is the ratio log10(2) of the original algorithm (LLVM's APFloat::toString). It is part of the contract.
_LOG_NUMERATOR, _LOG_DENOMINATOR = 59, 196
_SHORT_DIGITS = 6
_PADDING = 3


def float_from_bits(bits: int) -> float:
    """Return the f64 with these 64 bits."""
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def float_text(value: float) -> str:
    """Return the text of an f64: at most 6 digits if they identify it, else 17, else its bits in hexadecimal."""
    text = decimal_text(value, F64)
    return text if text is not None else f"0x{_bits_of(value):X}"


def scale_text(value: float, element: FloatElement) -> str:
    """Return the text of a scale that is stored in the format `element`, which holds `value` exactly.

    As MLIR with the digits of that format, except where MLIR does not read back what it prints (docs/types.md): the
    format's bits instead of a decimal number, and a number near the ends of the format that, read as f64, lies beyond
    them. There the text has the digits of f64, or is an integer, or for infinity a number beyond f64.
    """
    text = decimal_text(value, element)
    if text is None:
        return "1.0E+400" if isinf(value) else f"{int(value)}.0"
    if element.smallest <= float(text) <= element.largest:
        return text
    return decimal_text(value, F64) or f"{int(value)}.0"


def decimal_text(value: float, element: FloatElement) -> str | None:
    """Return MLIR's decimal text of `value`, a number of the format `element`, or None where it prints bits instead."""
    if not isfinite(value):
        return None
    if value == 0.0:
        return f"{value:e}"
    sign = "-" if value < 0 else ""
    significand, exponent = _exact_decimal(abs(value))
    digits, last = _shortened(significand, exponent, _SHORT_DIGITS)
    short = sign + _scientific(digits, last, places=_SHORT_DIGITS, mark="e", exponent_digits=2)
    if reads_back(short, value, element):
        return short
    most_digits = 2 + element.precision * _LOG_NUMERATOR // _LOG_DENOMINATOR
    long = sign + _plain_or_scientific(*_shortened(significand, exponent, most_digits), most_digits)
    return long if "." in long else None


def _exact_decimal(value: float) -> tuple[int, int]:
    """Return integers (s, d) with `value` = s * 10^d exactly."""
    numerator, denominator = value.as_integer_ratio()
    halvings = denominator.bit_length() - 1
    return numerator * _power_of_five(halvings), -halvings


@cache
def _power_of_five(exponent: int) -> int:
    """Return 5^exponent. An f64 needs at most 1074 of them."""
    return int(5**exponent)


def _shortened(significand: int, exponent: int, digits: int) -> tuple[str, int]:
    """Return at most `digits` decimal digits without trailing zeros, and the exponent of the last one.

    A long significand is first truncated, not rounded, to a few more bits than the digits need. MLIR does that, and
    it is why 0.998 does not come out as 9.980000e-01.
    """
    needed_bits = (digits * _LOG_DENOMINATOR + _LOG_NUMERATOR - 1) // _LOG_NUMERATOR
    surplus = (significand.bit_length() - needed_bits) * _LOG_NUMERATOR // _LOG_DENOMINATOR
    if surplus > 0:
        significand //= power_of_ten(surplus)
        exponent += surplus
    text = str(significand)
    kept = text[:digits]
    exponent += len(text) - len(kept)
    if text[digits : digits + 1] >= "5":
        kept = str(int(kept) + 1)
    stripped = kept.rstrip("0")
    return stripped, exponent + len(kept) - len(stripped)


def _plain_or_scientific(digits: str, exponent: int, most_digits: int) -> str:
    leading = exponent + len(digits) - 1
    if exponent >= 0:
        if exponent > _PADDING or len(digits) + exponent > most_digits:
            return _scientific(digits, exponent)
        return digits + "0" * exponent
    if leading >= 0:
        return f"{digits[: leading + 1]}.{digits[leading + 1 :]}"
    if -leading > _PADDING:
        return _scientific(digits, exponent)
    return "0." + "0" * (-leading - 1) + digits


def _scientific(digits: str, exponent: int, *, places: int = 1, mark: str = "E", exponent_digits: int = 1) -> str:
    """Return `d.dddE+x` with at least `places` digits after the dot and `exponent_digits` in the exponent."""
    leading = exponent + len(digits) - 1
    sign = "-" if leading < 0 else "+"
    return f"{digits[0]}.{digits[1:].ljust(places, '0')}{mark}{sign}{abs(leading):0{exponent_digits}}"


def _bits_of(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


def print_type(type_: Type) -> str:
    """Return the canonical text of `type_`, which `parse_type` reads back to an equal type.

    Sub-channel scales that MLIR writes in a form that it does not read back are written as decimals instead.
    """
    match type_:
        case IntegerElement() | FloatElement() | IndexElement():
            return type_.name
        case AnyType(storage=storage, expressed=expressed):
            return f"!quant.any<{print_storage(storage)}{'' if expressed is None else ':' + expressed.name}>"
        case UniformType(scale=scale, zero_point=zero_point):
            return f"{_uniform(type_)}, {_parameter(float_text(scale), zero_point)}>"
        case UniformPerAxisType(axis=axis, scales=scales, zero_points=zero_points):
            pairs = zip(_texts(scales, float_text), zero_points, strict=True)
            parameters = ",".join([_parameter(scale, zero_point) for scale, zero_point in pairs])
            return f"{_uniform(type_)}:{axis}, {{{parameters}}}>"
        case UniformSubChannelType(blocks=blocks):
            pairs_text = ", ".join(f"{axis}:{size}" for axis, size in blocks)
            return f"{_uniform(type_)}:{{{pairs_text}}}, {_nested(type_)}>"
        case CalibratedType(expressed=expressed, minimum=minimum, maximum=maximum):
            return f"!quant.calibrated<{expressed.name}<{float_text(minimum)}:{float_text(maximum)}>>"
        case QuantileType():
            return _quantile(type_)
        case BlockScaledType(value=value, scales=scales):
            texts = ", ".join(_texts(scales, lambda scale: decimal_text(scale, BLOCK_SCALE) or ""))
            return f"!tosa.block_scaled<{BLOCK_SHAPE}:{BLOCK_SCALE.name}:{value}{f', {{{texts}}}' if texts else ''}>"
        case TensorType(element=element):
            return print_tensor(type_, print_type(element))
        case TupleType(members=members):
            return print_tuple([print_type(member) for member in members])


def print_tensor(type_: TensorType, element: str) -> str:
    """Return the text of a tensor whose element type has the text `element`."""
    suffix = "" if type_.encoding is None else f", {type_.encoding}"
    return f"tensor<{_shape(type_.shape)}{element}{suffix}>"


def print_tuple(members: list[str]) -> str:
    """Return the text of a tuple whose members have these texts."""
    return f"tuple<{', '.join(members)}>"


def _uniform(type_: UniformQuantizedType) -> str:
    return f"!quant.uniform<{print_storage(type_.storage)}:{type_.expressed.name}"


def print_storage(storage: StorageType) -> str:
    """Return the text of a storage: its element, and its bounds where they are not the default ones."""
    element = storage.element
    if isinstance(element, QuantileType):
        name = _quantile(element)
    elif isinstance(element, IntegerElement) and element.signedness is Signedness.SIGNLESS and not storage.signed:
        name = f"u{element.width}"
    else:
        name = element.name
    bounds = (storage.minimum, storage.maximum)
    return name if bounds == storage.default_bounds else f"{name}<{bounds[0]}:{bounds[1]}>"


def _quantile(type_: QuantileType) -> str:
    table = ",".join(_texts(type_.table, float_text))
    bounds = "" if type_.minimum is None else f", <{type_.minimum}:{type_.maximum}>"
    return f"!quant.quantile<{type_.storage.name}:{type_.value.name}, {{{table}}}{bounds}>"


def _texts(values: tuple[float, ...], text: Callable[[float], str]) -> list[str]:
    """Return the text of each value. Equal ones are made once, but for zeros, which are equal with either sign."""
    texts = {value: text(value) for value in checked(set(values)) if value}
    return [texts[value] if value else text(value) for value in values]


def _parameter(scale: str, zero_point: int) -> str:
    return f"{scale}:{zero_point}" if zero_point else scale


def _nested(type_: UniformSubChannelType) -> str:
    """Return the parameters in braces nested as `scale_shape`. Zero points are printed as signed, as MLIR does."""
    half, period = 1 << (type_.storage.width - 1), 1 << type_.storage.width
    texts = _texts(type_.scales, lambda scale: scale_text(scale, type_.expressed))
    items = [
        _parameter(text, zero_point - period if zero_point >= half else zero_point)
        for text, zero_point in zip(texts, type_.zero_points, strict=True)
    ]
    for size in reversed(type_.scale_shape):
        items = [f"{{{', '.join(group)}}}" for group in _groups(items, size)]
    return items[0]


def _groups(items: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _shape(shape: tuple[int | None, ...] | None) -> str:
    if shape is None:
        return "*x"
    return "".join("?x" if dimension is None else f"{dimension}x" for dimension in shape)
