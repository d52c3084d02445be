"""What something gave for a call: which outputs that can be, and numbers in lists as an array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from requant.arrays.elements import Array, numpy_dtype, shaped
from requant.arrays.json_values import NON_FINITE, decode_elements, flattened
from requant.description import Elements, Kind, Member, NumbersOutput, Operation, Records, TensorOutput
from requant.errors import TensorDataError
from requant.errors.names import entry_named
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.mlir.types import ElementType, TensorType, TupleType, Type, UniformQuantizedType
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
    return entry_named(_outputs(operation), name, f"output of {operation.name}")


def _outputs(operation: Operation) -> dict[str, Output]:
    found: dict[str, Output] = {}
    for part in operation.reply:
        match part:
            case TensorOutput() | NumbersOutput():
                found[part.name] = part
            case Records():
                found |= {each.name: each for each in part.record.members}
            case Member() if _is_number(part):
                found[part.name] = part
    return found


def _is_number(member: Member) -> bool:
    return member.kind in (Kind.INTEGER, Kind.NUMBER) and not (member.members or member.repeated)


def outputs_of(operation: Operation, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return outputs by name of what may be a reply of the operation, from its route, its function or its command: of
    records the numbers of each member, and without what is no output. Other names are kept, for `observable`.
    """
    outputs = _outputs(operation)
    no_outputs = {each.name for each in operation.reply} | {f"{name}_type" for name in outputs}
    if operation.trace is not None:
        no_outputs.add("trace")
    found: dict[str, Any] = {}
    for name, value in said.items():
        records = next((each for each in operation.reply if isinstance(each, Records) and each.name == name), None)
        if records is not None and isinstance(value, list | tuple):
            for member in filter(_is_number, records.record.members):
                numbers = [each.get(member.name) for each in value if isinstance(each, Mapping)]
                if numbers and None not in numbers:
                    found[member.name] = numbers
        elif isinstance(outputs.get(name), Member) and isinstance(value, int | float):
            found[name] = [value]
        elif value is not None and (name in outputs or name not in no_outputs):
            found[name] = value
    return found


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

    `element`: what they are stored as, if that is known. Floats of at most 8 bits are codes if all are whole, as in
    replies, and else numbers. Others are i64 if all are whole, else f64, and may be texts.
    `literals` gives the same lists with the numbers as texts. Raise TensorDataError.
    """
    shape = _shape(sent)
    flat = flattened(sent, shape)
    if len(shape) > 1 and len(flat) != prod(shape):
        raise TensorDataError("the lists are not nested as a shape")
    if (small := _small_float(element)) is not None and any(type(each) is not int for each in flat):
        return _codes_of(flat, small)
    if element is None:
        flat = [_number(each) for each in flat]
        element = _INTEGERS if all(type(each) is int for each in flat) else FLOATS["f64"]
    size = (len(flat),)
    decoded = decode_elements(flat, element, kept_dtype(element, "output"), size, lambda: flattened(literals(), shape))
    return shaped(decoded, TensorType(size, element), size)


def _small_float(element: Any) -> FloatElement | None:
    """Return the float type of which JSON has codes, if elements are stored as one."""
    stored = element.storage.element if isinstance(element, UniformQuantizedType) else element
    return stored if isinstance(stored, FloatElement) and stored.width <= 8 else None


def _codes_of(flat: Sequence[Any], element: FloatElement) -> Array:
    """Return numbers as codes of a small float. Raise TensorDataError for one that is too large."""
    wide = decode_elements(flat, FLOATS["f64"], np.dtype(np.float64), (len(flat),), lambda: flat)
    with np.errstate(all="ignore"):
        narrow = wide.astype(numpy_dtype(element))
    lost = np.flatnonzero(np.isfinite(wide) & ~np.isfinite(narrow.astype(np.float64)))
    if lost.size:
        index = int(lost[0])
        raise TensorDataError(f"value {index} is out of the range of {element.name}", pointer=f"/{index}")
    codes: Array = narrow.view(np.uint8)
    return codes


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
