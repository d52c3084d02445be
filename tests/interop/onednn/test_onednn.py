"""Profile `onednn` and oneDNN's operators against the library, with ONEDNN_MAX_CPU_ISA=AVX2, which they equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import operator, profile
from tests.interop.onednn.cases import BOUNDS, NAMES, ZERO_POINTS, f8_reals, left_out, pairs, reals, scales
from tests.interop.onednn.library import DTYPES, ENVIRONMENT, Onednn, OnednnError
from tests.interop.seed_of_the_day import generator
from tests.support.operator_calls import run, tensor

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not ENVIRONMENT.exists(), reason=f"there is no {ENVIRONMENT}"),
]

Array = NDArray[Any]

INTEGERS = ("i8", "ui8")
FLOATS = ("f8E4M3FN", "f8E5M2")
SIZE = 3001
SCALE_TYPES = ("f32", "f16", "bf16")
SETTING = "AVX2"
ISA = f"x86-64 with {SETTING}"
QUANTIZE = (profile("onednn", "quantize"), operator("onednn.Quantize"))
DEQUANTIZE = (profile("onednn", "dequantize"), operator("onednn.Dequantize"))


@pytest.fixture(scope="module")
def onednn() -> Iterator[Onednn]:
    with Onednn(SETTING) as library:
        yield library


def kept(array: Array) -> Array:
    """bf16 as the patterns that we take and give."""
    return array.view(np.uint16) if array.dtype == DTYPES["bf16"] else array


def quantized(onednn: Onednn, x: Array, target: str, attributes: dict[str, Any]) -> tuple[Array, Array]:
    """Our answer to Quantize, and oneDNN's."""
    ours = run("onednn.Quantize", {"src": tensor("f32", x)}, {"dst_type": target, **attributes})["dst"]
    return ours, onednn.run("Quantize", [("f32", x)], NAMES[target], **attributes)


def dequantized(onednn: Onednn, q: Array, source: str, attributes: dict[str, Any]) -> tuple[Array, Array]:
    """Our answer to Dequantize, and oneDNN's."""
    ours = run("onednn.Dequantize", {"src": tensor(source, q)}, attributes)["dst"]
    return ours, onednn.run("Dequantize", [(NAMES[source], q)], "f32", **attributes)


def attributes_of(scale: float, zero_point: int | None) -> dict[str, Any]:
    given: dict[str, Any] = {"qtype": "per_tensor", "scales": [scale]}
    return given if zero_point is None else {**given, "zps": [zero_point]}


@pytest.mark.parametrize("target", INTEGERS)
def test_quantize(onednn: Onednn, target: str) -> None:
    rng = generator(1)
    comparison = Comparison(f"oneDNN Quantize f32 to {target}", systems.ONEDNN, *QUANTIZE, isa=ISA)
    for scale, zero_point in pairs(rng, 5):
        x = reals(rng, scale, zero_point, BOUNDS[target], SIZE)
        attributes = attributes_of(scale, zero_point)
        comparison.add(attributes, x, *quantized(onednn, x, target, attributes))
    comparison.finish(900_000)


@pytest.mark.parametrize("target", INTEGERS)
def test_dynamic_quantize(onednn: Onednn, target: str) -> None:
    """Scales that are operands are never left out."""
    rng = generator(2)
    comparison = Comparison(
        f"oneDNN DynamicQuantize f32 to {target}", systems.ONEDNN, operator("onednn.DynamicQuantize"), isa=ISA
    )
    for scale, zero_point in pairs(rng, 3):
        x = reals(rng, scale, zero_point, BOUNDS[target], SIZE)
        one = np.array([scale], np.float32)
        ours, theirs = {"src": tensor("f32", x), "scales": tensor("f32", one)}, [("f32", x), ("f32", one)]
        if zero_point is not None:
            point = np.array([zero_point], np.int32)
            ours["zps"], theirs = tensor("i32", point), [*theirs, ("s32", point)]
        found = run("onednn.DynamicQuantize", ours, {"dst_type": target})["dst"]
        comparison.add((scale, zero_point), x, found, onednn.run("DynamicQuantize", theirs, NAMES[target]))
    comparison.finish(500_000)


@pytest.mark.parametrize("source", INTEGERS)
def test_dequantize(onednn: Onednn, source: str) -> None:
    """Every stored number. Differences of f32, also beyond 2^24."""
    rng = generator(3)
    comparison = Comparison(f"oneDNN Dequantize {source} to f32", systems.ONEDNN, *DEQUANTIZE, isa=ISA)
    lowest, highest = BOUNDS[source]
    q = np.resize(np.arange(lowest, highest + 1), 271).astype(DTYPES[NAMES[source]])
    for scale, zero_point in pairs(rng, len(ZERO_POINTS)):
        attributes = attributes_of(scale, zero_point)
        comparison.add(attributes, q, *dequantized(onednn, q, source, attributes))
    comparison.finish(150_000)


