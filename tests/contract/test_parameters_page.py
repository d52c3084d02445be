"""docs/parameters.md says what methods, rules and schemes say of themselves, and what they answer to odd data."""

from __future__ import annotations

import math
import re

import numpy as np

from requant.calibration.methods import CALIBRATION_METHODS
from requant.calibration.ranges import RANGE_RULES, RangeOptions, range_rule_named
from requant.errors import RequantError
from requant.mlir import parse_storage
from requant.schemes import SCHEMES
from tests.core.calibration.methods.observation import find, target
from tests.support.page_table import DOCS, page_table, tables

_PAGE = "parameters.md"
_TEXT = (DOCS / _PAGE).read_text(encoding="utf-8")
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
SMALLEST = 2.0**-149
RANGES = {
    "0 to 0": (0.0, 0.0),
    "0 to 2^-149": (0.0, SMALLEST),
    "-2^-149 to 2^-149": (-SMALLEST, SMALLEST),
    "1 to 1": (1.0, 1.0),
    "1 to 3": (1.0, 3.0),
    "-3e38 to 3e38": (-3e38, 3e38),
}


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def section(title: str) -> str:
    return _TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def found_in(method: str, data: list[float]) -> str:
    try:
        found = find(method, [np.array(data, np.float32)], target("i8", CALIBRATION_METHODS[method].scheme))
    except RequantError as error:
        return error.code
    return f"{float(found.minimums[0])!r} to {float(found.maximums[0])!r}"


def derived_from(rule: str, storage: str, low: float, high: float) -> str:
    """Scale and zero point as the page writes them: f32 scales in their own digits."""
    found = range_rule_named(rule)
    try:
        derived = found.derive_all(np.array([low]), np.array([high]), parse_storage(storage), RangeOptions())
    except RequantError as error:
        return error.code
    scale = float(derived.scales[0])
    shown = str(np.float32(scale)) if found.keeps_f32 and np.float32(scale) == scale else repr(scale)
    return f"{shown}, {derived.zero_points[0]}"


def test_every_calibration_method_is_described() -> None:
    assert page_table(_PAGE, "Calibration methods") == [
        [
            f"`{method.name}`",
            ", ".join(f"`{option}`" for option in sorted(method.options)) or "none",
            method.formula,
        ]
        for method in CALIBRATION_METHODS.values()
    ]


def test_the_default_rules_of_the_methods() -> None:
    (stated,) = re.findall(
        r"same system: `(\w+)`\s+for\s+`(\w+)`\s+and\s+`(\w+)`,\s+else\s+`(\w+)`", section("Calibration methods")
    )
    rule, *exceptions, others = stated
    assert {method.name: method.scheme for method in CALIBRATION_METHODS.values()} == {
        name: rule if name in exceptions else others for name in CALIBRATION_METHODS
    }


def test_odd_data() -> None:
    assert page_table(_PAGE, "Special data") == [
        [f"`{method}`", *(found_in(method, data) for data in DATA)] for method in CALIBRATION_METHODS
    ]


def test_every_range_rule_is_described() -> None:
    table = page_table(_PAGE, "Range rules")
    described = {name: (options, formula) for cell, options, formula in table for name in names(cell)}
    assert list(described) == list(RANGE_RULES)
    for name, rule in RANGE_RULES.items():
        options = ", ".join(f"`{option}`" for option in sorted(rule.options)) or "none"
        assert described[name] == (options, rule.formula), name


def test_odd_ranges() -> None:
    table = page_table(_PAGE, "Special ranges")
    assert [row[0].strip("`") for row in table] == list(RANGE_RULES)
    for rule, storage, *answers in table:
        expected = [derived_from(rule.strip("`"), storage.strip("`"), *ends) for ends in RANGES.values()]
        assert answers == expected, rule


def test_every_scheme_is_described() -> None:
    """How it rounds, too, in a word that the page explains."""
    schemes = section("Requantization schemes")
    before, *families = re.split(r"\n### (.+)\n", schemes)
    roundings, factors = tables(before)
    explained = {name for row in roundings for name in names(row[0])}
    factor_of = {family: factor for factor, cell in factors for family in cell.split(", ")}
    found = {}
    for family, text in zip(families[::2], families[1::2], strict=True):
        derivations, formulas = tables(text)
        derived = {name: rest for cell, *rest in derivations for name in names(cell)}
        for cell, rounding, formula in formulas:
            for name in names(cell):
                found[name] = (*derived.pop(name), rounding.strip("`"), formula, factor_of[family])
        assert not derived
    assert found == {
        scheme.name: (
            scheme.derivation,
            scheme.convention,
            str(scheme.rounding),
            scheme.formula,
            str(scheme.factor),
        )
        for scheme in SCHEMES.values()
    }
    assert {str(scheme.rounding) for scheme in SCHEMES.values()} == explained
