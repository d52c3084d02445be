"""Our own operations as models, made from their descriptions.

Types of inputs are parameters, the stages of a trace and the members of its records outputs. An input or output may
have a name of its own here, since other servers call them x and y.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from math import prod
from typing import Any

import numpy as np

from requant.description import (
    Argument,
    Elements,
    Group,
    Kind,
    Member,
    NumbersInput,
    NumbersOutput,
    Operation,
    OperationCall,
    Option,
    PlannedWork,
    Records,
    RecordsInput,
    Report,
    Result,
    Stored,
    TensorInput,
    TensorOutput,
    TensorValue,
    Work,
)
from requant.errors import (
    InvalidRequestError,
    LimitError,
    ParameterError,
    TypeFitError,
    default_pointer,
    pointers_for_sides,
)
from requant.mlir import print_type
from requant.mlir.types import TensorType
from requant.operations import OPERATIONS
from requant.plan.operands import static_shape
from requant.plan.plan import Packing, check_dense_bytes, dense_width, pack, unpack
from requant_service.http.json_body import bytes_for_objects, tokens_of
from requant_service.http.responses import json_text, records_text
from requant_service.oip import parameters as oip
from requant_service.oip.call import Call
from requant_service.oip.datatypes import DATATYPES, REALS, STORED, Datatype
from requant_service.oip.models.calls import CALLED_TENSORS, calls_parameter, read_calls
from requant_service.oip.models.json_texts import read_json_text
from requant_service.oip.models.model import Answer, Job, Model, Slot
from requant_service.oip.models.pointers import pointing_into
from requant_service.oip.parameters import Parameter, pointer_to, read_list
from requant_service.oip.tensors import (
    Array,
    InputTensor,
    OutputTensor,
    integers_output,
    output_tensor,
    real_numbers,
    reals_output,
)
from requant_service.operations.described import (
    check_factors,
    common_type,
    decimal_texts,
    limits_of,
    plan_operation,
    weight,
)
from requant_service.operations.options import group_model, group_value
from requant_service.operations.types import read_tensor_type
from requant_service.runtime.settings import MAX_ENTRIES

_BYTES = DATATYPES["UINT8"]
_NUMBERS = ("FP64", "FP32", "FP16", "BF16")
_INTEGERS = ("INT64", "INT32")
_DATATYPES: Mapping[Elements, tuple[str, ...]] = {
    Elements.INTEGERS: (*STORED, "INT64"),
    Elements.SUMS: ("INT32", "INT64", "FP32", "FP64", "FP16"),
    Elements.ANY: ("FP32", *(name for name in DATATYPES if name != "FP32")),
    Elements.REALS: REALS,
    Elements.SHORT_REALS: ("FP32", "FP16", "BF16"),
    Elements.SINGLES: ("FP32",),
    Elements.CODES: ("UINT8", "INT8"),
    Elements.BYTES: ("UINT8",),
    Elements.INT32: ("INT32",),
}
# Outputs whose datatype does not tell their type.
_OF_STATED_TYPE = (Elements.INTEGERS, Elements.SUMS, Elements.INT32)
_KINDS = {Kind.BOOLEAN: oip.Kind.BOOLEAN, Kind.INTEGER: oip.Kind.INTEGER, Kind.NUMBER: oip.Kind.NUMBER}
_LISTS: Mapping[Kind, tuple[type, ...]] = {Kind.INTEGERS: (int,), Kind.NUMBERS: (int, float), Kind.TEXTS: (str,)}
# What a character of a text becomes while it is read and worked on.
_BYTES_OF_CHARACTER = 32


def _name(tensor: Argument | TensorOutput | NumbersOutput) -> str:
    return tensor.model_name or tensor.name


def parameter_of(option: Option) -> Parameter:
    """Return an option as the parameter of a model. A group is JSON as text, as a list is."""
    said, default = option.model_description or option.words, option.default
    if option.kind in _LISTS:
        said += " A JSON list as text."
    if isinstance(default, tuple):
        default = _text(default)
    return Parameter(
        name=option.name,
        kind=_KINDS.get(option.kind, oip.Kind.STRING),
        description=option.model_description or said,
        default=default if default is None or isinstance(default, bool | int | float) else str(default),
        optional=option.optional,
        choices=() if option.choices is None or option.kind in _LISTS else option.choices.values,
        lowest=option.lowest,
        highest=option.highest,
        may_be_number=option.kind is Kind.NUMBER_OR_TEXT,
    )


def _type_parameter(tensor: TensorInput) -> Parameter:
    said = f"MLIR text: the type of {_name(tensor)}. Default: its datatype, integers without a scale."
    return Parameter(name=tensor.type_option, description=said, optional=True)


def _list(call: Call, option: Option) -> tuple[Any, ...]:
    place, members = pointer_to(option.name), read_list(option.name, call.text(option.name), *_LISTS[option.kind])
    if option.length not in (None, len(members)):
        detail = f"expected {option.length} integers; there are {len(members)}"
        raise InvalidRequestError.of_field(place, "wrong_length", detail)
    # A list of numbers that is too long is one that fits no tensor, which the operation says.
    if option.kind is Kind.TEXTS and option.max_length is not None and len(members) > option.max_length:
        detail = f"a list has more than {option.max_length} entries"
        raise LimitError(detail, limit=option.max_length, pointer=place)
    for index, member in enumerate(members):
        if option.kind is Kind.INTEGERS and not option.lowest <= member <= option.highest:
            detail = f"member {index} is not from {option.lowest} to {option.highest}"
            raise InvalidRequestError.of_field(place, "out_of_range", detail)
        if (fault := option.choice_fault(member)) is not None:
            raise InvalidRequestError.of_field(place, "enum", f"member {index} is {fault}")
    if option.choices is not None and option.choices.enumeration is not None:
        return tuple(map(option.choices.enumeration, members))
    return tuple(members)


def _group(call: Call, name: str, group: Group) -> dict[str, Any]:
    """Return a group of options, which a parameter has as the JSON object of the route."""
    given = read_json_text(call, name, group_model(group), "a JSON object")
    with default_pointer(pointer_to(name)):
        return group_value(group, given, call.settings, f"/{name}")


def option_value(call: Call, option: Option) -> Any:
    """Return the value of an option, read: None for one that is absent."""
    if not call.has(option.name):
        return None
    if option.kind is Kind.TYPE:
        return call.type(option.name)
    if option.kind is Kind.TENSOR_TYPE:
        return read_tensor_type(call.text(option.name), call.settings, pointer_to(option.name))
    if option.kind in _LISTS:
        return _list(call, option)
    if option.group is not None:
        return _group(call, option.name, option.group)
    if option.choices is not None and option.choices.enumeration is not None:
        return call.choice(option.name, option.choices.enumeration)
    with default_pointer(pointer_to(option.name)):
        return option.resolve(call.parameters[option.name])


def _check_forms(call: Call, operation: Operation) -> None:
    """Raise InvalidRequestError for inputs and parameters of which not exactly one is there."""
    given = {*call.inputs, *(name for name, value in call.parameters.items() if value is not None)}
    if (unmet := operation.unmet(given, _name)) is not None:
        one_of, fault = unmet
        if any(operation.has_option(name) for name in one_of.names):
            raise InvalidRequestError.of_field("", one_of.code, fault, message=f"the body: {fault}")
        raise InvalidRequestError.of_field("/inputs", one_of.code, fault)


def _check_numbers(call: Call, operation: Operation) -> None:
    """Raise LimitError for too many numbers that are read as exactly as they are written."""
    sizes = {name: tensor.data.size for name, tensor in call.inputs.items()}
    for given in operation.inputs:
        match given:
            case RecordsInput():
                count = max(sizes.get(_name(each.numbers), 0) for each in given.members)
                check_factors(count, given.name, call.settings, f"/{given.name}")
            case NumbersInput(kind=Kind.NUMBER_OR_TEXT):
                check_factors(sizes.get(_name(given), 0), given.name, call.settings, f"/{given.name}")


def _numbers(call: Call, operation: Operation) -> dict[str, Array]:
    """Return the numbers of each input, in its shape, in the order of the request."""
    called = {_name(each): each for each in operation.numbers}
    return {called[name].name: _read_numbers(call, called[name]) for name in call.inputs if name in called}


def _read_numbers(call: Call, given: NumbersInput) -> Array:
    """Return the numbers of an input as f64, or as texts that read back to them.

    Raise ParameterError, LimitError or TypeFitError.
    """
    tensor = call.inputs[_name(given)]
    if given.kind is Kind.NUMBER_OR_TEXT:
        return np.array([repr(each) for each in real_numbers(tensor).tolist()], object).reshape(tensor.shape)
    count = tensor.data.size
    if given.single and count != 1:
        raise TypeFitError(f"{_name(given)} is one number", pointer=tensor.pointer)
    if count == 0:
        raise ParameterError("the list is empty; at least one is required", pointer=tensor.pointer)
    if count > MAX_ENTRIES:
        raise LimitError(f"there are {count}; the limit is {MAX_ENTRIES}", limit=MAX_ENTRIES, pointer=tensor.pointer)
    if given.kind is Kind.INTEGER:
        return tensor.data.astype(np.int64).reshape(tensor.shape)
    return real_numbers(tensor).reshape(tensor.shape)


class _ModelCall:
    """One call: its tensors under the names of the description, and how their elements travel."""

    def __init__(self, operation: Operation, call: Call) -> None:
        self._operation = operation
        self._call = call
        self._tensors: dict[str, InputTensor] = {}
        self._names: dict[str, list[str]] = {}
        """The names that the operation has for the tensors of each input."""
        for each in operation.tensors:
            if each.several:
                given = {f"{each.name}_{index}": tensor for index, tensor in enumerate(call.several(_name(each)))}
            else:
                given = {each.name: call.inputs[_name(each)]} if _name(each) in call.inputs else {}
            self._tensors |= given
            self._names[each.name] = list(given)
        self._inputs = [each for each in operation.tensors if self._names[each.name]]
        self._dense = operation.has_option("packing") and call.choice("packing", Packing) is Packing.DENSE

    def plan(self) -> Job:
        """Plan the call. One on texts is planned where it is run, since reading them is most of it."""
        call, operation = self._call, self._operation
        if operation.work is Work.TEXTS:
            characters = call.characters
            byte_count = _BYTES_OF_CHARACTER * characters + sum(self._bytes_of_texts())
            return Job(lambda: self._run(self._planned()), byte_count, operation.readings * characters, Work.TEXTS)
        work = self._planned()
        if work.characters:
            return Job(lambda: self._run(work), work.byte_count, work.characters, Work.TEXTS)
        byte_count = work.byte_count + sum(self._bytes_of_texts())
        size = sum(tensor.data.nbytes for tensor in call.inputs.values())
        return Job(lambda: self._run(work), byte_count, weight(work, size, call.settings), operation.work)

    def _bytes_of_texts(self) -> Iterator[int]:
        """Yield how much memory each parameter takes that is read as JSON."""
        listed = [each.name for each in self._operation.options if each.group is not None]
        if self._operation.calls is not None:
            listed.append(self._operation.calls.name)
        for name in listed:
            if self._call.has(name):
                text = self._call.text(name).encode("utf-8", "surrogatepass")
                yield bytes_for_objects(text, tokens_of(text), self._call.settings.max_json_tokens)

    def _planned(self) -> PlannedWork:
        """Return the planned work, whose tensors are what the plan takes."""
        call, operation = self._call, self._operation
        with self._pointing():
            types = {each.name: self._type(each) for each in self._inputs}
            _check_forms(call, operation)
            _check_numbers(call, operation)
            call_of_operation = OperationCall(
                types,
                {each.name: option_value(call, each) for each in operation.options},
                _numbers(call, operation),
                {name: len(given) for name, given in self._names.items()},
                frozenset(each.name for each in self._inputs if each.elements in (Elements.CODES, Elements.BYTES)),
                limits_of(call.settings),
                () if operation.calls is None else read_calls(operation.calls, call),
            )
            places = {each.name: self._place_of_type(each) for each in self._inputs}
            places["output"] = pointer_to("output_type")
            work = plan_operation(operation, call_of_operation, places, call.settings)
        for each in self._inputs:
            for name in self._names[each.name]:
                self._check_kept(each, name, work.operands[name])
        return work

    def _pointing(self) -> AbstractContextManager[None]:
        """Point at the inputs and parameters of the request instead of the arguments of the operation."""
        names = {each.name: _name(each) for each in self._operation.arguments}
        # What is about several members of a record points at its first.
        names |= {each.name: _name(each.members[0].numbers) for each in self._operation.record_inputs}
        return pointing_into(self._call, **names)

    def _place_of_type(self, tensor: TensorInput) -> str:
        if not tensor.elements.tell_their_type and self._call.has(tensor.type_option):
            return pointer_to(tensor.type_option)
        return self._tensors[self._names[tensor.name][0]].pointer

    def _width(self, tensor: TensorInput | None, type_: TensorType) -> int | None:
        """Return the bits of the numbers of a tensor that is packed, None for one that is not. None: the output."""
        return dense_width(type_) if self._dense and (tensor is None or tensor.packable) else None

    def _type(self, tensor: TensorInput) -> TensorType:
        """Return what an input is. The type of one that is packed has to tell its shape, which bytes do not."""
        call, option = self._call, tensor.type_option
        if tensor.elements.tell_their_type:
            given = [self._tensors[name] for name in self._names[tensor.name]]
            types = [TensorType(each.shape, each.datatype.element) for each in given]
            return common_type(types, [each.pointer for each in given])
        if self._dense and tensor.packable and call.has(option):
            stated = call.type(option)
            if not isinstance(stated, TensorType) or dense_width(stated) is not None:
                return read_tensor_type(call.text(option), call.settings, pointer_to(option))
        return call.tensor_type(_name(tensor), option)

    def _check_kept(self, tensor: TensorInput, name: str, stored: Stored) -> None:
        """Raise TensorDataError unless an input travels as elements of its type do."""
        given, width = self._tensors[name], self._width(tensor, stored.type)
        if width is None:
            given.check_kept(stored.type.element, stored.dtype)
            return
        given.check_kept(_BYTES.element, _BYTES.dtype)
        with default_pointer(given.pointer):
            check_dense_bytes(given.data.size, prod(static_shape(stored.type)), width)

    def _elements(self, tensor: TensorInput, name: str, stored: Stored) -> Array:
        given, width = self._tensors[name], self._width(tensor, stored.type)
        if width is None:
            return given.data
        with default_pointer(given.pointer):
            return unpack(given.data, width, prod(static_shape(stored.type)), stored.dtype)

    def _run(self, work: PlannedWork) -> Answer:
        arrays = {
            name: self._elements(each, name, work.operands[name])
            for each in self._inputs
            for name in self._names[each.name]
        }
        named = {each.side or each.name: self._tensors[self._names[each.name][0]].pointer for each in self._inputs}
        with self._pointing(), pointers_for_sides(**named):
            result = work.run(arrays)
        return self._answer(result)

    def _answer(self, result: Result) -> Answer:
        outputs: list[OutputTensor] = []
        parameters: dict[str, Any] = {}
        own = {each.name for each in self._operation.members}
        for part in self._operation.model_reply:
            match part:
                case TensorOutput() if part.name in result.outputs:
                    value = result.outputs[part.name]
                    outputs.append(self._output(part, value))
                    if self._operation.has_option("output_type") or part.elements in _OF_STATED_TYPE:
                        parameters[f"{part.name}_type"] = value.type_text
                case NumbersOutput() if part.name in result.numbers:
                    numbers = result.numbers[part.name]
                    output = integers_output if part.kind is Kind.INTEGER else reals_output
                    outputs.append(output(_name(part), numbers.shape, numbers))
                case Member() if part.name in result.report and not part.only_in_json:
                    for member, value in _flat_members(part, result.report[part.name]):
                        if member.columns:
                            outputs.append(_rows(member, value))
                        elif member.repeated or member.group is not None:
                            parameters[member.name] = records_text(decimal_texts(member, value)).decode()
                        elif member.kind in _LISTS or member.members:
                            parameters[member.name] = _text(value)
                        elif member.kind is Kind.DECIMAL and isinstance(value, int):
                            # A count that 64 bits may not hold.
                            parameters[member.name] = str(value)
                        else:
                            parameters[member.name] = value
                case Records() if result.records is not None:
                    outputs += _record_tensors(part, result.records, result.record_shape)
                case Report():
                    parameters |= {name: each for name, each in result.report.items() if name not in own}
        outputs += [output_tensor(name, each.type, each.data) for name, each in result.stages.items()]
        trace = self._operation.trace
        if trace is not None and trace.records is not None and result.records is not None:
            outputs += _record_tensors(trace.records, result.records)
        return Answer(tuple(outputs), parameters)

    def _output(self, tensor: TensorOutput, value: TensorValue) -> OutputTensor:
        kept, width = output_tensor(_name(tensor), value.type, value.data), self._width(None, value.type)
        if width is None:
            return kept
        packed = pack(value.data, width)
        return OutputTensor(kept.name, _BYTES, packed.shape, packed, kept.element_type)


def _flat_members(member: Member, value: Any) -> Iterator[tuple[Member, Any]]:
    """Yield a member and its value, or those of a group. One with lists stays as it is."""
    if not member.members or member.repeated or any(each.kind in _LISTS for each in member.members):
        yield member, value
        return
    for each in member.members:
        if each.name in value:
            yield from _flat_members(each, value[each.name])


def _text(value: Any) -> str:
    return json_text(value).decode()


def _rows(member: Member, records: Iterable[Mapping[str, int]]) -> OutputTensor:
    """Return a list of groups as a tensor: a vector of one column, or a matrix of several."""
    rows = np.array([[each[name] for name in member.columns] for each in records], np.int64)
    shape = rows.shape[:1] if len(member.columns) == 1 else (rows.shape[0], len(member.columns))
    return integers_output(member.model_name or member.name, shape, rows)


def _repeated(members: Iterable[Member]) -> Iterator[Member]:
    """Yield the lists of groups that are tensors, also those within groups."""
    for member in members:
        if member.columns:
            yield member
        else:
            yield from _repeated(member.members)


def _datatype(member: Member) -> Datatype:
    """Return the datatype of a member of records."""
    return DATATYPES[f"INT{member.bits}" if member.kind is Kind.INTEGER else "FP64"]


def _numeric(records: Records) -> Iterator[Member]:
    """Yield the members of records that are tensors."""
    return (each for each in records.record.members if each.kind is not Kind.TEXT)


def _record_tensors(
    records: Records, values: Iterable[Mapping[str, Any]], shape: tuple[int, ...] | None = None
) -> list[OutputTensor]:
    listed = list(values)
    tensors = []
    for member in _numeric(records):
        datatype, column = _datatype(member), [each[member.name] for each in listed]
        if member.kind is Kind.EXACT_NUMBER:
            column = list(map(float, column))
        data, element = np.array(column, datatype.dtype), print_type(datatype.element)
        tensors.append(OutputTensor(member.name, datatype, data.shape if shape is None else shape, data, element))
    return tensors


def _lowered(description: str) -> str:
    """Return a sentence as it stands behind a colon."""
    first = description.partition(" ")[0]
    return description[:1].lower() + description[1:] if first[1:].islower() else description


def _input_slot(given: Argument) -> Slot:
    if isinstance(given, NumbersInput):
        said = given.model_description or given.description
        datatypes = _INTEGERS if given.kind is Kind.INTEGER else _NUMBERS
        return Slot(name=_name(given), description=said, datatypes=datatypes, optional=given.optional)
    return Slot(
        name=_name(given),
        description=given.description,
        datatypes=_DATATYPES[given.elements],
        optional=given.optional,
        variadic=bool(given.several),
    )


def _output_slots(operation: Operation) -> list[Slot]:
    slots = []
    for part in operation.model_reply:
        match part:
            case TensorOutput():
                datatypes = _DATATYPES[part.elements]
                said = part.description or "The result."
                slots.append(Slot(name=_name(part), description=said, datatypes=datatypes, optional=part.optional))
            case NumbersOutput():
                datatypes = ("INT64" if part.kind is Kind.INTEGER else "FP64",)
                said, optional = part.model_description or part.description, part.optional or part.empty_if_absent
                slots.append(Slot(name=_name(part), description=said, datatypes=datatypes, optional=optional))
            case Member():
                for member in _repeated((part,)):
                    said = f"{member.description} One row each: {', '.join(member.columns)}."
                    name = member.model_name or member.name
                    slots.append(Slot(name=name, description=said, datatypes=("INT64",), optional=part.optional))
            case Records():
                for member in _numeric(part):
                    said = member.model_description or member.description
                    datatypes = (_datatype(member).name,)
                    slots.append(Slot(name=member.name, description=said, datatypes=datatypes, optional=part.optional))
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
    if (records := trace.records) is None:
        return slots
    for member in _numeric(records):
        said = f"With trace, of each of the {records.name}. {records.description}"
        datatype = _datatype(member).name
        slots.append(Slot(name=member.name, description=said, datatypes=(datatype,), optional=True))
    return slots


def model_of(operation: Operation) -> Model:
    """Return an operation as a model."""
    types = [_type_parameter(each) for each in operation.tensors if not each.elements.tell_their_type]
    parameters = [parameter_of(each) for each in operation.options]
    inputs = tuple(map(_input_slot, operation.arguments))
    if operation.calls is not None:
        parameters.insert(0, calls_parameter(operation.calls))
        inputs = (CALLED_TENSORS, *inputs)
    return Model(
        name=operation.name,
        versions=("1",),
        description=operation.model_summary or operation.summary,
        inputs=inputs,
        outputs=tuple(_output_slots(operation)),
        parameters=(*parameters[:1], *types, *parameters[1:]),
        plan=lambda call: _ModelCall(operation, call).plan(),
    )


OPERATION_MODELS: Mapping[str, Model] = {name: model_of(operation) for name, operation in OPERATIONS.items()}
