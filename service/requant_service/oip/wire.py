"""The wire form of the Open Inference Protocol: JSON, and after it the tensors that travel in binary.

    { "inputs": [...] }  blob of an input  blob of another ...

The header `Inference-Header-Content-Length` is the length of the JSON; without it, all is JSON. Blobs are row-major and
little-endian and follow one another in the order of the inputs, each as long as its `binary_data_size`. Replies have
the same form. No stated length is trusted: each is known from datatype and shape before a byte is taken.

The head of a request is everything beside the binary tensors. Clients send the same head again and again, and decoding
it costs more than the arithmetic of a small tensor. So decoded heads are cached by their bytes. Clients also number
their requests: an `id` at either end of the JSON is cut out, and is no part of the key.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import Headers
from starlette.types import Scope

from requant.arrays import json_values as values
from requant.errors import (
    FieldFault,
    InvalidRequestError,
    LimitError,
    MalformedRequestError,
    RequantError,
    TensorDataError,
    excerpt,
    pointer_prefix,
)
from requant_service.http.json_body import read_json
from requant_service.http.problems import pointer
from requant_service.http.responses import Buffer, Header, json_text
from requant_service.oip import schemas
from requant_service.oip.datatypes import BOOL, Datatype, datatype_named
from requant_service.oip.models.model import Model, Slot, slot_named
from requant_service.oip.parameters import Value, completed, pointer_to
from requant_service.oip.schemas import InferenceInput, InferenceRequest
from requant_service.oip.tensors import (
    BYTE_SIZE,
    REGION,
    REGION_PARAMETERS,
    InputTensor,
    OutputTensor,
    RegionPart,
    region_part,
)
from requant_service.operations.conversion_call import ConversionResult, PlannedConversion, WholeConversion, plan_bytes
from requant_service.operations.types import check_rank
from requant_service.runtime.request_context import context_of
from requant_service.runtime.settings import Settings

LENGTH_HEADER = "inference-header-content-length"
LENGTH_FIELD = LENGTH_HEADER.encode("ascii")
BINARY_OUTPUT = "binary_data_output"
BINARY_SIZE = "binary_data_size"
BINARY = "binary_data"
MAX_DIMENSION = 1 << 40
_MAX_DIGITS = 20

Array = NDArray[Any]


def json_length(scope: Scope) -> int | None:
    """Return the stated length of the JSON, None if the body is JSON alone. 0: it is a tensor alone."""
    fields = context_of(scope).headers
    length = fields.get(LENGTH_FIELD)
    if length is None:
        return None
    repeated = len(fields) < fields.count and len(Headers(scope=scope).getlist(LENGTH_HEADER)) > 1
    if repeated or not (length.isdigit() and len(length) <= _MAX_DIGITS):
        shown = excerpt(", ".join(Headers(scope=scope).getlist(LENGTH_HEADER)))
        raise MalformedRequestError(f"the Inference-Header-Content-Length is {shown!r}; expected one decimal number")
    return int(length)


@dataclass(frozen=True, slots=True)
class InputHead:
    """What the JSON says of one input. `values`: its elements as JSON, None if they follow in binary, or are in
    `region` of shared memory.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    index: int
    values: list[Any] | None
    region: RegionPart | None = None

    @property
    def pointer(self) -> str:
        """The place in the JSON."""
        return pointer("inputs", self.index)

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def byte_count(self) -> int:
        """The bytes that datatype and shape ask for."""
        return self.elements * self.datatype.dtype.itemsize

    @property
    def is_binary(self) -> bool:
        """Whether the bytes of this input follow the JSON."""
        return self.values is None and self.region is None

    @property
    def blob_bytes(self) -> int:
        """The bytes that follow the JSON for this input."""
        return self.byte_count if self.is_binary else 0


Blobs = list[tuple[InputHead, NDArray[np.uint8]]]
"""Inputs that came in binary, each as the bytes that were received."""


def input_heads(inputs: Sequence[InferenceInput], model: Model, max_rank: int) -> list[InputHead]:
    """Return what the JSON says of each input, checked against the model: names, datatypes, shapes and sizes."""
    heads: dict[str, InputHead] = {}
    for index, tensor in enumerate(inputs):
        place = pointer("inputs", index)
        slot = slot_named(model.inputs, tensor.name)
        if slot is None:
            raise _invalid(f"{place}/name", _no_such("input", tensor.name, model, model.inputs))
        if tensor.name in heads:
            raise _invalid(f"{place}/name", f"the input {tensor.name} occurs more than once")
        datatype = datatype_named(tensor.datatype, f"{place}/datatype")
        if datatype.name not in slot.datatypes:
            raise _invalid(f"{place}/datatype", f"{tensor.name} takes {', '.join(slot.datatypes)}; not {datatype.name}")
        region = region_part(tensor.parameters, place)
        head = InputHead(tensor.name, datatype, _shape(tensor.shape, place, max_rank), index, tensor.data, region)
        _check_size(tensor, head)
        heads[tensor.name] = head
    for slot in model.inputs:
        if slot.variadic:
            _check_names(slot, [name for name in heads if slot_named([slot], name)])
        elif slot.name not in heads and not slot.optional:
            raise _invalid("/inputs", f"the input {slot.name} is missing")
    return list(heads.values())


