"""The names that tensors have in GGUF files and in Hugging Face's models, of the architectures that are known here.

    token_embd, output_norm, output             model.embed_tokens, model.norm, lm_head
    blk.N.attn_q ... blk.N.ffn_down             model.layers.N.self_attn.q_proj ... mlp.down_proj
    blk.N.ffn_gate_exps [experts, out, in]      the matrix of each expert

Source: llama.cpp 0.5.0, gguf-py's `tensor_mapping.py`, `conversion/llama.py`, `conversion/qwen.py`,
`conversion/gemma.py`. There, queries and keys of llama's models are turned within each head, and 1 is added to the
norms of Gemma's (`requant.checkpoint.gguf.weights`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from requant.checkpoint.gguf.header import Key, TensorInfo, value_of
from requant.errors import CheckpointError, excerpt

_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_OF_GEMMA_2 = _LAYER | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_NAME = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<module>\w+)\.(?P<parameter>weight|bias|scale|input_scale)", re.ASCII)
_EXPERT_PARTS = ("gate", "up", "down")
_OF_SCALES = ("scale", "input_scale")

MADE_BY_CONVERTER = frozenset({"rope_freqs.weight"})
"""Tensors that convert_hf_to_gguf.py makes of config.json."""
_MAX_EXPERTS = 8192


@dataclass(frozen=True, slots=True)
class Experts:
    """The names of a mixture of experts, below a layer: of the router, and of what `{}` stands for the number in."""

    router: str
    gate: str
    up: str
    down: str


_MIXTRAL = "block_sparse_moe"
_IN_MLP = Experts("mlp.gate", *(f"mlp.experts.{{}}.{part}_proj" for part in _EXPERT_PARTS))
_IN_BLOCK = Experts(f"{_MIXTRAL}.gate", *(f"{_MIXTRAL}.experts.{{}}.{part}" for part in ("w1", "w3", "w2")))


@dataclass(frozen=True, slots=True)
class _Architecture:
    """`name`: in GGUF files. `turned`: whether rows of queries and keys are turned in each head. `layer`: the names of
    a layer's modules. `added`: to the weights of norms.
    """

    name: str
    turned: bool = False
    experts: Experts | None = None
    layer: Mapping[str, str] = field(default_factory=lambda: _LAYER)
    added: int = 0


_BY_MODEL_TYPE = {
    "llama": _Architecture("llama", turned=True),
    "mistral": _Architecture("llama", turned=True),
    "mixtral": _Architecture("llama", turned=True, experts=_IN_BLOCK),
    "qwen2": _Architecture("qwen2"),
    "qwen3": _Architecture("qwen3"),
    "qwen3_moe": _Architecture("qwen3moe", experts=_IN_MLP),
    "gemma": _Architecture("gemma", added=1),
    "gemma2": _Architecture("gemma2", layer=_LAYER_OF_GEMMA_2, added=1),
    "gemma3_text": _Architecture("gemma3", layer=_LAYER_OF_GEMMA_2, added=1),
}


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor of the model. `parameter`: weight or bias, or `scale` or `input_scale` of an NVFP4 weight. `index`: of
    the expert whose matrix it is in a tensor of all, None for a whole tensor. `head`: as in `GgufWeight`, 1 where
    nothing is turned. `added`: to each of its numbers, in the file.
    """

    module: str
    parameter: str
    index: int | None
    head: int
    added: int = 0

    @property
    def name(self) -> str:
        """The name in Hugging Face's model."""
        return f"{self.module}.{self.parameter}"


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one model. `heads`: of queries and of keys."""

    architecture: _Architecture
    heads: tuple[int, int]
    file: str

    @classmethod
    def of(cls, keys: Sequence[Key], config: Mapping[str, Any], file: str) -> Names:
        """Return those of a GGUF file and the config.json of the same model. Raises CheckpointError for an
        architecture that is not known, where the two do not agree, and for one file of several.
        """
        stated = {key.name: key for key in keys}
        if _count(stated.get("split.count"), 0) > 1:
            detail = f"{file} is one of several files: give the one that llama-gguf-split --merge makes of them"
            raise CheckpointError(detail, file=file)
        name, model_type = _text(stated.get("general.architecture")), config.get("model_type")
        architecture = _BY_MODEL_TYPE.get(model_type) if isinstance(model_type, str) else None
        if architecture is None or architecture.name != name:
            pairs = ", ".join(f"{each.name} ({model_type})" for model_type, each in _BY_MODEL_TYPE.items())
            raise CheckpointError(
                f"the names of tensors are known of {pairs}; {file} is of '{excerpt(name)}', and config.json of "
                f"'{excerpt(str(model_type))}'. For another architecture use llama.cpp's converters, or give the "
                "directory of the same model",
                file=file,
            )
        heads = _number(config, "num_attention_heads")
        of_keys = _number(config, "num_key_value_heads", heads)
        found = (
            _count(stated.get(f"{name}.attention.head_count"), heads),
            _count(stated.get(f"{name}.attention.head_count_kv"), of_keys),
        )
        if found != (heads, of_keys):
            raise CheckpointError(
                f"{file} has {found[0]} heads of queries and {found[1]} of keys; config.json has {heads} and "
                f"{of_keys}: give the directory of the same model",
                file=file,
            )
        return cls(architecture, (heads, of_keys), file)

    def places(self, info: TensorInfo) -> list[Place]:
        """Return what a tensor is in the model: one tensor, or the matrices of its experts, in their order. Raises
        CheckpointError for a name that is not known, and rows that are not whole heads.
        """
        match = _NAME.fullmatch(info.name)
        if match is None:
            raise self._unknown(info)
        module, parameter, layer = match["module"], match["parameter"], match["layer"]
        if layer is None:
            if module not in _WHOLE:
                raise self._unknown(info)
            return [Place(_WHOLE[module], parameter, None, 1, self._added(_WHOLE[module], parameter))]
        before, experts = f"model.layers.{int(layer)}.", self.architecture.experts
        if module in self.architecture.layer:
            name = self.architecture.layer[module]
            head, added = self._head(module, parameter, info), self._added(name, parameter)
            return [Place(before + name, parameter, None, head, added)]
        if experts is not None and module == "ffn_gate_inp":
            return [Place(before + experts.router, parameter, None, 1)]
        part = module.removeprefix("ffn_").removesuffix("_exps")
        if experts is None or module != f"ffn_{part}_exps" or part not in _EXPERT_PARTS or parameter == "bias":
            raise self._unknown(info)
        count = info.dimensions[-1]
        if len(info.dimensions) != (1 if parameter in _OF_SCALES else 3) or not 0 < count <= _MAX_EXPERTS:
            raise CheckpointError(
                f"'{excerpt(info.name)}' has the shape {list(reversed(info.dimensions))}; expected a matrix for each "
                f"expert, at most {_MAX_EXPERTS}: download the file again",
                file=self.file,
                tensor=info.name,
            )
        of_expert: str = getattr(experts, part)
        return [Place(before + of_expert.format(index), parameter, index, 1) for index in range(count)]

    def _added(self, module: str, parameter: str) -> int:
        return self.architecture.added if module.endswith("norm") and parameter == "weight" else 0

    def _head(self, module: str, parameter: str, info: TensorInfo) -> int:
        if not self.architecture.turned or module not in ("attn_q", "attn_k") or parameter in _OF_SCALES:
            return 1
        heads, rows = self.heads[module == "attn_k"], info.dimensions[-1]
        if rows % (2 * heads):
            raise CheckpointError(
                f"'{excerpt(info.name)}' has {rows} rows, which are not whole heads for {heads} of them: give the "
                "directory of the same model",
                file=self.file,
                tensor=info.name,
            )
        return rows // heads

    def _unknown(self, info: TensorInfo) -> CheckpointError:
        return CheckpointError(
            f"'{excerpt(info.name)}' is not a tensor of {self.architecture.name} that is known here: use llama.cpp's "
            "converters for this model",
            file=self.file,
            tensor=info.name,
        )


def _text(key: Key | None) -> str:
    value = None if key is None else value_of(key)
    return value if isinstance(value, str) else ""


def _number(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(
            f"{name} of config.json is {excerpt(str(value))}; expected a positive integer: download config.json again",
            file="config.json",
        )
    return value


def _count(key: Key | None, default: int) -> int:
    value = None if key is None else value_of(key)
    if isinstance(value, list) and len(set(value)) == 1:
        value = value[0]
    return value if isinstance(value, int) and not isinstance(value, bool) else default
