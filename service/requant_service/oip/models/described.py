"""Our own operations as models, made from their descriptions.

Types of inputs are parameters, the stages of a trace and the members of its records outputs. An input or output may
have a name of its own here, since other servers call them x and y.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from requant.description import (
    Elements,
    Kind,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Records,
    Result,
    Stored,
    TensorInput,
    TensorOutput,
    TensorValue,
)
from requant.errors import InvalidRequestError, default_pointer, pointers_for_sides
from requant.mlir import print_type
from requant.mlir.types import TensorType
from requant.operations import OPERATIONS
from requant.plan.operands import static_shape
from requant.plan.plan import Packing, check_dense_bytes, dense_width, pack, unpack
from requant_service.oip import parameters as oip
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES, STORED
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.models.pointers import pointing_into
from requant_service.oip.parameters import Parameter, pointer_to, read_list
from requant_service.oip.tensors import Array, InputTensor, OutputTensor, output_tensor
from requant_service.operations.described import plan_operation, weight
from requant_service.operations.types import read_tensor_type

_BYTES = DATATYPES["UINT8"]
_DATATYPES: Mapping[Elements, tuple[str, ...]] = {
    Elements.INTEGERS: (*STORED, "INT64"),
    Elements.SUMS: ("INT32", "INT64", "FP32", "FP64", "FP16"),
}
_KINDS = {Kind.BOOLEAN: oip.Kind.BOOLEAN, Kind.INTEGER: oip.Kind.INTEGER, Kind.NUMBER: oip.Kind.NUMBER}
_LISTS: Mapping[Kind, tuple[type, ...]] = {Kind.INTEGERS: (int,), Kind.NUMBERS: (int, float)}


def _name(tensor: TensorInput | TensorOutput) -> str:
    return tensor.model_name or tensor.name


def _parameter(option: Option) -> Parameter:
    said = option.description or (option.choices.description if option.choices else "")
    if option.kind in _LISTS:
        said += " A JSON list as text."
    default = option.default
    return Parameter(
        name=option.name,
        kind=_KINDS.get(option.kind, oip.Kind.STRING),
        description=said,
        default=default if default is None or isinstance(default, bool | int | float) else str(default),
        optional=option.optional,
        choices=() if option.choices is None else option.choices.values,
        lowest=option.lowest,
        highest=option.highest,
    )


def _type_parameter(tensor: TensorInput) -> Parameter:
    said = f"MLIR text: the type of {_name(tensor)}. Default: its datatype, integers without a scale."
    return Parameter(name=tensor.type_option, description=said, optional=True)


def _list(call: Call, option: Option) -> tuple[Any, ...]:
    place, members = pointer_to(option.name), read_list(option.name, call.text(option.name), *_LISTS[option.kind])
    if option.length not in (None, len(members)):
        detail = f"expected {option.length} integers; there are {len(members)}"
        raise InvalidRequestError.of_field(place, "wrong_length", detail)
    for index, member in enumerate(members):
        if option.kind is Kind.INTEGERS and not option.lowest <= member <= option.highest:
            detail = f"member {index} is not from {option.lowest} to {option.highest}"
            raise InvalidRequestError.of_field(place, "out_of_range", detail)
    return tuple(members)


def _value(call: Call, option: Option) -> Any:
    """Return the value of an option, read: None for one that is absent."""
    if not call.has(option.name):
        return None
    if option.kind is Kind.TYPE:
        return call.type(option.name)
    if option.kind in _LISTS:
        return _list(call, option)
    if option.choices is not None and option.choices.enumeration is not None:
        return call.choice(option.name, option.choices.enumeration)
    return call.parameters[option.name]


class _ModelCall:
    """One call: its tensors under the names of the description, and how their elements travel."""

    def __init__(self, operation: Operation, call: Call) -> None:
        self._operation = operation
        self._call = call
        self._tensors: Mapping[str, InputTensor] = {
            each.name: call.inputs[_name(each)] for each in operation.inputs if _name(each) in call.inputs
        }
        self._inputs = [each for each in operation.inputs if each.name in self._tensors]
        self._dense = operation.has_option("packing") and call.choice("packing", Packing) is Packing.DENSE

    def plan(self) -> Job:
        """Plan the call, and check that its tensors are what the plan takes."""
        call = self._call
        places = {
            each.name: pointer_to(each.type_option) if call.has(each.type_option) else self._tensors[each.name].pointer
            for each in self._inputs
        }
        with pointing_into(call):
            types = {each.name: self._type(each) for each in self._inputs}
            options = {each.name: _value(call, each) for each in self._operation.options}
            places["output"] = pointer_to("output_type")
            work = plan_operation(self._operation, OperationCall(types, options), places, call.settings)
        for each in self._inputs:
            self._check_kept(each, work.operands[each.name])
        return Job(lambda: self._run(work), work.byte_count, weight(work))

    def _width(self, tensor: TensorInput | None, type_: TensorType) -> int | None:
        """Return the bits of the numbers of a tensor that is packed, None for one that is not. None: the output."""
        return dense_width(type_) if self._dense and (tensor is None or tensor.packable) else None

    def _type(self, tensor: TensorInput) -> TensorType:
        """Return what an input is. The type of one that is packed has to tell its shape, which bytes do not."""
        call, option = self._call, tensor.type_option
        if self._dense and tensor.packable and call.has(option):
            stated = call.type(option)
            if not isinstance(stated, TensorType) or dense_width(stated) is not None:
                return read_tensor_type(call.text(option), call.settings, pointer_to(option))
        return call.tensor_type(_name(tensor), option)

    def _check_kept(self, tensor: TensorInput, stored: Stored) -> None:
        """Raise TensorDataError unless an input travels as elements of its type do."""
        given, width = self._tensors[tensor.name], self._width(tensor, stored.type)
        if width is None:
            given.check_kept(stored.type.element, stored.dtype)
            return
        given.check_kept(_BYTES.element, _BYTES.dtype)
        with default_pointer(given.pointer):
            check_dense_bytes(given.data.size, prod(static_shape(stored.type)), width)

    def _elements(self, tensor: TensorInput, stored: Stored) -> Array:
        given, width = self._tensors[tensor.name], self._width(tensor, stored.type)
        if width is None:
            return given.data
        with default_pointer(given.pointer):
            return unpack(given.data, width, prod(static_shape(stored.type)), stored.dtype)

    def _run(self, work: PlannedWork) -> Answer:
        arrays = {each.name: self._elements(each, work.operands[each.name]) for each in self._inputs}
        with pointers_for_sides(**{each.side or each.name: self._tensors[each.name].pointer for each in self._inputs}):
            result = work.run(arrays)
        return self._answer(result)

    def _answer(self, result: Result) -> Answer:
        outputs = [self._output(each, result.outputs[each.name]) for each in self._operation.outputs]
        outputs += [output_tensor(name, each.type, each.data) for name, each in result.stages.items()]
        if self._operation.trace is not None and result.records is not None:
            outputs += _record_tensors(self._operation.trace.records, result.records)
        types = {f"{name}_type": print_type(each.type) for name, each in result.outputs.items()}
        return Answer(tuple(outputs), {**types, **result.report})

    def _output(self, tensor: TensorOutput, value: TensorValue) -> OutputTensor:
        kept, width = output_tensor(_name(tensor), value.type, value.data), self._width(None, value.type)
        if width is None:
            return kept
        packed = pack(value.data, width)
        return OutputTensor(kept.name, _BYTES, packed.shape, packed, kept.element_type)


_RECORD_DATATYPES = {"multiplier": DATATYPES["INT64"], "shift": DATATYPES["INT32"]}


def _record_tensors(records: Records, values: Iterable[Mapping[str, int]]) -> list[OutputTensor]:
    listed = list(values)
    tensors = []
    for member in records.members:
        datatype = _RECORD_DATATYPES[member.name]
        column = np.array([each[member.name] for each in listed], datatype.dtype)
        tensors.append(OutputTensor(member.name, datatype, column.shape, column, print_type(datatype.element)))
    return tensors


def _lowered(description: str) -> str:
    """Return a sentence as it stands behind a colon."""
    first = description.partition(" ")[0]
    return description[:1].lower() + description[1:] if first[1:].islower() else description


def _output_slots(operation: Operation) -> list[Slot]:
    slots = [
        Slot(name=_name(each), description=each.description, datatypes=_DATATYPES[each.elements])
        for each in operation.outputs
    ]
    if (trace := operation.trace) is None:
        return slots
    for stage in trace.stages:
        said = _lowered(stage.description) or f"the {stage.name.replace('_', ' ')}."
        slots.append(
            Slot(
                name=stage.name,
                description=f"With trace: {said}",
                datatypes=_DATATYPES[stage.elements],
                optional=True,
            )
        )
    for member in trace.records.members:
        said = f"With trace, of each of the {trace.records.name}. {trace.records.description}"
        datatype = _RECORD_DATATYPES[member.name].name
        slots.append(Slot(name=member.name, description=said, datatypes=(datatype,), optional=True))
    return slots


def model_of(operation: Operation) -> Model:
    """Return an operation as a model."""
    types = [_type_parameter(each) for each in operation.inputs]
    parameters = [_parameter(each) for each in operation.options]
    return Model(
        name=operation.name,
        versions=("1",),
        description=operation.summary,
        inputs=tuple(
            Slot(
                name=_name(each),
                description=each.description,
                datatypes=_DATATYPES[each.elements],
                optional=each.optional,
            )
            for each in operation.inputs
        ),
        outputs=tuple(_output_slots(operation)),
        parameters=(*parameters[:1], *types, *parameters[1:]),
        plan=lambda call: _ModelCall(operation, call).plan(),
    )


OPERATION_MODELS: Mapping[str, Model] = {name: model_of(operation) for name, operation in OPERATIONS.items()}