def _check_names(slot: Slot, names: Sequence[str]) -> None:
    """Raise InvalidRequestError unless the tensors of a variadic slot are numbered without a gap, or one alone."""
    if not names and not slot.optional:
        raise _invalid("/inputs", f"the input {slot.name} is missing")
    if list(names) != [slot.name] and set(names) != set(slot.names(len(names))):
        expected = f"{slot.name}_0, {slot.name}_1 and so on without a gap, or one alone {slot.name}"
        raise _invalid("/inputs", f"several inputs {slot.name} are named {expected}")


def _no_such(kind: str, name: str, model: Model, slots: Sequence[Slot]) -> str:
    names = [f"{slot.name}_0, {slot.name}_1, ..." if slot.variadic else slot.name for slot in slots]
    return f"{model.name} has no {kind} {excerpt(name)!r}; it has {', '.join(names) or 'none'}"


def _shape(shape: Sequence[int], place: str, max_rank: int) -> tuple[int, ...]:
    check_rank("shape", len(shape), max_rank, f"{place}/shape")
    for axis, dimension in enumerate(shape):
        if not 0 <= dimension <= MAX_DIMENSION:
            raise _invalid(f"{place}/shape/{axis}", "a dimension is a number from 0 to 2^40")
    return tuple(shape)


def _check_size(tensor: InferenceInput, head: InputHead) -> None:
    """Check that the elements come in one of the three forms, and a stated size against datatype and shape."""
    unknown = [name for name in tensor.parameters if name not in (BINARY_SIZE, *REGION_PARAMETERS)]
    if unknown:
        place = head.pointer + pointer("parameters", excerpt(unknown[0]))
        raise _invalid(place, f"not a parameter of an input; there are {', '.join((BINARY_SIZE, *REGION_PARAMETERS))}")
    stated, name = tensor.parameters.get(BINARY_SIZE), BINARY_SIZE
    if [stated is None, head.values is None, head.region is None].count(False) != 1:
        raise _invalid(head.pointer, f"exactly one of data and the parameters {BINARY_SIZE} and {REGION} is required")
    if head.region is not None:
        stated, name = head.region.byte_size, BYTE_SIZE
    if stated is None:
        return
    place = head.pointer + pointer("parameters", name)
    if type(stated) is not int or stated < 0:
        raise _invalid(place, "expected a number of bytes")
    if stated != head.byte_count:
        raise TensorDataError(
            f"{name} is {_shown(stated)}; {head.name} has {head.elements} elements of "
            f"{head.datatype.dtype.itemsize} bytes, which is {head.byte_count}",
            pointer=place,
        )


def _shown(number: int) -> str:
    return str(number) if number < 1 << 64 else "more than 2^64"


def wrong_length(expected: int, actual: int, *, length_stated: bool) -> MalformedRequestError:
    """Return the error of a body in which another number of bytes follows the JSON than the inputs say."""
    hint = "" if length_stated else "; Inference-Header-Content-Length gives the length of the JSON"
    return MalformedRequestError(
        f"the inputs say that {expected} bytes follow the JSON; the body has {actual} there{hint}"
    )


def tensor_of_blob(head: InputHead, blob: NDArray[np.uint8]) -> InputTensor:
    """Return an input that came in binary, in the memory where it was received. BOOLs are not checked yet."""
    return InputTensor(head.name, head.datatype, head.shape, blob.view(head.datatype.dtype), head.pointer)


def tensor_of_json(head: InputHead, body: bytes, settings: Settings) -> InputTensor:
    """Return an input that came as JSON. `body` is the whole JSON: the literals decide what a rounded number cannot."""
    assert head.values is not None
    place = f"{head.pointer}/data"
    with pointer_prefix(place):
        if head.elements > settings.max_values:
            limit = settings.max_values
            raise LimitError(f"{head.elements} elements; more than {limit} are sent in binary", limit=limit)
        numbers: Sequence[Any] = head.values
        flat = values.flattened(numbers, head.shape)
        if any(type(number) is float and not math.isfinite(number) for number in flat):
            # NaN and Infinity as some writers of JSON write them become texts; 1e999 stays what it is.
            numbers = _data_again(body, head, parse_constant=str)
        if head.datatype is BOOL:
            numbers = _numbers_for_booleans(numbers)

        def literals() -> list[Any]:
            return _data_again(body, head, parse_float=str, parse_int=str)

        element, dtype = head.datatype.element, head.datatype.dtype
        data = values.decode_elements(numbers, element, dtype, head.shape, literals)
    return InputTensor(head.name, head.datatype, head.shape, data, head.pointer)


