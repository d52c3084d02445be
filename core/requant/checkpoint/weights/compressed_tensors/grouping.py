"""Which elements of a weight share a scale.

Source: compressed-tensors 0.20.0, `QuantizationStrategy` (`quantization/quant_args.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from requant.checkpoint.weights.weight_format import check_groups


@dataclass(frozen=True, slots=True)
class Grouping:
    """Blocks of `height` rows and `width` columns share a scale; None: all of them.

    tensor (None, None), channel (1, None), group (1, g), block (h, w). Only blocks may be cut off at the edges.
    """

    height: int | None
    width: int | None

    @property
    def strategy(self) -> str:
        """The name of the library."""
        if self.height is None:
            return "tensor"
        if self.width is None:
            return "channel"
        return "group" if self.height == 1 else "block"

    def check(self, shape: tuple[int, int]) -> None:
        """Raise CheckpointError unless a weight [out, in] can be grouped."""
        if self.strategy == "group" and self.width is not None:
            check_groups(shape, self.width)

    def columns(self, shape: tuple[int, int]) -> int:
        """Return how many scales a row of the weight has."""
        return 1 if self.width is None else -(-shape[1] // self.width)

    def scale_shape(self, shape: tuple[int, int]) -> tuple[int, ...]:
        """Return the shape of the stored scales: (1,) for a tensor."""
        if self.height is None:
            return (1,)
        return (-(-shape[0] // self.height), self.columns(shape))

    def scale_rows(self, row_begin: int, row_end: int) -> tuple[int, int]:
        """Return the rows [begin, end) of scales that rows of the weight have."""
        if self.height is None:
            return 0, 1
        return row_begin // self.height, -(-row_end // self.height)


TENSOR = Grouping(None, None)
CHANNEL = Grouping(1, None)


def groups_of(size: int) -> Grouping:
    """Return groups of `size` columns."""
    return Grouping(1, size)


def blocks_of(height: int, width: int) -> Grouping:
    """Return blocks."""
    return Grouping(height, width)
