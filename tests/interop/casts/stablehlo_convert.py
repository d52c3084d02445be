"""`convert` of StableHLO, which is given bits and gives bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.small_floats import SMALL_FLOATS
from tests.interop.casts.cast_data import RESULTS
from tests.interop.stablehlo_quantized import Runner
from tests.interop.stablehlo_upstream import interpreted

Array = NDArray[Any]


def width(name: str) -> int:
    return SMALL_FLOATS[name].width if name in SMALL_FLOATS else 8 * np.dtype(RESULTS[name]).itemsize


def convert(data: Array, source: str, *targets: str, run: Runner = interpreted) -> Array:
    """Convert to each target after the other, from and to integers of the same width."""
    shape = f"tensor<{data.size}x"
    names = [f"ui{width(source)}", source, *targets, f"ui{width(targets[-1])}"]
    kinds = ["bitcast_convert", *["convert"] * len(targets), "bitcast_convert"]
    lines = [
        f"%{i + 1} = stablehlo.{kind} %{i} : ({shape}{names[i]}>) -> {shape}{names[i + 1]}>"
        for i, kind in enumerate(kinds)
    ]
    text = "\n".join(lines)
    module = (
        f"func.func @main(%0: {shape}{names[0]}>) -> {shape}{names[-1]}> {{\n{text}\nreturn %{len(kinds)} : "
        f"{shape}{names[-1]}>\n}}"
    )
    bits = np.ascontiguousarray(data).view(f"u{data.itemsize}")
    return run(module, [(names[0], bits)], np.dtype(f"u{width(targets[-1]) // 8}"))
