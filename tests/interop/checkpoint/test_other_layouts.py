"""Fine-grained fp8 beside transformers' own, the GPTQ layout beside auto-round's; transformers loads both."""

from __future__ import annotations

import json
from collections import ChainMap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.integrations.finegrained_fp8 import Fp8Quantize

from tests.interop.checkpoint.conversion import dequantize, quantize
from tests.interop.checkpoint.decompression import tensors
from tests.interop.checkpoint.source_model import DTYPES, LLAMA, SourceModel, llama
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint
from tests.support.cases import OF_THE_DAY

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

IGNORE = ("lm_head", "model.embed_tokens")
TOKENS = torch.arange(64).reshape(2, 32) * 7 % LLAMA["vocab_size"]


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    return (first.dtype, first.shape) == (second.dtype, second.shape) and bool(
        torch.equal(first.reshape(-1).view(torch.uint8), second.reshape(-1).view(torch.uint8))
    )


def loaded(folder: Path) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the logits of a model, and its weights."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    with torch.no_grad():
        return model(TOKENS).logits, model.state_dict()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", ["float", "ue8m0"])
def test_fine_grained_fp8(scale: str, dtype: str, tmp_path: Path) -> None:
    source = llama(DTYPES[dtype]).save(tmp_path / "source")
    scheme = "FINE_GRAINED_FP8_UE8M0" if scale == "ue8m0" else "FINE_GRAINED_FP8"
    target = quantize(source, tmp_path / "target", scheme, IGNORE, profile="transformers")
    settings = SimpleNamespace(weight_block_size=[128, 128], scale_fmt=scale)
    quantizer = Fp8Quantize(SimpleNamespace(quantization_config=settings))
    expected: dict[str, torch.Tensor] = {}
    for name, tensor in tensors(source).items():
        expected |= quantizer.convert({name: tensor}) if "_proj" in name else {name: tensor}
    stored = tensors(target)
    assert sorted(stored) == sorted(expected)
    for name, tensor in expected.items():
        assert same(stored[name], tensor), name
    elements = sum(tensor.numel() for tensor in expected.values())
    record(systems.TRANSFORMERS, [checkpoint(scheme, "quantize", "transformers")], elements)
    logits, weights = loaded(target)
    assert logits.isfinite().all()
    restored = tensors(dequantize(target, tmp_path / "restored", profile="transformers"))
    for name, tensor in restored.items():
        assert same(weights[name].to(tensor.dtype), tensor), name
    elements = sum(tensor.numel() for tensor in restored.values())
    record(systems.TRANSFORMERS, [checkpoint(scheme, "dequantize", "transformers")], elements)


def auto_round(source: Path, target: Path, scheme: str) -> Path:
    """Quantize a directory of one file by auto-round, without a model and without its search."""
    from auto_round.compressors.model_free import _ModelFreeCompressorCore

    core: Any = _ModelFreeCompressorCore(
        str(source),
        str(target),
        scheme=scheme,
        format="auto_round",
        device="cpu",
        disable_opt_rtn=True,
        enable_torch_compile=False,
    )
    core.run()
    return target


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_gptq(bits: int, tmp_path: Path) -> None:
    """auto-round takes half a minute: one dtype each day."""
    dtype = list(DTYPES)[OF_THE_DAY % len(DTYPES)]
    several = llama(DTYPES[dtype])
    # For several files, auto-round starts processes, which takes minutes.
    source = SourceModel(several.config, (dict(ChainMap(*several.shards)),)).save(tmp_path / "source")
    target = quantize(source, tmp_path / "target", f"GPTQ_W{bits}A16", IGNORE, profile="auto-round")
    other = auto_round(source, tmp_path / "other", f"W{bits}A16")
    stored, expected = tensors(target), tensors(other)
    assert sorted(stored) == sorted(expected)
    for name, tensor in expected.items():
        assert same(stored[name], tensor), name
    elements = sum(tensor.numel() for tensor in expected.values())
    record(systems.AUTO_ROUND, [checkpoint(f"GPTQ_W{bits}A16", "quantize", "auto-round")], elements)
    configs = [json.loads((folder / "config.json").read_text())["quantization_config"] for folder in (target, other)]
    for member in ("quant_method", "bits", "group_size", "sym", "data_type", "packing_format"):
        assert configs[0][member] == configs[1][member], member
    logits, _ = loaded(target)
    assert logits.isfinite().all()
    assert same(logits, loaded(other)[0])
