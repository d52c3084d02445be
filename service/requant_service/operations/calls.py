"""Calls of operations within a request, as a model."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, create_model

from requant_service.http.models import RequestModel

MAX_CALLS = 256
"""In one request."""


def _copied(value: Any) -> Any:
    """Return a copy of JSON: pydantic keeps an `Any` by reference, and the document is freed after reading. The parser
    has refused what is nested too deep.
    """
    if type(value) is dict:
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if type(value) is list else value


_Members = Annotated[dict[str, Any], BeforeValidator(_copied)]
_SomeMembers = Annotated[dict[str, Any], Field(min_length=1), BeforeValidator(_copied)]


@cache
def call_model(*, observed: bool) -> type[RequestModel]:
    """Return the model of a call. Its arguments are read once its operation is known."""
    fields: dict[str, Any] = {
        "operation": (str, Field(description="The name of an operation.", examples=["requantize"])),
        "arguments": (
            _Members,
            Field(
                description="The members of the operation's own request. Those that choose the arithmetic, such as "
                "`profile` and `scheme`, may be absent."
            ),
        ),
    }
    if not observed:
        return create_model("OperationCall", __base__=RequestModel, __doc__="A call of an operation.", **fields)
    said = (
        "Outputs by name, at least one. A tensor is a list of its `values`, flat or nested, or an object with `values` "
        "or `data`, and a `type` if it is not that of the argument `output_type`; numbers, and members of records, are "
        "lists. Floats of at most 8 bits are codes if all are whole, and else numbers. The operation's own "
        "reply may stand here."
    )
    fields["observed"] = (_SomeMembers, Field(description=said))
    about = "A call of an operation, and outputs that something gave for it."
    return create_model("ObservedCall", __base__=RequestModel, __doc__=about, **fields)
