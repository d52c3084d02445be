"""A `.npy` file that arrives: its header, and what its elements are by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.errors import NpyError, UnsupportedError, default_pointer
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.mlir.types import AnyType, CalibratedType, ElementType, TensorType, UniformQuantizedType
from requant.plan.plan import check_dense_bytes
from requant.profiles import Operation
from requant_service.http.request_body import ChunkReader
from requant_service.npy_api import format as npy
from requant_service.operations.conversion_call import ConversionCall, PlannedConversion
from requant_service.operations.conversion_query import ConversionQuery


async def header_text(reader: ChunkReader) -> tuple[bytes, int]:
    """Take the header's text from a body, or from a part of one, and the length that it should have."""
    text = await short_header_text(reader)
    if text is not None:
        return text, len(text)
    return await long_header_text(reader, await reader.head(npy.SHORT_START_BYTES))


async def short_header_text(reader: ChunkReader) -> bytes | None:
    """Take the header's text if it is there at once, as nearly always. Otherwise take nothing."""
    text = npy.whole_header(await reader.next_bytes())
    if text is not None:
        reader.consume(npy.SHORT_START_BYTES + len(text))
    return text


async def long_header_text(reader: ChunkReader, start: bytes) -> tuple[bytes, int]:
    """Take what `header_text` does, after the first `SHORT_START_BYTES` bytes."""
    field_bytes = npy.length_field_bytes(start)
    field = start[npy.START_BYTES :]
    if len(field) < field_bytes:
        field += await reader.head(field_bytes - len(field))
    length = npy.header_length(field, field_bytes)
    return await reader.head(length), length


@dataclass(frozen=True, slots=True)
class NpyArray:
    """The array of a `.npy` body, as `requant_service.npy_api.conversion` takes one from any container."""

    header: npy.NpyHeader

    @property
    def data_bytes(self) -> int:
        """The bytes of its elements."""
        return self.header.data_bytes

    @property
    def bytes_before(self) -> int:
        """The bytes between the header and its elements."""
        return 0

    @property
    def bytes_left(self) -> int:
        """The bytes of the body behind the header."""
        return self.header.data_bytes

    def called(self, query: ConversionQuery) -> ConversionCall:
        """Return the conversion of the array that a query asks for."""
        named = query.conversion.input_type is not None
        with default_pointer("/input_type"):
            return query.call(self.header.shape, None if named else element_of(self.header))

    def check_dtype(self, call: ConversionCall, dtype: np.dtype[Any]) -> None:
        """Raise NpyError unless its elements are kept as the conversion's input."""
        npy.check_dtype(self.header, dtype, named=call.input_type is not None)

    def check_dense(self, planned: PlannedConversion) -> None:
        """Raise TensorDataError unless it has as many bytes as an input of packed numbers."""
        if planned.packed_in is not None:
            check_dense_bytes(self.header.elements, planned.elements, planned.packed_in)

    def check_size(self, actual: int) -> None:
        """Raise NpyError unless so many bytes behind the header are what it promises."""
        check_size(self.header, actual)

    def advising(self, call: ConversionCall) -> AbstractContextManager[None]:
        """Say what to do with elements that the conversion does not take."""
        return advising_numpy(self.header, call)


def check_size(header: npy.NpyHeader, actual: int) -> None:
    """Raise NpyError unless so many bytes of data are what the header promises."""
    if actual != header.data_bytes:
        raise NpyError(
            f"the .npy header declares {header.elements} elements of {header.item_bytes} bytes, which is "
            f"{header.data_bytes}; "
            f"the body has {actual} bytes of data"
        )


@contextmanager
def advising_numpy(header: npy.NpyHeader, call: ConversionCall) -> Iterator[None]:
    """Say what to do in numpy with elements that the conversion does not take, unless `input_type` names them."""
    try:
        yield
    except UnsupportedError as error:
        # Of the elements, not of the profile or an option.
        if call.input_type is None and (error.pointer or "").startswith((call.input_place, "/output_type")):
            wanted = _wanted(call)
            if wanted is not None and wanted != element_of(header):
                error.detail += f"; in numpy: {_CASTS[wanted.name]}"
        raise


_CASTS = {
    "f16": "x.astype(numpy.float16)",
    "bf16": "x.astype(ml_dtypes.bfloat16), sent with input_type=bf16",
    "f32": "x.astype(numpy.float32)",
    "f64": "x.astype(numpy.float64)",
}


def _wanted(call: ConversionCall) -> FloatElement | None:
    """Return the real numbers that a quantization reads, as far as its output type says it."""
    output_type = call.output_type
    element = output_type.element if isinstance(output_type, TensorType) else output_type
    if call.operation is not Operation.QUANTIZE or not isinstance(
        element, UniformQuantizedType | AnyType | CalibratedType
    ):
        return None
    expressed = element.expressed or FLOATS["f32"]
    return expressed if expressed.name in _CASTS else None


def element_of(header: npy.NpyHeader) -> ElementType:
    """Return the MLIR type that a numpy element kind stands for by itself."""
    if header.descr in npy.VOIDS:
        raise NpyError(f"the .npy holds anonymous elements ({header.descr!r}); name their type with input_type")
    dtype = np.dtype(header.descr)
    bits = dtype.itemsize * 8
    if dtype.kind == "f":
        return FLOATS[f"f{bits}"]
    return IntegerElement(bits, Signedness.UNSIGNED if dtype.kind == "u" else Signedness.SIGNLESS)