def _numbers_for_booleans(members: Sequence[Any]) -> list[Any]:
    return [
        _numbers_for_booleans(each) if isinstance(each, list) else int(each) if type(each) is bool else each
        for each in members
    ]


def _data_again(body: bytes, head: InputHead, **readers: Any) -> list[Any]:
    """Read the data of an input once more, with other readers of its numbers."""
    data: list[Any] = json.loads(body, **readers)["inputs"][head.index]["data"]
    return data


def check_booleans(tensor: InputTensor) -> None:
    """Raise TensorDataError for a BOOL that is neither 0 nor 1."""
    data = tensor.data
    if tensor.datatype is BOOL and data.size and data.max() > 1:
        index = int(np.argmax(data > 1))
        raise TensorDataError(f"element {index} of a BOOL is neither 0 nor 1", pointer=tensor.pointer)


def wanted_outputs(request: InferenceRequest, model: Model) -> dict[str, bool]:
    """Return the outputs that are wanted by name, each with whether it is to be sent in binary."""
    default = request.parameters.get(BINARY_OUTPUT, False)
    if type(default) is not bool:
        raise _invalid(pointer_to(BINARY_OUTPUT), "expected true or false")
    if not request.outputs:
        return {slot.name: default for slot in model.outputs}
    wanted: dict[str, bool] = {}
    for index, output in enumerate(request.outputs):
        place = pointer("outputs", index)
        if slot_named(model.outputs, output.name) is None:
            raise _invalid(f"{place}/name", _no_such("output", output.name, model, model.outputs))
        if output.name in wanted:
            raise _invalid(f"{place}/name", f"the output {output.name} occurs more than once")
        unknown = [name for name in output.parameters if name not in (BINARY, *REGION_PARAMETERS)]
        if unknown:
            known_ones = ", ".join((BINARY, *REGION_PARAMETERS))
            name = excerpt(unknown[0])
            raise _invalid(place + pointer("parameters", name), f"not a parameter of an output; there are {known_ones}")
        region = region_part(output.parameters, place)
        binary = output.parameters.get(BINARY, default and region is None)
        if type(binary) is not bool:
            raise _invalid(f"{place}/parameters/{BINARY}", "expected true or false")
        if region is not None and binary:
            raise _invalid(f"{place}/parameters/{BINARY}", f"an output is returned in binary or in {REGION}, not both")
        wanted[output.name] = binary
    return wanted


def output_regions(request: InferenceRequest) -> dict[str, RegionPart]:
    """Return where in shared memory outputs are wanted, for those that are."""
    places = ((each, region_part(each.parameters, pointer("outputs", i))) for i, each in enumerate(request.outputs))
    return {output.name: region for output, region in places if region is not None}


def encode(
    head: Mapping[str, Any], outputs: Sequence[tuple[OutputTensor, bool]], max_values: int
) -> tuple[list[Buffer], int | None]:
    """Return a reply as pieces, and the length of its JSON if anything follows that.

    `head`: the members beside `outputs`. Each output comes with whether it is sent in binary; then it is a piece that
    is the array's own memory, unless it is still to be made. Raise LimitError for an output of more than `max_values`
    elements that is neither sent so nor in shared memory.
    """
    parts: list[bytes] = []
    blobs: list[Buffer] = []
    for output, binary in outputs:
        parameters: dict[str, Any] = {"element_type": output.element_type}
        if output.region is not None:
            parameters |= output.region.parameters
        elif binary:
            parameters[BINARY_SIZE] = output.byte_count
            if output.data is not None:
                blobs.append(output.data.view(np.uint8).data)
        described = {
            "name": output.name,
            "datatype": output.datatype.name,
            "shape": output.shape,
            "parameters": parameters,
        }
        text = json_text(described)
        if not binary and output.region is None:
            text = text[:-1] + b',"data":' + _numbers(output, max_values) + b"}"
        parts.append(text)
    text = json_text(head)[:-1] + b',"outputs":[' + b",".join(parts) + b"]}"
    return [text, *blobs], len(text) if any(binary for _, binary in outputs) else None


def _numbers(output: OutputTensor, max_values: int) -> bytes:
    assert output.data is not None
    if output.data.size > max_values:
        raise LimitError(
            f"output {output.name} has {output.data.size} elements; more than {max_values} are sent in binary: "
            f"ask for that with the parameter {BINARY_OUTPUT}",
            limit=max_values,
        )
    if output.datatype is BOOL:
        return json_text([bool(value) for value in output.data])
    return values.encode_elements(output.datatype.element, output.data)


def _invalid(place: str, detail: str) -> RequantError:
    return InvalidRequestError(detail, (FieldFault(place, "invalid", detail),))


