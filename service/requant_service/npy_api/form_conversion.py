"""Conversions of forms: the tensor and its scales as `.npy` files, types and options as text, in any order.

What does not fit in a query does in a form: types of many scales as text, or their scales and zero points as arrays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from requant.errors import (
    InvalidRequestError,
    NpyError,
    PreconditionError,
    RequantError,
    TensorDataError,
    default_pointer,
    excerpt,
)
from requant.errors.names import not_among
from requant.formats.elements import IntegerElement
from requant.plan.operands import float_element, static_shape
from requant.plan.plan import Array, check_dense_bytes
from requant.profiles import Operation
from requant_service.http.form_body import FormReader, PartReader, form_boundary
from requant_service.http.problems import pointer
from requant_service.http.request_body import BodyReader
from requant_service.npy_api import format as npy
from requant_service.npy_api.derivation import check_output_format, quantize_deriving, read_output_format
from requant_service.npy_api.reading import advising_numpy, check_size, element_of, header_text
from requant_service.npy_api.replies import file_response, npy_head, reply_headers
from requant_service.operations.calibration.options import (
    CALIBRATION_OPTIONS,
    OF_SCALES,
    check_scales_are_given,
    flat_pointers,
    read_block_sizes,
)
from requant_service.operations.conversion_call import (
    ConversionCall,
    WholeConversion,
    input_tensor_type,
    planned_conversion,
)
from requant_service.operations.conversion_query import (
    conversion_of_texts,
    read_value,
    required_type,
    text_fields,
)
from requant_service.operations.conversion_run import convert_received
from requant_service.operations.parameters.tensors import (
    ParameterTensor,
    ParameterTensors,
    multipliers_of_tensors,
    read_storage_type,
)
from requant_service.operations.types import CHARACTERS_PER_SCALE, read_type
from requant_service.runtime.request_context import context_of, reserve_memory
from requant_service.runtime.runtime import Runtime, require_ready
from requant_service.runtime.settings import Settings

_X = "x"
_SCALES, _MULTIPLIERS = ("scale", "zero_point"), ("multiplier", "shift")
_TYPES = frozenset({"input_type", "output_type"})
# Of a text that is no type.
_LONGEST_TEXT = 1024
_OF_SCALES = {option.name: option for option in CALIBRATION_OPTIONS if option.name in OF_SCALES}

Reserve = Callable[[int], Awaitable[None]]


class _File(NamedTuple):
    """A `.npy` file that was received: its header, and its data as bytes."""

    header: npy.NpyHeader
    data: Array


class _Form(NamedTuple):
    """The fields of a form by name."""

    files: Mapping[str, _File]
    texts: Mapping[str, str]

    @property
    def scaled(self) -> bool:
        """Whether scales are given as a tensor."""
        return "scale" in self.files

    def tensor(self, name: str) -> ParameterTensor | None:
        """Return a tensor of parameters, if it is there."""
        if name not in self.files:
            return None
        header, data = self.files[name]
        with default_pointer(f"/{name}"):
            element = element_of(header)
        return ParameterTensor(data.view(header.descr), header.shape, element, f"/{name}")


def file_fields(operation: Operation) -> tuple[str, ...]:
    """Return the names of the fields that are files. `x` is required."""
    return (_X, *(_MULTIPLIERS if operation is Operation.REQUANTIZE else _SCALES))


def form_fields(operation: Operation) -> list[str]:
    """Return the names of the fields that are texts."""
    names = [name for name in text_fields(operation) if name != "multipliers"]
    if operation is Operation.QUANTIZE:
        return [*names, "output"]
    return [*names, *OF_SCALES] if operation is Operation.DEQUANTIZE else names


async def convert_form(request: Request, operation: Operation) -> Response:
    """Receive all fields, then plan, convert and reply."""
    running, scope = require_ready(request), request.scope
    boundary = form_boundary(context_of(scope).headers)
    reader = BodyReader(scope, request.receive, running.settings.max_binary_bytes)
    form = await _receive(FormReader(reader, boundary), operation, running.settings)
    reserve = partial(reserve_memory, scope)
    with flat_pointers("/x"), default_pointer("/x", TensorDataError, PreconditionError):
        return await _convert(form, operation, running, reserve)


async def _receive(form: FormReader, operation: Operation, settings: Settings) -> _Form:
    files: dict[str, _File] = {}
    texts: dict[str, str] = {}
    named, texted = file_fields(operation), form_fields(operation)
    while (part := await form.next_part()) is not None:
        if part.name in named:
            with default_pointer(f"/{part.name}"):
                files[part.name] = await _receive_file(part, settings)
        elif part.name in texted:
            limit = settings.max_type_bytes if part.name in _TYPES else _LONGEST_TEXT
            texts[part.name] = await part.text(limit)
        else:
            detail = not_among("field", part.name, (*named, *texted))
            raise InvalidRequestError.of_field(pointer(excerpt(part.name)), "extra_forbidden", detail)
    if _X not in files:
        raise InvalidRequestError.of_field("/x", "missing", "required", message="x: required; the tensor, a .npy file")
    return _Form(files, texts)


async def _receive_file(part: PartReader, settings: Settings) -> _File:
    text, length = await header_text(part)
    header_bytes = part.consumed
    header = npy.parse_header(text, length, settings.max_rank)
    data = await part.array(header.data_bytes)
    await part.skip_rest()
    check_size(header, part.received - header_bytes)
    return _File(header, data)


async def _convert(form: _Form, operation: Operation, running: Runtime, reserve: Reserve) -> Response:
    output = read_output_format(form.texts)
    call, characters = await _call(form, operation, running)
    header, data = form.files[_X]
    named = call.input_type is not None
    check_output_format(output, call)
    with _of_multipliers(), _of_made_type(form), advising_numpy(header, call):
        planned = await planned_conversion(call, characters, running)
    npy.check_dtype(header, planned.input_dtype, named=named)
    if isinstance(planned, WholeConversion):
        with advising_numpy(header, call):
            return await quantize_deriving(planned, data.view(planned.input_dtype), output, running, reserve)
    if planned.packed_in is not None:
        check_dense_bytes(header.elements, planned.elements, planned.packed_in)
    converted = await convert_received(data.view(planned.input_dtype), planned, running, reserve)
    return file_response(converted, npy_head(planned), reply_headers(planned))


async def _call(form: _Form, operation: Operation, running: Runtime) -> tuple[ConversionCall, int]:
    """Return what a form means, and the length of its types as texts."""
    settings, texts = running.settings, dict(form.texts)
    _check_source(form, required_type(operation), operation)
    of_scales = {name: texts.pop(name) for name in OF_SCALES if name in texts} if form.scaled else {}
    read = partial(read_type, limit=settings.max_type_bytes)
    query = await conversion_of_texts(texts, operation, running, read)
    header = form.files[_X].header
    named = query.conversion.input_type is not None
    with default_pointer("/input_type"):
        call = query.call(header.shape, None if named else element_of(header))
    if operation is Operation.REQUANTIZE:
        return call._replace(multipliers=multipliers_of_tensors(*map(form.tensor, _MULTIPLIERS))), query.characters
    if not form.scaled:
        return call, query.characters
    characters = form.files["scale"].header.elements * CHARACTERS_PER_SCALE
    typed = partial(_with_scales, form, call, of_scales, settings)
    return await running.executor.run_text(characters, typed), query.characters + characters


@contextmanager
def _of_made_type(form: _Form) -> Iterator[None]:
    """Point at the scale where the type that it makes is at fault."""
    try:
        yield
    except RequantError as error:
        if form.scaled and error.pointer in ("/input_type", "/output_type") and error.pointer[1:] not in form.texts:
            error.pointer = "/scale"
        raise


@contextmanager
def _of_multipliers() -> Iterator[None]:
    """Point at the files of the multipliers and shifts, not at entries of a list of pairs."""
    try:
        yield
    except RequantError as error:
        if (error.pointer or "").startswith("/multipliers"):
            error.pointer = "/shift" if (error.pointer or "").endswith("/shift") else "/multiplier"
        raise


def _check_source(form: _Form, required: str, operation: Operation) -> None:
    """Raise InvalidRequestError unless the quantized type is there, as a text or as tensors."""
    if operation is not Operation.REQUANTIZE and form.scaled:
        if required in form.texts:
            detail = f"exactly one of {required} and scale is required"
            raise InvalidRequestError.of_field(f"/{required}", "type_form", detail)
        check_scales_are_given(form.texts)
        return
    if required not in form.texts:
        detail = "required" if operation is Operation.REQUANTIZE else "required unless there is a scale"
        raise InvalidRequestError.of_field(f"/{required}", "missing", detail, message=f"{required}: {detail}")
    unused = ["zero_point"] if "zero_point" in form.files else []
    unused += [name for name in OF_SCALES if operation is Operation.DEQUANTIZE and name in form.texts]
    if unused:
        raise InvalidRequestError.of_field(f"/{unused[0]}", "extra_forbidden", f"{unused[0]} needs scale")


def _with_scales(form: _Form, call: ConversionCall, texts: Mapping[str, str], settings: Settings) -> ConversionCall:
    """Return the call with the type that scale and zero_point make: work on texts."""
    scale = form.tensor("scale")
    assert scale is not None
    axis = read_value(_OF_SCALES["axis"], texts["axis"]) if "axis" in texts else None
    tensors = ParameterTensors(
        scale,
        form.tensor("zero_point"),
        read_storage_type(texts["storage_type"], settings) if "storage_type" in texts else None,
        int(axis) if axis is not None else None,
        read_block_sizes(texts["block_sizes"]) if "block_sizes" in texts else None,
    )
    if call.operation is Operation.DEQUANTIZE:
        assert call.shape is not None
        assert call.element is not None
        if not isinstance(call.element, IntegerElement):
            raise NpyError("with scale, x holds integers of 8, 16 or 32 bits")
        return call._replace(input_type=tensors.type_of_stored(call.shape, call.element, call.packing))
    tensor = input_tensor_type(call, settings)
    with default_pointer(call.input_place):
        expressed = float_element(tensor, "input")
    return call._replace(output_type=tensors.type(expressed, static_shape(tensor)))
