"""Models of several architectures with narrow random weights, as the choice of types sees them, and their importance
matrices in both forms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.support.gguf_files import legacy_importance

Array = NDArray[Any]
WIDTH, WIDE, ROWS, VOCABULARY = 256, 512, 4, 300


@dataclass(frozen=True, slots=True)
class SmallModel:
    """`tied`: without output.weight. `fused`: queries, keys and values in one weight. `odd`: with weights whose rows
    are no whole blocks of 256, or of 32."""

    architecture: str
    layers: int
    heads: int
    key_heads: int
    experts: int = 0
    tied: bool = False
    fused: bool = False
    odd: bool = False

    def shapes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCABULARY, WIDTH)}
        if not self.tied:
            found["output.weight"] = (VOCABULARY, WIDTH)
        inputs = ("attn_qkv",) if self.fused else ("attn_q", "attn_k", "attn_v")
        experts, suffix = ((self.experts,), "_exps") if self.experts else ((), "")
        for i in range(self.layers):
            layer: dict[str, tuple[int, ...]] = dict.fromkeys((*inputs, "attn_output"), (ROWS, WIDTH))
            layer |= {f"ffn_{name}{suffix}": (*experts, ROWS, WIDTH) for name in ("gate", "up")}
            layer[f"ffn_down{suffix}"] = (*experts, ROWS, WIDE)
            if self.odd:
                layer |= {
                    "attn_v.weight_96": (ROWS, 96),
                    "ffn_down_96": (ROWS, 96),
                    "a_96": (ROWS, 96),
                    "a_20": (4, 20),
                }
            found |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
        return found

    def write(self, path: Path) -> None:
        """Write the model with weights of F32."""
        writer = gguf.GGUFWriter(str(path), self.architecture)
        writer.add_context_length(128)
        writer.add_embedding_length(WIDTH)
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(WIDE)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.key_heads)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_layer_norm_eps(1e-5)
        writer.add_rope_dimension_count(WIDTH // self.heads)
        writer.add_vocab_size(VOCABULARY)
        if self.experts:
            writer.add_expert_count(self.experts)
            writer.add_expert_used_count(2)
        writer.add_tokenizer_model("llama")
        writer.add_token_list([b"<unk>", b"<s>", b"</s>", *(f"w{i}".encode() for i in range(VOCABULARY - 3))])
        writer.add_token_scores([0.0] * VOCABULARY)
        writer.add_token_types([2, 3, 3] + [1] * (VOCABULARY - 3))
        writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
        for name, shape in self.shapes().items():
            random = np.random.default_rng(list(name.encode()))
            scales = np.exp2(random.integers(-6, 2, (*shape[:-1], 1)))
            writer.add_tensor(name, (random.standard_normal(shape) * scales / 16).astype("<f4"))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def sums(self) -> dict[str, Array]:
        """Of all weights but the token embeddings and one more."""
        found = {}
        for name, shape in self.shapes().items():
            if name not in ("token_embd.weight", "blk.1.attn_q.weight"):
                random = np.random.default_rng([1, *name.encode()])
                experts = shape[0] if len(shape) > 2 else 1
                found[name] = (random.random((experts, shape[-1])) ** 4 * 100).astype("<f4")
        return found


def write_importance(path: Path, sums: dict[str, Array]) -> dict[str, Array]:
    """Write sums of columns as llama-imatrix does, in the older form if the name of the file ends in .dat. Return what
    they mean."""
    if path.suffix == ".dat":
        path.write_bytes(legacy_importance({name: each.reshape(-1) for name, each in sums.items()}, 7, 12, "wiki"))
        return {name: (each / np.float32(7)).reshape(-1) for name, each in sums.items()}
    writer, meant = gguf.GGUFWriter(str(path), "imatrix"), {}
    writer.add_array("imatrix.datasets", ["wiki", "more"])
    writer.add_uint32("imatrix.chunk_count", 12)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, each in sums.items():
        # No token has reached the second expert.
        counts = np.where(np.arange(len(each)) == 1, 0, 5 + np.arange(len(each))).astype("<f4").reshape(-1, 1)
        writer.add_tensor(f"{name}.in_sum2", each)
        writer.add_tensor(f"{name}.counts", counts)
        meant[name] = np.where(counts > 0, each / np.maximum(counts, 1), np.float32(1)).astype("<f4").reshape(-1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return meant


MODELS = {
    "llama": SmallModel("llama", 3, 4, 4),
    "llama with shared keys": SmallModel("llama", 17, 8, 2),
    "llama with tied embeddings": SmallModel("llama", 9, 8, 4, tied=True),
    "llama with odd rows": SmallModel("llama", 5, 4, 2, odd=True),
    "llama of 70B": SmallModel("llama", 80, 8, 2),
    "llama of 65B": SmallModel("llama", 80, 8, 8),
    "qwen2 of 72B": SmallModel("qwen2", 80, 8, 8),
    "mixtral": SmallModel("llama", 32, 8, 2, experts=8),
    "four experts": SmallModel("llama", 4, 8, 4, experts=4),
    "falcon": SmallModel("falcon", 33, 8, 1, fused=True),
    "phi3": SmallModel("phi3", 24, 8, 4, fused=True),
}
"""By names."""
