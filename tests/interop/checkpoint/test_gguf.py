"""GGUF files beside transformers, which reads them with gguf-py: the logits of what they become are those of the file,
bit for bit.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    LlamaConfig,
    Qwen3Config,
    set_seed,
)

from requant.checkpoint.gguf.quantize import quantize_gguf
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoints import dequantize_checkpoint, repack_checkpoint

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

# Heads of 128, whatever the file says: transformers reads no other size for Qwen3.
WIDTH, HEADS, KEYS, LAYERS, VOCABULARY = 512, 4, 2, 2, 320
CONFIGS = {
    "llama": LlamaConfig,
    "qwen3": Qwen3Config,
    "gemma": GemmaConfig,
    "gemma2": Gemma2Config,
    "gemma3": Gemma3TextConfig,
}
SCHEMES = {"Q8_0": "W8A16:group=32", "Q4_0": "W4A16:group=32"}
TOKENS = torch.arange(64).reshape(2, 32) * 7 % VOCABULARY


def write_models(directory: Path, architecture: str) -> None:
    """Write a random model as transformers saves it, `like`, and `f32.gguf` of the same, as llama.cpp converts it."""
    set_seed(5)
    config = CONFIGS[architecture](
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=KEYS,
        head_dim=WIDTH // HEADS,
        num_hidden_layers=LAYERS,
        vocab_size=VOCABULARY,
        tie_word_embeddings=architecture.startswith("gemma"),
        max_position_embeddings=128,
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.data += 0.1 * torch.randn(parameter.shape)
    model = model.bfloat16()
    model.save_pretrained(directory / "like")
    writer = gguf.GGUFWriter(str(directory / "f32.gguf"), architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_key_length(WIDTH // HEADS)
    writer.add_value_length(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCABULARY)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], LAYERS)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.float()
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            values = values + 1
        for part, heads in (("q_proj", HEADS), ("k_proj", KEYS)):
            if architecture == "llama" and part in name:
                values = values.reshape(heads, 2, -1, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(names.get_name(name, (".weight",)), values.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(folder: Path, **options: str) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
    with torch.no_grad():
        found: torch.Tensor = model(TOKENS).logits
    return found


@pytest.mark.parametrize("type_", SCHEMES)
@pytest.mark.parametrize("architecture", [each for each in CONFIGS if each != "gemma"])
def test_logits(architecture: str, type_: str, tmp_path: Path) -> None:
    write_models(tmp_path, architecture)
    store = LocalStore(tmp_path)
    quantize_gguf(store, "f32.gguf", store, "model.gguf", type_)
    of_file = logits(tmp_path, gguf_file="model.gguf")
    assert of_file.isfinite().all()
    assert not torch.equal(of_file, logits(tmp_path / "like"))
    dequantize_checkpoint(tmp_path / "model.gguf", tmp_path / "plain", like=tmp_path / "like", dtype="F32")
    assert torch.equal(logits(tmp_path / "plain"), of_file)
    repack_checkpoint(tmp_path / "model.gguf", tmp_path / "packed", SCHEMES[type_], like=tmp_path / "like")
    assert torch.equal(logits(tmp_path / "packed"), of_file)


@pytest.mark.parametrize("architecture", CONFIGS)
def test_weights_of_the_converters_file_are_those_of_the_model(architecture: str, tmp_path: Path) -> None:
    """transformers does not read the first Gemma from GGUF: names and norms are those of gguf-py and llama.cpp."""
    write_models(tmp_path, architecture)
    dequantize_checkpoint(tmp_path / "f32.gguf", tmp_path / "plain", like=tmp_path / "like", dtype="BF16")
    expected, found = (
        AutoModelForCausalLM.from_pretrained(tmp_path / each, dtype="auto").state_dict() for each in ("like", "plain")
    )
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert tensor.dtype == found[name].dtype == torch.bfloat16
        assert torch.equal(tensor.view(torch.int16), found[name].view(torch.int16)), name
