"""Additions of two operands: all pairs, and by reduction to what becomes of a sum."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from requant.equivalence.addition import AdditionMethod, addition, compare_additions
from requant.errors import UnsupportedError
from requant.integer.add import AddPlan
from requant.mlir import parse_type
from tests.oracles import addition as oracle

BYTES = (-128, 127)


def added(profile: str, storage: str = "i8", output: str = "0.7:3") -> AddPlan:
    lhs, rhs, sum_ = (parse_type(f"!quant.uniform<{storage}:f32, {each}>") for each in ("0.5", "0.23", output))
    return addition(lhs, rhs, sum_, profile)


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


def test_16_bits_are_reduced_to_sums() -> None:
    first, second = added("litert", "i16", "0.7"), added("litert", "i16", "0.7000001")
    decided = compare_additions(first, second)
    assert decided.method is AdditionMethod.REDUCTION
    assert decided.inputs == 1 << 32
    assert compare_additions(first, first).equal
    rows = np.arange(-(1 << 15), 1 << 15, dtype=np.int16)
    differing, counted = 0, 0
    for a in range(-(1 << 15), 1 << 15, 1001):
        results = []
        for plan in (first, second):
            target = np.empty(rows.size, plan.output_dtype)
            plan.arithmetic.step(np.full(rows.size, a, np.int16), rows, target, 0, plan.arithmetic.new_counts())
            results.append(target)
        differing += int(np.count_nonzero(results[0] != results[1]))
        counted += rows.size
    # Every thousandth row has about a thousandth of the differences.
    assert abs(decided.differing / decided.inputs - differing / counted) < 0.02 * differing / counted
    assert differing > 0
    for each in decided.sample:
        outcomes = []
        for plan in (first, second):
            target = np.empty(1, plan.output_dtype)
            lhs, rhs = (np.array([number], np.int16) for number in (each.lhs, each.rhs))
            plan.arithmetic.step(lhs, rhs, target, 0, plan.arithmetic.new_counts())
            outcomes.append(int(target[0]))
        assert outcomes == [each.first, each.second]


def test_what_cannot_be_reduced_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="scale rhs differently"):
        compare_additions(added("litert", "i16", "0.7"), added("tosa", "i16", "0.7"))
    with pytest.raises(UnsupportedError, match="no requantization of a sum"):
        compare_additions(added("stablehlo", "i16", "0.7"), added("litert", "i16", "0.7"))
    with pytest.raises(UnsupportedError, match="lhs is i8 of the first addition, and u8 of the second"):
        compare_additions(added("litert"), added("litert", "u8"))
