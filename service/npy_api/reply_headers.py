"""The header fields of replies that are files: what JSON has in the report."""

from __future__ import annotations

from service.http.responses import Header
from service.operations.conversion_call import ConversionResult, PlannedConversion

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
