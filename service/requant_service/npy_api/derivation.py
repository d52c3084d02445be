"""A quantization that finds its scales, and a reply that carries them: in a header, or with the codes in a `.npz`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum

import numpy as np
from starlette.responses import Response

from requant.errors import InvalidRequestError, LimitError
from requant.operations.derived_scales import DerivedScales
from requant.plan.plan import Array
from requant_service.http.openapi_operation import BINARY
from requant_service.http.responses import BuffersResponse
from requant_service.npy_api.npz import write_npz
from requant_service.npy_api.replies import (
    LONGEST_TYPE_HEADER,
    file_response,
    npy_head,
    reply_headers,
    saturated_header,
)
from requant_service.operations.calibration.quantization import Derivation, derive_quantization
from requant_service.operations.conversion_call import ConversionCall, PlannedConversion
from requant_service.operations.conversion_run import Converted, convert_array
from requant_service.runtime.runtime import Runtime


class OutputFormat(StrEnum):
    """The file of the reply."""

    NPY = "npy"
    NPZ = "npz"


def read_output_format(texts: Mapping[str, str]) -> OutputFormat:
    """Return the file that is asked for. Raise InvalidRequestError."""
    output = texts.get("output", OutputFormat.NPY)
    if output not in tuple(OutputFormat):
        raise InvalidRequestError.of_field("/output", "enum", f"not one of {', '.join(OutputFormat)}")
    return OutputFormat(output)


def check_output_format(output: OutputFormat, call: ConversionCall) -> None:
    """Raise InvalidRequestError if an archive is asked for, and there is nothing to put beside the codes."""
    if output is OutputFormat.NPZ and not call.leaves_scales_open:
        detail = "npz is for an output_type that leaves its scales open, such as !quant.any<i8:f32>"
        raise InvalidRequestError.of_field("/output", "extra_forbidden", detail)


async def quantize_deriving(
    derivation: Derivation,
    source: Array,
    output_format: OutputFormat,
    running: Runtime,
    reserve: Callable[[int], Awaitable[None]],
    head: Callable[[PlannedConversion], bytes] = npy_head,
    media_type: str = BINARY,
) -> Response:
    """Quantize a flat input that is in memory, and reply with the codes and what was found.

    `head`, `media_type`: of a file of the codes alone.
    """
    planned, scales = await derive_quantization(derivation, source, running, reserve)
    length = len(planned.output_type)
    if output_format is OutputFormat.NPY and length > LONGEST_TYPE_HEADER:
        raise LimitError(
            f"the type that was found has {length} characters, and the header Requant-Type {LONGEST_TYPE_HEADER}; "
            "output=npz returns y, scale, zero_point and type in one .npz",
            limit=LONGEST_TYPE_HEADER,
            pointer="/output",
        )
    await reserve(planned.output_bytes)

    def work() -> Response:
        converted = convert_array(source, planned, running.metrics)
        if output_format is OutputFormat.NPY:
            return file_response(converted, head(planned), reply_headers(planned), media_type)
        return _npz_response(converted, scales)

    return await running.executor.run_array(source.nbytes, work)


def _npz_response(converted: Converted, scales: DerivedScales) -> Response:
    planned = converted.result.planned
    assert isinstance(converted.output, np.ndarray)
    y = converted.output.reshape(planned.output_shape)
    zero_point = scales.zero_point(planned.plan.output_dtype)
    arrays = {"y": y, "scale": scales.scale, "zero_point": zero_point, "type": np.array(planned.output_type)}
    return BuffersResponse(write_npz(arrays), BINARY, (*reply_headers(planned), saturated_header(converted.result)))
