"""The oracle of comparisons: histograms and errors in exact integers and fractions, and tensors to compare."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from requant.comparison.comparison import Comparison, ComparisonReport, Histogram, plan_comparison
from requant.mlir import parse_type
from requant.mlir.types import TensorType

LARGEST = (1 << 63) - 1


def tensor(text: str) -> TensorType:
    parsed = parse_type(text)
    assert isinstance(parsed, TensorType)
    return parsed


def plan(element_a: str, element_b: str, *shape: int) -> Comparison:
    dimensions = "".join(f"{size}x" for size in shape)
    return plan_comparison(tensor(f"tensor<{dimensions}{element_a}>"), tensor(f"tensor<{dimensions}{element_b}>"))


def compared(element_a: str, element_b: str, a: Any, b: Any, max_reported: int = 10) -> ComparisonReport:
    planned = plan(element_a, element_b, len(a))
    return planned.run(np.asarray(a, planned.a.dtype), np.asarray(b, planned.b.dtype), max_reported)


def check_histogram(found: Histogram, differences: Sequence[int | None]) -> None:
    """Check that buckets have no gaps, are as narrow as they are said to be, and hold each difference once."""
    counted: Counter[tuple[int, int]] = Counter()
    for difference in differences:
        if difference is not None:
            difference = max(-LARGEST, min(difference, LARGEST))
            low = high = abs(difference)
            if low > 16:
                low = 1 << (low.bit_length() - 1)
                low, high = max(low, 17), 2 * low - 1
            counted[(low, high) if difference >= 0 else (-high, -low)] += 1
    assert found.undefined == sum(difference is None for difference in differences)
    assert {(bucket.low, bucket.high): bucket.count for bucket in found.buckets if bucket.count} == counted
    assert sum(bucket.count for bucket in found.buckets) + found.undefined == len(differences)
    for bucket, following in zip(found.buckets, found.buckets[1:], strict=False):
        assert bucket.low <= bucket.high == following.low - 1
    if found.buckets:
        assert found.buckets[0].count
        assert found.buckets[-1].count


def check_error(report: ComparisonReport, a: Sequence[Any], b: Sequence[Any]) -> None:
    """Check the error against exact sums over the pairs that are finite."""
    pairs: list[tuple[Any, Any]] = [
        (exact(x), exact(y))
        for x, y in zip(a, b, strict=True)
        if isinstance(x, (int, Fraction)) or (math.isfinite(x) and math.isfinite(y))
    ]
    error = report.error
    assert error.left_out == len(a) - len(pairs)
    if not pairs:
        assert (error.max_absolute_error, error.mean_absolute_error, error.sqnr_db) == (None, None, None)
        return
    distances: list[int | Fraction] = [y - x if y > x else x - y for x, y in pairs]
    signal = sum(x * x for x, _ in pairs)
    noise = sum((y - x) ** 2 for x, y in pairs)
    assert error.max_absolute_error == pytest.approx(float(max(distances)), rel=1e-15, abs=0)
    mean = Fraction(sum(distances)) / len(pairs)
    assert error.mean_absolute_error == pytest.approx(float(mean), rel=1e-13, abs=0)
    if not noise or not signal:
        assert error.sqnr_db is None
    else:
        assert error.sqnr_db == pytest.approx(10 * (log10(signal) - log10(noise)), rel=1e-12, abs=1e-11)


def exact(value: Any) -> int | Fraction:
    return value if isinstance(value, int) else Fraction(value)


def log10(value: int | Fraction) -> float:
    """Of a number of any size."""
    return math.log10(value.numerator) - math.log10(value.denominator)
