"""What a GGUF file is converted to: one type for all tensors, or a mixture, which gives some tensors more bits.

Source: llama.cpp 0.5.0's llama-quant.cpp (llama_tensor_get_type_impl), and files of that version. Names are those of
`llama-quantize`. The tensors are taken in the order of the file that is written; a tensor's part in the model is in its
name.

With n layers, layer i has more bits where i < n / 8, i >= 7 n / 8, or (i - n / 8) % 3 = 2, in whole numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from requant.checkpoint.gguf.header import Key, value_of
from requant.checkpoint.gguf.tensor_types import FILE_TYPES, TENSOR_TYPES, TensorType
from requant.errors import CheckpointError, UnknownNameError, excerpt
from requant.errors.names import entry_named


@dataclass(frozen=True, slots=True)
class Target:
    """What to convert to. `type`: of most tensors, or of all. `file_type`: the value of `general.file_type`."""

    name: str
    file_type: int
    type: TensorType
    mixed: bool


_MIXTURES = (
    ("Q2_K", 10, "Q2_K"),
    ("Q2_K_S", 21, "Q2_K"),
    ("Q3_K_S", 11, "Q3_K"),
    ("Q3_K_M", 12, "Q3_K"),
    ("Q3_K_L", 13, "Q3_K"),
    ("Q4_K_S", 14, "Q4_K"),
    ("Q4_K_M", 15, "Q4_K"),
    ("Q5_K_S", 16, "Q5_K"),
    ("Q5_K_M", 17, "Q5_K"),
    ("Q6_K", 18, "Q6_K"),
    ("IQ4_NL", 25, "IQ4_NL"),
    ("IQ4_XS", 30, "IQ4_XS"),
)

TARGETS: Mapping[str, Target] = {
    **{name: Target(name, number, TENSOR_TYPES[name], False) for name, number in FILE_TYPES.items()},
    **{name: Target(name, number, TENSOR_TYPES[base], True) for name, number, base in _MIXTURES},
}
"""By their names."""


# What llama-quantize has besides.
_NOT_WRITTEN = ("IQ1_", "IQ2_", "IQ3_", "Q1_0", "Q2_0", "MXFP4_MOE", "NVFP4")


def target_named(name: str) -> Target:
    """Return what to convert to by its name, in any case. Raises UnknownNameError."""
    upper = name.upper()
    if upper.startswith(_NOT_WRITTEN) and upper not in TARGETS:
        detail = f"{excerpt(upper)} is not written; use llama-quantize for it. Available: {', '.join(TARGETS)}"
        raise UnknownNameError(detail)
    return entry_named(TARGETS, upper, "GGUF type to convert to")


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model counts. `sharing`: query heads to a key head, 0 where there is none; `has_70b`: whether llama.cpp
    takes it for one of 70B parameters."""

    architecture: str
    layers: int
    experts: int
    sharing: int
    has_70b: bool


# With 80 layers.
_OF_70B, _OF_70B_WHERE_HEADS_ARE_SHARED = ("deci", "olmo", "qwen2"), ("llama", "llama-embed")


def model_shape(keys: Sequence[Key], file: str) -> ModelShape:
    """Return what the keys say. Raises CheckpointError where they do not: a mixture depends on the whole model."""
    values = {key.name: key for key in keys}

    def number(name: str, default: int | None = None) -> int:
        """Of a list, one for each layer, the first."""
        found = value_of(values[name]) if name in values else default
        if isinstance(found, list) and found:
            found = found[0]
        if isinstance(found, bool) or not isinstance(found, int):
            detail = f"{file} has no '{name}' that is a number, on which the types of a mixture depend"
            raise CheckpointError(f"{detail}: convert with --pure", file=file)
        return found

    if "split.count" in values and number("split.count") > 1:
        detail = f"{file} is one of {number('split.count')} files of a model, and a mixture depends on all its tensors"
        raise CheckpointError(f"{detail}: join them with llama-gguf-split --merge, or convert with --pure", file=file)
    architecture = value_of(values["general.architecture"]) if "general.architecture" in values else None
    if not isinstance(architecture, str):
        detail = f"{file} has no general.architecture, on which the types of a mixture depend"
        raise CheckpointError(f"{detail}: convert with --pure", file=file)
    layers, experts = number(f"{architecture}.block_count"), number(f"{architecture}.expert_count", 0)
    heads = number(f"{architecture}.attention.head_count", 0)
    key_heads = number(f"{architecture}.attention.head_count_kv", heads)
    shared = architecture in _OF_70B_WHERE_HEADS_ARE_SHARED and heads != key_heads and experts != 8
    return ModelShape(
        architecture,
        layers,
        experts,
        heads // key_heads if key_heads > 0 else 0,
        layers == 80 and (architecture in _OF_70B or shared),
    )


_OUTPUT, _EMBEDDINGS = "output.weight", ("token_embd.weight", "per_layer_token_embd.weight")
# The first that is in a name.
_PARTS = (
    *("attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight", "attn_k.weight", "attn_q.weight"),
    *("attn_output.weight", "ffn_up", "ffn_gate", "ffn_down"),
)
_VALUES = ("attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight")
_LAYER = re.compile(r"blk\.\s*([+-]?\d+)", re.ASCII)


