"""transformers on a CPU loads what we write, and its logits are those of llm-compressor's files, bit for bit.

What it makes of the stored tensors is what our dequantization writes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.interop.checkpoint import llm_compressor
from tests.interop.checkpoint.conversion import dequantize, quantize
from tests.interop.checkpoint.decompression import tensors
from tests.interop.checkpoint.schemes import OPTIONS, PRESETS, theirs
from tests.interop.checkpoint.source_model import DTYPES, LLAMA, llama, with_dtypes_in_turn

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

IGNORE = ("lm_head", "model.embed_tokens")
# transformers 5.23 expects the zero points of packed weights in another shape than compressed-tensors 0.20 writes.
UNLOADABLE = {"W4A16_ASYM", *(name for name in OPTIONS if "A16" in name and "asymmetric" in name)}
# These are decompressed to bf16, whatever the model's dtype is.
BF16_ONLY = {name for name in PRESETS if name.startswith(("NVFP4", "MXFP"))}
TOKENS = torch.arange(96).reshape(3, 32) * 5 % LLAMA["vocab_size"]


def loaded(folder: Path) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the logits of a model, and its weights."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    with torch.no_grad():
        return model(TOKENS).logits, model.state_dict()


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.dtype == second.dtype and bool(torch.equal(first.view(torch.uint8), second.view(torch.uint8)))


@pytest.mark.parametrize(("scheme", "dtype"), with_dtypes_in_turn([*PRESETS, *OPTIONS]))
def test_logits_and_weights(scheme: str, dtype: str, tmp_path: Path) -> None:
    source = llama(DTYPES[dtype]).save(tmp_path / "source")
    ours = quantize(source, tmp_path / "ours", scheme, ("default",))
    expected = llm_compressor.quantize(source, tmp_path / "theirs", theirs(scheme), IGNORE)
    if scheme in UNLOADABLE:
        for folder in (ours, expected):
            with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
                loaded(folder)
        return
    if scheme in BF16_ONLY and dtype != "bf16":
        for folder in (ours, expected):
            with pytest.raises(RuntimeError, match="same dtype"):
                loaded(folder)
        return
    (logits, weights), (other_logits, other_weights) = loaded(ours), loaded(expected)
    assert logits.isfinite().all()
    assert same(logits, other_logits)
    restored = tensors(dequantize(ours, tmp_path / "restored"))
    plain_logits, _ = loaded(tmp_path / "restored")
    assert sorted(restored) == sorted(tensors(source))
    for name, tensor in restored.items():
        assert same(weights[name], other_weights[name]), name
        assert same(weights[name], tensor), name
    if "A16" in scheme and "FP8A16" not in scheme:
        # Weights alone are quantized, so that the model with restored weights is the same.
        assert same(plain_logits, logits)


@pytest.mark.parametrize("scheme", ["W8A8", "W4A16", "FP8_DYNAMIC"])
def test_tied_embeddings(scheme: str, tmp_path: Path) -> None:
    """The head has no weight of its own in the files. Ours say that it is not quantized; llm-compressor's do not."""
    source = llama(torch.bfloat16, tied=True).save(tmp_path / "source")
    ours = quantize(source, tmp_path / "ours", scheme, ("model.embed_tokens",))
    told = llm_compressor.quantize(source, tmp_path / "told", scheme, ("model.embed_tokens", "lm_head"))
    logits, _ = loaded(ours)
    assert logits.isfinite().all()
    assert same(logits, loaded(told)[0])
    untold = llm_compressor.quantize(source, tmp_path / "untold", scheme, ("model.embed_tokens",))
    try:
        unusable, _ = loaded(untold)
    except AttributeError:
        return
    assert not same(unusable, logits)
