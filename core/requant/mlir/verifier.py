"""The rules that a type of right form must keep, one function per rule.

Each function returns what is wrong, or None. The parser asks them as it reads and knows the place; `fault` asks them
all for a type that was made otherwise. Deliberate divergences from MLIR (docs/types.md) are marked.
"""

from __future__ import annotations

from math import isfinite, isnan, prod

from requant.formats.elements import FloatElement, IndexElement, IntegerElement
from requant.formats.float_format import round_to_format
from requant.mlir.types import (
    BLOCK_FORMATS,
    BLOCK_SCALE,
    AnyType,
    BlockScaledType,
    CalibratedType,
    QuantileType,
    StorageElement,
    StorageType,
    TensorType,
    TupleType,
    Type,
    UniformPerAxisType,
    UniformSubChannelType,
    UniformType,
)

_BEYOND_BLOCK_SCALES = 1.5 * BLOCK_SCALE.largest
MAXIMUM_STORAGE_WIDTH = 32
MAXIMUM_INTEGER_WIDTH = (1 << 24) - 1
MAXIMUM_DIMENSION = (1 << 63) - 1
FLOAT_STORAGES = frozenset({"f8E4M3FN", "f8E5M2", "f4E2M1FN"})


def integer_fault(width: int) -> str | None:
    """Rule of 1.1: a builtin integer has at most 2^24 - 1 bits."""
    return None if width <= MAXIMUM_INTEGER_WIDTH else f"an integer type has at most {MAXIMUM_INTEGER_WIDTH} bits"


def width_fault(width: int) -> str | None:
    """Rule of 1.3: storage has 1 to 32 bits."""
    if 1 <= width <= MAXIMUM_STORAGE_WIDTH:
        return None
    return f"storage of {width} bits; storage has 1 to {MAXIMUM_STORAGE_WIDTH} bits"


def minimum_fault(minimum: int, storage: StorageType) -> str | None:
    """Rule of 1.4: the written minimum is not below the default one."""
    default = storage.default_bounds[0]
    if minimum >= default:
        return None
    return f"storage minimum {minimum} is below {default}, the least value of the storage"


def maximum_fault(maximum: int, storage: StorageType) -> str | None:
    """Rule of 1.4: the written maximum is not above the default one."""
    default = storage.default_bounds[1]
    if maximum <= default:
        return None
    return f"storage maximum {maximum} is above {default}, the greatest value of the storage"


def order_fault(minimum: int, maximum: int) -> str | None:
    """Rules of 1.4 and 1.10: the minimum is below the maximum."""
    return None if minimum < maximum else f"minimum {minimum} is not below maximum {maximum}"


def scale_fault(scale: float, expressed: FloatElement) -> str | None:
    """Rule of 1.5: the scale lies in the interval of the expressed type, compared as f64, before any rounding.

    NaN is refused, which is a divergence.
    """
    if expressed.smallest <= scale <= expressed.largest:
        return None
    if isnan(scale):
        return "a scale must not be NaN"
    bounds = f"{expressed.smallest!r} to {expressed.largest!r}"
    return f"scale {scale!r} is outside the positive finite range of {expressed.name}, {bounds}"


def block_scale_fault(scale: float) -> str | None:
    """Return why a number is no scale of a block-scaled type. MLIR makes NaN of what is too large, which is refused."""
    if scale < 0:
        return f"scale {scale!r} is negative"
    return None if scale < _BEYOND_BLOCK_SCALES else f"scale {scale!r} is beyond 2^127, the largest of f8E8M0FNU"


def axis_fault(axis: int) -> str | None:
    """Rules of 1.7 and 1.8: no negative axis."""
    return None if axis >= 0 else f"negative axis {axis}"


def block_fault(size: int) -> str | None:
    """Rule of 1.8: blocks of at least one element."""
    return None if size >= 1 else f"block size {size}; a block has at least 1 element"


def blockwise_storage_fault(element: StorageElement) -> str | None:
    """Divergence of 1.15: sub-channel parameters need integer storage; MLIR's parser crashes on others."""
    return None if isinstance(element, IntegerElement) else "sub-channel parameters need an integer storage"


def blockwise_zero_point_range(storage: StorageType) -> tuple[int, int]:
    """Return the zero points that sub-channel storage takes: its default range, and for unsigned also the signed one.

    MLIR truncates others silently. It prints unsigned ones as signed, so both readings of the same bits are taken.
    """
    half = 1 << (storage.width - 1)
    return -half, half - 1 if storage.signed else 2 * half - 1


def calibrated_fault(minimum: float, maximum: float) -> str | None:
    """Rule of 1.9: the maximum is greater. NaN passes, as in MLIR."""
    return f"calibrated maximum {maximum!r} is not greater than minimum {minimum!r}" if maximum <= minimum else None


def table_entry_fault(entry: float) -> str | None:
    """Rule of 1.10: entries are finite."""
    return None if isfinite(entry) else f"quantile entry {entry!r} is not finite"


