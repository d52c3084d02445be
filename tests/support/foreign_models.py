"""Small models as other programs quantize them, with random codes: Llama's names, scales in another file than codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.hand_made_plan import Tensors
from tests.support.model_directory import save_model

Shape = tuple[int, int]
HIDDEN, INNER, WORDS = 256, 384, 64
LINEAR: Mapping[str, Shape] = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.v_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_size": HIDDEN,
    "intermediate_size": INNER, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "vocab_size": WORDS, "tie_word_embeddings": False,
}  # fmt: skip
_ONE = 0x3F80
_BITS = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32}


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "BF16") -> tuple[str, np.ndarray]:
    """Scales from 2^-9 to 2^-5."""
    exact = (2.0 ** rng.uniform(-9, -5, shape)).astype(np.float32)
    if dtype == "F16":
        return dtype, exact.astype(np.float16).view(np.uint16)
    return dtype, exact if dtype == "F32" else (exact.view(np.uint32) >> 16).astype(np.uint16)


def integers(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "I32", low: int = -(2**31), high: int = 2**31
) -> tuple[str, np.ndarray]:
    arrays = {"I32": np.int32, "I8": np.int8, "U8": np.uint8, "F8_E4M3": np.uint8, "F8_E8M0": np.uint8}
    return dtype, rng.integers(low, high, shape).astype(arrays[dtype])


def finite_fp8(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[str, np.ndarray]:
    magnitudes = rng.integers(0, 0x7F, shape, np.uint8)
    return "F8_E4M3", magnitudes | rng.integers(0, 2, shape, np.uint8) << np.uint8(7)


@dataclass(frozen=True)
class Foreign:
    """A way to store weights: `parts` of one by suffix, what config.json says, and what a file's metadata do."""

    parts: Callable[[np.random.Generator, str, Shape], Tensors]
    quantization: Mapping[str, Any]
    described: Callable[[str], Mapping[str, Any]] | None = None
    beside: Callable[[np.random.Generator], Tensors] = field(default=lambda rng: {})


