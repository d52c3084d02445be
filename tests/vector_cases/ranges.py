"""Ranges and the parameters that the real systems gave them: the files `*choose_qparams*`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.oracles.quantization import from_bits
from tests.vector_cases.conversion import load

_STORAGE = {
    "qint8": "i8",
    "quint8": "u8",
    "int4": "i4",
    "uint4": "u4",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "uint16": "u16",
}


@dataclass(frozen=True)
class RangeCase:
    """One range, what was asked, and the scale and zero point that the system answered with."""

    scheme: str
    minimum: float
    maximum: float
    storage: str
    options: dict[str, Any]
    scale: float
    zero_point: int | None = None
    nudged: tuple[float, float] | None = None
    bounds: tuple[int, int] | None = None


def range_cases() -> list[RangeCase]:
    """Every range of the files that stands alone: 1,785."""
    vectors = load("choose_qparams")
    return [
        *(_torch(row) for row in vectors["torch_choose_qparams_cpp"]),
        *(_torch_options(row) for row in load("torch_choose_qparams_options")["cases"]),
        *(_observer(row) for row in vectors["torch_observer_minmax"]),
        *(_decomposed(row) for row in vectors["torch_decomposed"]),
        *(_litert(row) for row in vectors["tflite_choose"]),
        *(_nudge(row) for row in vectors["tflite_nudge"]),
        *(_onnxruntime(row) for row in vectors["ort_compute_scale_zp"]),
    ]


def _ends(row: dict[str, Any]) -> tuple[float, float]:
    return from_bits(row["min"]), from_bits(row["max"])


def _torch(row: dict[str, Any]) -> RangeCase:
    options = {"reduced": row["reduce_range"]}
    bounds = (0, 127 if row["reduce_range"] else 255)
    return RangeCase("torch", *_ends(row), "u8", options, float.fromhex(row["scale_f64"]), row["zp"], bounds=bounds)


def _torch_options(row: dict[str, Any]) -> RangeCase:
    options = {
        "reduced": row["reduce_range"],
        "power_of_two": row["force_scale_power_of_two"],
        "preserve_sparsity": row["preserve_sparsity"],
    }
    return RangeCase("torch", *_ends(row), row["storage"], options, float.fromhex(row["scale_f64"]), row["zp"])


def _observer(row: dict[str, Any]) -> RangeCase:
    options = {"symmetric": row["qscheme"] == "per_tensor_symmetric", "reduced": row["reduce_range"]}
    bounds = (row["qmin"], row["qmax"])
    storage = _STORAGE[row["dtype"]]
    return RangeCase("torch_observer", *_ends(row), storage, options, from_bits(row["scale"]), row["zp"], bounds=bounds)


def _decomposed(row: dict[str, Any]) -> RangeCase:
    options = {"symmetric": row["op"] == "choose_qparams_symmetric.tensor"}
    bounds = (row["qmin"], row["qmax"])
    storage = f"i8<{row['qmin']}:{row['qmax']}>"
    scale = float.fromhex(row["scale_f64"])
    return RangeCase("torch_decomposed", *_ends(row), storage, options, scale, row["zp"], bounds=bounds)


def _litert(row: dict[str, Any]) -> RangeCase:
    ends = float.fromhex(row["min"]), float.fromhex(row["max"])
    scale = float.fromhex(row["scale_f64"])
    return RangeCase("litert", *ends, _STORAGE[row["dtype"]], {"narrow": bool(row["narrow"])}, scale, row["zp"])


def _nudge(row: dict[str, Any]) -> RangeCase:
    nudged = from_bits(row["nudged_min"]), from_bits(row["nudged_max"])
    storage = f"u{row['qmax'].bit_length()}"
    options = {"narrow": bool(row["qmin"])}
    bounds = (row["qmin"], row["qmax"])
    scale = from_bits(row["scale"])
    return RangeCase("litert_fake_quant", *_ends(row), storage, options, scale, nudged=nudged, bounds=bounds)


def _onnxruntime(row: dict[str, Any]) -> RangeCase:
    options = {"symmetric": row["symmetric"], "reduced": row["reduce_range"]}
    bounds = (row["qmin"], row["qmax"])
    storage = _STORAGE[row["dtype"]]
    return RangeCase("onnxruntime", *_ends(row), storage, options, from_bits(row["scale"]), row["zp"], bounds=bounds)