def needs_importance(name: str, type_: TensorType, target: Target) -> bool:
    """Return whether llama-quantize refuses to make this of a tensor without its importance."""
    return target.name == "Q2_K_S" and type_.name == "Q2_K" and name not in (_OUTPUT, *_EMBEDDINGS)


def _part(name: str) -> str:
    return next((part for part in _PARTS if part in name), "")


class MixedTypes:
    """Gives the tensors of a model their types, one after the other."""

    def __init__(self, target: Target, model: ModelShape, names: Sequence[str], important: bool, file: str) -> None:
        """`names`: of all tensors. `important`: whether there is an importance matrix."""
        self._mixture, self._default, self._model, self._file = target.name, target.type, model, file
        self._important = important
        self._tied = _OUTPUT not in names
        self._values = sum(_part(name) in _VALUES for name in names if name not in (_OUTPUT, *_EMBEDDINGS))
        self._values_seen = self._downs_seen = 0

    def type_of(self, name: str, row: int) -> TensorType:
        """Return the type of the next tensor that is quantized, for rows of that length. Rows may still be no whole
        blocks of it. Raises CheckpointError where the name has no layer and needs one."""
        if name == _OUTPUT or name in _EMBEDDINGS:
            return self._of_output(row) if name == _OUTPUT or self._tied else self._default
        part = _part(name)
        if part in _VALUES:
            found = self._of_values()
            self._values_seen += 1
        elif part == "attn_k.weight":
            found = "Q8_0" if self._model.experts == 8 else None
        elif part == "ffn_down":
            found = self._of_down(self._layer(name, self._downs_seen))
            self._downs_seen += 1
        elif part == "attn_output.weight":
            found = self._of_attention_output()
        else:
            found = None
        return TENSOR_TYPES[found] if found else self._default

    def _of_output(self, row: int) -> TensorType:
        whole = row % self._default.block == 0 and self._model.architecture != "falcon"
        return TENSOR_TYPES["Q6_K" if whole else "Q8_0"]

    def _of_values(self) -> str | None:
        i, shared, mixture = self._values_seen, self._model.sharing >= 4, self._mixture
        found = None
        if mixture == "Q2_K":
            found = "Q4_K" if shared else "Q3_K"
        elif mixture == "Q2_K_S" and shared:
            found = "Q4_K"
        elif mixture == "Q3_K_M":
            found = "Q5_K" if i < 2 else "Q4_K"
        elif mixture == "Q3_K_L" or (mixture in ("IQ4_NL", "IQ4_XS") and shared):
            found = "Q5_K"
        elif mixture in ("Q4_K_M", "Q5_K_M") and _has_more_bits(i, self._values):
            found = "Q6_K"
        elif mixture == "Q4_K_S" and i < 4:
            found = "Q5_K"
        if self._model.has_70b and (found or self._default.name) in ("Q3_K", "Q4_K"):
            found = "Q5_K"
        return "Q8_0" if self._model.experts == 8 else found

    def _of_down(self, layer: int) -> str | None:
        layers, mixture, falcon = self._model.layers, self._mixture, self._model.architecture == "falcon"
        more, early = _has_more_bits(layer, layers), layer < layers // 8
        if mixture == "Q2_K":
            return "Q3_K"
        if mixture == "Q2_K_S":
            return "Q4_K" if early else None
        if mixture == "Q3_K_M":
            return "Q5_K" if layer < layers // 16 else "Q3_K" if falcon and not more else "Q4_K"
        if mixture == "Q3_K_L":
            return "Q4_K" if falcon else "Q5_K"
        if mixture == "Q4_K_M" and falcon:
            return "Q6_K" if layer < layers // 16 else "Q5_K" if more else "Q4_K"
        if mixture in ("Q4_K_M", "Q5_K_M"):
            return "Q6_K" if more else None
        if mixture in ("IQ4_NL", "IQ4_XS"):
            return "Q5_K" if early and not self._important else None
        return "Q5_K" if mixture == "Q4_K_S" and early and not falcon else None

    def _of_attention_output(self) -> str | None:
        mixture = self._mixture
        if self._model.architecture == "falcon":
            return "Q4_K" if mixture == "Q3_K_L" else None
        if self._model.experts == 8:
            low = ("Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS")
            return "Q5_K" if mixture in low else None
        return {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K"}.get(mixture)

    def _layer(self, name: str, seen: int) -> int:
        """The layer of a tensor: in models of experts that in its name, else the number of such tensors before it."""
        if self._model.experts <= 1:
            return seen
        found = _LAYER.match(name)
        if found is None or not 0 <= int(found[1]) < self._model.layers:
            detail = (
                f"'{excerpt(name)}' has no layer of the {self._model.layers} in its name, on which its type depends"
            )
            raise CheckpointError(f"{detail}: convert with --pure", file=self._file, tensor=name)
        return int(found[1])


def _has_more_bits(layer: int, layers: int) -> bool:
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
