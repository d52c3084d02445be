"""CAST_TO_BLOCK_SCALED and CAST_FROM_BLOCK_SCALED against TOSA's reference model, every format, f32 and bf16.

A deliberate difference is counted apart: quotients of mxint8 below 2^-48 that the model rounds to 1/64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.blocks import mx
from requant.convert.small_floats import decode_table
from requant.errors import RequantError
from requant.operators.tosa.block_scaled import MX_FORMATS
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import blocks as block_format
from tests.interop.conformance.subject import operator
from tests.interop.seed_of_the_day import generator
from tests.support.operator_calls import run, tensor

pytest.importorskip("tosa_serializer")
pytest.importorskip("tosa_reference_model")

from tests.interop.blocks.block_cases import finite_blocks
from tests.interop.tosa_block_casts import cast_from_blocks, cast_to_blocks, takes

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("no_debugger")]

Array = NDArray[Any]
ROWS = 4000


def blocks(seed: int) -> Array:
    """Blocks of every magnitude, of ties, of values about the largest elements, of subnormals, and not finite ones."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(-149, 127, (ROWS, 1)).astype(np.float64)
    usual = rng.standard_normal((ROWS, 32)) * 2.0**exponents
    ties = rng.integers(-128, 129, (ROWS, 32)) / 16 * 2.0 ** rng.integers(-120, 110, (ROWS, 1))
    edges = rng.choice([448, 464, 57344, 61440, 7.5, 7.75, 28, 30, 6, 7, 127 / 64, 127.5 / 64, 1, 2], (ROWS, 1))
    about = edges * (1 + rng.integers(-2, 3, (ROWS, 32)) * 2.0**-23) * 2.0 ** rng.integers(-20, 20, (ROWS, 1))
    with np.errstate(over="ignore", under="ignore"):
        found = np.concatenate([usual, ties, about]).astype(np.float32)
    odd = rng.choice(np.array([np.nan, np.inf, -np.inf, 0, -0.0], np.float32), (ROWS // 10, 32))
    bits = rng.integers(0, 1 << 32, (ROWS // 10, 32), dtype=np.uint32).view(np.float32)
    return np.concatenate([found, odd, bits])


def numbers(element: str) -> Array:
    """What each code stands for, f32."""
    if element == "i8":
        return np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32) / 64
    return decode_table(element).astype(np.float32)


@pytest.mark.parametrize("real", ["f32", "bf16"])
@pytest.mark.parametrize("element", MX_FORMATS)
def test_elements_and_scales(element: str, real: str) -> None:
    comparison = Comparison(
        f"TOSA reference model CAST_TO_BLOCK_SCALED {real} to {element}",
        systems.TOSA,
        operator("tosa.CAST_TO_BLOCK_SCALED"),
    )
    x = blocks(list(MX_FORMATS).index(element))
    source = x if real == "f32" else (x.view(np.uint32) >> 16).astype(np.uint16)
    if real == "bf16":
        x = (source.astype(np.uint32) << 16).view(np.float32)
    ours = run("tosa.CAST_TO_BLOCK_SCALED", {"input_data": tensor(real, source)}, {"output_data_type": element})
    elements, scales = cast_to_blocks(source, real, element)
    our_scales = np.repeat(decode_table("f8E8M0FNU").astype(np.float32)[ours["output_scale"]], 32, axis=1)
    comparison.add(f"scales of {element}", x, our_scales, scales)
    our_elements = numbers(element)[ours["output_data"].view(np.uint8)]
    # The codes in a block that is NaN are in tests/vectors/mx_codes.json.
    alive = np.isfinite(scales)
    if element == "i8":
        # An integer has no zero with a sign.
        elements = elements + np.float32(0)
    with np.errstate(all="ignore"):
        tiny = (element == "i8") & (np.abs(x / scales) < 2.0**-48)
    comparison.add(
        element, x, our_elements, elements, except_where={"tosa_nan_block": ~alive, "tosa_tiny_quotient": tiny}
    )
    comparison.finish(x.size)


@pytest.mark.parametrize("real", ["f32", "bf16"])
@pytest.mark.parametrize("element", MX_FORMATS)
def test_every_code_at_every_scale(element: str, real: str) -> None:
    comparison = Comparison(
        f"TOSA reference model CAST_FROM_BLOCK_SCALED {element} to {real}",
        systems.TOSA,
        operator("tosa.CAST_FROM_BLOCK_SCALED"),
    )
    values = numbers(element)
    codes = np.flatnonzero(np.isfinite(values)).astype(np.uint8)
    codes = np.resize(codes, -(-codes.size // 32) * 32)
    exponents = np.arange(255, dtype=np.uint8)
    data = np.tile(codes, (255, 1))
    scales = np.tile(exponents[:, None], (1, codes.size // 32))
    inputs = {
        "input_data": tensor(element, data.view(np.int8) if element == "i8" else data),
        "input_scale": tensor("f8E8M0FNU", scales),
    }
    (ours,) = run("tosa.CAST_FROM_BLOCK_SCALED", inputs, {"output_data_type": real}).values()
    given = data.view(np.int8) if element == "i8" else values[data]
    theirs = cast_from_blocks(given, decode_table("f8E8M0FNU")[scales], element, real)
    comparison.add(element, data, ours, theirs.reshape(ours.shape))
    comparison.finish(data.size)


@pytest.mark.parametrize("rule", [mx.MxRule.OCP, mx.MxRule.TOSA])
def test_mxint8(rule: mx.MxRule) -> None:
    """The block format. The OCP formula has the model's scale where no element rounds beyond 127, and only there."""
    x = finite_blocks(generator(153), mx.BLOCK)
    # Ties of elements, and magnitudes about the largest, 127/64, at every scale.
    rng = generator(154)
    ties = (rng.integers(-128, 128, (2000, mx.BLOCK)) + 0.5) / 64 * 2.0 ** rng.integers(-120, 120, (2000, 1))
    x = np.concatenate([x, ties.astype(np.float32)])
    ours = mx.quantize_mx(x, "mxint8", rule)
    elements, scales = cast_to_blocks(x, "f32", "i8")
    our_scales = np.repeat(decode_table("f8E8M0FNU").astype(np.float32)[ours.scales], mx.BLOCK).reshape(x.shape)
    with np.errstate(over="ignore"):
        amax = np.abs(x).max(axis=1)
        mantissas = np.where(amax >= 2.0**-126, np.frexp(amax)[0] * 2, amax * 2.0**127)
        doubled = np.rint(mantissas * 64) > 127
        same = ~doubled if rule is mx.MxRule.OCP else np.ones_like(doubled)
        tiny = np.abs(x / scales) < 2.0**-48
    assert doubled.sum() > 100
    comparison = Comparison(f"TOSA reference model mxint8 quantize, {rule}", systems.TOSA,
                            block_format("mxint8", "quantize"))  # fmt: skip
    comparison.add("scales", x[same], our_scales[same], scales[same])
    found = numbers("i8")[ours.elements].reshape(x.shape)
    comparison.add(
        "elements", x[same], found[same], (elements + np.float32(0))[same], {"tosa_tiny_quotient": tiny[same]}
    )
    comparison.finish(400_000)


def test_mxint8_back() -> None:
    """Every element with every scale, NaN among them."""
    elements = np.resize(np.arange(256, dtype=np.uint8), (256, 256))
    scales = np.repeat(np.arange(256, dtype=np.uint8), 8)
    ours = mx.dequantize_mx(mx.MxTensor("mxint8", elements.shape, scales, elements.reshape(-1)))
    given = decode_table("f8E8M0FNU")[scales].reshape(256, 8)
    theirs = cast_from_blocks(elements.view(np.int8), given, "i8", "f32")
    comparison = Comparison("TOSA reference model mxint8 dequantize", systems.TOSA,
                            block_format("mxint8", "dequantize"))  # fmt: skip
    comparison.add("mxint8", elements, ours, theirs.reshape(ours.shape))
    comparison.finish(60_000)


@pytest.mark.parametrize("shape", [(64,), (2, 3, 32), (1, 1, 1, 1, 1, 32), (2, 48), (2, 33), (2, 0), (0, 32)])
@pytest.mark.parametrize("real", ["f32", "bf16", "f16"])
def test_it_refuses_what_the_model_refuses(
    shape: tuple[int, ...], real: str, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs = takes(shape, real, "f8E4M3FN")
    source = tensor(real, np.zeros(shape))
    try:
        run("tosa.CAST_TO_BLOCK_SCALED", {"input_data": source}, {"output_data_type": "f8E4M3FN"})
        ours = True
    except RequantError:
        ours = False
    capfd.readouterr()
    assert ours == theirs == (real != "f16" and 0 not in shape and shape[-1] % 32 == 0)
