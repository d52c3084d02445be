"""The elements of a JSON tensor, in and out, in whichever of its two forms it has."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.elements import FLOATS
from core.errors import FieldFault, InvalidRequestError, LimitError
from core.lanes import narrow, rounded, widen
from core.mlir.types import TensorType
from core.packing import dense_bytes, dense_width, pack, unpack
from service.codecs import base64_tensor, values
from service.problems import at
from service.replies import Piece, json_text
from service.schemas import Tensor
from service.settings import Settings

Array = NDArray[Any]
_BF16 = FLOATS["bf16"]


def read_elements(
    tensor: Tensor,
    type_: TensorType,
    dtype: np.dtype[Any],
    elements: int,
    field: str,
    body: bytes,
    settings: Settings,
    *,
    dense: bool = False,
) -> Array:
    """Return the flat elements of the tensor in the top-level `field` of `body`. `dense`: `data` is packed."""
    if "data" in tensor.model_fields_set:
        with at(f"/{field}/data"):
            width = dense_width(type_) if dense else None
            if width is None:
                return base64_tensor.decode(tensor.data, dtype, elements)
            packed = base64_tensor.decode(tensor.data, np.dtype(np.uint8), dense_bytes(elements, width))
            return unpack(packed, width, elements, dtype)
    if dense:
        raise InvalidRequestError(
            "values are numbers and not packed; send data",
            (FieldFault("/packing", "packing_of_values", "only data can be packed"),),
        )

    def literals() -> list[str]:
        written: list[str] = json.loads(body, parse_float=str, parse_int=str)[field]["values"]
        return written

    with at(f"/{field}/values"):
        if len(tensor.values) > settings.max_values:
            raise LimitError(
                f"there are {len(tensor.values)} values; more than {settings.max_values} elements are sent as data",
                limit=settings.max_values,
            )
        if type_.element == _BF16:
            # The numbers are real ones here too, and not the bit patterns that data hold.
            wide = values.decode(tensor.values, np.dtype(np.float64), elements, literals)
            patterns = np.empty(elements, np.uint16)
            narrow(rounded(wide, _BF16), _BF16, patterns)
            return patterns
        return values.decode(tensor.values, dtype, elements, literals)


def output_pieces(
    type_: TensorType, text: str, elements: Array, *, in_values: bool, dense: bool = False
) -> list[Piece]:
    """Return a tensor as pieces of JSON. The data are never copied into the rest of it."""
    head = b'{"type":' + json_text(text)
    if in_values:
        real = widen(elements, _BF16) if type_.element == _BF16 else elements
        return [head, b',"values":', values.encode(real), b"}"]
    width = dense_width(type_) if dense else None
    data = elements if width is None else pack(elements, width)
    return [head, b',"data":"', base64_tensor.encode(data), b'"}']
