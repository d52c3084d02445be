"""A `.npy` file that arrives: its header, and what its elements are by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from core.errors import NpyError, UnsupportedError
from core.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from core.mlir.types import ElementType, TensorType
from core.profiles import Operation
from service.http.request_body import ChunkReader
from service.npy_api import format as npy
from service.operations.conversion_call import ConversionCall


async def header_text(reader: ChunkReader) -> tuple[bytes, int]:
    """Take the header's text from a body, or from a part of one, and the length that it should have."""
    text = npy.whole_header(await reader.next_bytes())
    if text is not None:
        reader.pass_over(npy.SHORT_START_BYTES + len(text))
        return text, len(text)
    start = await reader.head(npy.SHORT_START_BYTES)
    field_bytes = npy.length_field_bytes(start)
    field = start[npy.START_BYTES :]
    if len(field) < field_bytes:
        field += await reader.head(field_bytes - len(field))
    length = npy.header_length(field, field_bytes)
    return await reader.head(length), length


def check_size(header: npy.NpyHeader, found: int) -> None:
    """Raise NpyError unless so many bytes of data are what the header promises."""
    if found != header.data_bytes:
        raise NpyError(
            f"the .npy promises {header.elements} elements of {header.item_bytes} bytes, which is {header.data_bytes}; "
            f"the body has {found} bytes of data"
        )


@contextmanager
def advising_numpy(header: npy.NpyHeader, call: ConversionCall) -> Iterator[None]:
    """Say what to do in numpy with elements that the conversion does not take, unless `input_type` names them."""
    try:
        yield
    except UnsupportedError as error:
        if call.input_type is None:
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
    given = call.output_type
    element = given.element if isinstance(given, TensorType) else given
    if call.operation is not Operation.QUANTIZE or isinstance(element, str | None):
        return None
    expressed = getattr(element, "expressed", None) or FLOATS["f32"]
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
