"""The page of the range rules says what the rules say of themselves, and what they answer to odd ranges."""

from __future__ import annotations

import numpy as np

from requant.calibration.ranges import RANGE_RULES, RangeOptions, range_rule_named
from requant.errors import RequantError
from requant.mlir import parse_storage
from tests.support.page_table import page_table

SMALLEST = 2.0**-149
RANGES = {
    "0 to 0": (0.0, 0.0),
    "0 to 2^-149": (0.0, SMALLEST),
    "-2^-149 to 2^-149": (-SMALLEST, SMALLEST),
    "1 to 1": (1.0, 1.0),
    "1 to 3": (1.0, 3.0),
    "-3e38 to 3e38": (-3e38, 3e38),
}


def answer(rule: str, storage: str, low: float, high: float) -> str:
    """Scale and zero point as the page writes them: f32 scales in their own digits."""
    found = range_rule_named(rule)
    options = RangeOptions()
    try:
        derived = found.derive_all(np.array([low]), np.array([high]), parse_storage(storage), options)
    except RequantError as error:
        return error.code
    scale = float(derived.scales[0])
    shown = str(np.float32(scale)) if found.keeps_f32 and np.float32(scale) == scale else repr(scale)
    return f"{shown}, {derived.zero_points[0]}"


def test_every_rule_is_described() -> None:
    described = {name.strip("`"): (options, formula) for name, options, formula in page_table("ranges.md", "Rules")}
    assert list(described) == list(RANGE_RULES)
    for name, rule in RANGE_RULES.items():
        options = ", ".join(f"`{option}`" for option in sorted(rule.options)) or "none"
        assert described[name] == (options, rule.formula), name


def test_odd_ranges() -> None:
    table = page_table("ranges.md", "Special ranges")
    assert [row[0].strip("`") for row in table] == list(RANGE_RULES)
    for rule, storage, *answers in table:
        expected = [answer(rule.strip("`"), storage.strip("`"), *ends) for ends in RANGES.values()]
        assert answers == expected, rule
