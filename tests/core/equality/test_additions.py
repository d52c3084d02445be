"""Additions of two operands: all pairs, and by reduction to what becomes of a sum."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from requant.equality.addition import AdditionMethod, addition, compare_additions
from requant.errors import UnsupportedError
from requant.integer.add import AddPlan
from requant.mlir import parse_type
from tests.oracles import addition as oracle

BYTES = (-128, 127)


def added(profile: str, storage: str = "i8", output: str = "0.7:3") -> AddPlan:
    lhs, rhs, sum_ = (parse_type(f"!quant.uniform<{storage}:f32, {each}>") for each in ("0.5", "0.23", output))
    return addition(lhs, rhs, sum_, profile)


@pytest.mark.exhaustive
def test_all_pairs_of_bytes() -> None:
    profiles = ["litert", "litert_single_rounding", "litert_xnnpack", "tosa", "onnx"]
    scales = (0.5, 0.23, 0.7)
    numbers = range(-128, 128, 3)
    for one, other in pairwise(profiles):
        decided = compare_additions(added(one), added(other))
        assert decided.method is AdditionMethod.PAIRS
        assert decided.inputs == 1 << 16
        expected = {
            (a, b)
            for a, b in product(numbers, numbers)
            if len({oracle.added(each, (a, b), (0, 0), scales, 3, BYTES) for each in (one, other)}) > 1
        }
        assert decided.differing >= len(expected) > 0
        for each in decided.sample:
            results = [oracle.added(name, (each.lhs, each.rhs), (0, 0), scales, 3, BYTES) for name in (one, other)]
            assert results == [each.first, each.second]
    assert compare_additions(added("litert"), added("litert")).equal


@pytest.mark.parametrize("storage", ["i12", pytest.param("i16", marks=pytest.mark.exhaustive)])
def test_more_pairs_are_reduced_to_sums(storage: str) -> None:
    first, second = added("litert", storage, "0.7"), added("litert", storage, "0.7000001")
    decided = compare_additions(first, second)
    assert decided.method is AdditionMethod.REDUCTION
    half = 1 << (int(storage[1:]) - 1)
    rows = np.arange(-half, half, dtype=np.int16)
    assert decided.inputs == rows.size**2
    differing = 0
    for a in rows.tolist():
        results = []
        for plan in (first, second):
            target = np.empty(rows.size, plan.output_dtype)
            plan.arithmetic.step(np.full(rows.size, a, np.int16), rows, target, 0, plan.arithmetic.new_counts())
            results.append(target)
        differing += int(np.count_nonzero(results[0] != results[1]))
    assert decided.differing == differing > 0
    for each in decided.sample:
        outcomes = []
        for plan in (first, second):
            target = np.empty(1, plan.output_dtype)
            lhs, rhs = (np.array([number], np.int16) for number in (each.lhs, each.rhs))
            plan.arithmetic.step(lhs, rhs, target, 0, plan.arithmetic.new_counts())
            outcomes.append(int(target[0]))
        assert outcomes == [each.first, each.second]
        assert each.first != each.second


def test_equal_additions_of_16_bits_are_decided_by_thresholds_of_sums() -> None:
    decided = compare_additions(added("litert", "i16", "0.7"), added("litert", "i16", "0.7"))
    assert decided.equal
    assert [decided.method, decided.inputs] == [AdditionMethod.REDUCTION, 1 << 32]


def test_what_cannot_be_reduced_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="scale rhs differently"):
        compare_additions(added("litert", "i16", "0.7"), added("tosa", "i16", "0.7"))
    with pytest.raises(UnsupportedError, match="no requantization of a sum"):
        compare_additions(added("stablehlo", "i16", "0.7"), added("litert", "i16", "0.7"))
    with pytest.raises(UnsupportedError, match="lhs is i8 of the first addition, and u8 of the second"):
        compare_additions(added("litert"), added("litert", "u8"))