# An `id` without escapes. As the first or the last member of valid JSON it is one of the outermost object.
_ID = rb'"id"\s*:\s*"([ !#-\[\]-~]{0,%d})"' % schemas.LONGEST_ID
_FIRST_ID = re.compile(rb"\{\s*" + _ID)
_LAST_ID = re.compile(rb",\s*" + _ID + rb"\s*\}\s*\Z")
# An `id` is looked for in so many bytes at the beginning, and at the end.
_FIRST_BYTES = 32
_LAST_BYTES = schemas.LONGEST_ID + 32


@dataclass(slots=True)
class InferenceHead:
    """What a request asks for, apart from the bytes of its tensors.

    `heads`: its inputs, in order. `inputs`: those whose elements were in the head. `wanted`: the outputs by name, each
    with whether it is sent in binary. `planned` is what it means for a model that is a conversion, if no other input
    has a say in that, or `whole` if that takes its input whole; `replied` is the last result of `planned` with the JSON
    of its reply, and the header field about that. `arriving`: the input that is converted while it arrives, as the last
    one of the body. `input_regions` and `output_regions`: where in shared memory tensors are, or are wanted;
    `uses_shared_memory`: whether there are any.
    """

    heads: list[InputHead]
    inputs: dict[str, InputTensor]
    parameters: Mapping[str, Value | None]
    wanted: Mapping[str, bool]
    all_wanted: bool = True
    id: str | None = None
    planned: PlannedConversion | None = None
    whole: WholeConversion | None = None
    replied: tuple[ConversionResult, bytes, tuple[Header, ...]] | None = None
    arriving: InputHead | None = None
    output_regions: Mapping[str, RegionPart] = field(default_factory=dict)
    input_regions: Mapping[str, RegionPart] = field(init=False)
    uses_shared_memory: bool = field(init=False)
    binary: list[InputHead] = field(init=False)
    blob_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.binary = [head for head in self.heads if head.is_binary]
        self.input_regions = {head.name: head.region for head in self.heads if head.region is not None}
        self.uses_shared_memory = bool(self.input_regions or self.output_regions)
        self.blob_bytes = sum(head.blob_bytes for head in self.binary)

    def held_bytes(self, characters: int) -> int:
        """Return about how many bytes a head of so many characters takes, with its plan."""
        planned = self.planned or self.whole
        return plan_bytes(None if planned is None else planned.held, characters)


class HeadText(NamedTuple):
    """The JSON of a head: the text around the content of its `id`, and that, None if none was cut out."""

    before: bytes
    after: bytes
    id: str | None

    def is_text_of(self, head: InferenceHead) -> bool:
        """Return whether every text with the same two parts means the same as this one, up to its `id`.

        Of repeated members the last one counts, so no other `id` may follow, however it is spelt. A head that has the
        elements of a tensor is not worth keeping.
        """
        return not head.inputs and b'"id"' not in self.after and b"\\" not in self.after


def head_text(text: bytes) -> HeadText:
    """Cut the `id` out of the JSON of a head, if it is the first or the last member."""
    matched = _FIRST_ID.match(text) if text.find(b'"id"', 0, _FIRST_BYTES) > 0 else None
    if matched is None and text.find(b'"id"', -_LAST_BYTES) > 0:
        matched = _LAST_ID.search(text, max(len(text) - _LAST_BYTES, 0))
    if matched is None:
        return HeadText(text, b"", None)
    start, stop = matched.span(1)
    return HeadText(text[:start], text[stop:], matched[1].decode("ascii"))


def read_head(text: bytes, model: Model, settings: Settings) -> InferenceHead:
    """Decode the JSON of a head and check it against the model.

    Raise MalformedRequestError, InvalidRequestError, TensorDataError or LimitError.
    """
    request = read_json(text, schemas.InferenceRequest, settings)
    if request.model_name not in ("", model.name):
        detail = "the path names another model"
        raise InvalidRequestError(f"model_name: {detail}", (FieldFault("/model_name", "mismatch", detail),))
    heads = input_heads(request.inputs, model, settings.max_rank)
    parameters = {name: value for name, value in request.parameters.items() if name != BINARY_OUTPUT}
    head = InferenceHead(
        heads=heads,
        inputs={head.name: tensor_of_json(head, text, settings) for head in heads if head.values is not None},
        parameters=completed(model.parameters, parameters),
        wanted=wanted_outputs(request, model),
        all_wanted=not request.outputs,
        id=request.id if "id" in request.model_fields_set else None,
        output_regions=output_regions(request),
    )
    arrives = model.conversion is not None and not head.uses_shared_memory and not model.needs_input(head.parameters)
    if arrives and head.binary and head.binary[-1].name == model.inputs[0].name:
        head.arriving = head.binary[-1]
    return head