def save(folder: Path, foreign: Foreign, layers: int = 2, without: str = "") -> Path:
    """Write the model into files of which each has some tensors of every module. `without`: the name of one."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(11)
    found: Tensors = {"model.embed_tokens.weight": _plain(rng, (WORDS, HIDDEN))}
    texts: dict[str, str] = {}
    for layer in range(layers):
        for name, shape in LINEAR.items():
            module = f"model.layers.{layer}.{name}"
            parts = foreign.parts(rng, module, shape)
            found |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
            if foreign.described is not None:
                texts[f"{module}.weight"] = json.dumps(foreign.described(module))
        found[f"model.layers.{layer}.input_layernorm.weight"] = ("BF16", np.full(HIDDEN, _ONE, np.uint16))
    found["model.norm.weight"] = ("BF16", np.full(HIDDEN, _ONE, np.uint16))
    found["lm_head.weight"] = _plain(rng, (WORDS, HIDDEN))
    found |= foreign.beside(rng)
    plain = [name for name in found if name.endswith(("norm.weight", "embed_tokens.weight", "lm_head.weight"))]
    texts |= dict.fromkeys(plain, '{"_type": "Tensor"}')
    metadata = {"format": "pt"}
    if foreign.described is not None:
        metadata |= {**texts, "tensor_names": json.dumps(list(texts))}
    files: tuple[Tensors, Tensors, Tensors] = ({}, {}, {})
    found.pop(without, None)
    for number, (name, part) in enumerate(found.items()):
        files[number % 3][name] = part
    return save_model(folder, files, {**CONFIG, "quantization_config": dict(foreign.quantization)}, metadata)


def _plain(rng: np.random.Generator, shape: Shape) -> tuple[str, np.ndarray]:
    bits = rng.integers(_ONE - 7 * 128, _ONE + 128, shape, np.uint16)
    return "BF16", bits | rng.integers(0, 2, shape, np.uint16) << np.uint16(15)


def _words(rng: np.random.Generator, out: int, columns: int, bits: int) -> tuple[str, np.ndarray]:
    return integers(rng, (out, columns * bits // 32))


def _packed(rng: np.random.Generator, shape: Shape, bits: int, group: int, symmetric: bool) -> Tensors:
    out, columns = shape
    parts: Tensors = {
        "weight_packed": _words(rng, out, columns, bits),
        "weight_scale": numbers(rng, (out, columns // group)),
        "weight_shape": ("I64", np.array(shape)),
    }
    if not symmetric:
        parts["weight_zero_point"] = integers(rng, (out * bits // 32, columns // group))
    return parts


def _ordered(rng: np.random.Generator, module: str, shape: Shape) -> Tensors:
    g_idx = rng.permutation(np.arange(shape[1]) // 128).astype(np.int32)
    return {**_packed(rng, shape, 4, 128, False), "weight_g_idx": ("I32", g_idx)}


def _mixed(rng: np.random.Generator, module: str, shape: Shape) -> Tensors:
    """FP8 of attention but for v_proj, integers in bytes of gate_proj, and packed ones."""
    out, columns = shape
    if module.endswith("v_proj"):
        packed = integers(rng, (out, columns * 6 // 8), "U8", 0, 256)
        return {"weight_packed": packed, "weight_scale": integers(rng, (out, columns // 32), "U8", 110, 128)}
    if "self_attn" in module:
        return {"weight": finite_fp8(rng, shape), "weight_scale": numbers(rng, (out, 1))}
    if module.endswith("gate_proj"):
        codes = integers(rng, shape, "I8", -8, 8)
        return {"weight": codes, "weight_scale": numbers(rng, (out, columns // 128)), "input_scale": numbers(rng, (1,))}
    return _packed(rng, shape, 5, 128, True)


def _weights(bits: int, kind: str, strategy: str, group: int | None = None, **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": group, **more}


def _cache(rng: np.random.Generator) -> Tensors:
    return {f"model.layers.{at}.self_attn.{each}_scale": numbers(rng, (1,)) for at in range(2) for each in "kv"}


def _compressed_tensors(**groups: tuple[list[str], str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision",
        "config_groups": {
            name: {"targets": targets, "format": layout, "weights": weights}
            for name, (targets, layout, weights) in groups.items()
        },
    }


def _gptq(rng: np.random.Generator, module: str, shape: Shape) -> Tensors:
    out, columns = shape
    return {
        "qweight": integers(rng, (columns * 3 // 32, out)),
        "qzeros": integers(rng, (columns // 64, out * 3 // 32)),
        "scales": numbers(rng, (columns // 64, out), "F16"),
        "g_idx": ("I32", rng.permutation(np.arange(columns) // 64).astype(np.int32)),
    }


FOREIGN: dict[str, Foreign] = {
    "compressed-tensors, mixed": Foreign(
        _mixed,
        _compressed_tensors(
            a=(["Linear"], "pack-quantized", _weights(5, "int", "group", 128)),
            b=(["re:.*self_attn.*"], "float-quantized", _weights(8, "float", "channel")),
            c=(["re:.*gate_proj"], "int-quantized", _weights(4, "int", "group", 128)),
            d=([f"model.layers.{at}.self_attn.v_proj" for at in range(2)], "mxfp6-pack-quantized",
               _weights(6, "float", "group", 32, scale_dtype="torch.uint8")),
        ),
        beside=_cache,
    ),
    "compressed-tensors, ordered": Foreign(
        _ordered,
        _compressed_tensors(
            a=(["Linear"], "pack-quantized", _weights(4, "int", "group", 128, symmetric=False, actorder="group"))
        ),
    ),
    "GPTQ of 3 bits": Foreign(
        _gptq,
        {"quant_method": "gptq", "bits": 3, "group_size": 64, "sym": False, "desc_act": True},
    ),
}  # fmt: skip


def _auto_round(rng: np.random.Generator, module: str, shape: Shape) -> Tensors:
    """MXFP8 of attention, NVFP4 of down_proj, and MXFP4."""
    out, columns = shape
    codes = integers(rng, (out, columns // 2), "U8", 0, 256)
    if module.endswith("down_proj"):
        return {
            "weight_packed": codes,
            "weight_scale": integers(rng, (out, columns // 16), "F8_E4M3", 1, 0x7F),
            "weight_global_scale": ("F32", np.array([811.5], np.float32)),
            "input_global_scale": ("F32", np.array([3.5], np.float32)),
        }
    scales = integers(rng, (out, columns // 32), "U8", 110, 128)
    if "self_attn" in module:
        return {"weight": finite_fp8(rng, shape), "weight_scale": scales}
    return {"weight_packed": codes, "weight_scale": scales}


FOREIGN["auto-round, floats"] = Foreign(
    _auto_round,
    {
        "quant_method": "auto-round",
        "packing_format": "auto_round:llm_compressor",
        "data_type": "mx_fp",
        "bits": 4,
        "group_size": 32,
        "extra_config": {
            ".*self_attn.*": {"bits": 8},
            "lm_head": {"bits": 16},
            **{f"model.layers.{at}.mlp.down_proj": {"data_type": "nv_fp", "group_size": 16} for at in range(2)},
        },
    },
)


def _dtype(name: str) -> dict[str, str]:
    return {"_type": "torch.dtype", "_data": name}


def _torchao(rng: np.random.Generator, module: str, shape: Shape) -> Tensors:
    """A class of tensors for each kind of module."""
    out, columns = shape
    match module.rpartition(".")[2]:
        case "q_proj":
            return {"_weight_qdata": finite_fp8(rng, shape), "_weight_scale": numbers(rng, (out, 1), "F32")}
        case "k_proj":
            return {
                "_weight_qdata": integers(rng, shape, "I8", -128, 128),
                "_weight_scale": numbers(rng, (out, 1), "F32"),
                "_weight_zero_point": integers(rng, (out, 1), "I8", -128, 128),
            }
        case "v_proj":
            tiles = -(-out // 128) * 32, -(-columns // 128) * 16
            return {
                "_weight_qdata": finite_fp8(rng, shape),
                "_weight_scale": integers(rng, tiles, "F8_E8M0", 115, 125),
            }
        case "o_proj":
            return {
                "_weight_qdata": integers(rng, (out, columns // 2), "U8", 0, 256),
                "_weight_scale": integers(rng, (out, columns // 32), "F8_E8M0", 115, 125),
            }
        case "gate_proj":
            tiles = -(-out // 128) * 32, -(-columns // 64) * 16
            return {
                "_weight_qdata": integers(rng, (out, columns // 2), "U8", 0, 256),
                "_weight_scale": integers(rng, tiles, "F8_E4M3", 1, 0x7F),
                "_weight_per_tensor_scale": ("F32", np.array(0.0031, np.float32)),
                "_weight_act_per_tensor_scale": ("F32", np.array(0.5, np.float32)),
            }
        case _:
            return {
                "_weight_qdata": integers(rng, shape, "I8", -8, 8),
                "_weight_scale": numbers(rng, (out, columns // 64)),
                "_weight_zero_point": integers(rng, (out, columns // 64), "I8", -8, 8),
            }


_MX = {"block_size": 32, "orig_dtype": _dtype("bfloat16"), "is_swizzled_scales": False}
_DESCRIPTIONS: Mapping[str, tuple[str, dict[str, Any], list[str]]] = {
    "q_proj": ("Float8Tensor", {"block_size": [1, HIDDEN]}, []),
    "k_proj": ("Int8Tensor", {"block_size": [1, HIDDEN], "dtype": _dtype("bfloat16")}, ["zero_point"]),
    "v_proj": ("MXTensor", {**_MX, "elem_dtype": _dtype("float8_e4m3fn"), "is_swizzled_scales": True}, []),
    "o_proj": ("MXTensor", {**_MX, "elem_dtype": _dtype("float4_e2m1fn_x2")}, []),
    "gate_proj": (
        "NVFP4Tensor",
        {**_MX, "block_size": 16, "is_swizzled_scales": True},
        ["per_tensor_scale", "act_per_tensor_scale"],
    ),
}
_OTHERS = (
    "IntxUnpackedToInt8Tensor",
    {"block_size": [1, 64], "target_dtype": _dtype("int4"), "dtype": _dtype("bfloat16")},
    ["zero_point"],
)


def _description(module: str) -> Mapping[str, Any]:
    kind, data, parts = _DESCRIPTIONS.get(module.rpartition(".")[2], _OTHERS)
    return {"_type": kind, "_data": data, "_tensor_data_names": ["qdata", "scale", *parts]}


FOREIGN["torchao"] = Foreign(_torchao, {"quant_method": "torchao", "quant_type": {"default": {}}}, _description)


def _quark(rng: np.random.Generator, module: str, shape: Shape) -> Tensors:
    """FP8 of q_proj and k_proj, INT8 of v_proj, INT4 in groups of o_proj, NVFP4 of gate_proj, and MXFP4."""
    out, columns = shape
    codes = integers(rng, (out, columns // 2), "U8", 0, 256)
    match module.rpartition(".")[2]:
        case "q_proj":
            return {"weight": finite_fp8(rng, shape), "weight_scale": numbers(rng, (), "F32")}
        case "k_proj":
            return {
                "weight": finite_fp8(rng, shape),
                "weight_scale": numbers(rng, (out,)),
                "output_scale": numbers(rng, ()),
            }
        case "v_proj":
            zeros = ("I8", np.zeros(out, np.int8))
            return {
                "weight": integers(rng, shape, "I8", -128, 128),
                "weight_scale": numbers(rng, (out,), "F32"),
                "weight_zero_point": zeros,
            }
        case "o_proj":
            return {
                "weight": integers(rng, (columns, out // 8)),
                "weight_scale": numbers(rng, (columns // 64, out)),
                "weight_zero_point": integers(rng, (columns // 64, out // 8)),
            }
        case "gate_proj":
            return {
                "weight": codes,
                "weight_scale": integers(rng, (out, columns // 16), "F8_E4M3", 1, 0x7F),
                "weight_scale_2": ("F32", np.array(0.0031, np.float32)),
            }
        case _:
            return {"weight": codes, "weight_scale": integers(rng, (out, columns // 32), "U8", 110, 128)}


def _quark_weight(dtype: str, qscheme: str, **more: Any) -> dict[str, Any]:
    axis = {"per_channel": 0, "per_group": -1}.get(qscheme)
    return {"dtype": dtype, "qscheme": qscheme, "ch_axis": axis, "is_dynamic": False, "symmetric": True, **more}


FOREIGN["Quark"] = Foreign(
    _quark,
    {
        "quant_method": "quark",
        "global_quant_config": {"weight": _quark_weight("fp4", "per_group", group_size=32, scale_format="e8m0")},
        "layer_quant_config": {
            "*.q_proj": {"weight": _quark_weight("fp8_e4m3", "per_tensor")},
            "*k_proj": {"weight": _quark_weight("fp8_e4m3", "per_channel")},
            "model.layers.[01].self_attn.v_proj": {"weight": _quark_weight("int8", "per_channel", symmetric=False)},
            "*self_attn.?_proj": {"weight": _quark_weight("uint4", "per_group", group_size=64, symmetric=False)},
            "*gate_proj": {
                "weight": [
                    _quark_weight("fp4", "per_group", group_size=16),
                    _quark_weight("fp8_e4m3", "per_tensor", is_scale_quant=True),
                ]
            },
        },
        "exclude": ["lm_head", "*norm"],
        "export": {"pack_method": "reorder", "weight_format": "real_quantized", "kv_cache_group": []},
    },
)
