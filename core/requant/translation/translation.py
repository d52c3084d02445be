"""What a translation is: a type, the operands that a system has for it, what was lost, and such operands read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

from requant.description import Group
from requant.errors import ParameterError, TypeFitError, UnsupportedError, excerpt
from requant.errors.cancellation import checked
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.formats.float_format import round_to_format
from requant.mlir.fit import check_fits
from requant.mlir.lexer import MAXIMUM_LIST_LENGTH
from requant.mlir.parser import MAXIMUM_RANK
from requant.mlir.printer import print_storage, print_type
from requant.mlir.types import (
    BlockScaledType,
    StorageType,
    TensorType,
    Type,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)
from requant.mlir.verifier import FLOAT_STORAGES, blockwise_zero_point_range, scale_fault
from requant.plan.operands import static_shape


@dataclass(frozen=True, slots=True)
class Rounding:
    """A scale that a system does not hold as it is: its place in the list, and the number that it becomes, exact."""

    index: int
    scale: float | Fraction
    becomes: float | Fraction


@dataclass(frozen=True, slots=True)
class Written:
    """A system's operands by their names.

    `losses` says what of the type they do not keep, scales apart. `operators` are those of the system that take them,
    and `opset` is the first version that has them, where the system has versions.
    """

    operands: dict[str, Any]
    rounded: tuple[Rounding, ...] = ()
    losses: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    opset: int | None = None


@dataclass(frozen=True, slots=True)
class TranslationResult:
    """What a system makes of a type: its operands, or the reason why it has none."""

    system: str
    written: Written | None
    reason: str = ""

    @property
    def exact(self) -> bool:
        """Whether no scale was rounded, and nothing else was lost."""
        return self.written is not None and not self.written.rounded and not self.written.losses


@dataclass(frozen=True)
class Subject:
    """A uniform type and, if it is known, the shape of its tensor. `target`: what TOSA rescales it to."""

    element: UniformQuantizedType
    shape: tuple[int, ...] | None = None
    target: Subject | None = None

    @property
    def type(self) -> Type:
        """The type, of a tensor if there is a shape."""
        return self.element if self.shape is None else TensorType(self.shape, self.element)

    @cached_property
    def text(self) -> str:
        """The type as MLIR prints it. Made once: with many scales, printing is most of a translation."""
        return print_type(self.type)

    @property
    def storage(self) -> StorageType:
        return self.element.storage

    @property
    def scales(self) -> tuple[float, ...]:
        return self.element.scales

    @property
    def zero_points(self) -> tuple[int, ...]:
        return self.element.zero_points

    @property
    def storage_name(self) -> str:
        """The element type of the stored numbers in the spelling of operators: i8, ui8, f8E4M3FN; else that of MLIR."""
        element = self.storage.element
        if isinstance(element, IntegerElement):
            return f"{'' if self.storage.signed else 'u'}i{element.width}"
        return element.name if isinstance(element, FloatElement) else print_storage(self.storage)

    def blocks(self) -> tuple[tuple[int, int], ...]:
        """Return (size, block) of each dimension of a sub-channel type; a dimension without blocks is one of its own.

        Raise UnsupportedError where only the shape can say how long a dimension is.
        """
        assert isinstance(self.element, UniformSubChannelType)
        sizes, blocks = dict(self.element.blocks), []
        for axis, count in enumerate(self.element.scale_shape):
            if self.shape is not None:
                blocks.append((self.shape[axis], sizes.get(axis, self.shape[axis])))
            elif axis in sizes:
                blocks.append((count * sizes[axis], sizes[axis]))
            else:
                raise UnsupportedError(
                    f"the size of dimension {axis} is unknown without a shape: write tensor<...> around it"
                )
        return tuple(blocks)


Read = tuple[Subject, tuple[Rounding, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTranslation:
    """A system: how it holds parameters, and both ways. `write` raises UnsupportedError for what it cannot hold.

    `operands`: those that it has, for systems that hold more than the text of a type. `read` takes them by their names,
    absent ones left out, and the shape where it is known. It raises errors whose pointers are into the operands.
    """

    name: str
    summary: str
    source: str
    write: Callable[[Subject], Written]
    read: Callable[[dict[str, Any], tuple[int, ...] | None], Read]
    notes: tuple[str, ...] = field(default=())
    operands: Group | None = None


def subject_of(type_: Type) -> Subject:
    """Return a uniform type, alone or of a static tensor. Raise UnsupportedError or TypeFitError for others."""
    element = type_.element if isinstance(type_, TensorType) else type_
    if isinstance(element, BlockScaledType):
        raise UnsupportedError(
            f"{excerpt(print_type(type_))} is the block format {element.block_format}, whose scales are part of the "
            "tensor: /v1/blocks/quantize and dequantize convert to it and from it"
        )
    if not isinstance(element, UniformQuantizedType):
        raise UnsupportedError(f"{excerpt(print_type(type_))} is not !quant.uniform<...>: it has no scale")
    if not isinstance(type_, TensorType):
        _check_axes(element)
        return Subject(element)
    shape = static_shape(type_)
    check_fits(type_, short_blocks=True)
    return Subject(element, shape)


def _check_axes(element: UniformQuantizedType) -> None:
    """Raise TypeFitError for axes that no tensor of the scales' rank has, or none at all."""
    axes, rank = [], MAXIMUM_RANK
    if isinstance(element, UniformPerAxisType):
        axes = [element.axis]
    elif isinstance(element, UniformSubChannelType):
        axes, rank = [axis for axis, _ in element.blocks], len(element.scale_shape)
    for axis in axes:
        if axis >= rank:
            raise TypeFitError(f"axis {axis} of the quantized type is not below {rank}, the rank of its tensors")


