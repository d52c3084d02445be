"""A body that is a safetensors file: one tensor of it is converted, and the others are passed over."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from requant.checkpoint.safetensors.header import DTYPES, Header, TensorEntry
from requant.checkpoint.safetensors.reader import LENGTH_BYTES, parse_header
from requant.checkpoint.safetensors.writer import head_bytes, layout
from requant.errors import InvalidRequestError, SafetensorsError, default_pointer, excerpt
from requant.errors.names import did_you_mean
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.mlir.types import ElementType, TensorType
from requant.plan.operands import bind, element_name, static_shape
from requant.plan.plan import Packing, check_dense_bytes
from requant.profiles import Operation
from requant_service.http.request_body import ChunkReader
from requant_service.npy_api.format import MAGIC, MAX_DIMENSION
from requant_service.operations.conversion_call import ConversionCall, PlannedConversion
from requant_service.operations.conversion_query import ConversionQuery
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings

SAFETENSORS = "application/vnd.safetensors"
"""The media type of replies. IANA has none for the format; this name, in the vendor tree, is in use."""

MEDIA_TYPES = frozenset({SAFETENSORS, "application/safetensors", "application/x-safetensors"})

MAX_HEADER_BYTES = 1 << 20
"""Of a body's header: some ten thousand tensors. Parsing it takes at most half a second of CPU time."""

# Of the parsed header, per byte of its text.
_PARSED_BYTES = 6
# A name is compared with so many others of at most so many characters, and so many are listed.
_MAX_COMPARED, _LONGEST_COMPARED, _MAX_LISTED = 1000, 256, 8

_ELEMENTS: dict[str, ElementType] = {
    "F64": FLOATS["f64"],
    "F32": FLOATS["f32"],
    "F16": FLOATS["f16"],
    "BF16": FLOATS["bf16"],
    "F8_E4M3": FLOATS["f8E4M3FN"],
    "F8_E5M2": FLOATS["f8E5M2"],
    "F8_E4M3FNUZ": FLOATS["f8E4M3FNUZ"],
    "F8_E5M2FNUZ": FLOATS["f8E5M2FNUZ"],
    "F8_E8M0": FLOATS["f8E8M0FNU"],
    "F4": FLOATS["f4E2M1FN"],
    **{f"I{bits}": IntegerElement(bits, Signedness.SIGNLESS) for bits in (8, 16, 32, 64)},
    **{f"U{bits}": IntegerElement(bits, Signedness.UNSIGNED) for bits in (8, 16, 32, 64)},
}
_PACKED = "F4"
_DTYPE_OF_FLOAT = {element.name: name for name, element in _ELEMENTS.items() if isinstance(element, FloatElement)}


def begins_safetensors(start: bytes, media_type: str) -> bool:
    """Return whether a body that begins like this is a safetensors file: a length below 2^32 in 8 bytes, and `{`.

    `media_type`: of the request. It decides where the bytes do not say that it is either kind of file.
    """
    if start.startswith(MAGIC):
        return False
    return (start[4:LENGTH_BYTES] == bytes(4) and start[LENGTH_BYTES:][:1] == b"{") or media_type in MEDIA_TYPES


def asks_for_safetensors(accept: str) -> bool:
    """Return whether an `Accept` field names the media type of safetensors files, with another weight than zero."""
    for media_range in accept.lower().split(","):
        name, *parameters = (part.strip() for part in media_range.split(";"))
        if name == SAFETENSORS:
            weight = next((part[2:].strip() for part in parameters if part.startswith("q=")), "1")
            return weight.strip("0.") != ""
    return False


async def header_text(reader: ChunkReader, start: bytes) -> bytes:
    """Take the header's text from a body whose first bytes are `start`, at least as long as the length of the header.

    Raise SafetensorsError.
    """
    if len(start) < LENGTH_BYTES:
        raise SafetensorsError(
            f"the body has {len(start)} bytes; expected at least {LENGTH_BYTES}: the header's length"
        )
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise SafetensorsError(
            f"the header has {length} bytes; at most {MAX_HEADER_BYTES} are read from a request: send fewer tensors"
        )
    begun = start[LENGTH_BYTES:]
    if length < len(begun):
        raise SafetensorsError(f"the header has {length} bytes; a header has at least 2: {{}}")
    text = begun + (await reader.take(length - len(begun))).tobytes()
    if len(text) < length:
        raise SafetensorsError(f"the body ends inside of the header, which has {length} bytes")
    return text


async def read_tensor(text: bytes, name: str | None, reader: ChunkReader, running: Runtime) -> SafetensorsTensor:
    """Return the tensor of that name, or the only one. Raise SafetensorsError or InvalidRequestError (`/tensor`)."""
    await reader.reserve(_PARSED_BYTES * len(text))
    return await running.executor.run_text(len(text), partial(_named_tensor, text, name, running.settings))


def _named_tensor(text: bytes, name: str | None, settings: Settings) -> SafetensorsTensor:
    header = parse_header(text)
    entry = _entry(header, name)
    shown = f"tensor '{excerpt(entry.name)}'"
    if entry.dtype not in _ELEMENTS:
        served = ", ".join(sorted(_ELEMENTS))
        raise SafetensorsError(f"{shown} has elements of dtype {entry.dtype}; served are {served}", tensor=entry.name)
    if len(entry.shape) > settings.max_rank:
        detail = f"{shown} has rank {len(entry.shape)}; at most {settings.max_rank} is served"
        raise SafetensorsError(detail, tensor=entry.name)
    if any(extent > MAX_DIMENSION for extent in entry.shape):
        raise SafetensorsError(f"{shown} has a dimension above 2^40", tensor=entry.name)
    return SafetensorsTensor(entry, LENGTH_BYTES + len(text), header.size)


