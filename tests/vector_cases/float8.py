"""float8.json: casts by ml_dtypes, torch, onnxruntime, the onnx reference, oneDNN and numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.vector_cases.conversion import Conversion, floats, load, plain

FORMATS = {
    "f16": "f16", "bf16": "bf16", "e4m3fn": "f8E4M3FN", "e4m3fnuz": "f8E4M3FNUZ", "e5m2": "f8E5M2",
    "e5m2fnuz": "f8E5M2FNUZ", "e4m3": "f8E4M3", "e3m4": "f8E3M4", "e4m3b11fnuz": "f8E4M3B11FNUZ", "e2m1fn": "f4E2M1FN",
    "e2m3fn": "f6E2M3FN", "e3m2fn": "f6E3M2FN", "e8m0fnu": "f8E8M0FNU",
}  # fmt: skip
PROFILES = {"onnxruntime": "onnx", "numpy": "ml_dtypes"}
ROUNDINGS = {"up": "ceil", "down": "floor", "nearest": "nearest_up"}


def _options(parts: list[str]) -> dict[str, Any]:
    """What the end of a row's name asks for: `saturate=0`, `up`..."""
    found: dict[str, Any] = {}
    for part in parts:
        if part.startswith("saturate="):
            found["saturate"] = part.endswith("1")
        else:
            found["rounding"] = ROUNDINGS[part]
    return found


def _narrowing(group: str, row: str, element: str, options: list[str], x: Any, codes: str) -> Conversion:
    authority = row.split(":")[0]
    dtype = {"f16": ">f2", "bf16": ">u2"}.get(element, "|u1")
    return Conversion(
        f"float8/{group}/{row}",
        "quantize",
        PROFILES.get(authority, authority),
        plain("f32", x.size),
        element,
        x,
        np.frombuffer(bytes.fromhex(codes), dtype).astype(dtype.replace(">", "<")),
        options=_options(options),
    )


def float8_conversions() -> Iterator[Conversion]:
    """Every row."""
    data = load("float8")
    for group, inputs in (("encode", "x"), ("encode16", "x16")):
        for row, codes in data[group].items():
            _, name, *options = row.split(":")
            yield _narrowing(group, row, FORMATS[name], options, floats(data[inputs]), codes)
    for row, codes in data["e8m0"].items():
        if row != "x":
            yield _narrowing("e8m0", row, "f8E8M0FNU", row.split(":")[1:], floats(data["e8m0"]["x"]), codes)
    for name, values in data["decode"].items():
        codes = np.arange(len(values), dtype="|u1")
        yield Conversion(
            f"float8/decode/{name}",
            "dequantize",
            "ml_dtypes",
            plain(FORMATS[name], codes.size),
            "f32",
            codes,
            floats(values),
        )
