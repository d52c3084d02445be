"""docs/casts.md says what each profile does with special values; this reads the table and tries it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from requant.convert.quantize import plan_quantize
from requant.errors import PreconditionError, TypeTextError
from requant.mlir import parse_type
from requant.mlir.types import QuantileType, TensorType, UniformPerAxisType, UniformType
from requant.profiles import PROFILES, Operation
from tests.oracles import profiles as profile_oracle
from tests.oracles.quantiles import Table, quantizer
from tests.oracles.quantization import Stored

PAGE = (Path(__file__).parents[2] / "docs" / "casts.md").read_text().partition("\n## Special values\n")[2]
INPUTS = {
    "NaN": np.nan,
    "+inf": np.inf,
    "-inf": -np.inf,
    "3e9": 3e9,
    "-3e9": -3e9,
    "1e-45": 1e-45,
    "-0": -0.0,
}


def rows() -> Iterator[tuple[str, str, str, int, dict[str, str]]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for line in lines:
        profile, storage, granularity, zero_point, *cells = (cell.strip(" `") for cell in line.strip("|").split("|"))
        assert len(cells) == len(INPUTS)
        yield profile, storage, granularity, int(zero_point), dict(zip(INPUTS, cells, strict=True))


def oracle_of(
    profile: str, output_type: TensorType, zero_point: int, granularity: str
) -> Callable[[float], Stored | None]:
    element = output_type.element
    assert isinstance(element, UniformType | UniformPerAxisType)
    storage = element.storage
    if isinstance(storage.element, QuantileType):
        table = Table(storage.element.table, "f32", storage.element.bounds[0], (storage.minimum, storage.maximum))
        return quantizer(table, "f32", 1.0, zero_point)
    target = profile_oracle.target(f"{'i' if storage.signed else 'u'}{storage.width}", "f32", granularity)
    quantize = profile_oracle.QUANTIZE[profile.replace("_single_rounding", "")]
    return lambda x: quantize(x, 1.0, zero_point, target)


@pytest.mark.parametrize(("profile", "storage", "granularity", "zero_point", "cells"), list(rows()))
def test_row(profile: str, storage: str, granularity: str, zero_point: int, cells: dict[str, str]) -> None:
    per_axis = granularity == "per axis"
    parameters = f":0, {{1.0:{zero_point}}}" if per_axis else f", 1.0:{zero_point}"
    input_type = parse_type("tensor<1xf32>")
    assert isinstance(input_type, TensorType)
    plan = plan_quantize(input_type, parse_type(f"!quant.uniform<{storage}:f32{parameters}>"), profile)
    oracle = oracle_of(profile, plan.output_type, zero_point, granularity.replace(" ", "_"))
    for name, cell in cells.items():
        source, stored = np.array([INPUTS[name]], np.float32), np.empty(1, plan.output_dtype)
        try:
            plan.run(source, stored)
            found = str(stored[0])
        except PreconditionError:
            found = "error"
        expected = oracle(float(source[0]))
        assert found == cell == ("error" if expected is None else str(expected.value)), name


def test_every_system_that_quantizes_has_rows() -> None:
    """A profile that takes all but its rounding from another one does the same with odd inputs."""
    listed = {row[0] for row in rows()}
    assert len(listed) == 13

    def conduct(name: str) -> tuple[object, ...]:
        rule = PROFILES[name].operations[Operation.QUANTIZE]
        return rule.overflow, rule.nan_result, rule.zero_point, rule.steps, rule.storages

    quantizing = {name for name, profile in PROFILES.items() if Operation.QUANTIZE in profile.operations}
    assert {conduct(name) for name in listed} == {conduct(name) for name in quantizing}


@pytest.mark.parametrize("scale", re.findall(r"scale `([^`]+)`", PAGE))
def test_scales_that_are_no_scales_are_refused(scale: str) -> None:
    with pytest.raises(TypeTextError):
        parse_type(f"!quant.uniform<i8:f32, {scale}>")
