"""Data and the ranges that the real systems found in them: `choose_qparams.json`, `model_optimizer_entropy.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.oracles.quantization import from_bits
from tests.vector_cases.conversion import Array, load


@dataclass(frozen=True)
class CalibrationCase:
    """Tensors of f32, what was asked, and the range, and where the system goes on, scale and zero point for u8."""

    method: str
    tensors: tuple[Array, ...]
    options: dict[str, Any]
    minimum: float
    maximum: float
    scale: float | None = None
    zero_point: int | None = None


@dataclass
class _Data:
    """The samples of each distribution, which later cases name."""

    known: dict[str, Array] = field(default_factory=dict)

    def of(self, row: dict[str, Any]) -> Array:
        if isinstance(row.get("x"), list):
            self.known[row["dist"]] = _floats(row["x"])
        return self.known[row["dist"]]


def _floats(patterns: list[str]) -> Array:
    return np.array([from_bits(pattern) for pattern in patterns], np.float32)


def calibration_cases() -> list[CalibrationCase]:
    """Every range of the files that was found in data of one tensor or of several: 40 and the Model Optimizer's."""
    vectors, data = load("choose_qparams"), _Data()
    return [
        *_averages(vectors["torch_moving_average"]),
        *(_histogram(row, data.of(row)) for row in vectors["torch_histogram"]),
        *(_percentile(row, data.of(row)) for row in vectors["ort_percentile"]),
        *(_entropy(row, data.of(row)) for row in vectors["ort_entropy"]),
        *(_model_optimizer(row) for row in load("model_optimizer_entropy")["cases"]),
    ]


def _averages(rows: list[dict[str, Any]]) -> list[CalibrationCase]:
    """One case for each number of tensors."""
    cases = []
    for row in rows:
        tensors: tuple[Array, ...] = ()
        for step in row["steps"]:
            tensors = (*tensors, _floats(step["x"]))
            options = {"averaging_constant": row["averaging_constant"]}
            ends = from_bits(step["min"]), from_bits(step["max"])
            cases.append(
                CalibrationCase("moving_average", tensors, options, *ends, from_bits(step["scale"]), step["zp"])
            )
    return cases


def _histogram(row: dict[str, Any], data: Array) -> CalibrationCase:
    ends = from_bits(row["search_min"]), from_bits(row["search_max"])
    return CalibrationCase("torch_histogram", (data,), {"bins": row["bins"]}, *ends, from_bits(row["scale"]), row["zp"])


def _percentile(row: dict[str, Any], data: Array) -> CalibrationCase:
    options = {"bins": row["bins"], "percentile": row["percentile"], "magnitudes": row["symmetric"]}
    return CalibrationCase("percentile", (data,), options, from_bits(row["lo"]), from_bits(row["hi"]))


def _entropy(row: dict[str, Any], data: Array) -> CalibrationCase:
    options = {"bins": row["num_bins"], "quantized_bins": row["num_quantized_bins"]}
    return CalibrationCase("entropy", (data,), options, from_bits(row["lo"]), from_bits(row["hi"]))


def _model_optimizer(row: dict[str, Any]) -> CalibrationCase:
    largest = from_bits(row["amax"])
    options = {name: row[name] for name in ("bins", "quantized_bins", "first_bins")}
    return CalibrationCase("entropy_model_optimizer", (_floats(row["x"]),), options, -largest, largest)
