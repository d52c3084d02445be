"""Fake quantization by the real systems: TensorFlow's three operators and LiteRT's function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.vector_cases.conversion import Array, floats, load

_SCHEMES = {"args": "tf_fake_quant", "vars": "tf_fake_quant_vars", "vars_per_channel": "tf_fake_quant"}


@dataclass(frozen=True)
class FakeQuantCase:
    """One call. `ranges`: minimums and maximums, f32 values as f64; along the last axis when `per_channel`."""

    scheme: str
    shape: tuple[int, ...]
    per_channel: bool
    ranges: tuple[Array, Array]
    num_bits: int
    narrow_range: bool
    x: Array
    y: Array


def fake_quant_cases() -> list[FakeQuantCase]:
    """Every case of the three files: 4,466 elements."""
    found = [_case(row, "args") for row in load("tf_fake_quant")["cases"]]
    found += [_case(row, row["operator"]) for row in load("tf_fake_quant_operators")["cases"]]
    for row in load("choose_qparams")["tflite_fake_quant"]:
        bits = {**row, "num_bits": row["qmax"].bit_length(), "narrow_range": bool(row["qmin"])}
        found.append(_case(bits, "litert"))
    return found


def _case(row: dict[str, Any], operator: str) -> FakeQuantCase:
    x = floats(row["x"])
    ends = [floats([row[key]] if isinstance(row[key], str) else row[key]).astype(np.float64) for key in ("min", "max")]
    return FakeQuantCase(
        _SCHEMES.get(operator, operator),
        tuple(row.get("shape", [x.size])),
        operator == "vars_per_channel",
        (ends[0], ends[1]),
        row["num_bits"],
        row["narrow_range"],
        x,
        floats(row["y"]),
    )
