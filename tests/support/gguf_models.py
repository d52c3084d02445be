"""Small models of several architectures, as a GGUF file and as Hugging Face's libraries store them, with the same
tensors: written from gguf.md and llama.cpp's conversion scripts; nothing of ours but the elements of blocks.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.gguf.tensor_types import FLOATS, TENSOR_TYPES, write_elements
from tests.support.gguf_files import GgufFile, Tensor, string, u32
from tests.support.hand_made_plan import Tensors, write_safetensors

Array = NDArray[Any]
Blocks = Callable[[str, int], Array]
"""Returns so many blocks of the tensor of a name, as bytes [blocks, bytes of a block]."""

LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
}  # fmt: skip
GEMMA_2 = {
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip
DENSE = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


@dataclass(frozen=True, slots=True)
class PairedModel:
    """A model: `heads` of queries and of keys, `experts` 0 for a dense one."""

    architecture: str = "llama"
    model_type: str = "llama"
    heads: tuple[int, int] = (4, 2)
    width: int = 128
    layers: int = 2
    experts: int = 0
    vocabulary: int = 64

    @property
    def turned(self) -> bool:
        """Whether the rows of queries and keys are in another order in the file."""
        return self.architecture == "llama"

    @property
    def is_gemma(self) -> bool:
        """Whether the norms of the file have 1 added, and the output layer is the embeddings."""
        return self.architecture.startswith("gemma")

    def added(self, name: str) -> int:
        """What the file has more than the directory in each number of a tensor of the file."""
        return int(self.is_gemma and name.endswith("norm.weight"))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors of the GGUF file, by name."""
        width, head = self.width, self.width // self.heads[0]
        found: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocabulary, width),
            "output_norm.weight": (width,),
            **({} if self.is_gemma else {"output.weight": (self.vocabulary, width)}),
        }
        for layer in range(self.layers):
            keys = self.heads[1] * head
            shapes: dict[str, tuple[int, ...]] = {
                "attn_norm.weight": (width,),
                "attn_q.weight": (width, width),
                "attn_k.weight": (keys, width),
                "attn_v.weight": (keys, width),
                "attn_output.weight": (width, width),
                "ffn_norm.weight": (width,),
            }
            if self.architecture == "qwen2":
                shapes |= {"attn_q.bias": (width,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
            if self.architecture in ("gemma2", "gemma3"):
                shapes |= {"post_attention_norm.weight": (width,), "post_ffw_norm.weight": (width,)}
            if self.architecture.startswith(("qwen3", "gemma3")):
                shapes |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
            many, suffix = ((self.experts,), "_exps") if self.experts else ((), "")
            if self.experts:
                shapes["ffn_gate_inp.weight"] = (self.experts, width)
            shapes |= {f"ffn_{part}{suffix}.weight": (*many, 2 * width, width) for part in ("gate", "up")}
            shapes[f"ffn_down{suffix}.weight"] = (*many, width, 2 * width)
            found |= {f"blk.{layer}.{name}": shape for name, shape in shapes.items()}
        return found

    def names(self, name: str) -> list[str]:
        """The names of a tensor of the GGUF file in the directory: those of its experts."""
        module, _, parameter = name.rpartition(".")
        whole = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
        if module in whole:
            return [f"{whole[module]}.{parameter}"]
        _, layer, part = module.split(".")
        before = f"model.layers.{layer}."
        known = LAYER | DENSE | (GEMMA_2 if self.architecture in ("gemma2", "gemma3") else {})
        if part in known:
            return [f"{before}{known[part]}.{parameter}"]
        mixtral = self.model_type == "mixtral"
        block = "block_sparse_moe" if mixtral else "mlp"
        if part == "ffn_gate_inp":
            return [f"{before}{block}.gate.weight"]
        which = part.removeprefix("ffn_").removesuffix("_exps")
        last = {"gate": "w1", "up": "w3", "down": "w2"}[which] if mixtral else f"{which}_proj"
        return [f"{before}{block}.experts.{index}.{last}.weight" for index in range(self.experts)]

    def of_file(self, name: str, rows: Array) -> Array:
        """Return rows of the directory in the order of the file."""
        part = name.split(".")[-2]
        if not self.turned or part not in ("attn_q", "attn_k"):
            return rows
        heads = self.heads[part == "attn_k"]
        turned: Array = np.empty_like(rows)
        size = len(rows) // heads
        for row in range(len(rows)):
            head, place = divmod(row, size)
            half, pair = divmod(place, size // 2)
            turned[head * size + 2 * pair + half] = rows[row]
        return turned

    def of_model(self, name: str, rows: Array) -> Array:
        """Return rows of the file in the order of the directory."""
        order = self.of_file(name, np.arange(len(rows)))
        back: Array = np.empty_like(rows)
        back[order] = rows
        return back

    @property
    def config(self) -> dict[str, Any]:
        names = {"llama": "Llama", "mixtral": "Mixtral", "qwen2": "Qwen2", "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe"}
        names |= {"gemma": "Gemma", "gemma2": "Gemma2", "gemma3_text": "Gemma3"}
        more = {"num_experts": self.experts, "num_experts_per_tok": 2, "moe_intermediate_size": 2 * self.width}
        return {
            "architectures": [f"{names.get(self.model_type, 'Llama')}ForCausalLM"],
            "model_type": self.model_type,
            "dtype": "bfloat16",
            "hidden_size": self.width,
            "intermediate_size": 2 * self.width,
            "num_attention_heads": self.heads[0],
            "num_key_value_heads": self.heads[1],
            "head_dim": self.width // self.heads[0],
            "num_hidden_layers": self.layers,
            "vocab_size": self.vocabulary,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": self.is_gemma,
            "max_position_embeddings": 128,
            **(more if self.experts else {}),
        }

    def values(self, name: str) -> Array:
        """The BF16 of a tensor in the order of the file, as f32."""
        random = np.random.default_rng(list(name.encode()))
        shape = self.shapes()[name]
        numbers = random.standard_normal(shape) * 0.05 if len(shape) > 1 else 1 + 0.1 * random.standard_normal(shape)
        bits = numbers.astype("<f4").view("<u4")
        return ((bits + 0x8000) & 0xFFFF0000).astype("<u4").view("<f4")

    def write_directory(self, directory: Path, *, weights: bool = True) -> Path:
        """Write the directory, in two files; without weights only their index."""
        directory.mkdir(parents=True)
        files: dict[str, Tensors] = {}
        weight_map: dict[str, str] = {}
        for name in self.shapes():
            rows = self.values(name)
            stored = [rows] if rows.ndim < 3 else list(rows)
            for each, part in zip(self.names(name), stored, strict=True):
                file = f"model-0000{1 + ('layers.1' in each)}-of-00002.safetensors"
                exact = self.of_model(name, part) - np.float32(self.added(name))
                bits = (exact.view("<u4") >> 16).astype("<u2")
                files.setdefault(file, {})[each] = ("BF16", bits)
                weight_map[each] = file
        if weights:
            for file, tensors in files.items():
                write_safetensors(directory / file, tensors)
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
        (directory / "config.json").write_text(json.dumps(self.config))
        (directory / "tokenizer.json").write_text("{}")
        return directory

    def write_gguf(
        self,
        path: Path,
        type_: str,
        *,
        blocks: Blocks | None = None,
        scales: Mapping[str, float] | None = None,
        matrices: str = "weight",
    ) -> Path:
        """Write the file. Its matrices are of a type, all else is F32, as convert_hf_to_gguf.py does.

        `blocks`: what makes the bytes of blocks. `scales`: of NVFP4, by the names of their weights.
        """
        tensors = []
        for name, shape in self.shapes().items():
            is_matrix = len(shape) > 1 and "ffn_gate_inp" not in name
            to = TENSOR_TYPES[type_ if is_matrix else "F32"]
            if is_matrix and blocks is not None and type_ not in FLOATS:
                data = blocks(name, int(np.prod(shape)) // to.block).tobytes()
            else:
                data = write_elements(self.values(name).reshape(-1), to).tobytes()
            tensors.append(Tensor(name, list(reversed(shape)), to.number, data))
            if is_matrix and scales is not None:
                many = shape[0] if len(shape) > 2 else 1
                stored = np.full(many, scales[name], "<f4")
                tensors.append(Tensor(name.replace(".weight", ".scale"), [many], 0, stored.tobytes()))
        keys = [
            ("general.architecture", string(self.architecture)),
            (f"{self.architecture}.attention.head_count", u32(self.heads[0])),
            (f"{self.architecture}.attention.head_count_kv", u32(self.heads[1])),
            ("general.file_type", u32(0)),
            ("tokenizer.ggml.model", string("llama")),
        ]
        if self.turned:
            tensors.insert(0, Tensor("rope_freqs.weight", [4], 0, struct.pack("<4f", 1, 2, 3, 4)))
        path.write_bytes(GgufFile(tensors, keys).to_bytes())
        return path


MODELS = {
    "llama": PairedModel(),
    "mixtral": PairedModel("llama", "mixtral", experts=3),
    "qwen2": PairedModel("qwen2", "qwen2"),
    "qwen3": PairedModel("qwen3", "qwen3"),
    "qwen3_moe": PairedModel("qwen3moe", "qwen3_moe", experts=3),
    "gemma": PairedModel("gemma", "gemma"),
    "gemma2": PairedModel("gemma2", "gemma2"),
    "gemma3": PairedModel("gemma3", "gemma3_text"),
}
