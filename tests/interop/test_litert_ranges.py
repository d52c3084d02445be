"""Rule `litert_hybrid` against ai-edge-litert's FULLY_CONNECTED of a float input, which finds a range of each row."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.calibration.ranges import RangeOptions, range_rule_named
from requant.mlir import parse_storage

pytest.importorskip("flatbuffers")
pytest.importorskip("ai_edge_litert")

from ai_edge_litert import schema_py_generated as schema

from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import ranges
from tests.interop.litert_models import REFERENCE, Operand, model_of, run

pytestmark = pytest.mark.interop

ROWS, COLUMNS = 4000, 16


def samples(rng: np.random.Generator) -> NDArray[np.float32]:
    """Rows of many sizes: of both signs, of one sign, on steps that make ties, and zeros."""
    x = rng.normal(size=(ROWS, COLUMNS)) * 10.0 ** rng.uniform(-20, 20, (ROWS, 1))
    x[1::4] = np.abs(x[1::4])
    x[2::8] = -np.abs(x[2::8])
    x[3::4] = rng.integers(-300, 300, (ROWS // 4, COLUMNS)) / 2
    x[::97] = 0
    return x.astype(np.float32)


def hybrid_identity(*, symmetric: bool) -> bytes:
    """A model of one FULLY_CONNECTED of a float input with i8 weights: 1 on the diagonal, with scale 1."""
    options = schema.FullyConnectedOptionsT()
    options.asymmetricQuantizeInputs = not symmetric
    weights = Operand("i8", np.ones(1), np.zeros(1, np.int64)), np.eye(COLUMNS, dtype=np.int8)
    return model_of(
        int(schema.BuiltinOperator.FULLY_CONNECTED),
        [((ROWS, COLUMNS), Operand("f32")), ((COLUMNS, COLUMNS), *weights)],
        ((ROWS, COLUMNS), Operand("f32")),
        (int(schema.BuiltinOptions.FullyConnectedOptions), options),
        version=9,
    )


def half_away(values: NDArray[np.float32]) -> NDArray[np.float32]:
    whole = np.trunc(values)
    return whole + np.copysign((np.abs(values - whole) >= 0.5).astype(np.float32), values)


@pytest.mark.parametrize("symmetric", [True, False])
def test_rows(symmetric: bool) -> None:
    """The output is (q - z) * s, in which both parameters show; q is RNA(x * f32(1 / s)) + z, or of f32(127 / max)."""
    x = samples(np.random.default_rng(5))
    theirs = run(hybrid_identity(symmetric=symmetric), x, REFERENCE)
    found = range_rule_named("litert_hybrid").derive_all(
        x.min(axis=1).astype(np.float64),
        x.max(axis=1).astype(np.float64),
        parse_storage("i8"),
        RangeOptions(symmetric=symmetric),
    )
    scales = found.scales.astype(np.float32)[:, None]
    zero_points = found.zero_points.astype(np.float32)[:, None]
    with np.errstate(divide="ignore"):
        inverse = np.float32(127) / np.abs(x).max(axis=1, keepdims=True) if symmetric else np.float32(1) / scales
    zeros = ~x.any(axis=1, keepdims=True)
    steps = half_away(x * np.where(zeros, np.float32(0), inverse))
    stored = np.clip(steps + zero_points, -127 if symmetric else -128, 127)
    ours = (stored - zero_points) * scales
    assert ours.dtype == np.float32
    differing = np.flatnonzero((ours != theirs).any(axis=1))
    sys.stdout.write(f"LiteRT hybrid {'' if symmetric else 'a'}symmetric: {ROWS - differing.size:,} ranges equal\n")
    record(systems.LITERT, [ranges("litert_hybrid")], 2 * ROWS, 2 * differing.size)
    assert not differing.size, [(x[row], ours[row], theirs[row]) for row in differing[:3]]