def _entry(header: Header, name: str | None) -> TensorEntry:
    entries = header.tensors
    if name is None and len(entries) == 1:
        return entries[0]
    if not entries:
        raise SafetensorsError("the file has no tensors")
    if name is None:
        detail = f"the file has {len(entries)} tensors; name one of them: {_listed(entries)}"
        raise InvalidRequestError.of_field("/tensor", "missing", detail, message=f"tensor: {detail}")
    for entry in entries:
        if entry.name == name:
            return entry
    compared = [entry.name for entry in entries[:_MAX_COMPARED] if len(entry.name) <= _LONGEST_COMPARED]
    hint = did_you_mean(name, {excerpt(each): None for each in compared})
    wanted = f" ({hint})" if hint else ""
    detail = f"the file has no tensor '{excerpt(name)}'{wanted}; its {len(entries)} are {_listed(entries)}"
    raise InvalidRequestError.of_field("/tensor", "enum", detail, message=f"tensor: {detail}")


def _listed(entries: tuple[TensorEntry, ...]) -> str:
    names = ", ".join(f"'{excerpt(entry.name)}'" for entry in entries[:_MAX_LISTED])
    return f"{names} and others" if len(entries) > _MAX_LISTED else names


@dataclass(frozen=True, slots=True)
class SafetensorsTensor:
    """A tensor of a safetensors body. `data`, `size`: where the header and the whole body end, in bytes."""

    entry: TensorEntry
    data: int
    size: int

    @property
    def data_bytes(self) -> int:
        """The bytes of its elements."""
        return self.entry.end - self.entry.begin

    @property
    def bytes_before(self) -> int:
        """The bytes between the header and its elements: the tensors before it."""
        return self.entry.begin - self.data

    @property
    def bytes_left(self) -> int:
        """The bytes of the body behind the header."""
        return self.size - self.data

    def called(self, query: ConversionQuery) -> ConversionCall:
        """Return the conversion of the tensor that a query asks for. The elements of F4 are packed.

        A type of a tensor of F4 has the shape that the header states, not that of the bytes.
        """
        stated = query.conversion.input_type
        call = query.call(self.entry.shape, _ELEMENTS[self.entry.dtype] if stated is None else None)
        if self.entry.dtype != _PACKED or call.operation is not Operation.DEQUANTIZE or stated is None:
            return call
        assert not isinstance(stated, str)
        with default_pointer("/input_type"):
            return call._replace(packing=Packing.DENSE, input_type=bind(stated, self.entry.shape))

    def check_dtype(self, call: ConversionCall, dtype: np.dtype[Any]) -> None:
        """Raise SafetensorsError unless its elements are of the input type that the request names.

        Unsigned integers are taken for the bit patterns of floats of their width.
        """
        stated = call.input_type
        if stated is None:
            return
        assert not isinstance(stated, str)
        element = stated.element if isinstance(stated, TensorType) else stated
        assert isinstance(element, ElementType)
        own, wanted = _ELEMENTS[self.entry.dtype], element_name(element)
        fits = (
            own.name == wanted if isinstance(own, FloatElement) else np.dtype(DTYPES[self.entry.dtype].array) == dtype
        )
        if not fits:
            raise SafetensorsError(
                f"tensor '{excerpt(self.entry.name)}' has elements of dtype {self.entry.dtype}; the input type is of "
                f"{wanted}, kept as {dtype.name}",
                tensor=self.entry.name,
            )

    def check_dense(self, planned: PlannedConversion) -> None:
        """Raise TensorDataError unless it has as many bytes as an input of packed numbers."""
        if planned.packed_in is not None:
            check_dense_bytes(self.data_bytes, planned.elements, planned.packed_in)

    def check_size(self, actual: int) -> None:
        """Raise SafetensorsError unless so many bytes behind the header are what it promises."""
        if actual != self.bytes_left:
            raise SafetensorsError(f"the tensors end at byte {self.size}, the body has {self.data + actual} bytes")

    def advising(self, call: ConversionCall) -> AbstractContextManager[None]:
        """Nothing: what to do in which framework is not known."""
        return nullcontext()

    def head_of_reply(self, planned: PlannedConversion) -> bytes:
        """Return the bytes before the output's, in a file that has it under the tensor's name."""
        return head_bytes(layout([(self.entry.name, *_dtype_and_shape(planned))]))


def _dtype_and_shape(planned: PlannedConversion) -> tuple[str, tuple[int, ...]]:
    """Return the dtype of an output and its shape: integers where the format has no dtype for the floats."""
    dtype = _DTYPE_OF_FLOAT.get(planned.element)
    if planned.packed_out is not None:
        shape = static_shape(planned.plan.output_type)
        return (_PACKED, shape) if dtype == _PACKED and prod(shape) % 2 == 0 else ("U8", planned.output_shape)
    if dtype is None or dtype == _PACKED:
        dtype = f"{planned.output_dtype.kind.upper()}{planned.output_dtype.itemsize * 8}"
    return dtype, planned.output_shape
