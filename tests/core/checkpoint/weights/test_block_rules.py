"""MX and NVFP4 weights with the scales of another rule: those of block tensors, in the form of compressed-tensors."""

from __future__ import annotations

import numpy as np
import pytest

from requant.checkpoint.profiles import COMPRESSED_TENSORS_CPU, COMPRESSED_TENSORS_CUDA
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.weights.block_rules import FOUR_OVER_SIX_RULES, MX_RULES
from requant.checkpoint.weights.floats import bits_of, values
from requant.checkpoint.weights.packing import unpacked_bytes
from requant.convert.blocks.mx import MxRule, dequantize_mx, quantize_mx
from requant.convert.blocks.nvfp4 import Nvfp4Rule, dequantize_nvfp4, quantize_nvfp4
from requant.errors import ParameterError, UnknownNameError
from tests.support.stored_weights import dequantized, extremes, quantized

CPU = COMPRESSED_TENSORS_CPU.name
FORMATS = {4: "mxfp4_e2m1", 6: "mxfp6_e2m3", 8: "mxfp8_e4m3"}


def weights(dtype: str) -> np.ndarray:
    """Largest magnitudes around every step of every rule: powers of two times what is beside 1, 1.5, 1.75, 1.9375."""
    random = np.random.default_rng(5)
    rows = random.uniform(-1, 1, (40, 64)).astype(np.float32)
    tops = np.ldexp(random.choice([1, 1.5, 1.75, 1.875, 1.9375, 1.9921875], (40, 2)), random.integers(-12, 12, (40, 2)))
    rows *= np.repeat(tops, 32, axis=1).astype(np.float32)
    rows[:, ::32] = tops * random.choice([1 - 2.0**-8, 1, 1 + 2.0**-8], (40, 2))
    rows[7], rows[8, :32], rows[9, 3] = 0, -0.0, -0.0
    return bits_of(rows, dtype)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("bits", [4, 6, 8])
@pytest.mark.parametrize("rule", MX_RULES.values())
def test_mx(rule: MxRule, bits: int, dtype: str) -> None:
    rows = weights(dtype)
    form = scheme_named(f"MXFP{bits}A16:rule={rule}").format(CPU)
    stored = quantized(form, rows, dtype, 8, None)
    expected = quantize_mx(values(rows, dtype), FORMATS[bits], rule)
    codes = stored["weight"] if bits == 8 else unpacked_bytes(stored["weight_packed"], bits)
    assert np.array_equal(codes.reshape(-1), expected.elements)
    assert np.array_equal(stored["weight_scale"].reshape(-1), expected.scales)
    if bits == 8 or rule not in (MxRule.EVEN, MxRule.TOSA):  # which are compressed-tensors' own, of these magnitudes
        plain = quantized(scheme_named(f"MXFP{bits}A16").format(CPU), rows, dtype, 8, None)
        assert not np.array_equal(stored["weight_scale"], plain["weight_scale"])
    # What is stored is the numbers of the blocks.
    described = {tensor.suffix: (tensor.dtype, tensor.shape) for tensor in form.stored(dtype, rows.shape)}
    back = values(dequantized(form, stored, described, "F32", rows.shape, 8), "F32")
    assert np.array_equal(back, values(bits_of(dequantize_mx(expected), "BF16"), "BF16"))


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("rule", FOUR_OVER_SIX_RULES.values())
def test_four_over_six(rule: Nvfp4Rule, dtype: str) -> None:
    rows = weights(dtype)
    form = scheme_named(f"NVFP4A16:rule={rule}").format(CPU)
    largest = np.abs(values(rows, dtype)).max()
    stored = quantized(form, rows, dtype, 8, extremes(form, rows, dtype, 8))
    expected = quantize_nvfp4(values(rows, dtype), rule=rule)
    assert np.array_equal(unpacked_bytes(stored["weight_packed"], 4).reshape(-1), expected.elements)
    assert np.array_equal(stored["weight_scale"].reshape(-1), expected.scales)
    assert stored["weight_global_scale"].reshape(-1)[0] == np.float32(1536) / largest
    plain = quantized(scheme_named("NVFP4A16").format(CPU), rows, dtype, 8, extremes(form, rows, dtype, 8))
    assert not np.array_equal(stored["weight_packed"], plain["weight_packed"])
    described = {tensor.suffix: (tensor.dtype, tensor.shape) for tensor in form.stored(dtype, rows.shape)}
    back = values(dequantized(form, stored, described, "F32", rows.shape, 8), "F32")
    real = dequantize_nvfp4(expected, rule)
    assert np.all(np.abs(back - real) <= np.abs(real) * 2.0**-8)


def test_a_set_of_zeros() -> None:
    form = scheme_named("NVFP4A16:rule=fouroversix").format(CPU)
    rows = np.zeros((8, 32), np.uint16)
    stored = quantized(form, rows, "BF16", 8, extremes(form, rows, "BF16", 8))
    assert stored["weight_global_scale"].reshape(-1)[0] == 1
    assert not stored["weight_packed"].any()


def test_the_scheme_says_its_rule() -> None:
    scheme = scheme_named("mxfp4:rule=rceil")
    assert scheme.name == "MXFP4:rule=rceil"
    assert scheme.description.endswith("; scales by the rule rceil")
    assert scheme.group == scheme_named("MXFP4").group  # loaders need nothing new


def test_refusals() -> None:
    with pytest.raises(ParameterError, match="compressed-tensors-cuda; available: compressed-tensors-cpu"):
        scheme_named("MXFP4:rule=ceil").format(COMPRESSED_TENSORS_CUDA.name)
    for name in ("MXFP4:rule=ceil,mse", "MXFP8:rule=ceil,rule=even"):
        with pytest.raises(ParameterError, match=r"scales are those of one rule, or searched \(mse\); choose one"):
            scheme_named(name)
    for name in (
        "MXFP4:rule=fouroversix",
        "NVFP4A16:rule=ceil",
        "MXFP4:rule=",
        "W4A16:rule=ceil",
        "FP8_BLOCK:rule=ocp",
    ):
        with pytest.raises(UnknownNameError, match="rule"):
            scheme_named(name)
