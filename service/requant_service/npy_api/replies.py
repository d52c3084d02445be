"""Replies that are one file, with header fields for what JSON has in the report."""

from __future__ import annotations

import numpy as np
from starlette.responses import Response

from requant_service.http.openapi_operation import BINARY
from requant_service.http.responses import BuffersResponse, Header, StreamedResponse, bytes_of
from requant_service.npy_api.format import write_header
from requant_service.operations.conversion_call import ConversionResult, PlannedConversion
from requant_service.operations.conversion_run import Converted

LONGEST_TYPE_HEADER = 2048


def reply_headers(planned: PlannedConversion) -> tuple[Header, ...]:
    """Return the headers that are the same for all data."""
    headers = [(b"requant-profile", planned.plan.profile.encode("ascii"))]
    type_text = planned.output_type
    # An encoding of a tensor may hold any text, and a header may not.
    if len(type_text) <= LONGEST_TYPE_HEADER and type_text.isascii() and type_text.isprintable():
        headers.append((b"requant-type", type_text.encode("ascii")))
    return tuple(headers)


def saturated_header(result: ConversionResult) -> Header:
    """Return the header that depends on the data."""
    return b"requant-saturated", b"%d" % result.saturated


def npy_head(planned: PlannedConversion) -> bytes:
    """Return the header of the file."""
    return write_header(planned.output_dtype, planned.output_shape)


def file_response(converted: Converted, head: bytes, headers: tuple[Header, ...], media_type: str = BINARY) -> Response:
    """Return the output of a conversion as a file, given what is the same for all data."""
    fields = (*headers, saturated_header(converted.result))
    if isinstance(converted.output, np.ndarray):
        return BuffersResponse([head, bytes_of(converted.output)], media_type, fields)
    return StreamedResponse(head, converted.output, converted.result.planned.output_bytes, media_type, fields)
