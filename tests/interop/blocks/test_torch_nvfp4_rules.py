"""NVFP4 by the rules of libraries, beside them: the global scale, the scales, the elements, and what those stand for.

TransformerEngine runs on GPUs only; its rule is compared with an oracle (tests/core/convert/blocks).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from requant.convert.blocks.nvfp4 import BLOCK, GlobalScale, Nvfp4Rule, Nvfp4Tensor, dequantize_nvfp4, quantize_nvfp4
from tests.interop.comparison import Comparison
from tests.interop.conformance import subject, systems
from tests.interop.seed_of_the_day import generator
from tests.support.nvfp4_blocks import Array, hostile_blocks, undecided_blocks

torch: Any = pytest.importorskip("torch")
pytest.importorskip("torchao", reason="the libraries of NVFP4 are in the environment of the checkpoints only")

from tests.interop.blocks.torchao_formats import formats, in_bytes  # noqa: E402

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

FOUR_OVER_SIX = {
    Nvfp4Rule.FOUROVERSIX: "mse", Nvfp4Rule.FOUROVERSIX_MAE: "mae", Nvfp4Rule.FOUROVERSIX_ABS_MAX: "abs_max"
}  # fmt: skip
SYSTEMS = {
    Nvfp4Rule.TORCHAO: systems.TORCHAO,
    Nvfp4Rule.COMPRESSED_TENSORS: systems.COMPRESSED_TENSORS,
    Nvfp4Rule.MODEL_OPTIMIZER: systems.MODEL_OPTIMIZER,
    **dict.fromkeys(FOUR_OVER_SIX, systems.FOUROVERSIX),
}
LARGEST = (1.0, 3.7, 0.012345, 2688.0, 1e30, 3.4e38, 1e-30, 2.0**-100 / 3)
"""Down to where a global scale has a reciprocal."""
TOGETHER = 9000
"""Blocks of each of these."""


class Torchao:
    """Scales of two levels; without a global scale, of one."""

    def quantize(self, values: Any, given: float | None, levels: int = 2) -> tuple[float | None, Any, Any]:
        library = formats("nvfp4_tensor")
        scale = None
        if levels == 2:
            scale = torch.tensor(given) if given else library.per_tensor_amax_to_scale(values.abs().max())
        scales, packed = library.nvfp4_quantize(values, BLOCK, scale)
        return None if scale is None else float(scale), scales, packed

    def dequantize(self, packed: Any, scales: Any, whole: float | None) -> Any:
        scale = None if whole is None else torch.tensor(whole)
        return formats("nvfp4_tensor").NVFP4Tensor(packed, scales, BLOCK, torch.float32, scale).dequantize()


class CompressedTensors:
    def quantize(self, values: Any, given: float | None) -> tuple[float, Any, Any]:
        helpers = import_module("compressed_tensors.quantization.utils.helpers")
        args = import_module("compressed_tensors.quantization.quant_scheme").NVFP4A16["weights"]
        whole = torch.tensor([given]) if given else helpers.generate_gparam(values.min(), values.max())
        groups = values.reshape(len(values), -1, BLOCK)
        scales, _ = helpers.calculate_qparams(groups.amin(-1), groups.amax(-1), args, whole)
        packer = import_module("compressed_tensors.compressors.nvfp4.helpers")
        packed = packer.quantize_and_pack_fp4(values, scales, whole)
        return float(whole), scales.to(torch.float8_e4m3fn), packed

    def dequantize(self, packed: Any, scales: Any, whole: float) -> Any:
        packer = import_module("compressed_tensors.compressors.nvfp4.helpers")
        codes = packer.unpack_fp4_from_uint8(packed, len(packed), packed.shape[1] * 2, torch.float32)
        args = import_module("compressed_tensors.quantization.quant_scheme").NVFP4A16["weights"]
        forward = import_module("compressed_tensors.quantization.lifecycle.forward")
        return forward.dequantize(
            x_q=codes, scale=scales.float(), args=args, global_scale=torch.tensor([whole]), dtype=torch.float32
        )


class ModelOptimizer:
    def _of(self) -> Any:
        return import_module("modelopt.torch.quantization.qtensor").NVFP4QTensor

    def quantize(self, values: Any, given: float | None) -> tuple[float, Any, Any]:
        made, scales, whole = self._of().quantize(
            values, BLOCK, weights_scaling_factor_2=torch.tensor(given) if given else None
        )
        return float(whole), scales, made._quantized_data

    def dequantize(self, packed: Any, scales: Any, whole: float) -> Any:
        made = self._of()(torch.Size((len(packed), packed.shape[1] * 2)), torch.float32, packed)
        return made.dequantize(torch.float32, scale=scales, double_scale=torch.tensor(whole), block_sizes={-1: BLOCK})


class FourOverSix:
    """What the package's backend without a GPU is."""

    def __init__(self, error: str) -> None:
        self._error = error

    def quantize(self, values: Any, given: float | None) -> tuple[float, Any, Any]:
        if self._error != "abs_max" and torch.backends.cpu.get_cpu_capability() == "AVX512":
            pytest.skip("torch adds the errors in another order")
        rule = import_module("fouroversix.utils").ScaleRule(self._error)
        packed, scales, whole = import_module("fouroversix.quantize.pytorch.reference").quantize_to_fp4(
            values, torch.tensor(given) if given else None, scale_rule=rule, use_blackwell_scale_layout=False
        )
        return float(whole), scales, packed

    def dequantize(self, packed: Any, scales: Any, whole: float) -> Any:
        quantized = import_module("fouroversix.quantize")
        of = import_module("fouroversix.utils")
        shape = (len(packed), packed.shape[1] * 2)
        tensor = quantized.QuantizedTensor(
            packed, scales, torch.tensor(whole), of.DataType.nvfp4, shape, of.ScaleRule(self._error), shape,
            values_are_packed=True, scale_factors_are_in_blackwell_layout=False,
        )  # fmt: skip
        return quantized.dequantize(tensor, torch.float32, intermediate_dtype=torch.float32)


