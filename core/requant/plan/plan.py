"""A plan: everything about one conversion that is decided before the first element is seen, and its execution.

The operations (`quantize`, `dequantize`, `requantize`) make plans from types and a profile; a plan holds a kernel and
its parameter arrays, and works through a tensor in any pieces, in any order and side by side, with the same bits and
the same tally. A plan knows one number to an integer only; a conversion may also take and give such as i4 or i12
densely packed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from requant.errors import PreconditionError, TensorDataError, UnsupportedError
from requant.errors.cancellation import check_cancelled
from requant.formats.elements import BYTE, FloatElement, IntegerElement
from requant.kernels.convert import packing as kernels
from requant.mlir.types import TensorType, UniformQuantizedType
from requant.plan.operands import QuantizedOperand, StoredOperand, float_element
from requant.profiles import OperationRule, Rounding
from requant.schemes import Multiplier


class Report(NamedTuple):
    """The tally of one conversion.

    An element is saturated (low or high) when the integer that the profile's arithmetic gives before it is clamped lies
    outside the storage bounds; it then holds a bound, or what the profile puts there instead. One that a conversion to
    int32 on the way does not hold becomes -2^31 there, and is low unless the sum with the zero point is above the
    bounds. NaN inputs are counted in `nan` only. `rounding` names the rule that was applied.
    """

    profile: str
    rounding: str
    elements: int
    saturated_low: int
    saturated_high: int
    nan: int


Array = NDArray[Any]

_PIECE = 16384
_NO_COUNTS = np.array([0, 0, 0, -1], np.int64)


def pieces(size: int) -> Iterator[slice]:
    """Cut `size` elements for a plan with a buffer between tensor and kernel, into pieces that stay in the cache."""
    for begin in range(0, size, _PIECE):
        yield slice(begin, begin + _PIECE)


def check_flat(array: Array, dtype: np.dtype[Any], elements: int, name: str) -> None:
    """Raise TensorDataError unless an array is 1-D, contiguous, of a dtype and of so many elements."""
    if array.dtype != dtype or array.shape != (elements,) or not array.flags.c_contiguous:
        raise TensorDataError(
            f"{name} must be {elements} contiguous elements of {dtype}; this is {array.dtype} of shape {array.shape}"
        )


def check_within(array: Array, lowest: int, highest: int, start: int = 0) -> None:
    """Raise TensorDataError naming the first integer out of bounds. `start`: the flat index of the array's first."""
    if array.size and (array.min() < lowest or array.max() > highest):
        index = int(np.argmax((array < lowest) | (array > highest)))
        raise TensorDataError(f"element {start + index} is {array[index]}; its type holds {lowest} to {highest}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(ABC):
    """A conversion of one tensor. `input_type` and `output_type` are bound: ranked, static, of the same shape.

    `multipliers` are those that a requantization uses, one or one per channel, in its scheme's convention.
    `input_bounds` is what stored inputs must lie within, where their container holds more.
    """

    # Whether `step` adds anything to its counts. Where it does not, all that is stored is defined.
    tallies: ClassVar[bool] = True

    profile: str
    rounding: Rounding
    input_type: TensorType
    output_type: TensorType
    input_dtype: np.dtype[Any]
    output_dtype: np.dtype[Any]
    elements: int
    multipliers: tuple[Multiplier, ...] = ()
    input_bounds: tuple[int, int] | None = None
    # Of a tensor to whose elements nothing happened: as most, and a small one is converted in the time to make it.
    _plain_report: Report = field(init=False, repr=False, compare=False)
    _shape: tuple[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_plain_report", Report(self.profile, str(self.rounding), self.elements, 0, 0, 0))
        object.__setattr__(self, "_shape", (self.elements,))

    @abstractmethod
    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """Convert `source`, which begins at flat index `start` of the tensor, into `target`; add to `counts`.

        counts: int64 [saturated low, saturated high, NaN, index of the first element that the arithmetic is not
        defined for, or -1]; and whatever else a plan's own `new_counts` has.
        """

    def new_counts(self) -> Array:
        """Return the tally before the first piece."""
        return _NO_COUNTS.copy()

    def report(self, counts: Array) -> Report:
        """Turn the tally after the last piece into a report. Raise PreconditionError if an element was undefined."""
        tally = counts.tolist()
        if tally[3] >= 0:
            raise PreconditionError(self.explain_undefined(counts), index=tally[3])
        return self.tallied(*tally[:3])

    def tallied(self, low: int, high: int, missing: int) -> Report:
        """Return the report of so many saturated elements and NaN, all of them defined."""
        if not (low or high or missing):
            return self._plain_report
        return Report(self.profile, self._plain_report.rounding, self.elements, low, high, missing)

    def explain_undefined(self, counts: Array) -> str:
        """Say what the profile's arithmetic demands of the element, for the plans that demand anything."""
        return "the arithmetic is not defined for this element"

    def run(self, source: Array, target: Array) -> Report:
        """Convert a whole flat tensor. Both arrays are 1-D, contiguous, of this plan's dtypes and size.

        Raise TensorDataError if they are not, PreconditionError if the arithmetic is not defined for an element.
        """
        self.check_arrays(source, target)
        if not self.tallies:
            self.step(source, target, 0, _NO_COUNTS)
            return self._plain_report
        counts = self.new_counts()
        self.step(source, target, 0, counts)
        return self.report(counts)

    def check_arrays(self, source: Array, target: Array) -> None:
        """Raise TensorDataError unless these are what `run` takes."""
        # Each dtype of numpy's own is one object; what is equal to it only is looked at more closely.
        if not (
            source.dtype is self.input_dtype
            and source.shape == self._shape
            and source.flags.c_contiguous
            and target.dtype is self.output_dtype
            and target.shape == self._shape
            and target.flags.c_contiguous
        ):
            check_flat(source, self.input_dtype, self.elements, "the input")
            check_flat(target, self.output_dtype, self.elements, "the output")
        if self.input_bounds is not None:
            self.check_bounds(source, 0)

    def check_bounds(self, source: Array, start: int) -> None:
        """Raise TensorDataError if an element of `source`, which begins at flat index `start`, is not of its type."""
        if self.input_bounds is not None:
            check_within(source, *self.input_bounds, start)


class DeferredPlan:
    """A plan that is made when it is first wanted, and counted as `nbytes` from the start.

    Threads may ask for it side by side; at worst two of them make the same.
    """

    def __init__(self, make: Callable[[], Plan], nbytes: int) -> None:
        self.nbytes = nbytes
        self._make = make
        self._made: Plan | None = None

    def __call__(self) -> Plan:
        if self._made is None:
            self._made = self._make()
        return self._made


def quantizing(profile: str, rule: OperationRule, input_type: TensorType, operand: QuantizedOperand) -> dict[str, Any]:
    """Return the fields of a Plan from floats of `input_type` to the stored numbers of `operand`."""
    return {
        "profile": profile,
        "rounding": rule.rounding,
        "input_type": input_type,
        "output_type": operand.tensor,
        "input_dtype": float_element(input_type, "input").tensor_dtype,
        "output_dtype": operand.dtype,
        "elements": operand.elements,
    }


def dequantizing(
    profile: str, rule: OperationRule, operand: QuantizedOperand, output_type: TensorType
) -> dict[str, Any]:
    """Return the fields of a Plan from the stored numbers of `operand` to floats of `output_type`."""
    return {
        "profile": profile,
        "rounding": rule.rounding,
        "input_type": operand.tensor,
        "output_type": output_type,
        "input_dtype": operand.dtype,
        "output_dtype": float_element(output_type, "output").tensor_dtype,
        "elements": operand.elements,
        "input_bounds": operand.input_bounds,
    }


def requantizing(profile: str, rounding: Rounding, source: StoredOperand, target: StoredOperand) -> dict[str, Any]:
    """Return the fields of a Plan from the stored numbers of `source` to those of `target`."""
    return {
        "profile": profile,
        "rounding": rounding,
        "input_type": source.tensor,
        "output_type": target.tensor,
        "input_dtype": source.dtype,
        "output_dtype": target.dtype,
        "elements": source.elements,
        "input_bounds": source.input_bounds,
    }


def shared_plan_fields(whole: Plan) -> dict[str, Any]:
    """Return the fields of a Plan that converts what `whole` converts."""
    return {each.name: getattr(whole, each.name) for each in fields(Plan) if each.init}


# Of these widths one number to an integer is dense already.
_WHOLE = (8, 16, 32)
_WIDEST = 64


class Packing(StrEnum):
    """How elements of widths other than 8, 16, 32 and 64 bits are stored."""

    UNPACKED = "unpacked"
    """One number to an integer of the next such width, signed ones with their sign extended."""
    DENSE = "dense"
    """Bit after bit, the lowest first: two i4 to a byte, the first in the low half; two i12 to three bytes."""


def dense_width(tensor: TensorType) -> int | None:
    """Return the bits of one number if a dense form of this tensor differs from the plain one, else None."""
    element = tensor.element
    if isinstance(element, UniformQuantizedType):
        width = element.storage.width
    elif isinstance(element, (IntegerElement, FloatElement)):
        width = element.width
    else:
        raise UnsupportedError("only numbers can be packed")
    return width if width < _WIDEST and width not in _WHOLE else None


def dense_bytes(elements: int, width: int) -> int:
    """The bytes that `elements` numbers of `width` bits take."""
    return -(-elements * width // 8)


def check_dense_bytes(actual: int, elements: int, width: int) -> None:
    """Raise TensorDataError unless `actual` bytes are what so many numbers take."""
    expected = dense_bytes(elements, width)
    if actual != expected:
        raise TensorDataError(f"{elements} numbers of {width} bits are {expected} bytes packed; there are {actual}")


def check_spare_bits(packed: Array, elements: int, width: int) -> None:
    """Raise TensorDataError if bits are set after the last number. `packed` has the bytes that the numbers take."""
    spare = packed.size * 8 - elements * width
    if spare and int(packed[-1]) >> (8 - spare):
        raise TensorDataError(f"the last {spare} bits of the packed numbers must be 0")


def pack(stored: Array, width: int) -> Array:
    """Return numbers (1-D, one to an integer) as dense bytes. Only their lowest `width` bits count."""
    packed = np.empty(dense_bytes(stored.size, width), np.uint8)
    pack_into(packed, stored, width)
    return packed


def pack_into(packed: Array, stored: Array, width: int) -> None:
    """Write what `pack` returns into `packed`, which has as many bytes."""
    check_dense_bytes(packed.size, stored.size, width)
    kernels.PACK[stored.itemsize](stored, packed, width)


def unpack(packed: Array, width: int, elements: int, dtype: np.dtype[Any]) -> Array:
    """Return `elements` numbers of `width` bits as `dtype`, which holds so many. `packed`: 1-D bytes.

    Raise TensorDataError if there are more or fewer bytes than that takes, or if bits after the last number are set.
    """
    check_dense_bytes(packed.size, elements, width)
    check_spare_bits(packed, elements, width)
    codes = np.empty(elements, dtype)
    sign = np.uint64(1 << (width - 1) if dtype.kind == "i" else 0)
    kernels.UNPACK[dtype.itemsize](packed, codes, width, sign)
    return codes


# Elements of an input in memory that are converted before it is checked whether the result is still needed.
WHOLE = 1 << 20
# Elements of an input at odd addresses that are copied at a time, so that they stay in a CPU's second cache.
COPIED = 128 << 10


# Eight numbers of any width end at the end of a byte.
_GROUP = 8


class Conversion:
    """A plan with the forms in which its input and output travel: `None`, or the bits of a number that is packed.

    A travelling tensor is a flat array of entries: `input_entries` of `input_dtype`, `output_entries` of
    `output_dtype`; they are its elements, or the bytes that those are packed in. A piece of the input has a multiple of
    `input_group` entries, unless it is the last.
    """

    def __init__(self, plan: Plan, packed_in: int | None = None, packed_out: int | None = None) -> None:
        self.plan = plan
        self.elements = plan.elements
        self._packed_in = packed_in
        self._packed_out = packed_out
        self.input_dtype = plan.input_dtype if packed_in is None else BYTE
        self.output_dtype = plan.output_dtype if packed_out is None else BYTE
        self.input_group = packed_in or (1 if packed_out is None else _GROUP)
        self.input_entries = self.input_at(plan.elements)
        self.output_entries = self.output_at(plan.elements)
        self.input_bytes = self.input_entries * self.input_dtype.itemsize
        self.output_bytes = self.output_entries * self.output_dtype.itemsize
        self._checks_bounds = plan.input_bounds is not None
        if plan.input_bounds is not None and packed_in is not None:
            lowest, highest = plan.input_bounds
            # So many bits mostly hold nothing but numbers of the type.
            self._checks_bounds = highest - lowest < (1 << packed_in) - 1
        # Conversions of one kind take about the same time for a byte.
        self.kind = (type(plan), plan.input_dtype, plan.output_dtype, plan.rounding, packed_in, packed_out)

    def input_at(self, element: int) -> int:
        """Return the index of the entry of the input at which a group begins with this element."""
        return element if self._packed_in is None else dense_bytes(element, self._packed_in)

    def output_at(self, element: int) -> int:
        """Return the index of the entry of the output at which a group begins with this element."""
        return element if self._packed_out is None else dense_bytes(element, self._packed_out)

    def element_at(self, entry: int) -> int:
        """Return the index of the element with which a group begins at this entry of the input, or all at its end."""
        return entry if self._packed_in is None else min(entry * _GROUP // self._packed_in, self.elements)

    def pieces(self, start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
        """Cut the elements from `start` to `stop` into pieces of about `size` elements that end at groups."""
        size = max(size // _GROUP, 1) * _GROUP
        for begin in range(start, stop, size):
            yield begin, min(begin + size, stop)

    def check(self, source: Array, start: int) -> None:
        """Raise TensorDataError if a number of the piece that begins at element `start` is not of its type."""
        self.plan.check_bounds(self.unpacked(source, start), start)

    def run(self, source: Array, target: Array, check: Callable[[], None] | None = None) -> Array:
        """Convert a whole tensor that is in memory into `target`, both as they travel. Return the tally.

        `check` is called after each piece, and may raise what ends the work. An input at odd addresses is copied, piece
        by piece. Raise TensorDataError as `step` does.
        """
        counts = self.plan.new_counts()
        aligned = source.flags.aligned
        most = WHOLE if aligned else COPIED
        if self.elements <= most:
            self.step(source if aligned else source.copy(), target, 0, counts)
            if check is not None:
                check()
            return counts
        for first, last in self.pieces(0, self.elements, most):
            check_cancelled()
            merged([self.run_piece(source, target, first, last, check)], counts)
        return counts

    def run_piece(
        self, source: Array, target: Array, first: int, last: int, check: Callable[[], None] | None = None
    ) -> Array:
        """Convert the elements from `first` to before `last` of a whole tensor. Return their tally."""
        counts = self.plan.new_counts()
        piece = source[self.input_at(first) : self.input_at(last)]
        piece = piece if piece.flags.aligned else piece.copy()
        self.step(piece, target[self.output_at(first) : self.output_at(last)], first, counts)
        if check is not None:
            check()
        return counts

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        """Convert the piece `source` that begins at element `start` into `target`, both as they travel.

        Raise TensorDataError for a number that its type does not hold. `counts` is that of Plan.step.
        """
        if self._packed_in is not None:
            source = self.unpacked(source, start)
        if self._checks_bounds:
            self.plan.check_bounds(source, start)
        if self._packed_out is None:
            self.plan.step(source, target, start, counts)
            return
        result = np.empty(source.size, self.plan.output_dtype)
        self.plan.step(source, result, start, counts)
        pack_into(target, result, self._packed_out)

    def unpacked(self, source: Array, start: int) -> Array:
        """Return the numbers of the piece `source`, as it travels, that begins at element `start`."""
        if self._packed_in is None:
            return source
        stop = self.element_at(self.input_at(start) + source.size)
        return unpack(source, self._packed_in, stop - start, self.plan.input_dtype)


def merged(tallies: Iterable[Array], into: Array) -> Array:
    """Add the tallies of pieces, in any order, to that of Plan.new_counts, and return it."""
    for counts in tallies:
        into[:3] += counts[:3]
        if counts[3] >= 0 and not 0 <= into[3] <= counts[3]:
            into[3:] = counts[3:]
    return into
