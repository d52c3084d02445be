"""The elements of a JSON tensor, in and out, in whichever of its two forms it has."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.arrays import json_values as values
from requant.errors import InvalidRequestError, LimitError, default_pointer, pointer_prefix
from requant.mlir import print_type
from requant.mlir.types import TensorType
from requant.plan.operands import static_shape
from requant.plan.plan import dense_bytes, dense_width, pack, unpack
from requant_service.http.json_document import JsonDocument
from requant_service.http.responses import Buffer, json_text
from requant_service.json_api import base64_tensor
from requant_service.json_api.schemas.tensors import Tensor
from requant_service.runtime.settings import Settings

Array = NDArray[Any]


def read_elements(
    tensor: Tensor,
    type_: TensorType,
    dtype: np.dtype[Any],
    field: str,
    document: JsonDocument,
    settings: Settings,
    *,
    dense: bool = False,
    elements: int | None = None,
) -> Array:
    """Return the flat elements of the tensor in a field of a request. `type_` is static. `dense`: `data` is packed.
    `elements`: how many there are, where that is known.

    `field` is the JSON pointer of the field without its first slash: `input`, or `inputs/3`. `document` is the request.
    """
    elements = prod(static_shape(type_)) if elements is None else elements
    if not tensor.in_values:
        with default_pointer(f"/{field}/data"):
            width = dense_width(type_) if dense else None
            if width is None:
                return base64_tensor.decode(document.data(tensor.data), dtype, elements)
            packed = base64_tensor.decode(document.data(tensor.data), np.dtype(np.uint8), dense_bytes(elements, width))
            return unpack(packed, width, elements, dtype)
    if dense:
        message = "values are numbers and not packed; send data"
        raise InvalidRequestError.of_field("/packing", "packing_of_values", "only data can be packed", message=message)

    def literals() -> list[Any]:
        return document.values(field)

    with pointer_prefix(f"/{field}/values"):
        count = elements if any(isinstance(each, list) for each in tensor.values[:1]) else len(tensor.values)
        check_count(count, settings.max_values)
        return values.decode_elements(tensor.values, type_.element, dtype, static_shape(type_), literals)


def check_count(count: int, limit: int) -> None:
    """Raise LimitError for more values in JSON than are read one by one."""
    if count > limit:
        as_bytes = "as data (base64 of their little-endian bytes), or as an .npy file"
        raise LimitError(f"there are {count} values; more than {limit} elements must be sent {as_bytes}", limit=limit)


def output_pieces(
    type_: TensorType, elements: Array, *, in_values: bool, dense: bool = False, text: str = ""
) -> list[Buffer]:
    """Return a tensor as pieces of JSON, the data a piece of their own. `text`: of the type, where it is known."""
    head = b'{"type":' + _type_text(text or print_type(type_))
    if in_values:
        return [head + b',"values":', values.encode_elements(type_.element, elements), b"}"]
    return [head + b',"data":"', output_data(type_, elements, dense=dense), b'"}']


def output_data(type_: TensorType, elements: Array, *, dense: bool) -> bytes:
    """Return the elements of a tensor as base64."""
    width = dense_width(type_) if dense else None
    return base64_tensor.encode(elements if width is None else pack(elements, width))


def _type_text(text: str) -> bytes:
    """Return the text of a type in JSON. Nearly all are ASCII without anything to escape."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return b'"%b"' % text.encode("ascii")
    return json_text(text)