def require_whole_storage(subject: Subject, system: str) -> None:
    """Raise UnsupportedError for storage bounds that are narrower than the storage type."""
    storage = subject.storage
    if (storage.minimum, storage.maximum) != storage.default_bounds:
        raise UnsupportedError(
            f"{system} has no storage bounds; these are {storage.minimum} to {storage.maximum}, and "
            f"{subject.storage_name} holds {storage.default_bounds[0]} to {storage.default_bounds[1]}"
        )


def require_expressed(subject: Subject, system: str, accepted: Sequence[str]) -> None:
    """Raise UnsupportedError unless the expressed type is one of those."""
    name = subject.element.expressed.name
    if name not in accepted:
        raise UnsupportedError(f"{system} expresses numbers as {', '.join(accepted)}; not as {name}")


def require_storage(subject: Subject, system: str, accepted: Sequence[str]) -> None:
    """Raise UnsupportedError unless the stored element type is one of those."""
    if subject.storage_name not in accepted:
        raise UnsupportedError(f"{system} stores {', '.join(accepted)}; not {excerpt(subject.storage_name)}")


def require_zero_points(subject: Subject, system: str, lowest: int, highest: int) -> None:
    """Raise UnsupportedError for the first zero point outside of bounds."""
    for index, zero_point in enumerate(subject.zero_points):
        if not lowest <= zero_point <= highest:
            allowed = str(lowest) if lowest == highest else f"{lowest} to {highest}"
            raise UnsupportedError(
                f"zero points of {subject.storage_name} are {allowed} in {system}; number {index} is {zero_point}"
            )


def rounded_to(scales: Sequence[float], element: FloatElement) -> tuple[tuple[float, ...], tuple[Rounding, ...]]:
    """Return scales as a float type holds them (RNE), and those that it does not hold as they are."""
    held = tuple(round_to_format(scale, element) for scale in checked(scales))
    pairs = enumerate(zip(scales, held, strict=True))
    return held, tuple(Rounding(index, scale, value) for index, (scale, value) in pairs if scale != value)


def spelling_losses(subject: Subject) -> tuple[str, ...]:
    """Return what systems other than MLIR do not keep of the storage: siN and uiN are read back as iN and uN."""
    element = subject.storage.element
    if isinstance(element, IntegerElement) and element.signedness is not Signedness.SIGNLESS:
        plain = f"{'i' if subject.storage.signed else 'u'}{element.width}"
        return (f"the storage {element.name} is read back as {plain}, the same numbers",)
    return ()


def stored_as(name: str) -> StorageType:
    """Return the storage of an element type in the spelling of operators."""
    if name in FLOATS:
        return StorageType.unbounded(FLOATS[name], signed=True)
    return StorageType.unbounded(IntegerElement(int(name.lstrip("ui"))), signed=not name.startswith("u"))


def check_shape(subject: Subject) -> Subject:
    """Return the subject. Raise TypeFitError unless its parameters fit its shape."""
    if subject.shape is not None:
        tensor = TensorType(subject.shape, subject.element)
        try:
            check_fits(tensor, short_blocks=True)
        except TypeFitError as error:
            error.pointer = error.pointer or ""
            raise
    return subject


