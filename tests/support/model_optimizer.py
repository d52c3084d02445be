"""Checkpoints as NVIDIA ModelOpt exports them, with random codes and scales, and the numbers that they stand for.

The numbers are computed by numpy and ml_dtypes, with nothing of ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.hand_made_plan import Tensors
from tests.support.model_directory import LLAMA, save_model

BF16 = ml_dtypes.bfloat16
Shapes = Mapping[str, tuple[str | None, tuple[int, int]]]
"""The algorithm of a module, None if it is plain, and the shape of its weight."""


def stored(algorithm: str, shape: tuple[int, int], random: np.random.Generator) -> tuple[Tensors, np.ndarray]:
    """Return the tensors of a module by suffix, and its weight as bf16. Groups of W4A16_AWQ have 32 columns."""
    out, columns = shape
    scales: np.ndarray
    if "NVFP4" in algorithm:
        codes = random.integers(0, 256, (out, columns // 2), np.uint8)
        bytes_ = random.integers(0x20, 0x7F, (out, columns // 16), np.uint8)
        second = np.array(random.uniform(1e-5, 1e-4), np.float32)
        scales = bytes_.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * second
        numbers = e2m1(codes) * np.repeat(scales, 16, axis=1)
        tensors: Tensors = {
            "weight": ("U8", codes),
            "weight_scale": ("F8_E4M3", bytes_),
            "weight_scale_2": ("F32", second),
        }
    elif algorithm == "MXFP8":
        codes, bytes_ = e4m3_codes(shape, random), random.integers(110, 120, (out, columns // 32), np.uint8)
        numbers = e4m3(codes) * np.repeat(np.ldexp(np.float32(1), bytes_.astype(int) - 127), 32, axis=1)
        tensors = {"weight": ("F8_E4M3", codes), "weight_scale": ("U8", bytes_)}
    elif algorithm.startswith("FP8"):
        grid = {"FP8": (), "FP8_PER_CHANNEL_PER_TOKEN": (out,), "FP8_PB_WO": (-(-out // 128), 1, -(-columns // 128), 1)}
        codes, scales = e4m3_codes(shape, random), random.uniform(1e-4, 1e-3, grid[algorithm]).astype(np.float32)
        narrow = scales.astype(BF16).astype(np.float32)
        if algorithm == "FP8_PB_WO":
            narrow = np.repeat(np.repeat(narrow[:, 0, :, 0], 128, axis=0), 128, axis=1)[:out, :columns]
        numbers = e4m3(codes) * (narrow[:, None] if algorithm.endswith("TOKEN") else narrow)
        tensors = {"weight": ("F8_E4M3", codes), "weight_scale": ("F32", scales)}
    elif algorithm.startswith("W8A"):
        signed, scales = random.integers(-128, 128, shape, np.int8), random.uniform(1e-3, 1e-2, out).astype(np.float32)
        numbers = signed.astype(np.float32) * scales.astype(BF16).astype(np.float32)[:, None]
        tensors = {"weight": ("I8", signed), "weight_scale": ("F32", scales)}
    else:
        assert algorithm == "W4A16_AWQ"
        signed = random.integers(-8, 8, shape, np.int8)
        scales = random.uniform(1e-3, 1e-2, (out, columns // 32)).astype(np.float32)
        numbers = signed.astype(np.float32) * np.repeat(scales.astype(BF16).astype(np.float32), 32, axis=1)
        nibbles = signed.view(np.uint8) & 15
        tensors = {"weight": ("U8", nibbles[::2] | nibbles[1::2] << 4), "weight_scale": ("F32", scales)}
    weight = numbers.astype(BF16)
    if algorithm.endswith("AWQ"):
        smoothing = random.uniform(0.5, 2, columns).astype(BF16)
        tensors["pre_quant_scale"] = ("BF16", smoothing.view(np.uint16))
        weight = (weight.astype(np.float32) * smoothing.astype(np.float32)).astype(BF16)
    if "A16" not in algorithm and algorithm not in ("MXFP8", "FP8_PB_WO", "FP8_PER_CHANNEL_PER_TOKEN"):
        tensors["input_scale"] = ("F32", np.array(0.01, np.float32))
    return tensors, weight


def e4m3(codes: np.ndarray) -> np.ndarray:
    """The values of bytes, f32."""
    numbers: np.ndarray = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    return numbers


def e4m3_codes(shape: tuple[int, int], random: np.random.Generator) -> np.ndarray:
    """All codes of both signs but NaN."""
    codes: np.ndarray = random.integers(0, 0x7F, shape, np.uint8) | random.integers(0, 2, shape, np.uint8) << 7
    return codes


def e2m1(packed: np.ndarray) -> np.ndarray:
    """The values of two codes to a byte, the first in the lower half, without -0."""
    table = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32) + np.float32(0)
    numbers: np.ndarray = table[np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)]
    return numbers


def write_model(
    folder: Path,
    modules: Shapes,
    quantization: Mapping[str, Any],
    *,
    plain: Mapping[str, tuple[int, ...]] | None = None,
    caches: Sequence[str] = (),
    places: Sequence[str] = ("config.json", "hf_quant_config.json"),
    config: Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """Write a model in two files, and return its weights as bf16 by name.

    All that belongs to the weights of a module is in the file that does not have its codes. `plain`: other tensors.
    `caches`: names of scales of keys and values. `places`: the files that say how it is quantized.
    """
    random = np.random.default_rng(11)
    files: tuple[Tensors, Tensors] = {}, {}
    weights: dict[str, np.ndarray] = {}
    for name, shape in (plain or {}).items():
        weights[name] = random.standard_normal(shape).astype(BF16)
        files[0][name] = ("BF16", weights[name].view(np.uint16))
    for number, (module, (algorithm, shape)) in enumerate(modules.items()):
        if algorithm is None:
            weights[f"{module}.weight"] = random.standard_normal(shape).astype(BF16)
            files[number % 2][f"{module}.weight"] = ("BF16", weights[f"{module}.weight"].view(np.uint16))
            continue
        tensors, weights[f"{module}.weight"] = stored(algorithm, shape, random)
        for suffix, tensor in tensors.items():
            files[(number + (suffix != "weight")) % 2][f"{module}.{suffix}"] = tensor
    for name in caches:
        files[1][name] = ("F32", np.array(0.25, np.float32))
    members = dict(config or LLAMA)
    if "config.json" in places:
        members["quantization_config"] = converted(quantization)
    save_model(folder, files, members)
    if "hf_quant_config.json" in places:
        producer = {"name": "modelopt", "version": "0.47.0"}
        (folder / "hf_quant_config.json").write_text(json.dumps({"producer": producer, "quantization": quantization}))
    return weights


def converted(quantization: Mapping[str, Any]) -> dict[str, Any]:
    """What `convert_hf_quant_config_format` makes of it for config.json, but for the details of its groups."""
    members = {
        "config_groups": {"group_0": {"weights": {"dynamic": False, "num_bits": 4}, "targets": ["Linear"]}},
        "ignore": quantization.get("exclude_modules", []),
        "quant_algo": quantization["quant_algo"],
        "producer": {"name": "modelopt", "version": "0.47.0"},
        "quant_method": "modelopt",
    }
    if quantization.get("kv_cache_quant_algo") == "FP8":
        members["kv_cache_scheme"] = {"dynamic": False, "num_bits": 8, "type": "float"}
    if "quantized_layers" in quantization:
        members["quantized_layers"] = quantization["quantized_layers"]
    return members
