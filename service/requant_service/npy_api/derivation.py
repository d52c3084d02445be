"""A quantization that finds its scales, and a reply that carries them: in a header, or with the codes in a `.npz`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum

import numpy as np
from starlette.responses import Response

from requant.errors import InvalidRequestError, LimitError
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
from requant_service.operations.conversion_call import (
    ConversionCall,
    PlannedConversion,
    WholeConversion,
    WholeResult,
)
from requant_service.operations.conversion_run import Converted
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
    planned: WholeConversion,
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
    await reserve(planned.work.byte_count)

    def finish(done: WholeResult) -> Response:
        finished = done.converted.planned
        if output_format is OutputFormat.NPZ:
            return _npz_response(done)
        if (length := len(finished.output_type)) > LONGEST_TYPE_HEADER:
            raise LimitError(
                f"the type that was found has {length} characters, and the header Requant-Type {LONGEST_TYPE_HEADER}; "
                "output=npz returns y, scale, zero_point and type in one .npz",
                limit=LONGEST_TYPE_HEADER,
                pointer="/output",
            )
        converted = Converted(done.converted, done.output)
        return file_response(converted, head(finished), reply_headers(finished), media_type)

    return await planned.run(source, running, finish)


def _npz_response(done: WholeResult) -> Response:
    planned = done.converted.planned
    y = done.output.reshape(planned.output_shape)
    arrays = {"y": y, **done.result.numbers, "type": np.array(planned.output_type)}
    return BuffersResponse(write_npz(arrays), BINARY, (*reply_headers(planned), saturated_header(done.converted)))