def block_counts(blocks: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return how many blocks there are along each dimension, of (size, block)."""
    return tuple(-(-size // block) for size, block in blocks)


def count_of(shape: Sequence[int]) -> int:
    """Return how many parameters a shape of them has."""
    return prod(shape)


def read_storage(operands: dict[str, Any], name: str, accepted: Sequence[str]) -> StorageType:
    """Return the storage that an operand names. Raise UnsupportedError for one that no type of MLIR has."""
    storage = operands[name]
    if storage not in accepted:
        raise UnsupportedError(f"{name} is one of {', '.join(accepted)}", pointer=f"/{name}")
    if storage in FLOATS and storage not in FLOAT_STORAGES:
        listed = ", ".join(sorted(FLOAT_STORAGES))
        raise UnsupportedError(
            f"no type of MLIR stores {storage}; small floats as storage are {listed}", pointer=f"/{name}"
        )
    return stored_as(storage)


def read_scales(
    operands: dict[str, Any], name: str, expressed: FloatElement, held: str
) -> tuple[tuple[float, ...], tuple[Rounding, ...]]:
    """Return scales as their type `held` holds them, and what was rounded. Raise ParameterError for one of no type."""
    scales = operands[name]
    if not 1 <= len(scales) <= MAXIMUM_LIST_LENGTH:
        raise ParameterError(f"{name} has 1 to {MAXIMUM_LIST_LENGTH} scales", pointer=f"/{name}")
    numbers = tuple(float(scale) for scale in scales)
    for index, scale in enumerate(numbers):
        if fault := scale_fault(scale, expressed):
            raise ParameterError(f"no type has {name} {index}: {fault}", index=index, pointer=f"/{name}/{index}")
    return rounded_to(numbers, FLOATS[held])


def read_zero_points(operands: dict[str, Any], name: str, count: int, lowest: int, highest: int) -> tuple[int, ...]:
    """Return zero points, zeros where they are absent. Raise TypeFitError or ParameterError for those of no use."""
    zero_points = operands.get(name)
    if zero_points is None:
        return (0,) * count
    if len(zero_points) != count:
        raise TypeFitError(f"there are {len(zero_points)} zero points and {count} scales", pointer=f"/{name}")
    for index, zero_point in enumerate(zero_points):
        if not lowest <= zero_point <= highest:
            detail = f"{name} {index} must be {lowest} to {highest}" if lowest != highest else f"{name} must be 0"
            raise ParameterError(detail, index=index, pointer=f"/{name}/{index}")
    return tuple(zero_points)


def zero_point_bounds(storage: StorageType) -> tuple[int, int]:
    """Return the zero points that the storage's own type holds: 0 for floats."""
    return (0, 0) if isinstance(storage.element, FloatElement) else storage.default_bounds


def normal_axis(axis: int, shape: tuple[int, ...] | None, pointer: str) -> int:
    """Return an axis from the start. Raise ParameterError for one out of range, or negative without a shape."""
    if shape is None:
        if axis < 0:
            raise ParameterError("a negative axis counts from the end: give the shape", pointer=pointer)
        if axis >= MAXIMUM_RANK:
            raise ParameterError(f"axis is below {MAXIMUM_RANK}", pointer=pointer)
        return axis
    if not -len(shape) <= axis < len(shape):
        raise ParameterError(
            f"axis is {axis}; of rank {len(shape)} it is {-len(shape)} to {len(shape) - 1}", pointer=pointer
        )
    return axis % len(shape)


def uniform(
    storage: StorageType, expressed: FloatElement, axis: int | None, scales: tuple[float, ...], zeros: tuple[int, ...]
) -> UniformQuantizedType:
    """Return a type per tensor, or per axis if there is one."""
    if axis is None:
        return UniformType(storage, expressed, scales[0], zeros[0])
    return UniformPerAxisType(storage, expressed, axis, scales, zeros)


def blocked(
    storage: StorageType,
    expressed: FloatElement,
    blocks: Sequence[int],
    counts: tuple[int, ...],
    scales: tuple[float, ...],
    zeros: tuple[int, ...],
    pointer: str,
) -> UniformSubChannelType:
    """Return a sub-channel type, whose blocks are written for dimensions that have more than one."""
    lowest, highest = blockwise_zero_point_range(storage)
    if not all(lowest <= zero <= highest for zero in zeros):
        raise ParameterError(f"zero points of blocks are {lowest} to {highest}", pointer=pointer)
    pairs = tuple((axis, block) for axis, (block, count) in enumerate(zip(blocks, counts, strict=True)) if count > 1)
    return UniformSubChannelType(storage, expressed, pairs, counts, scales, zeros)
