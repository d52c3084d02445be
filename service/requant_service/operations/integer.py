"""The size of work on integers: its limits, and how long it takes."""

from __future__ import annotations

from requant.errors import LimitError
from requant_service.runtime.settings import Settings

# How many products take as long as the work on a byte of a tensor.
_PRODUCTS_OF_A_BYTE = 16


def weight_of(elements: int, products: int) -> int:
    """Return about how many bytes of a tensor take as long as so many elements of an output and so many products."""
    return max(elements * 4, products // _PRODUCTS_OF_A_BYTE)


def check_size(elements: int, products: int, settings: Settings) -> None:
    """Raise LimitError for an output of too many elements, or of too many products."""
    limit = settings.max_sums
    if elements > limit:
        raise LimitError(f"the output has {elements} elements; at most {limit} are computed", limit=limit)
    limit = settings.max_products
    if products > limit:
        detail = f"the output takes {products} multiplications, or as long as so many; at most {limit} are done"
        raise LimitError(detail, limit=limit)
