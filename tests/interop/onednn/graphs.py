"""Quantized operations as graphs of oneDNN."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.interop.integer.quantized_tensors import Quantized
from tests.interop.onednn.library import Onednn, Operator

Array = NDArray[Any]

KINDS = {"i8": "s8", "u8": "u8"}


def attributes_of(side: Quantized) -> dict[str, Any]:
    scales, zps = side.scales.astype(np.float64).tolist(), side.zero_points.tolist()
    if len(scales) == 1:
        return {"qtype": "per_tensor", "scales": scales, "zps": zps}
    return {"qtype": "per_channel", "axis": side.axis, "scales": scales, "zps": zps}


def by_onednn(
    library: Onednn, product: Operator, sides: tuple[Quantized, Quantized, Quantized], lhs: Array, rhs: Array
) -> Array:
    """The graph of a product of `lhs_real` and `rhs_real` to `real`."""
    lhs_side, rhs_side, output = sides
    operators = [
        Operator("Dequantize", ("lhs",), "lhs_real", "f32", lhs.shape, attributes_of(lhs_side)),
        Operator("Dequantize", ("rhs",), "rhs_real", "f32", rhs.shape, attributes_of(rhs_side)),
        product,
        Operator("Quantize", ("real",), "dst", KINDS[output.storage], product.shape, attributes_of(output)),
    ]
    return library.run_graph(operators, {"lhs": (KINDS[lhs_side.storage], lhs), "rhs": (KINDS[rhs_side.storage], rhs)})


def added(library: Onednn, sides: list[Quantized], a: Array, b: Array) -> Array:
    """Dequantize of both, Add, and Quantize, one after the other."""
    reals = [
        library.run("Dequantize", [(KINDS[side.storage], data)], "f32", **attributes_of(side))
        for side, data in zip(sides, (a, b), strict=False)
    ]
    total = library.run("Add", [("f32", each) for each in reals], "f32")
    return library.run("Quantize", [("f32", total)], KINDS[sides[2].storage], **attributes_of(sides[2]))
