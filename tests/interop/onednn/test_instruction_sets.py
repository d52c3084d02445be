"""Where oneDNN's results depend on ONEDNN_MAX_CPU_ISA, and that nothing else does (docs/casts.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import operator
from tests.interop.onednn.cases import BOUNDS, NAMES, f8_reals, left_out, pairs, reals
from tests.interop.onednn.library import DTYPES, EFFECTIVE, ENVIRONMENT, SETTINGS, Onednn
from tests.interop.seed_of_the_day import generator

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not ENVIRONMENT.exists(), reason=f"there is no {ENVIRONMENT}"),
]

Array = NDArray[Any]

SIZE = 1003
KEEP_SUBNORMALS = ("AVX512_CORE", "AVX512_CORE_VNNI")
AVX512 = ("AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16", "AVX512_CORE_FP16")


@pytest.fixture(scope="module")
def avx2() -> Iterator[Onednn]:
    with Onednn("AVX2") as library:
        yield library


@pytest.fixture(scope="module", params=[setting for setting in SETTINGS if setting != "AVX2"])
def other(request: pytest.FixtureRequest) -> Iterator[Onednn]:
    with Onednn(request.param) as library:
        if library.isa != EFFECTIVE[request.param]:
            pytest.skip(f"the processor has no {request.param}")
        yield library


def test_quantize(avx2: Onednn, other: Onednn) -> None:
    """Only NaN: the lowest number with AVX2; with SSE41 127 in s8; 255 in u8 with AVX-512, where neither
    scales nor zps are left and the operator is a plain conversion."""
    rng = generator(11)
    comparison = Comparison(
        f"oneDNN Quantize with {other.setting} beside AVX2",
        systems.ONEDNN,
        operator("onednn.Quantize"),
        isa=f"x86-64 with {other.setting}",
    )
    for target in ("i8", "ui8"):
        for scale, zero_point in pairs(rng, 1):
            x = reals(rng, scale, zero_point, BOUNDS[target], SIZE)
            attributes = {"qtype": "per_tensor", "scales": [scale], "zps": None if zero_point is None else [zero_point]}
            expected = avx2.run("Quantize", [("f32", x)], NAMES[target], **attributes)
            found = other.run("Quantize", [("f32", x)], NAMES[target], **attributes)
            with np.errstate(all="ignore"):
                reciprocal = np.float32(1) / np.float32(scale)
                nan = np.isnan(x * reciprocal)
            left = {}
            if target == "i8" and other.setting == "SSE41":
                assert (found[nan] == 127).all()
                left = {"onednn_nan_by_instruction_set": nan}
            if target == "ui8" and other.setting in AVX512 and zero_point in (None, 0) and left_out(np.array(scale)):
                assert (found[nan] == 255).all()
                left = {"onednn_nan_by_instruction_set": nan}
            comparison.add((target, scale, zero_point), x, expected, found, left)
    comparison.finish(100_000)


def test_small_floats(avx2: Onednn, other: Onednn) -> None:
    """Nothing, as far as AVX512_CORE_BF16."""
    rng = generator(12)
    comparison = Comparison(
        f"oneDNN Quantize to and Dequantize from f8 with {other.setting} beside AVX2",
        systems.ONEDNN,
        operator("onednn.Quantize"),
        isa=f"x86-64 with {other.setting}",
    )
    codes = np.arange(256).astype(np.uint8)
    for name in ("f8E4M3FN", "f8E5M2"):
        for scale in (1.0, 0.0237, 1e-40, -0.5, 3e38):
            attributes = {"qtype": "per_tensor", "scales": [scale]}
            x = f8_reals(rng, name, scale)
            found, expected = (
                library.run("Quantize", [("f32", x)], NAMES[name], **attributes) for library in (other, avx2)
            )
            comparison.add((name, scale), x, expected, found)
            found, expected = (
                library.run("Dequantize", [(NAMES[name], codes)], "f32", **attributes) for library in (other, avx2)
            )
            comparison.add((name, scale), codes, expected, found)
    comparison.finish(20_000)


@pytest.mark.parametrize("expressed", ["f32", "f16", "bf16"])
def test_dynamic_dequantize(avx2: Onednn, other: Onednn, expressed: str) -> None:
    """Only subnormal bf16: kept with AVX512_CORE and AVX512_CORE_VNNI, zeros elsewhere."""
    rng = generator(13)
    comparison = Comparison(
        f"oneDNN DynamicDequantize to {expressed} with {other.setting} beside AVX2",
        systems.ONEDNN,
        operator("onednn.DynamicDequantize"),
        isa=f"x86-64 with {other.setting}",
    )
    low = {"f32": -148, "f16": -24, "bf16": -133}[expressed]
    for _ in range(6):
        q = rng.integers(-128, 128, (64, 64)).astype(np.int8)
        scales = np.exp2(rng.uniform(low, low + 20, (64, 1))).astype(np.float32).astype(DTYPES[expressed])
        inputs = [("s8", q), (expressed, scales)]
        attributes = {"qtype": "per_group", "group_shape": [1, 64]}
        found, expected = (
            library.run("DynamicDequantize", inputs, expressed, **attributes) for library in (other, avx2)
        )
        left = {}
        if expressed == "bf16" and other.setting in KEEP_SUBNORMALS:
            product = q.astype(np.float32) * scales.astype(np.float32)
            subnormal = (product != 0) & (np.abs(product) < np.finfo(np.float32).smallest_normal)
            assert (expected[subnormal].astype(np.float32) == 0).all()
            assert (found[subnormal] == product.astype(DTYPES["bf16"])[subnormal]).all()
            left = {"onednn_subnormals_by_instruction_set": subnormal}
        comparison.add(expressed, q, expected, found, left)
    comparison.finish(20_000)
