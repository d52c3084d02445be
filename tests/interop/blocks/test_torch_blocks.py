"""Blocks of MX and NVFP4 against torchao: scales and elements, and what those stand for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from requant.convert.blocks import mx, nvfp4
from requant.convert.small_floats import SMALL_FLOATS
from tests.interop.blocks.block_cases import finite_blocks
from tests.interop.comparison import Comparison
from tests.interop.conformance import subject, systems
from tests.interop.seed_of_the_day import generator

torch: Any = pytest.importorskip("torch")
pytest.importorskip("torchao", reason="torchao is in the environment of the checkpoints only")

from tests.interop.blocks.torchao_formats import MX_ELEMENTS, formats, in_bytes, unpacked  # noqa: E402

pytestmark = pytest.mark.interop


def beside_steps(name: str, rng: np.random.Generator) -> Any:
    """9,000 blocks for each step of an exponent, whose largest magnitude is within some ulps of it, or infinite."""
    element = SMALL_FLOATS[mx.mx_element(name) or ""]
    steps = np.array([1.0, element.largest, 2 - 2.0 ** -(element.mantissa_bits + 1)])
    edges = (steps * np.exp2(rng.integers(-130, 100, (9000, 1)))).astype(np.float32).ravel()
    bits = edges.view(np.int32) + rng.integers(-3, 4, edges.size, dtype=np.int32)
    largest = np.concatenate([np.abs(np.maximum(bits, 0).view(np.float32)), [np.float32(np.inf)]])
    blocks = rng.uniform(-1, 1, (largest.size, mx.BLOCK)).astype(np.float32)
    blocks *= np.minimum(largest, np.finfo(np.float32).max)[:, None]
    blocks[np.arange(largest.size), rng.integers(0, mx.BLOCK, largest.size)] = largest
    return blocks


@pytest.mark.parametrize("rule", [rule for rule in mx.MxRule if rule is not mx.MxRule.TOSA])
@pytest.mark.parametrize("name", MX_ELEMENTS)
def test_mx_quantize(name: str, rule: mx.MxRule) -> None:
    """Each ScaleCalculationMode; the rule of the OCP formula is FLOOR but for the smallest scale."""
    beside = beside_steps(name, generator(152))
    if rule is mx.MxRule.OCP:
        beside = beside[np.isfinite(beside).all(1)]
    values = np.concatenate([finite_blocks(generator(151), mx.BLOCK), beside])
    ours = mx.quantize_mx(values, name, rule)
    modes = import_module("torchao.prototype.mx_formats.config").ScaleCalculationMode
    mode = modes["FLOOR" if rule is mx.MxRule.OCP else rule.name]
    scales, elements = formats("mx_tensor").to_mx(torch.from_numpy(values), MX_ELEMENTS[name], mx.BLOCK, mode)
    theirs = unpacked(elements) if name == "mxfp4_e2m1" else in_bytes(elements)
    comparison = Comparison(f"torchao {name} {rule} quantize", systems.TORCHAO, subject.blocks(name, "quantize"))
    divergences = {}
    if rule is mx.MxRule.OCP:
        divergences = {"torchao_mx_smallest_scale": ours.scales == 0}
    elif rule is mx.MxRule.RCEIL:
        with np.errstate(under="ignore", divide="ignore"):
            quotients = np.abs(values).max(1) / np.float32(SMALL_FLOATS[mx.mx_element(name) or ""].largest)
            logarithm = np.log2(quotients.astype(np.float64)).astype(np.float32)
        is_power = quotients == np.exp2(logarithm.astype(np.float64))
        divergences = {"torchao_rceil_logarithm": (logarithm == np.floor(logarithm)) & ~is_power}
    of_scales = {} if rule is mx.MxRule.OCP else divergences
    comparison.add("scales", ours.scales, ours.scales, in_bytes(scales).ravel(), of_scales)
    of_elements = {reason: np.repeat(mask, mx.BLOCK) for reason, mask in divergences.items()}
    comparison.add("elements", ours.elements, ours.elements, theirs.ravel(), of_elements)
    comparison.finish(1_000_000)


@pytest.mark.parametrize("name", MX_ELEMENTS)
def test_mx_dequantize(name: str) -> None:
    """Every element with every scale."""
    width = SMALL_FLOATS[mx.mx_element(name) or ""].width
    elements = np.resize(np.arange(1 << width, dtype=np.uint8), (256, 256))
    scales = np.repeat(np.arange(256, dtype=np.uint8), 8)
    ours = mx.dequantize_mx(mx.MxTensor(name, elements.shape, scales, elements.reshape(-1)))
    raw = torch.from_numpy(elements)
    given = raw.view(MX_ELEMENTS[name]) if name.startswith("mxfp8") else raw
    if name == "mxfp4_e2m1":
        given = formats("kernels").pack_uint4(raw)
    theirs = formats("mx_tensor").to_dtype(
        given, torch.from_numpy(scales.reshape(256, 8)), MX_ELEMENTS[name], mx.BLOCK, torch.float32
    )
    comparison = Comparison(f"torchao {name} dequantize", systems.TORCHAO, subject.blocks(name, "dequantize"))
    comparison.add(name, elements, ours, theirs.numpy())
    comparison.finish(60_000)


@pytest.mark.parametrize("two_levels", [False, True])
def test_nvfp4(two_levels: bool) -> None:
    """torchao multiplies by a reciprocal, whose rounding shows beside ties of the elements."""
    values = finite_blocks(generator(152), nvfp4.BLOCK, -20, 12)
    library = formats("nvfp4_tensor")
    given: Any = nvfp4.GlobalScale.ABSENT
    scale = None
    if two_levels:
        scale = library.per_tensor_amax_to_scale(torch.tensor(np.abs(values).max()))
        given = nvfp4.GlobalScale.DERIVED
    ours = nvfp4.quantize_nvfp4(values, given)
    scales, packed = library.nvfp4_quantize(torch.from_numpy(values), nvfp4.BLOCK, scale)
    comparison = Comparison("torchao nvfp4 quantize", systems.TORCHAO, subject.blocks("nvfp4", "quantize"))
    if scale is not None:
        derived, theirs = np.array([ours.global_scale], np.float32), np.array([float(scale)], np.float32)
        comparison.add("global scale", derived, derived, theirs)
    comparison.add("scales", ours.scales, ours.scales, in_bytes(scales).ravel())
    combined = scales.to(torch.float32).numpy().reshape(-1, 1) * np.float32(1 if scale is None else float(scale))
    inverse = np.float32(1) / (np.float32(1) if scale is None else np.float32(scale))
    by_reciprocal = values * (inverse / scales.to(torch.float32).numpy().reshape(-1, 1))
    mask = (values / combined != by_reciprocal).ravel()
    found = unpacked(packed).ravel()
    comparison.add("elements", values, ours.elements.reshape(values.shape), found.reshape(values.shape),
                   {"torchao_nvfp4_reciprocal": mask})  # fmt: skip
    comparison.finish(100_000)
    back = library.NVFP4Tensor(packed, scales, nvfp4.BLOCK, torch.float32, scale).dequantize(torch.float32).numpy()
    same = nvfp4.Nvfp4Tensor(values.shape, ours.global_scale, ours.scales, found)
    comparison = Comparison("torchao nvfp4 dequantize", systems.TORCHAO, subject.blocks("nvfp4", "dequantize"))
    comparison.add("values", values, nvfp4.dequantize_nvfp4(same), back)
    comparison.finish(100_000)
