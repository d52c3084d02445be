"""Every scheme over HTTP with 16 million accumulators and a multiplier for each channel, against exact integers."""

from __future__ import annotations

import io
import sys

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from requant.schemes import SCHEMES
from tests.oracles import schemes as scheme_oracle
from tests.support.near_ties import INT32, near_ties

pytestmark = pytest.mark.interop

I8 = (-128, 127)
ZERO_POINT = -3
CHANNELS = 250
ROWS = 64_000
MULTIPLIERS = 6
DISTINCT = 400  # rows that are computed by the oracle: 100,000 accumulators
Pairs = list[scheme_oracle.Derived]


def pairs_of(scheme: str, rng: np.random.Generator, count: int) -> Pairs:
    """Multipliers and shifts: 3 in 5 of a power of two or 3 or 5 times such, which have exact ties, and any others."""
    simple = 3 * count // 5
    numerators, exponents = rng.choice([1, 3, 5], simple), rng.integers(4, 15, simple)
    if scheme == "xnnpack_cvt8":
        # Its multipliers have 8 bits after the point.
        exponents = rng.integers(0, 6, simple)
    factors = [
        *(numerators * 2.0**-exponents).tolist(),
        *np.exp(rng.uniform(np.log(2.0 ** (-7 if scheme == "xnnpack_cvt8" else -14)), 0.0, count - simple)).tolist(),
    ]
    pairs = [pair for factor in factors if (pair := scheme_oracle.derive(scheme, factor)) is not None]
    assert len(pairs) == count
    return pairs


def bounds_of(scheme: str) -> tuple[int, int]:
    """What each of these multipliers takes."""
    if scheme == "xnnpack_cvt8":
        return -255, 255
    if scheme in ("tosa", "tosa_double_round", "tosa_inexact_round", "cmsis_nn_int64"):
        return -(2**30), 2**30 - 1
    return INT32


def accumulators(rng: np.random.Generator, scheme: str, pairs: Pairs) -> NDArray[np.int32]:
    """The distinct rows, at and beside ties."""
    columns = []
    for pair in pairs:
        most = min(300, (bounds_of(scheme)[1] * pair.multiplier >> pair.right) - 1)
        columns.append(near_ties(rng, pair.multiplier, pair.right, DISTINCT, bounds_of(scheme), max(most, 1)))
    return np.array(columns, np.int32).T.copy()


def exact_ties(rows: NDArray[np.int32], pairs: Pairs) -> int:
    """How many accumulators lie exactly between two results."""
    found = 0
    for column, pair in zip(rows.T.tolist(), pairs, strict=True):
        half, mask = (1 << pair.right) >> 1, (1 << pair.right) - 1
        found += sum((v * pair.multiplier) & mask == half for v in column) if half else 0
    return found


def requantized(client: httpx.Client, scheme: str, pairs: Pairs, rows: NDArray[np.signedinteger]) -> NDArray[np.int8]:
    """What the service makes of rows with a multiplier for each column."""
    file = io.BytesIO()
    np.save(file, rows)
    reply = client.post(
        "/v1/npy/requantize",
        params={
            "output_type": f"!quant.uniform<i8:f32, 1.0:{ZERO_POINT}>",
            "scheme": scheme,
            "axis": 1,
            "multipliers": ",".join(f"{pair.multiplier}:{pair.shift}" for pair in pairs),
        },
        content=file.getvalue(),
    )
    assert reply.status_code == 200, reply.text
    found: NDArray[np.int8] = np.load(io.BytesIO(reply.content))
    assert found.dtype == np.int8
    return found


def expected_column(scheme: str, values: list[int], pair: scheme_oracle.Derived) -> list[int | None]:
    return [scheme_oracle.requantized(scheme, v, 0, pair.multiplier, pair.shift, ZERO_POINT, I8) for v in values]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_per_channel_accumulators(client: httpx.Client, scheme: str) -> None:
    """The rows repeat in a random order, so that all 16 million results are compared with those of 100,000."""
    rng = np.random.default_rng(16)
    pairs = pairs_of(scheme, rng, CHANNELS)
    rows = accumulators(rng, scheme, pairs)
    order = rng.integers(0, DISTINCT, ROWS)
    found = requantized(client, scheme, pairs, rows[order])
    columns = [expected_column(scheme, column, pair) for column, pair in zip(rows.T.tolist(), pairs, strict=True)]
    expected = np.array(columns, np.int8).T
    ties = exact_ties(rows, pairs)
    sys.stdout.write(f"{scheme}: {found.size:,} accumulators of {rows.size:,} values, {ties:,} of them exact ties\n")
    assert ties >= 10_000
    assert found.shape == (ROWS, CHANNELS)
    assert np.array_equal(found, expected[order])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_int16(client: httpx.Client, scheme: str) -> None:
    """All 2^16 inputs of i16 to i8 by each of a set of multipliers, one of which is each channel's."""
    rng = np.random.default_rng(17)
    pairs = pairs_of(scheme, rng, MULTIPLIERS)
    lowest, highest = max(bounds_of(scheme)[0], -(2**15)), min(bounds_of(scheme)[1], 2**15 - 1)
    values = np.arange(lowest, highest + 1, dtype=np.int16)
    found = requantized(client, scheme, pairs, np.repeat(values, MULTIPLIERS).reshape(-1, MULTIPLIERS))
    for column, pair in zip(found.T.tolist(), pairs, strict=True):
        assert column == expected_column(scheme, values.tolist(), pair), pair
    sys.stdout.write(f"{scheme}: {found.size:,} results of i16 to i8 equal\n")