def table_length_fault(quantile: QuantileType) -> str | None:
    """Rule of 1.10: one entry per code."""
    length, width = len(quantile.table), quantile.storage.width
    if quantile.minimum is not None and quantile.maximum is not None:
        expected = quantile.maximum - quantile.minimum + 1
        return None if length == expected else f"quantile table of {length} entries; its bounds ask for {expected}"
    if length.bit_length() == width + 1 and length == 1 << width:
        return None
    return f"quantile table of {length} entries; {width} bits of storage ask for 2^{width}"


def dimension_fault(dimension: int | None) -> str | None:
    """A dimension is dynamic or fits a signed 64-bit integer."""
    if dimension is None or 0 <= dimension <= MAXIMUM_DIMENSION:
        return None
    return f"invalid dimension {dimension}"


def encoding_fault(shape: tuple[int | None, ...] | None, encoding: str | None) -> str | None:
    """An unranked tensor has no encoding."""
    return "an unranked tensor has no encoding" if shape is None and encoding is not None else None


def fault(type_: Type) -> str | None:
    """Return the first rule that `type_` breaks, or None: the text of a type without fault is accepted.

    For types that were not made by the parser, which returns none with a fault.
    """
    match type_:
        case IntegerElement(width=width):
            return integer_fault(width)
        case FloatElement() | IndexElement():
            return None
        case AnyType(storage=storage):
            return _storage_fault(storage)
        case UniformType(storage=storage, expressed=expressed, scale=scale):
            return _storage_fault(storage) or scale_fault(scale, expressed)
        case UniformPerAxisType():
            return _per_axis_fault(type_)
        case UniformSubChannelType():
            return _sub_channel_fault(type_)
        case CalibratedType(minimum=minimum, maximum=maximum):
            return calibrated_fault(minimum, maximum)
        case QuantileType():
            return _quantile_fault(type_)
        case BlockScaledType(value=value, scales=scales):
            if value not in BLOCK_FORMATS:
                return f"{value} is no type of elements of block-scaled types"
            return next((bad for scale in scales if (bad := _block_scale_fault(scale))), None)
        case TensorType():
            return _tensor_fault(type_)
        case TupleType(members=members):
            return next((problem for member in members if (problem := fault(member))), None)


def _block_scale_fault(scale: float) -> str | None:
    inside = BLOCK_SCALE.smallest <= scale <= BLOCK_SCALE.largest
    return None if inside and round_to_format(scale, BLOCK_SCALE) == scale else f"scale {scale!r} is no f8E8M0FNU"


def _tensor_fault(type_: TensorType) -> str | None:
    return (
        next((bad for dimension in type_.shape or () if (bad := dimension_fault(dimension))), None)
        or encoding_fault(type_.shape, type_.encoding)
        or fault(type_.element)
    )


def _storage_fault(storage: StorageType) -> str | None:
    element = storage.element
    if isinstance(element, FloatElement) and element.name not in FLOAT_STORAGES:
        return f"{element.name} is no storage type"
    return (
        (_quantile_fault(element) if isinstance(element, QuantileType) else None)
        or width_fault(storage.width)
        or minimum_fault(storage.minimum, storage)
        or maximum_fault(storage.maximum, storage)
        or order_fault(storage.minimum, storage.maximum)
    )


def _scales_fault(scales: tuple[float, ...], zero_points: tuple[int, ...], expressed: FloatElement) -> str | None:
    if not scales or len(scales) != len(zero_points):
        return f"{len(scales)} scales and {len(zero_points)} zero points; expected equal numbers, at least one of each"
    return next((problem for scale in scales if (problem := scale_fault(scale, expressed))), None)


def _per_axis_fault(type_: UniformPerAxisType) -> str | None:
    return (
        _storage_fault(type_.storage)
        or axis_fault(type_.axis)
        or _scales_fault(type_.scales, type_.zero_points, type_.expressed)
    )


def _sub_channel_fault(type_: UniformSubChannelType) -> str | None:
    problem = (
        _storage_fault(type_.storage)
        or blockwise_storage_fault(type_.storage.element)
        or next((bad for axis, size in type_.blocks if (bad := axis_fault(axis) or block_fault(size))), None)
        or _scales_fault(type_.scales, type_.zero_points, type_.expressed)
    )
    if problem:
        return problem
    if not type_.scale_shape or prod(type_.scale_shape) != len(type_.scales):
        return f"{len(type_.scales)} scales do not fill the shape {list(type_.scale_shape)}"
    lowest, highest = type_.storage.default_bounds
    for scale, zero_point in zip(type_.scales, type_.zero_points, strict=True):
        if round_to_format(scale, type_.expressed) != scale:
            return f"scale {scale!r} is no value of {type_.expressed.name}"
        if not lowest <= zero_point <= highest:
            return f"zero point {zero_point} is outside the storage, {lowest} to {highest}"
    return None


def _quantile_fault(type_: QuantileType) -> str | None:
    if (
        type_.minimum is not None
        and type_.maximum is not None
        and (problem := order_fault(type_.minimum, type_.maximum))
    ):
        return problem
    return table_length_fault(type_) or next((bad for entry in type_.table if (bad := table_entry_fault(entry))), None)