@pytest.mark.parametrize("target", FLOATS)
def test_quantize_to_small_floats(onednn: Onednn, target: str) -> None:
    rng = generator(4)
    comparison = Comparison(f"oneDNN Quantize f32 to {target}", systems.ONEDNN, *QUANTIZE, isa=ISA)
    for scale in scales(rng):
        x = f8_reals(rng, target, scale)
        comparison.add(scale, x, *quantized(onednn, x, target, attributes_of(scale, None)))
    comparison.finish(100_000)


@pytest.mark.parametrize("source", FLOATS)
def test_dequantize_small_floats(onednn: Onednn, source: str) -> None:
    """Every code. -0 becomes +0, and so does what underflows."""
    comparison = Comparison(f"oneDNN Dequantize {source} to f32", systems.ONEDNN, *DEQUANTIZE, isa=ISA)
    codes = np.resize(np.arange(256), 259).astype(np.uint8)
    for scale in scales(generator(5)):
        comparison.add(scale, codes, *dequantized(onednn, codes, source, attributes_of(scale, None)))
    comparison.finish(10_000)


SHAPES = (((37, 24), 1), ((24, 37), 0), ((3, 5, 16), 1), ((2, 3, 4, 40), 3))


def channel_scales(rng: np.random.Generator, count: int) -> list[tuple[str, Array]]:
    near = rng.choice(np.array([0.9999995, 1.0, 1.0000005, 0.99999905, 1.00000095], np.float32), count)
    edge = near.copy()
    edge[rng.integers(count)] = np.float32(1.0000011)
    spread = np.exp2(rng.uniform(-40, 40, count)).astype(np.float32)
    return [("all near 1", near), ("one beyond", edge), ("spread", spread)]


@pytest.mark.parametrize("target", [*INTEGERS, *FLOATS])
def test_quantize_per_channel(onednn: Onednn, target: str) -> None:
    """Scales are left out where all of them are near 1, and none where one is not."""
    rng = generator(6)
    comparison = Comparison(f"oneDNN Quantize f32 to {target} per_channel", systems.ONEDNN, *QUANTIZE, isa=ISA)
    for shape, axis in SHAPES * 8:
        for name, each in channel_scales(rng, shape[axis]):
            full = np.broadcast_to(each.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)
            steps = rng.integers(-300, 300, shape) / 2 if target in INTEGERS else rng.normal(0, 200, shape)
            x = (steps * full * rng.choice([1, 1 + 2.0**-21, 1 - 2.0**-21], shape)).astype(np.float32)
            x.reshape(-1)[rng.integers(0, x.size, 6)] = [np.nan, np.inf, -np.inf, -0.0, 1e-40, -1e-40]
            attributes = {"qtype": "per_channel", "axis": axis, "scales": [float(s) for s in each]}
            # Without scales and zps it is a plain conversion, and what NaN gives there depends on the shape.
            plain = np.isnan(x) & (target in INTEGERS and left_out(each))
            both = quantized(onednn, x, target, attributes)
            comparison.add((shape, axis, name), x, *both, {"onednn_plain_conversion_nan": plain})
    comparison.finish(70_000)


@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS])
def test_dequantize_per_channel(onednn: Onednn, source: str) -> None:
    rng = generator(7)
    comparison = Comparison(f"oneDNN Dequantize {source} to f32 per_channel", systems.ONEDNN, *DEQUANTIZE, isa=ISA)
    for shape, axis in SHAPES * 4:
        for name, each in channel_scales(rng, shape[axis]):
            q = rng.integers(0, 256, shape).astype(np.uint8).view(DTYPES[NAMES[source]])
            attributes = {"qtype": "per_channel", "axis": axis, "scales": [float(s) for s in each]}
            comparison.add((shape, axis, name), q, *dequantized(onednn, q, source, attributes))
    comparison.finish(35_000)


def dynamic_scales(rng: np.random.Generator, expressed: str, shape: tuple[int, ...]) -> Array:
    """Scales of all sizes that the type has, subnormal ones and some beside 1 among them; as the library takes them."""
    low, high = {"f32": (-140, 30), "f16": (-24, 8), "bf16": (-133, 30)}[expressed]
    found = np.exp2(rng.uniform(low, high, shape))
    found.reshape(-1)[::3] = rng.choice([1.0, 0.9999995, 1.0000005, 1.0078125, 2.0**low], found.reshape(-1)[::3].size)
    return found.astype(np.float32).astype(DTYPES[expressed])


