"""What torchao stores in safetensors, alone and by transformers: weights equal those that its tensors dequantize to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torchao.prototype.mx_formats.mx_tensor import MXTensor
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import (
    Float8Tensor,
    Float8WeightOnlyConfig,
    Int8Tensor,
    Int8WeightOnlyConfig,
    IntxUnpackedToInt8Tensor,
    MappingType,
    PerBlock,
    PerGroup,
    PerRow,
    PerTensor,
)
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, TorchAoConfig

from tests.interop.checkpoint.conversion import dequantize
from tests.interop.checkpoint.source_model import DTYPES, LLAMA, weights
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.rows import ONLY_READ
from tests.interop.conformance.subject import checkpoint

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

NAMES = {"bf16": "BF16", "f16": "F16", "f32": "F32"}
FP4 = torch.float4_e2m1fn_x2
TOKENS = torch.arange(64).reshape(2, 32) * 7 % LLAMA["vocab_size"]


def save(folder: Path, found: dict[str, torch.Tensor], files: int = 2) -> Path:
    """Save tensors in files, each with all of the metadata, as transformers does; scales may be in another one."""
    folder.mkdir()
    stored, metadata = flatten_tensor_state_dict(found)
    names = sorted(stored)
    places = {name: f"model-{number % files}.safetensors" for number, name in enumerate(names)}
    for file in set(places.values()):
        part = {name: stored[name].contiguous() for name in names if places[name] == file}
        save_file(part, folder / file, metadata={**metadata, "format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    quantization = {"quant_method": "torchao", "quant_type": {"default": {}}}
    (folder / "config.json").write_text(json.dumps({"dtype": "bfloat16", "quantization_config": quantization}))
    return folder


def assert_restored(tmp_path: Path, found: dict[str, torch.Tensor]) -> None:
    """In all dtypes, of which torchao takes each."""
    folder = save(tmp_path / "quantized", found)
    for name, dtype in DTYPES.items():
        target = dequantize(folder, tmp_path / name, NAMES[name])
        restored = {tensor: value for path in target.glob("*.safetensors") for tensor, value in load_file(path).items()}
        assert sorted(restored) == sorted(found)
        for tensor, value in found.items():
            plain = type(value) is torch.Tensor
            expected = value if plain else value.dequantize(dtype)
            ours = restored[tensor]
            assert ours.dtype == expected.dtype
            assert ours.shape == expected.shape
            # The payload of a NaN is that of a processor's instruction.
            numbers = ~expected.isnan()
            assert torch.equal(ours.isnan(), ~numbers), tensor
            bits = torch.uint16 if dtype.itemsize == 2 and not plain else torch.uint8
            same = ours[numbers].view(bits) if numbers.any() else ours[numbers]
            theirs = expected.contiguous()[numbers].view(bits) if numbers.any() else expected[numbers]
            assert torch.equal(same.to(torch.int32), theirs.to(torch.int32)), tensor
            if not plain:
                of = f"{type(value).__name__} of torchao"
                record(systems.TORCHAO, [checkpoint(of, "dequantize", ONLY_READ[of])], expected.numel())


def random_bytes(like: torch.Tensor, generator: torch.Generator, most: int = 256) -> torch.Tensor:
    return torch.randint(0, most, like.shape, generator=generator, dtype=torch.uint8).view(like.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_float8(dtype: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    found: dict[str, Any] = {"a.bias": torch.ones(7)}
    granularity = {"row": PerRow(), "tensor": PerTensor(), "block": PerBlock([64, 128]), "column": PerBlock([192, 1])}
    for element in (torch.float8_e4m3fn, torch.float8_e5m2):
        for name, each in granularity.items():
            weight = weights(generator, 192, 256, dtype=DTYPES[dtype])
            made = Float8Tensor.from_hp(weight, element, each)
            found[f"{name}.{str(element)[-4:]}.weight"] = made
            qdata = random_bytes(made.qdata, generator)
            scale = torch.randn(made.scale.shape, generator=generator) * 2.0 ** torch.randint(-140, 120, (1,))
            found[f"random.{name}.{str(element)[-4:]}.weight"] = Float8Tensor(
                qdata, scale, made.block_size, dtype=weight.dtype
            )
    assert_restored(tmp_path, found)


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers(dtype: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(2)
    found: dict[str, Any] = {}
    for kind in (MappingType.SYMMETRIC, MappingType.ASYMMETRIC):
        for granularity in (PerRow(), PerTensor(), PerGroup(32)):
            weight = weights(generator, 96, 256, dtype=DTYPES[dtype])
            name = f"{kind.name}{type(granularity).__name__}"
            found[f"{name}.int8.weight"] = Int8Tensor.from_hp(weight, granularity, kind)
        for bits in (2, 3, 4, 8):
            weight = weights(generator, 96, 256, dtype=DTYPES[dtype])
            found[f"{kind.name}.int{bits}.weight"] = IntxUnpackedToInt8Tensor.from_hp(
                weight, (1, 64), getattr(torch, f"int{bits}"), mapping_type=kind
            )
    made = found["ASYMMETRICPerRow.int8.weight"]
    scale = torch.randn(made.scale.shape, generator=generator) * 2.0 ** torch.randint(-140, 120, made.scale.shape)
    zero = random_bytes(made.zero_point, generator)
    qdata = random_bytes(made.qdata, generator)
    found["random.weight"] = Int8Tensor(qdata, scale, made.block_size, DTYPES[dtype], zero)
    # `dequantize` of the second class has no dtype but its own.
    for each in found.values():
        if isinstance(each, IntxUnpackedToInt8Tensor):
            parts = (each.qdata, each.scale, each.zero_point, each.target_dtype, each.block_size)
            each.dequantize = lambda to, parts=parts: IntxUnpackedToInt8Tensor.dequantize(
                IntxUnpackedToInt8Tensor(*parts, to, None)
            )
    assert_restored(tmp_path, found)


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_mx(dtype: str, swizzled: bool, tmp_path: Path) -> None:
    """All scale bytes with random codes, which are all in it."""
    generator = torch.Generator().manual_seed(3)
    found: dict[str, Any] = {}
    for element in (torch.float8_e4m3fn, torch.float8_e5m2, "fp6_e2m3", "fp6_e3m2", FP4):
        weight = weights(generator, 200, 160, dtype=DTYPES[dtype])
        name = str(element).rpartition(".")[2]
        made = MXTensor.to_mx(weight, element, 32, is_swizzled_scales=swizzled)
        found[f"{name}.weight"] = made
        qdata = random_bytes(made.qdata, generator, 64 if isinstance(element, str) else 256)
        scale = random_bytes(made.scale, generator)
        found[f"random.{name}.weight"] = MXTensor(
            qdata, scale, element, 32, weight.dtype, made.kernel_preference, None, swizzled
        )
    assert_restored(tmp_path, found)


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_nvfp4(dtype: str, swizzled: bool, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(4)
    found: dict[str, Any] = {}
    for shape in ((200, 208), (128, 64), (3, 16)):
        weight = weights(generator, *shape, dtype=DTYPES[dtype])
        for scale in (None, per_tensor_amax_to_scale(weight.abs().max())):
            made = NVFP4Tensor.to_nvfp4(weight, per_tensor_scale=scale, is_swizzled_scales=swizzled)
            name = f"{shape[0]}{'' if scale is None else '.whole'}"
            found[f"{name}.weight"] = made
            qdata, scales = random_bytes(made.qdata, generator), random_bytes(made.scale, generator)
            whole = None if scale is None else torch.tensor(1.7e-3)
            found[f"random.{name}.weight"] = NVFP4Tensor(
                qdata, scales, 16, weight.dtype, whole, torch.tensor(0.5), swizzled
            )
    assert_restored(tmp_path, found)


@pytest.mark.parametrize("how", [Int8WeightOnlyConfig(version=2), Float8WeightOnlyConfig()])
def test_transformers_computes_the_same(how: Any, tmp_path: Path) -> None:
    """Its logits of the quantized and of the plain model are the same, where a layer dequantizes its weight."""
    plain = LlamaForCausalLM(LlamaConfig(**{**LLAMA, "tie_word_embeddings": False})).to(torch.bfloat16)
    plain.save_pretrained(tmp_path / "plain")
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", dtype=torch.bfloat16, quantization_config=TorchAoConfig(how)
    )
    model.save_pretrained(tmp_path / "quantized", max_shard_size="500KB")
    assert len(list((tmp_path / "quantized").glob("*.safetensors"))) > 1
    restored = dequantize(tmp_path / "quantized", tmp_path / "restored")
    first, second = (
        AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
        for folder in (tmp_path / "quantized", restored)
    )
    expected = {
        name: value.dequantize() if hasattr(value, "dequantize") and type(value.data) is not torch.Tensor else value
        for name, value in first.state_dict().items()
    }
    for name, value in second.state_dict().items():
        assert torch.equal(value, expected[name]), name
    with torch.no_grad():
        logits = second(TOKENS).logits
        assert torch.allclose(first(TOKENS).logits.float(), logits.float(), atol=0.05)
