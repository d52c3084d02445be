"""A plan: everything about one conversion that is decided before the first element is seen.

The operations (`quantize`, `dequantize`, `requantize`) make plans from types and a profile; a plan holds a kernel and
its parameter arrays, and works through a tensor in any pieces, with the same bits and the same tally.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from requant.errors import PreconditionError, TensorDataError
from requant.mlir.types import TensorType
from requant.plan.operands import QuantizedOperand, StoredOperand, float_element
from requant.plan.report import Report
from requant.profiles import OperationRule, Rounding
from requant.schemes import Multiplier

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "_plain_report", Report(self.profile, self.rounding, self.elements, 0, 0, 0))

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
        low, high, missing = tally[:3]
        if not (low or high or missing):
            return self._plain_report
        return Report(self.profile, self.rounding, self.elements, low, high, missing)

    def explain_undefined(self, counts: Array) -> str:
        """Say what the profile's arithmetic demands of the element, for the plans that demand anything."""
        return "the arithmetic is not defined for this element"

    def run(self, source: Array, target: Array) -> Report:
        """Convert a whole flat tensor. Both arrays are 1-D, contiguous, of this plan's dtypes and size.

        Raise TensorDataError if they are not, PreconditionError if the arithmetic is not defined for an element.
        """
        check_flat(source, self.input_dtype, self.elements, "the input")
        check_flat(target, self.output_dtype, self.elements, "the output")
        if self.input_bounds is not None:
            self.check_bounds(source, 0)
        counts = self.new_counts()
        self.step(source, target, 0, counts)
        return self.report(counts)

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


def around(whole: Plan) -> dict[str, Any]:
    """Return the fields of a Plan that converts what `whole` converts."""
    return {each.name: getattr(whole, each.name) for each in fields(Plan) if each.init}
