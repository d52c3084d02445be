"""Type texts of requests, parsed within a stated length."""

from __future__ import annotations

from core.errors import LimitError, TypeFitError
from core.mlir import parse_type, print_type
from core.mlir.types import TensorType, Type
from service.problems import at
from service.settings import Settings


def read_type(text: str, limit: int, pointer: str) -> Type:
    """Parse the type text of the field at `pointer`, of at most `limit` bytes."""
    with at(pointer):
        # A character is at least a byte, so a text this long need not be encoded to be refused.
        if len(text) > limit or len(text.encode("utf-8", "surrogatepass")) > limit:
            raise LimitError(f"the type text has more than {limit} bytes", limit=limit)
        return parse_type(text)


def read_tensor_type(text: str, settings: Settings, pointer: str) -> TensorType:
    """Parse the type of data in a JSON body: it has to be a tensor's, of a rank that is served."""
    found = read_type(text, settings.max_type_bytes, pointer)
    if not isinstance(found, TensorType):
        raise TypeFitError(
            f"data need the type of a tensor, such as tensor<4x{print_type(found)[:40]}>; this is an element type",
            pointer=pointer,
        )
    if found.shape is not None and len(found.shape) > settings.max_rank:
        limit = settings.max_rank
        detail = f"the type has rank {len(found.shape)}; at most {limit} is served"
        raise LimitError(detail, limit=limit, pointer=pointer)
    return found
