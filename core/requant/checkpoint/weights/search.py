"""Ranges of least squared error, in place of the extremes: the observers `memoryless_mse` and `nvfp4_expanded_mse`.

For a block, whose extremes are mn and mx, and R that rounds to the weight's dtype:

    mn_i = R(R(mn * expand) * p_i), mx_i likewise, p_i = f32(1 - i / grid), i = 0, 1, ... steps - 1
    the first i of least error, by `requant.kernels.checkpoint.squared_errors`, with the parameters of mn_i and mx_i

The error is rounded to the dtype before it is compared, and has to be below the largest finite one. Scale and zero
point follow from mn_i and mx_i as they do from the extremes; NVFP4's global scale too, and while searching its scales
are R(max(-mn_i, mx_i) / 6).

Source: llm-compressor 0.14, `observers/mse.py`, `observers/mse_quant.py` (`_grid_search_mse`), `observers/base.py`. Its
default exponent of 2.4 asks for powf, which is not the same in all builds of torch; with `norm` 2 torch multiplies.
Its default `patience` ends the search of all blocks once none of a weight has become better; here it is so large that
each block is searched to its end, whatever other blocks are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.checkpoint.weights.blocks import Block, parameters_checked
from requant.checkpoint.weights.floats import E2M1, E2M3, E4M3, UNSIGNED, Array, rounded
from requant.kernels.checkpoint.squared_errors import E2M1_ERRORS, E2M3_ERRORS, E4M3_ERRORS, INTEGER_ERRORS
from requant.kernels.jit.jit import Kernel
from requant.kernels.simd.widen import FloatKind

_OFFSET = 128
_LARGEST = {"BF16": 3.3895313892515355e38, "F16": 65504.0, "F32": 3.4028234663852886e38}
_NONE = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Element:
    """The codes among which values are rounded: their bounds, and the kernel that knows them."""

    kernel: Kernel
    lowest: float
    highest: float
    table: Array
    offset: int = 0

    @staticmethod
    def integer(bits: int) -> Element:
        """Return integers of so many bits, up to 8."""
        half = 2.0 ** (bits - 1)
        return Element(INTEGER_ERRORS, -half, half - 1, UNSIGNED - np.float32(_OFFSET), _OFFSET)


ELEMENT_E4M3 = Element(E4M3_ERRORS, -E4M3.largest, E4M3.largest, E4M3.values)
ELEMENT_E2M3 = Element(E2M3_ERRORS, -E2M3.largest, E2M3.largest, E2M3.values)
ELEMENT_E2M1 = Element(E2M1_ERRORS, -E2M1.largest, E2M1.largest, E2M1.values)

Parameters = Callable[[tuple[Array, ...]], tuple[Array, Array | None]]
"""From ranges to scales and zero points, as f32."""


@dataclass(frozen=True, slots=True)
class Search:
    """Which ranges are tried, under the observer's name and with its arguments."""

    observer: str
    arguments: tuple[tuple[str, float], ...]
    grid: float
    steps: int
    expand: float = 1.0

    def to_config(self) -> dict[str, Any]:
        """Return the members of config.json."""
        return {"observer": self.observer, "observer_kwargs": dict(self.arguments)}

    def best(
        self,
        rows: Array,
        dtype: str,
        block: Block,
        element: Element,
        extremes: tuple[Array, ...],
        parameters: Parameters,
    ) -> tuple[Array, ...]:
        """Return the ranges of least error. `extremes`: f32 of blocks: the largest magnitudes, or lows and highs."""
        with np.errstate(all="ignore"):
            whole = tuple(rounded(each * np.float32(self.expand), dtype) for each in extremes)
            best, least = whole, np.full(whole[0].shape, _LARGEST[dtype], np.float32)
            for step in range(self.steps):
                tried = tuple(rounded(each * np.float32(1 - step / self.grid), dtype) for each in whole)
                errors = squared_errors(rows, dtype, block, element, *parameters(tried))
                better = errors < least
                least = np.where(better, errors, least)
                best = tuple(np.where(better, new, old) for new, old in zip(tried, best, strict=True))
        return best


MSE = Search("memoryless_mse", (("norm", 2.0), ("maxshrink", 0.6), ("patience", 60)), grid=100.0, steps=60)
EXPANDED_MSE = Search("nvfp4_expanded_mse", (("norm", 2.0),), grid=200.0, steps=111, expand=1.8)
"""The observer of NVFP4: from 1.8 times the extremes down to 0.8 times."""


def squared_errors(
    rows: Array, dtype: str, block: Block, element: Element, scales: Array, zero_points: Array | None
) -> Array:
    """Return the error of each block with its scale and zero point, f32 rounded to `dtype`."""
    count, columns = rows.shape
    parameters_checked(scales, zero_points, count, columns, block)
    totals = np.empty(scales.shape, np.float32)
    element.kernel(
        rows.reshape(-1).view(np.uint8),
        int(FloatKind[dtype]),
        count,
        columns,
        block.height,
        block.width,
        np.ascontiguousarray(scales).reshape(-1),
        _NONE if zero_points is None else np.ascontiguousarray(zero_points).reshape(-1),
        element.table,
        np.float32(element.lowest),
        np.float32(element.highest),
        np.int32(element.offset),
        totals.reshape(-1),
    )
    return rounded(totals, dtype)
