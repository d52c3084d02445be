"""The real systems' vectors through core. `tests/faces` sends the same cases over HTTP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.convert.requantize import plan_requantize
from requant.errors import RequantError
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import Plan
from requant.profiles import Rounding
from requant.schemes import Multiplier
from requant.schemes.multipliers import derive_from_scales, derive_multiplier
from tests.support.cases import by_file, check_each
from tests.vector_cases import Conversion, Derivation, conversions, derivations

CONVERSIONS = by_file(conversions())
DERIVATIONS = by_file(derivations())


def plan_of(case: Conversion) -> Plan:
    """Plan a case as the service does."""
    input_type, output_type = parse_type(case.input_type), parse_type(case.output_type)
    assert isinstance(input_type, TensorType)
    if case.operation == "quantize":
        named: dict[str, Any] = {**case.options}
        if "rounding" in named:
            named["rounding"] = Rounding(named["rounding"])
        return plan_quantize(input_type, output_type, case.profile, **named)
    if case.operation == "dequantize":
        return plan_dequantize(input_type, output_type, case.profile)
    multipliers = [Multiplier(*pair) for pair in case.multipliers] or None
    return plan_requantize(input_type, output_type, case.profile, multipliers, **case.options)


def run(case: Conversion) -> np.ndarray:
    plan = plan_of(case)
    target = np.empty(plan.elements, plan.output_dtype)
    plan.run(np.ascontiguousarray(case.values), target)
    return target


@pytest.mark.sample(1)
@pytest.mark.parametrize("file", CONVERSIONS)
def test_conversions(file: str) -> None:
    def check(case: Conversion) -> None:
        if case.error is not None:
            with pytest.raises(RequantError) as caught:
                run(case)
            assert caught.value.code == case.error
            return
        assert case.expected is not None
        assert run(case).tobytes() == case.expected.tobytes()

    check_each(CONVERSIONS[file], check)


@pytest.mark.parametrize("file", DERIVATIONS)
def test_derivations(file: str) -> None:
    def check(case: Derivation) -> None:
        if case.error is not None:
            with pytest.raises(RequantError) as caught:
                derive_multiplier(case.factor, case.scheme)
            assert caught.value.code == case.error
            return
        if case.scales is None:
            derived = derive_multiplier(case.factor, case.scheme)
        else:
            scale_in, other, scale_out = case.scales
            derived = derive_from_scales(scale_in, other or None, scale_out, case.scheme)
        assert (derived.multiplier, derived.shift) == (case.multiplier, case.shift)

    check_each(DERIVATIONS[file], check)