@pytest.mark.parametrize(
    ("source", "expressed"),
    # There is no primitive from u8 to f16.
    [
        (source, expressed)
        for source in ("i8", "ui8", "i4", "ui4")
        for expressed in SCALE_TYPES
        if (source, expressed) != ("ui8", "f16")
    ],
)
def test_dynamic_dequantize(onednn: Onednn, source: str, expressed: str) -> None:
    """In groups with and without zero points, and per channel. A subnormal becomes a zero on the way to bf16."""
    rng = generator(8)
    comparison = Comparison(
        f"oneDNN DynamicDequantize {source} to {expressed}",
        systems.ONEDNN,
        operator("onednn.DynamicDequantize"),
        isa=ISA,
    )
    lowest, highest = BOUNDS[source]
    for _ in range(12):
        # More than one group of 4 x 8: the library reads a single scale of 16 bits as an f32 (the last test here).
        rows, columns = int(rng.integers(1, 9)) * 4, int(rng.integers(2, 9)) * 8
        q = rng.integers(lowest, highest + 1, (rows, columns)).astype(np.uint8 if source[0] == "u" else np.int8)
        for sizes in ((1, columns), (rows, 1), (1, 8), (4, 8), None):
            shape = (columns,) if sizes is None else (rows // sizes[0], columns // sizes[1])
            given = dynamic_scales(rng, expressed, shape)
            attributes: dict[str, Any] = (
                {"qtype": "per_channel", "axis": 1}
                if sizes is None
                else {"qtype": "per_group", "group_shape": list(sizes)}
            )
            for points in (None, "i32") if sizes is not None else (None,):
                ours = {"src": tensor(source, q), "scales": tensor(expressed, kept(given))}
                theirs = [(NAMES[source], q), (expressed, given)]
                if points is not None:
                    wide = rng.integers(-(1 << 31), 1 << 31, shape)
                    zero = np.where(rng.random(shape) < 0.5, wide, rng.integers(lowest, highest + 1, shape))
                    ours["zps"] = tensor("i32", zero)
                    theirs.append(("s32", zero.astype(np.int32)))
                found = run("onednn.DynamicDequantize", ours, attributes)["dst"]
                dst = onednn.run("DynamicDequantize", theirs, expressed, **attributes)
                comparison.add((sizes, points), q, found, kept(dst))
    comparison.finish(10_000)


ZEROS = [0, 0, 0, 0]
CHANNELS: dict[str, Any] = {"qtype": "per_channel", "axis": 1, "scales": [0.5, 2.0, 1.0, 4.0]}


def test_what_the_library_does_not_do(onednn: Onednn) -> None:
    """Where we follow its documentation instead (docs/operators.md)."""
    x, q = np.ones((2, 4), np.float32), np.ones((2, 4), np.int8)
    with pytest.raises(OnednnError, match="unimplemented"):
        onednn.run("Quantize", [("f32", x)], "s8", **CHANNELS, zps=[3, 0, 0, 0])
    with pytest.raises(OnednnError, match="unimplemented"):
        onednn.run("Dequantize", [("s8", q)], "f32", **CHANNELS, zps=[3, 0, 0, 0])
    with pytest.raises(OnednnError, match="the process ended"):
        onednn.run("Quantize", [("f32", x)], "s8", **{**CHANNELS, "axis": -1})
    assert onednn.run("Quantize", [("f32", x)], "s8", **CHANNELS, zps=ZEROS).tolist() == [[2, 0, 1, 0]] * 2
    with pytest.raises(OnednnError, match="the process ended"):
        onednn.run("DynamicDequantize", [("s4", q), ("f32", np.ones(1, np.float32))], "f32", qtype="per_tensor")
    unsigned: list[tuple[str, Array]] = [("u8", x.astype(np.uint8)), ("f16", np.ones(4, np.float16))]
    with pytest.raises(OnednnError, match="the process ended"):
        onednn.run("DynamicDequantize", unsigned, "f16", qtype="per_channel", axis=1)
    # A scale of 16 bits is read as an f32.
    for expressed in ("f16", "bf16"):
        one = np.array([1.0, 0.0]).astype(DTYPES[expressed])[:1]
        found = onednn.run("DynamicDequantize", [("s8", q), (expressed, one)], expressed, qtype="per_tensor")
        assert (found != 1).all()
