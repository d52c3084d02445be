"""What a call gives, compared with what was observed bit for bit."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import flat_bits, numpy_dtype
from requant.description import Array, Operation, PlannedWork, Result, TensorOutput, TensorValue
from requant.errors import InvalidRequestError, TypeFitError
from requant.formats.elements import FloatElement
from requant.mlir.types import ElementType, UniformQuantizedType


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An element for which a candidate gives another value. `output` names its tensor, `index` is flat."""

    output: str
    index: int
    observed: Any
    computed: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many elements of the outputs were compared, how many differ, and the first of those.

    `numbers`: those outputs that are no tensors, as they were computed.
    """

    elements: int
    mismatches: int
    first: Mismatch | None
    numbers: Hashable = ()


def outcome_of(call: ArrayCall, work: PlannedWork) -> Outcome:
    """Compare what planned work gives with what was observed. Raise what the work raises, TypeFitError for
    another number of elements, and InvalidRequestError for an output that the operation does not have.
    """
    result = call.result(work)
    mismatches = elements = 0
    first: Mismatch | None = None
    numbers = []
    for name, observed in call.observed.items():
        expected, computed, differs = _compared(name, observed, result)
        elements += differs.size
        if name not in result.outputs:
            numbers.append(tuple(computed.tolist()))
        if count := int(np.count_nonzero(differs)):
            mismatches += count
            if first is None:
                index = int(np.argmax(differs))
                first = Mismatch(name, index, expected[index], computed[index])
    return Outcome(elements, mismatches, first, tuple(numbers))


def _compared(name: str, observed: Array, result: Result) -> tuple[Array, Array, Array]:
    """Return an output as it was observed and as it was computed, and where the two differ."""
    if name in result.outputs:
        value = result.outputs[name]
        given = observed_bits(observed, value, name)
        check_size(name, given.size, value.data.size)
        return given, value.data, differing(given, value)
    computed = _numbers(name, result)
    given = np.asarray(observed).reshape(-1)
    if given.shape != computed.shape:
        raise TypeFitError(f"{given.size} numbers of {name} were observed; there are {computed.size}")
    return given, computed, ~_equal_numbers(given, computed)


def check_size(name: str, observed: int, expected: int) -> None:
    """Raise TypeFitError unless as many elements of an output were observed as it has."""
    if observed != expected:
        raise TypeFitError(f"{observed} elements of {name} were observed; it has {expected}")


def tensor_outputs(operation: Operation) -> set[str]:
    """Return the names of the outputs that are tensors."""
    return {each.name for each in operation.reply if isinstance(each, TensorOutput)}


def compared_outputs(call: ArrayCall) -> tuple[str, ...]:
    """Return which outputs a call that is made from this one is asked for: the tensors that were observed.

    Multipliers do not depend on inputs: of a call with no other numbers, the output that they make.
    """
    tensors = tensor_outputs(call.operation)
    observed = tuple(name for name in call.observed if name in tensors)
    return observed or (("output",) if "output" in tensors else tuple(call.observed))


def computed_outputs(result: Result, names: Iterable[str]) -> tuple[Array, ...]:
    """Return outputs of these names, flat: tensors as they are stored, and numbers."""
    return tuple(result.outputs[name].data if name in result.outputs else _numbers(name, result) for name in names)


def _numbers(name: str, result: Result) -> Array:
    """Return a list of numbers, or a member of records or of the report, as an array."""
    if name in result.numbers:
        return result.numbers[name].reshape(-1)
    if result.records and name in result.records[0]:
        return np.array([each[name] for each in result.records])
    if name in result.report:
        return np.array([result.report[name]])
    detail = "the operation has no such output"
    raise InvalidRequestError.of_field(f"/observed/{name}", "unknown", detail, message=detail)


def _equal_numbers(given: Array, computed: Array) -> Array:
    """Return which numbers are equal. A number that f32 holds equals one that rounds to it: it may have been printed
    with the digits that f32 needs.
    """
    if computed.dtype.kind != "f":
        same: Array = given == computed
        return same
    real = given.astype(np.float64)
    with np.errstate(over="ignore"):
        short = computed.astype(np.float32).astype(np.float64) == computed
        same = short & (real.astype(np.float32) == computed.astype(np.float32))
        same |= real == computed
    return same


def stored_float(element: ElementType) -> FloatElement | None:
    """Return the float type that the elements of a type are stored as, if they are."""
    stored = element.storage.element if isinstance(element, UniformQuantizedType) else element
    return stored if isinstance(stored, FloatElement) else None


def observed_bits(observed: Array, value: TensorValue, name: str) -> Array:
    """Return observed elements as those of a result: flat, of its dtype.

    Floats may be of a wider dtype; they are rounded to the type, of which they are decimal texts or exact copies.
    """
    element = stored_float(value.type.element)
    if element is not None and observed.dtype in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            observed = observed.astype(numpy_dtype(element))
    return flat_bits(observed, value.data.dtype, value.type.element, name)


def differing(given: Array, value: TensorValue) -> Array:
    """Return where two tensors have other bits. All NaNs are equal: systems differ in their payload."""
    element = stored_float(value.type.element)
    bits = np.dtype(f"u{given.itemsize}")
    differs: Array = given.view(bits) != value.data.view(bits)
    if element is not None and differs.any():
        differs &= ~(_is_nan(given, element) & _is_nan(value.data, element))
    return differs


def _is_nan(elements: Array, element: FloatElement) -> Array:
    found: Array = np.isnan(elements.view(numpy_dtype(element)))
    return found
