"""Checkpoints with the scales of another rule: codes and scales are torchao's and fouroversix's, of the weights."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.interop.blocks.torchao_formats import MX_ELEMENTS, formats, in_bytes
from tests.interop.checkpoint.conversion import quantize
from tests.support.nvfp4_blocks import hostile_blocks

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

QKV = tuple(f"model.layers.0.self_attn.{each}_proj" for each in "qkv")


def source(folder: Path) -> dict[str, torch.Tensor]:
    """Weights of a fused set, of three ranges, as bf16."""
    folder.mkdir()
    rng = np.random.default_rng(8)
    found = {
        f"{name}.weight": torch.from_numpy(
            hostile_blocks(rng, largest, 8192).reshape(-1)[: 512 * 256].reshape(512, 256)
        ).to(torch.bfloat16)
        for name, largest in zip(QKV, (1.0, 3.7, 0.0123), strict=True)
    }
    save_file(found, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text("{}")
    return found


def converted(tmp_path: Path, scheme: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    weights = source(tmp_path / "source")
    quantize(tmp_path / "source", tmp_path / "out", scheme)
    return weights, load_file(tmp_path / "out" / "model.safetensors")


@pytest.mark.parametrize("rule", ["floor", "ceil", "even", "rceil"])
@pytest.mark.parametrize(("scheme", "element"), [("MXFP4A16", "mxfp4_e2m1"), ("MXFP8A16", "mxfp8_e4m3")])
def test_mx(tmp_path: Path, scheme: str, element: str, rule: str) -> None:
    weights, stored = converted(tmp_path, f"{scheme}:rule={rule}")
    mode = import_module("torchao.prototype.mx_formats.config").ScaleCalculationMode[rule.upper()]
    for name, weight in weights.items():
        scales, elements = formats("mx_tensor").to_mx(weight, MX_ELEMENTS[element], 32, mode)
        codes = stored[name if element == "mxfp8_e4m3" else f"{name}_packed"]
        assert np.array_equal(in_bytes(codes), in_bytes(elements))
        assert np.array_equal(in_bytes(stored[f"{name}_scale"]), in_bytes(scales))


@pytest.mark.parametrize("rule", ["mse", "mae", "abs_max"])
def test_four_over_six(tmp_path: Path, rule: str) -> None:
    """With the largest magnitude of the fused set."""
    reference = pytest.importorskip("fouroversix.quantize.pytorch.reference")
    if rule != "abs_max" and torch.backends.cpu.get_cpu_capability() == "AVX512":
        pytest.skip("torch adds the errors in another order")
    weights, stored = converted(tmp_path, "NVFP4A16:rule=fouroversix" + ("" if rule == "mse" else f"_{rule}"))
    largest = max(weight.abs().max() for weight in weights.values()).float()
    for name, weight in weights.items():
        packed, scales, _ = reference.quantize_to_fp4(
            weight.float(), largest, scale_rule=import_module("fouroversix.utils").ScaleRule(rule),
            use_blackwell_scale_layout=False,
        )  # fmt: skip
        assert np.array_equal(in_bytes(stored[f"{name}_packed"]), in_bytes(packed))
        assert np.array_equal(in_bytes(stored[f"{name}_scale"]).ravel(), in_bytes(scales).ravel())
        assert stored[f"{name}_global_scale"] == torch.full_like(largest, 1536) / largest  # 1536 / largest multiplies
