"""Type texts, parsed within the limits on length and rank."""

from __future__ import annotations

import re

from requant.errors import LimitError, TypeFitError, TypeTextError, default_pointer
from requant.mlir import parse_type, print_type
from requant.mlir.types import TensorType, Type
from requant_service.runtime.settings import Settings

# What reading or printing one scale of a type costs, in characters.
CHARACTERS_PER_SCALE = 16

# What curl makes of a list in braces: one request for each member, without the braces. The list follows an axis, block
# sizes, or the types of a quantile table.
_LIST_WITHOUT_BRACES = re.compile(r"uniform<[^,]*:-?\d+\s*,\s*[-+0-9]|quantile<[^,]*,\s*[-+0-9]")
_GLOB_HINT = (
    "curl sends one request for each member of a list in braces, without the braces; "
    "`curl -g` (--globoff) sends the URL as it is"
)
_LONGER_THAN_A_QUERY = (
    "; longer ones are sent in a form, as text or as scale and zero_point in .npy files: to /v1/multipart/quantize, "
    "dequantize or requantize; or in a JSON body, or under /v2 as a parameter"
)


def read_type(text: str, limit: int, pointer: str, advice: str = "") -> Type:
    """Parse the type text of the field at `pointer`, of at most `limit` bytes.

    `advice` follows the message about a longer one.
    """
    with default_pointer(pointer):
        # A character is at least a byte, so a text this long need not be encoded to be refused.
        if len(text) > limit or len(text.encode("utf-8", "surrogatepass")) > limit:
            raise LimitError(f"the type text has more than {limit} bytes{advice}", limit=limit)
        return parse_type(text)


def read_query_type(text: str, settings: Settings, pointer: str) -> Type:
    """Parse the type text of a query's parameter, which is shorter than one in a body, and often written for curl."""
    try:
        return read_type(text, settings.max_query_type_bytes, pointer, _LONGER_THAN_A_QUERY)
    except TypeTextError as error:
        if "{" not in text and _LIST_WITHOUT_BRACES.search(text):
            error.hint = _GLOB_HINT
        raise


def read_tensor_type(text: str, settings: Settings, pointer: str) -> TensorType:
    """Parse the type of data in a JSON body: it has to be a tensor's, of a rank that is served."""
    found = read_type(text, settings.max_type_bytes, pointer)
    if not isinstance(found, TensorType):
        raise TypeFitError(
            f"data need the type of a tensor, such as tensor<4x{print_type(found)[:40]}>; this is an element type",
            pointer=pointer,
        )
    if found.shape is not None:
        check_rank("type", len(found.shape), settings.max_rank, pointer)
    return found


def check_rank(what: str, rank: int, limit: int, pointer: str) -> None:
    """Raise LimitError for a type or shape of a rank that is not served."""
    if rank > limit:
        raise LimitError(f"the {what} has rank {rank}; at most {limit} is served", limit=limit, pointer=pointer)
