"""onednn_quantize.json: oneDNN Graph's CPU engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.vector_cases.conversion import STORAGE, Conversion, Quantized, floats, load, plain


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def onednn_conversions() -> Iterator[Conversion]:
    """Static and dynamic Quantize and Dequantize: the same arithmetic, with parameters from elsewhere."""
    data = load("onednn_quantize")
    for group in ("per_tensor", "special", "per_channel", "f8"):
        for index, case in enumerate(data[group]):
            scales = [float(s) for s in floats(_listed(case["scale"]))]
            quantized = Quantized(case["dst"], scales, _listed(case.get("zp") or 0), case.get("axis"))
            x = floats(case["x"])
            stored = np.array(case.get("q", case.get("bits")), quantized.dtype)
            if group == "special":
                # NaN depends on oneDNN's instruction set and on whether zps is given: the lowest value is our choice.
                stored = np.where(np.isnan(x), np.iinfo(stored.dtype).min, stored).astype(stored.dtype)
            shape = case.get("shape", [x.size])
            yield Conversion(
                f"onednn_quantize/{group}/{index}",
                "quantize",
                "onednn",
                plain("f32", *shape),
                str(quantized),
                x,
                stored,
            )
    for index, case in enumerate(data["dequantize"]):
        scales = [float(s) for s in floats(_listed(case["scale"]))]
        quantized = Quantized(STORAGE[case["src"]], scales, _listed(case.get("zp") or 0), case.get("axis"))
        q = np.array(case["q"], quantized.dtype)
        yield Conversion(
            f"onednn_quantize/dequantize/{index}",
            "dequantize",
            "onednn",
            quantized.tensor(*case.get("shape", [q.size])),
            "f32",
            q,
            floats(case["y"]),
        )
