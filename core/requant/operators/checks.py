"""A call against the description of its operator: names, element types, attributes, and the version of each.

What only the operator itself can know (shapes, how operands depend on one another) it checks when it plans.
"""

from __future__ import annotations

from collections.abc import Mapping

from requant.description import TensorValue, Value
from requant.errors import (
    InvalidRequestError,
    ParameterError,
    UnsupportedError,
    excerpt,
)
from requant.errors.names import unknown_name
from requant.mlir.printer import print_type
from requant.mlir.types import (
    TensorType,
)
from requant.operators.description import Attribute, Operand, Operator, OperatorCall
from requant.operators.element_names import type_key
from requant.plan.operands import static_shape


def _listed(since: Mapping[str, int], version: int) -> str:
    return ", ".join(name for name, first in since.items() if first <= version)


def check_type(operator: Operator, operand: Operand, tensor: TensorType, version: int) -> None:
    """Raise UnsupportedError, pointing at the operand, unless a version has it with this element type.

    The message names the first version that does, if any does. Raise TypeFitError for a shape that is not static.
    """
    static_shape(tensor)
    key = type_key(tensor.element)
    since = operand.types.get(key)
    place = f"/inputs/{operand.name}"
    shown = excerpt(print_type(tensor.element))
    if since is None:
        raise UnsupportedError(
            f"{operator.name} takes {operand.name} of {_listed(operand.types, version)}; not of {shown}", pointer=place
        )
    if since > version:
        raise UnsupportedError(
            f"{operator.name} takes {operand.name} of {shown} from opset {since}; at opset {version} of "
            f"{_listed(operand.types, version)}",
            pointer=place,
        )


def implementation_named(operator: Operator, name: str) -> str:
    """Return an implementation, the default one for an empty name. Raise UnknownNameError listing those there are."""
    choices = operator.implementations.values
    if not name:
        return operator.default_implementation
    if name not in choices:
        raise unknown_name("implementation", name, choices, pointer="/implementation")
    return name


def checked_call(
    operator: Operator,
    opset: int | None,
    implementation: str,
    inputs: Mapping[str, TensorValue],
    attributes: Mapping[str, Value],
) -> OperatorCall:
    """Return a call in which everything is what a version of the operator has, defaults filled in.

    `opset`: a version of the system, None for a system that has none. Raise InvalidRequestError for what is missing or
    unknown, UnsupportedError for what the version does not have, ParameterError for a value out of its limits. Pointers
    are those of a JSON request: /opset, /inputs/NAME, /attributes/NAME.
    """
    try:
        version = operator.version_of(1 if opset is None else opset)
    except UnsupportedError as error:
        error.pointer = "/opset"
        raise
    chosen = implementation_named(operator, implementation)
    operands = {operand.name: operand for operand in operator.inputs}
    for name, tensor in inputs.items():
        if name not in operands:
            raise _wrong(f"/inputs/{excerpt(name)}", "extra_forbidden", f"available: {', '.join(operands)}")
        check_type(operator, operands[name], tensor.type, version)
    for name, operand in operands.items():
        if name not in inputs and not operand.optional:
            raise _wrong(f"/inputs/{name}", "missing", f"{operator.name} needs the operand {name}")
    known = {attribute.name: attribute for attribute in operator.attributes}
    for name in attributes:
        if name not in known:
            raise _wrong(f"/attributes/{excerpt(name)}", "extra_forbidden", f"available: {', '.join(known) or 'none'}")
    values: dict[str, Value | None] = {}
    for name, attribute in known.items():
        values[name] = attribute.default
        if name in attributes:
            _check_value(operator, attribute, attributes[name], version)
            values[name] = attributes[name]
        elif attribute.required:
            raise _wrong(f"/attributes/{name}", "missing", f"{operator.name} needs the attribute {name}")
    return OperatorCall(version, chosen, inputs, values)


def _check_value(operator: Operator, attribute: Attribute, value: Value, version: int) -> None:
    place = f"/attributes/{attribute.name}"
    if attribute.since > version:
        raise UnsupportedError(
            f"{operator.name} has {attribute.name} from opset {attribute.since}; this is its version {version}",
            pointer=place,
        )
    if attribute.choices is not None and value not in attribute.choices.values:
        raise unknown_name(attribute.name, str(value), attribute.choices.values, pointer=place)
    for index, each in enumerate(value if isinstance(value, (list, tuple)) else [value]):
        if type(each) is int and not attribute.lowest <= each <= attribute.highest:
            raise ParameterError(
                f"{attribute.name} must be {attribute.lowest} to {attribute.highest}", index=index, pointer=place
            )


def _wrong(pointer: str, code: str, detail: str) -> InvalidRequestError:
    return InvalidRequestError.of_field(pointer, code, detail, message=f"{pointer}: {detail}")