LIBRARIES: dict[Nvfp4Rule, Any] = {
    **{rule: FourOverSix(error) for rule, error in FOUR_OVER_SIX.items()},
    Nvfp4Rule.TORCHAO: Torchao(),
    Nvfp4Rule.COMPRESSED_TENSORS: CompressedTensors(),
    Nvfp4Rule.MODEL_OPTIMIZER: ModelOptimizer(),
}


def nibbles(packed: Any) -> Array:
    found = in_bytes(packed)
    return np.stack([found & 15, found >> 4], -1).reshape(len(found), -1)


def compared(comparison: Comparison, values: Array, ours: Nvfp4Tensor, theirs: tuple[float | None, Any, Any]) -> None:
    whole, scales, packed = theirs
    if whole is not None:
        found, expected = np.array([ours.global_scale], np.float32), np.array([whole], np.float32)
        comparison.add("global scale", expected, found, expected)
    comparison.add("scales", ours.scales, ours.scales, in_bytes(scales).ravel())
    comparison.add("elements", values, ours.elements.reshape(values.shape), nibbles(packed))


@pytest.mark.parametrize("rule", SYSTEMS)
def test_quantize(rule: Nvfp4Rule) -> None:
    """Global scales that are derived, and given ones: of all magnitudes, and as if the tensor were up to 64 times as
    large, so that scales are subnormal, or saturate."""
    rng, library = generator(153), LIBRARIES[rule]
    comparison = Comparison(f"{rule} nvfp4 quantize", SYSTEMS[rule], subject.blocks("nvfp4", "quantize"))
    for largest in LARGEST:
        values = hostile_blocks(rng, largest, TOGETHER)
        derived = quantize_nvfp4(values, rule=rule)
        compared(comparison, values, derived, library.quantize(torch.from_numpy(values.copy()), None))
        some = values[: TOGETHER // 8]
        # A tensor cannot have more than its largest magnitude, which is what "four over six" is given.
        factors = (1.0, 1.3, 64.0) if rule in FOUR_OVER_SIX else (1 / 64, 0.77, 64.0)
        for factor in factors if 1e-20 < largest < 1e30 else ():
            given = float(np.float32((derived.global_scale or 1.0) * factor))
            ours = quantize_nvfp4(some, given, rule)
            compared(comparison, some, ours, library.quantize(torch.from_numpy(some.copy()), given))
    comparison.finish(1_000_000)


@pytest.mark.parametrize(("rule", "power"), [(Nvfp4Rule.FOUROVERSIX, 2), (Nvfp4Rule.FOUROVERSIX_MAE, 1)])
def test_errors_that_are_nearly_equal(rule: Nvfp4Rule, power: int) -> None:
    """Where the order of the sum decides between four and six."""
    rng = generator(156)
    comparison = Comparison(f"{rule} nvfp4 quantize", SYSTEMS[rule], subject.blocks("nvfp4", "quantize"))
    for largest in (1.0, 3.7, 1e10):
        values = undecided_blocks(rng, largest, 40_000, power)
        compared(
            comparison,
            values,
            quantize_nvfp4(values, rule=rule),
            LIBRARIES[rule].quantize(torch.from_numpy(values), None),
        )
    comparison.finish(500_000)


def test_the_largest_of_a_block_of_small_numbers_are_lost() -> None:
    """fouroversix-eight in docs/errata.md."""
    values = np.zeros((2, 16), np.float32)
    values[0, 0], values[1, :3] = 1.0, (1.1e-5, -1.1e-5, 5e-6)
    _, scales, packed = FourOverSix("abs_max").quantize(torch.from_numpy(values), None)
    assert (in_bytes(scales)[1], nibbles(packed)[1, :3].tolist()) == (1, [8, 8, 6])


def test_one_level() -> None:
    rng = generator(154)
    comparison = Comparison("torchao nvfp4 quantize", systems.TORCHAO, subject.blocks("nvfp4", "quantize"))
    for largest in (2688.0, 1.0, 1e9):
        values = hostile_blocks(rng, largest, TOGETHER)
        ours = quantize_nvfp4(values, GlobalScale.ABSENT, Nvfp4Rule.TORCHAO)
        assert ours.global_scale is None
        compared(comparison, values, ours, Torchao().quantize(torch.from_numpy(values), None, 1))
    comparison.finish(400_000)


@pytest.mark.parametrize("rule", SYSTEMS)
def test_dequantize(rule: Nvfp4Rule) -> None:
    """Every scale with every element, and global scales of all magnitudes."""
    rng = generator(155)
    scales = np.repeat(np.arange(256, dtype=np.uint8), 8)
    elements = np.tile(np.arange(16, dtype=np.uint8), scales.size).reshape(scales.size, BLOCK)
    packed = torch.from_numpy(elements[:, ::2] | elements[:, 1::2] << 4)
    of_blocks = torch.from_numpy(scales[:, None]).view(torch.float8_e4m3fn)
    comparison = Comparison(f"{rule} nvfp4 dequantize", SYSTEMS[rule], subject.blocks("nvfp4", "dequantize"))
    for whole in np.exp2(rng.uniform(-120, 120, 40)).astype(np.float32).tolist():
        ours = dequantize_nvfp4(Nvfp4Tensor(elements.shape, whole, scales, elements.ravel()), rule)
        theirs = LIBRARIES[rule].dequantize(packed, of_blocks, whole)
        comparison.add(whole, elements, ours, theirs.numpy())
    comparison.finish(1_000_000)
