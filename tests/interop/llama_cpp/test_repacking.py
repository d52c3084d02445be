"""Repacked models beside gguf-py and llama.cpp: the numbers of what a GGUF file becomes, and the logits of what is made
of it again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from requant.checkpoint.gguf.quantize import quantize_gguf
from requant.checkpoint.plan.model import CopyStep, DequantizeStep, Direction, Request
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.stored_weight import Files, weight_of
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoints import dequantize_checkpoint, quantize_checkpoint, repack_checkpoint
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint
from tests.interop.llama_cpp import tiny_model
from tests.interop.llama_cpp.library import logits, needs_llama_cpp

pytestmark = pytest.mark.interop

Array = NDArray[Any]
SCHEMES = {
    "Q8_0": "W8A16:group=32", "Q5_0": "W5A16:group=32", "Q4_0": "W4A16:group=32", "MXFP4": "MXFP4A16",
    "Q6_K": "W6A16:group=16",
}  # fmt: skip
TOKENS = [1, 270, 280, 290, 5]
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_attention_heads": tiny_model.HEADS,
    "num_key_value_heads": tiny_model.HEADS // 2,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `f32.gguf`, and with `like`, which has the config.json of the same model and no weights."""
    directory = tmp_path_factory.mktemp("models")
    tiny_model.write(directory / "f32.gguf", "F32")
    (directory / "like").mkdir()
    (directory / "like" / "config.json").write_text(json.dumps(CONFIG))
    return directory


def of_type(models: Path, type_: str) -> Path:
    """The model with its linear layers in blocks, quantized by our conversion, whose bytes are llama-quantize's."""
    store, target = LocalStore(models), models / f"{type_}.gguf"
    if not target.exists():
        ignore = ["token_embd.weight", "output.weight"]
        scheme = {"Q4_K": "Q4_K_M"}.get(type_, type_)
        quantize_gguf(store, "f32.gguf", store, target.name, scheme, ignore=ignore, pure=True)
    return target


def read_by_gguf_py(path: Path) -> dict[str, Array]:
    """The values of a file by gguf-py, by the names and in the order that transformers has."""
    found = {}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, tiny_model.LAYERS)
    theirs = {
        names.get_name(name, (".weight",)): name
        for name in [
            "model.embed_tokens.weight",
            "model.norm.weight",
            "lm_head.weight",
            *(
                f"model.layers.{layer}.{module}.weight"
                for layer in range(tiny_model.LAYERS)
                for module in (
                    *(f"self_attn.{each}_proj" for each in "qkvo"),
                    *(f"mlp.{each}_proj" for each in ("gate", "up", "down")),
                    "input_layernorm",
                    "post_attention_layernorm",
                )
            ),
        ]
    }
    for tensor in gguf.GGUFReader(path).tensors:
        values = np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
        for part, heads in (("attn_q.", tiny_model.HEADS), ("attn_k.", tiny_model.HEADS // 2)):
            if part in tensor.name:
                # transformers 5.23, `LlamaTensorProcessor`.
                values = values.reshape(heads, -1, 2, values.shape[-1]).swapaxes(2, 1).reshape(values.shape)
        found[theirs[tensor.name]] = values
    return found


def numbers_of(directory: Path) -> dict[str, Array]:
    """The numbers of a quantized directory."""
    store = LocalStore(directory)
    plan = plan_conversion(store, Request(Direction.DEQUANTIZE, (), ""))
    files = Files.of(store, plan.sources)
    found = {}
    for step in plan.steps:
        assert isinstance(step, CopyStep | DequantizeStep)
        if len(step.source.shape) == 2:
            weight = weight_of(files, step.source)
            found[step.output] = weight.numbers(0, weight.shape[0])
    return found


@pytest.mark.parametrize("type_", SCHEMES)
def test_numbers_equal_those_of_gguf_py(type_: str, models: Path, tmp_path: Path) -> None:
    source = of_type(models, type_)
    repack_checkpoint(source, tmp_path / "out", SCHEMES[type_], like=models / "like", dtype="F32")
    expected, compared = read_by_gguf_py(source), 0
    for name, held in numbers_of(tmp_path / "out").items():
        assert np.array_equal(held, expected[name])
        compared += held.size
    assert compared == sum(each.size for each in expected.values() if each.ndim == 2)
    record(systems.GGUF, [checkpoint(type_, "dequantize", "GGUF")], compared)


@pytest.mark.parametrize("type_", ["Q4_K", "Q2_K", "Q5_1", "IQ4_NL"])
def test_floats_equal_those_of_gguf_py(type_: str, models: Path, tmp_path: Path) -> None:
    source = of_type(models, type_)
    dequantize_checkpoint(source, tmp_path / "out", like=models / "like", dtype="F32")
    data = (tmp_path / "out" / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    compared = 0
    for name, expected in read_by_gguf_py(source).items():
        first, last = (begin + each for each in json.loads(data[8:begin])[name]["data_offsets"])
        held = np.frombuffer(data[first:last], "<f4")
        assert np.array_equal(held, expected.reshape(-1))
        compared += held.size
    record(systems.GGUF, [checkpoint(type_, "dequantize", "GGUF")], compared)


@needs_llama_cpp
@pytest.mark.parametrize("type_", ["Q8_0", "Q5_0", "Q4_0", "MXFP4"])
def test_llama_cpp_computes_the_same_of_what_comes_back(type_: str, models: Path, tmp_path: Path) -> None:
    source = of_type(models, type_)
    repack_checkpoint(source, tmp_path / "out", SCHEMES[type_], like=models / "like", dtype="F32")
    repack_checkpoint(tmp_path / "out", tmp_path / "back.gguf", type_, like=models / "f32.gguf")
    before, after = (logits(path, TOKENS, tiny_model.VOCABULARY) for path in (source, tmp_path / "back.gguf"))
    assert np.isfinite(before).all()
    assert np.array_equal(before, after)


@needs_llama_cpp
def test_llama_cpp_multiplies_by_the_scales_of_nvfp4(models: Path, tmp_path: Path) -> None:
    """Beside the model with the numbers in F32. llama.cpp rounds activations to 8 bits for NVFP4, and not for F32."""
    dequantize_checkpoint(models / "f32.gguf", tmp_path / "plain", like=models / "like", dtype="F32")
    quantize_checkpoint(tmp_path / "plain", tmp_path / "mx", "MXFP4A16")
    repack_checkpoint(tmp_path / "mx", tmp_path / "nv", "NVFP4A16")
    repack_checkpoint(tmp_path / "nv", tmp_path / "nvfp4.gguf", "NVFP4", like=models / "f32.gguf")
    store = LocalStore(tmp_path)
    scales = {
        each.name: each.data[0] for each in gguf.GGUFReader(tmp_path / "nvfp4.gguf").tensors if ".scale" in each.name
    }
    assert len(scales) == 7 * tiny_model.LAYERS
    assert all(0 < each < 0.01 for each in scales.values())
    # The same numbers, which MXFP4 holds without a scale for the weight.
    repack_checkpoint(tmp_path / "mx", tmp_path / "mxfp4.gguf", "MXFP4", like=models / "f32.gguf")
    quantize_gguf(store, "mxfp4.gguf", store, "plain.gguf", "F32")
    found, expected, without = (
        logits(tmp_path / name, TOKENS, tiny_model.VOCABULARY) for name in ("nvfp4.gguf", "plain.gguf", "mxfp4.gguf")
    )
    spread = float(np.abs(expected).max())
    assert np.abs(found - expected).max() < 0.05 * spread
    assert np.abs(without - expected).max() < 0.05 * spread
