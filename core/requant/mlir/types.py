"""The types of the language as frozen dataclasses. They hold what was written; `verifier` says whether it is valid.

`real = (stored - zero_point) * scale`. Source: https://mlir.llvm.org/docs/Dialects/QuantDialect
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from requant.formats.elements import FLOATS, Element, FloatElement, IntegerElement, Signedness


@dataclass(frozen=True, slots=True)
class StorageType:
    """What is stored in memory: an element type, how signless bits are read, and the storage bounds.

    `u8` is `element=i8 (signless), signed=False`; `ui8` is `element=ui8, signed=False`; `i8` and `si8` are signed.
    """

    element: StorageElement
    signed: bool
    minimum: int
    maximum: int

    @classmethod
    def unbounded(cls, element: StorageElement, *, signed: bool) -> StorageType:
        """Return the storage with its default bounds, as written without `<min:max>`."""
        bare = cls(element, signed, 0, 0)
        return cls(element, signed, *bare.default_bounds)

    @property
    def width(self) -> int:
        """The number of bits that one stored value takes."""
        element = self.element
        return element.storage.width if isinstance(element, QuantileType) else element.width

    @property
    def default_bounds(self) -> tuple[int, int]:
        """The bounds that hold when the text gives none."""
        element = self.element
        if isinstance(element, IntegerElement):
            bits = self.width
            return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if self.signed else (0, (1 << bits) - 1)
        if isinstance(element, FloatElement):
            return -int(element.largest), int(element.largest)
        return element.bounds


@dataclass(frozen=True, slots=True)
class QuantileType:
    """`quantile<S:V, {table}, <min:max>>`: integer codes of type `storage` that index `table`, of type `value`."""

    storage: IntegerElement | FloatElement
    value: IntegerElement | FloatElement
    table: tuple[float, ...]
    minimum: int | None = None
    maximum: int | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """The written bounds, or the range of the codes: signless codes are unsigned, those of floats are signed."""
        if self.minimum is not None and self.maximum is not None:
            return self.minimum, self.maximum
        codes = 1 << self.storage.width
        return (-(codes >> 1), (codes >> 1) - 1) if self.signed else (0, codes - 1)

    @property
    def signed(self) -> bool:
        """Whether the codes are signed when no bounds say so (checked with iree-opt 3.13)."""
        return isinstance(self.storage, FloatElement) or self.storage.signedness is Signedness.SIGNED


@dataclass(frozen=True, slots=True)
class AnyType:
    """`any<storage[:expressed]>`: quantized, parameters unknown."""

    storage: StorageType
    expressed: FloatElement | None


@dataclass(frozen=True, slots=True)
class UniformType:
    """`uniform<storage:expressed, scale:zero_point>`: one scale for the whole tensor."""

    storage: StorageType
    expressed: FloatElement
    scale: float
    zero_point: int

    @property
    def scales(self) -> tuple[float, ...]:
        """The scale, as the other uniform types have theirs."""
        return (self.scale,)

    @property
    def zero_points(self) -> tuple[int, ...]:
        """The zero point, as the other uniform types have theirs."""
        return (self.zero_point,)


@dataclass(frozen=True, slots=True)
class UniformPerAxisType:
    """`uniform<storage:expressed:axis, {scale:zero_point, ...}>`: one scale per index along `axis`."""

    storage: StorageType
    expressed: FloatElement
    axis: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UniformSubChannelType:
    """`uniform<storage:expressed:{axis:block, ...}, {...}>`: one scale per block.

    `scales` and `zero_points` are flat, row-major over `scale_shape`. Scales are already rounded to the expressed type.
    Zero points have the sign of the storage: for `u8`, 200 is 200, though MLIR prints the same bits as -56.
    """

    storage: StorageType
    expressed: FloatElement
    blocks: tuple[tuple[int, int], ...]
    scale_shape: tuple[int, ...]
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CalibratedType:
    """`calibrated<expressed<minimum:maximum>>`: a range that was observed, not yet a scale."""

    expressed: FloatElement
    minimum: float
    maximum: float


BLOCK_SHAPE, BLOCK_SCALE, BLOCK_SIZE = "BLOCK_SHAPE_32", FLOATS["f8E8M0FNU"], 32
"""The only shape of blocks, the only type of their scales, and how many elements there are along the last dimension."""

MXINT8 = "!tosa.mxint8"
"""TOSA's type of 8-bit integers that stand for 64ths."""

BLOCK_FORMATS: Mapping[str, str] = {
    "f8E4M3FN": "mxfp8_e4m3",
    "f8E5M2": "mxfp8_e5m2",
    "f6E2M3FN": "mxfp6_e2m3",
    "f6E3M2FN": "mxfp6_e3m2",
    "f4E2M1FN": "mxfp4_e2m1",
    MXINT8: "mxint8",
}
"""The elements of block-scaled types, and what the formats of such blocks are called here."""


@dataclass(frozen=True, slots=True)
class BlockScaledType:
    """`!tosa.block_scaled<BLOCK_SHAPE_32:f8E8M0FNU:value, {scales}>`: blocks of 32 elements of the last dimension.

    `value` is a name of `BLOCK_FORMATS`. `scales` are powers of two, one per block, or none: those are part of the
    tensor then.
    """

    value: str
    scales: tuple[float, ...] = ()

    @property
    def block_format(self) -> str:
        return BLOCK_FORMATS[self.value]

    @property
    def width(self) -> int:
        """The number of bits of an element."""
        return 8 if self.value == MXINT8 else FLOATS[self.value].width


StorageElement = IntegerElement | FloatElement | QuantileType
UniformQuantizedType = UniformType | UniformPerAxisType | UniformSubChannelType
QuantizedType = AnyType | UniformQuantizedType | CalibratedType | QuantileType
ElementType = Element | QuantizedType | BlockScaledType


@dataclass(frozen=True, slots=True)
class TensorType:
    """`tensor<2x?x!quant...>`. `shape` is None when unranked; a dimension is None when dynamic."""

    shape: tuple[int | None, ...] | None
    element: ElementType
    encoding: str | None = None

    @property
    def elements(self) -> int | None:
        """The number of elements, None unless the shape is static."""
        if self.shape is None or any(dimension is None for dimension in self.shape):
            return None
        return prod(dimension for dimension in self.shape if dimension is not None)


@dataclass(frozen=True, slots=True)
class TupleType:
    """`tuple<...>`: parsed and printed, taken by no operation."""

    members: tuple[Type, ...]


Type = ElementType | TensorType | TupleType
