"""Other systems' operators as models: made from their descriptions, a version of a model being one of its system.

Attributes are parameters; lists and numbers among them are JSON texts. An operand whose datatype does not say what its
elements are has a parameter for that, `NAME_type`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from requant.description import Kind, TensorValue, Value
from requant.errors import RequantError, TypeFitError, default_pointer
from requant.operators.description import Attribute, Operand, Operator
from requant.operators.element_names import QUANTIZED, container, element_named
from requant.operators.registry import OPERATORS
from requant.plan.operands import bind
from requant_service.oip import parameters as oip
from requant_service.oip.call import Call
from requant_service.oip.datatypes import BOOL, DATATYPES, STORED, datatype_of
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.parameters import Parameter, pointer_to, read_list
from requant_service.oip.tensors import output_tensor
from requant_service.operations.operators import operand_dtype, plan_operator


def _datatype(name: str) -> str:
    element = element_named(name)
    if element == BOOL.element:
        return BOOL.name
    dtype = container(element)
    assert dtype is not None
    return datatype_of(element, dtype).name


def _datatypes(operand: Operand) -> tuple[str, ...]:
    """Return what the element types of an operand travel as, in their order."""
    datatypes: list[str] = []
    for name in operand.types:
        datatypes += STORED if name == QUANTIZED else [_datatype(name)]
    return tuple(dict.fromkeys(datatypes))


def _needs_type(operand: Operand) -> bool:
    """Return whether a datatype can mean several of the operand's element types, or one that is not its own."""
    return any(name == QUANTIZED or DATATYPES[_datatype(name)].element != element_named(name) for name in operand.types)


def _type_parameter(operand: Operand) -> Parameter:
    return Parameter(
        name=f"{operand.name}_type",
        description=f"MLIR text: the type of {operand.name}. Default: its datatype.",
        optional=True,
    )


_KINDS = {Kind.BOOLEAN: oip.Kind.BOOLEAN, Kind.INTEGER: oip.Kind.INTEGER, Kind.NUMBER: oip.Kind.NUMBER}


def _parameter(attribute: Attribute) -> Parameter:
    said = attribute.description
    if attribute.kind in (Kind.INTEGERS, Kind.NUMBERS):
        said += " A JSON list as text, or one number."
    default = attribute.default
    stated = default if default is None or isinstance(default, (bool, int, float, str)) else json.dumps(default)
    return Parameter(
        name=attribute.name,
        kind=_KINDS.get(attribute.kind, oip.Kind.STRING),
        description=said,
        default=stated,
        optional=attribute.optional,
        choices=() if attribute.choices is None else attribute.choices.values,
        lowest=attribute.lowest,
        highest=attribute.highest,
        may_be_number=attribute.kind in (Kind.INTEGERS, Kind.NUMBERS),
    )


def _value(call: Call, attribute: Attribute) -> Value:
    """Return the value of an attribute that is there."""
    value = call.parameters[attribute.name]
    assert value is not None
    match attribute.kind:
        case Kind.TYPE:
            return call.type(attribute.name)
        case Kind.INTEGERS:
            return read_list(attribute.name, str(value), int)
        case Kind.NUMBERS:
            return read_list(attribute.name, str(value), int, float)
        case _:
            return value


@contextmanager
def _placed(call: Call) -> Iterator[None]:
    """Turn the pointers of an operator, which are those of a JSON request, into those of an inference request."""
    try:
        yield
    except RequantError as error:
        error.pointer = _place(error.pointer, call)
        raise


def _place(pointer: str | None, call: Call) -> str | None:
    if pointer is None:
        return None
    _, part, name, *_ = [*pointer.split("/"), ""]
    if part == "inputs" and name in call.inputs:
        return call.inputs[name].pointer
    if part == "attributes":
        return pointer_to(name)
    return pointer_to("implementation") if part == "implementation" else pointer


def _operands(call: Call, typed: Sequence[str]) -> dict[str, TensorValue]:
    operands: dict[str, TensorValue] = {}
    for name, tensor in call.inputs.items():
        with default_pointer(tensor.pointer):
            type_ = (
                call.tensor_type(name, f"{name}_type") if name in typed else bind(tensor.datatype.element, tensor.shape)
            )
            operands[name] = TensorValue(type_, tensor.kept_as(type_.element, operand_dtype(type_)))
    for name in typed:
        if call.has(f"{name}_type") and name not in call.inputs:
            raise TypeFitError(f"there is no input {name}", pointer=pointer_to(f"{name}_type"))
    return operands


def model_of(operator: Operator) -> Model:
    """Return an operator as a model."""
    typed = tuple(operand.name for operand in operator.inputs if _needs_type(operand))
    choices = operator.implementations
    parameters = [_parameter(attribute) for attribute in operator.attributes]
    parameters += [_type_parameter(operand) for operand in operator.inputs if operand.name in typed]
    parameters.append(
        Parameter(
            name="implementation",
            description=choices.description,
            default=choices.values[0],
            choices=choices.values,
        )
    )

    def plan(call: Call) -> Job:
        opset = int(call.version) if operator.versions else None
        stated = {attribute.name: attribute for attribute in operator.attributes if _stated(call, attribute)}
        with _placed(call):
            values = {name: _value(call, attribute) for name, attribute in stated.items()}
            implementation = call.text("implementation")
            operands = _operands(call, typed)
            planned = plan_operator(operator, opset, implementation, operands, values, call.settings)

        def job() -> Answer:
            with _placed(call):
                outputs = planned.run()
            # In the order of the description.
            there = [each.name for each in (*operator.outputs, *operator.stages) if each.name in outputs]
            return Answer(tuple(output_tensor(name, outputs[name].type, outputs[name].data) for name in there), {})

        return Job(job, planned.byte_count, planned.weight)

    return Model(
        name=operator.full_name,
        versions=tuple(map(str, operator.versions)) or ("1",),
        description=f"{operator.summary} {operator.source}.",
        inputs=tuple(
            Slot(
                name=each.name,
                description=each.description,
                datatypes=_datatypes(each),
                optional=each.optional,
            )
            for each in operator.inputs
        ),
        outputs=tuple(
            Slot(name=each.name, description=each.description, datatypes=_datatypes(each)) for each in operator.outputs
        )
        + tuple(
            Slot(
                name=each.name,
                description=f"With trace: {each.description}",
                datatypes=_datatypes(each),
                optional=True,
            )
            for each in operator.stages
        ),
        parameters=tuple(parameters),
        plan=plan,
    )


def _stated(call: Call, attribute: Attribute) -> bool:
    """Return whether an attribute is there with another value than its default, which any version can have."""
    value = call.parameters[attribute.name]
    return value is not None and value != _parameter(attribute).default


OPERATOR_MODELS: Mapping[str, Model] = {name: model_of(operator) for name, operator in OPERATORS.items()}
