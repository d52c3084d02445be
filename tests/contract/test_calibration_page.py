"""The page of the calibration methods says what they say of themselves, and what they answer to odd data."""

from __future__ import annotations

import math

import numpy as np

from requant.calibration.methods import CALIBRATION_METHODS
from requant.errors import RequantError
from tests.core.calibration.methods.observation import find, target
from tests.support.page_table import page_table

DATA: tuple[list[float], ...] = (
    [0.0, 0.0],
    [1.0, 1.0],
    [1.0, 3.0],
    [-3e38, 3e38],
    [1.0, math.nan],
    [math.nan, math.nan],
    [1.0, math.inf],
    [],
)


def answer(method: str, data: list[float]) -> str:
    try:
        found = find(method, [np.array(data, np.float32)], target("i8", CALIBRATION_METHODS[method].scheme))
    except RequantError as error:
        return error.code
    return f"{float(found.minimums[0])!r} to {float(found.maximums[0])!r}"


def test_every_method_is_described() -> None:
    assert page_table("calibration.md", "Methods") == [
        [
            f"`{method.name}`",
            ", ".join(f"`{option}`" for option in sorted(method.options)) or "none",
            f"`{method.scheme}`",
            method.formula,
        ]
        for method in CALIBRATION_METHODS.values()
    ]


def test_odd_data() -> None:
    assert page_table("calibration.md", "Special data") == [
        [f"`{method}`", *(answer(method, data) for data in DATA)] for method in CALIBRATION_METHODS
    ]
