"""What something gave for a call: which outputs that can be, and numbers in lists as an array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from requant.arrays.elements import Array, shaped
from requant.arrays.json_values import NON_FINITE, decode_elements, flattened
from requant.description import Elements, Member, NumbersOutput, Operation, Records, TensorOutput
from requant.errors import TensorDataError
from requant.errors.names import entry_named
from requant.formats.elements import FLOATS, IntegerElement, Signedness
from requant.mlir.types import ElementType, TensorType, TupleType, Type
from requant.plan.operands import kept_dtype

_INTEGERS = IntegerElement(64, Signedness.SIGNLESS)
_OF_KIND: Mapping[Elements, ElementType] = {
    Elements.CODES: IntegerElement(8, Signedness.UNSIGNED),
    Elements.BYTES: IntegerElement(8, Signedness.UNSIGNED),
    Elements.INT32: IntegerElement(32, Signedness.SIGNLESS),
    Elements.SINGLES: FLOATS["f32"],
}
"""What the elements of an output are that has no other type."""

Output = TensorOutput | NumbersOutput | Member


def observable(operation: Operation, name: str) -> Output:
    """Return the output of that name: a tensor, numbers, or a member of records. Raise UnknownNameError."""
    found: dict[str, Output] = {}
    for part in operation.reply:
        match part:
            case TensorOutput() | NumbersOutput():
                found[part.name] = part
            case Records():
                found |= {each.name: each for each in part.record.members}
    return entry_named(found, name, f"output of {operation.name}")


def element_of_output(
    operation: Operation, output: Output, types: Mapping[str, TensorType], output_type: Type | None
) -> ElementType | None:
    """Return what the elements of an output are, if a call tells by the types of its inputs, and by `output_type`."""
    if not isinstance(output, TensorOutput):
        return None
    if output.name == "output" and output_type is not None:
        stated = output_type.element if isinstance(output_type, TensorType) else output_type
        return None if isinstance(stated, TupleType) else stated
    if operation.converts is not None and "input" in types:
        return getattr(types["input"].element, "expressed", None) or FLOATS["f32"]
    return _OF_KIND.get(output.elements)


def listed_numbers(sent: Sequence[Any], element: ElementType | None, literals: Callable[[], Sequence[Any]]) -> Array:
    """Return numbers in a list, or in lists that are nested as a shape, as a flat array.

    `element`: what they are stored as, if that is known; others are i64 if all are whole, else f64, and may be texts.
    `literals` gives the same lists with the numbers as texts. Raise TensorDataError.
    """
    shape = _shape(sent)
    flat = flattened(sent, shape)
    if len(shape) > 1 and len(flat) != prod(shape):
        raise TensorDataError("the lists are not nested as a shape")
    if element is None:
        flat = [_number(each) for each in flat]
        element = _INTEGERS if all(type(each) is int for each in flat) else FLOATS["f64"]
    size = (len(flat),)
    decoded = decode_elements(flat, element, kept_dtype(element, "output"), size, lambda: flattened(literals(), shape))
    return shaped(decoded, TensorType(size, element), size)


def _shape(lists: Any) -> tuple[int, ...]:
    """Return the shape as which lists are nested, by the first of each."""
    shape = []
    while isinstance(lists, list):
        shape.append(len(lists))
        lists = lists[0] if lists else None
    return tuple(shape)


def _number(value: Any) -> Any:
    """Return a number that is written as a text, as replies do for readers that round others."""
    try:
        return float(value) if isinstance(value, str) and value not in NON_FINITE else value
    except ValueError:
        return value
