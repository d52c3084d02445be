"""A llama of two layers with random weights, written by gguf-py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

VOCABULARY, WIDTH, LAYERS, HEADS = 300, 256, 2, 4

Shapes = dict[str, tuple[int, ...]]


def shapes() -> Shapes:
    """The tensors of the model, by name."""
    found: Shapes = {
        "token_embd.weight": (VOCABULARY, WIDTH),
        "output_norm.weight": (WIDTH,),
        "output.weight": (VOCABULARY, WIDTH),
    }
    for layer in range(LAYERS):
        found |= {
            f"blk.{layer}.{name}": shape
            for name, shape in {
                "attn_norm.weight": (WIDTH,),
                "attn_q.weight": (WIDTH, WIDTH),
                "attn_k.weight": (WIDTH // 2, WIDTH),
                "attn_v.weight": (WIDTH // 2, WIDTH),
                "attn_output.weight": (WIDTH, WIDTH),
                "ffn_norm.weight": (WIDTH,),
                "ffn_gate.weight": (2 * WIDTH, WIDTH),
                "ffn_up.weight": (2 * WIDTH, WIDTH),
                "ffn_down.weight": (WIDTH, 2 * WIDTH),
            }.items()
        }
    return found


def write(path: Path, type_: str, more: Shapes | None = None) -> None:
    """Write the model with matrices of F32, F16 or BF16, and with more tensors, which it does not use."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(0)
    words = [f"w{number}".encode() for number in range(VOCABULARY - 259)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256)), *words])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(words))
    for name, shape in {**shapes(), **(more or {})}.items():
        values = _values(name, shape)
        quantized = gguf.GGMLQuantizationType[type_ if len(shape) > 1 else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(values, quantized), raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _values(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Random values; of matrices some on a grid, where codes tie, and some zeros of both signs."""
    random = np.random.default_rng(list(name.encode()))
    if len(shape) == 1:
        return (1 + 0.1 * random.standard_normal(shape)).astype(np.float32)
    values = (0.05 * random.standard_normal(shape)).astype(np.float32)
    rows = values.reshape(-1, shape[-1])
    rows[0, :32], rows[0, 32:64] = 0.0, -0.0
    rows[1 % len(rows)] = random.integers(-8, 9, shape[-1]) / np.float32(64)
    return values
