"""LLM.int8 beside bitsandbytes and transformers, and fbgemm's fp8 beside the matrix product that its layers call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from requant.checkpoint.quantization_config.methods import METHODS
from requant.checkpoint.weights.weight_format import StoredRows, WeightFormat
from tests.interop.checkpoint.conversion import dequantize
from tests.interop.checkpoint.source_model import DTYPES, llama, weights

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

NAMES = {"bf16": "BF16", "f16": "F16", "f32": "F32"}


def numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype in (torch.bfloat16, torch.float16):
        return np.asarray(tensor.view(torch.uint16))
    return np.asarray(tensor.view(torch.uint8) if tensor.dtype is torch.float8_e4m3fn else tensor)


def ours(form: WeightFormat, parts: dict[str, np.ndarray], shape: tuple[int, int], dtype: str) -> np.ndarray:
    return form.dequantize(StoredRows.whole(parts, form.stored("F32", shape), shape), dtype)


def equal(found: np.ndarray, expected: torch.Tensor) -> None:
    np.testing.assert_array_equal(found.view(np.uint8), numpy(expected.contiguous()).view(np.uint8))


def scales(rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    exponents = torch.randint(-120, 110, (rows,), generator=generator)
    return (torch.rand(rows, generator=generator) + 0.5) * torch.exp2(exponents.float())


@pytest.mark.parametrize("name", DTYPES)
def test_llm_int8(name: str) -> None:
    """Weights that it quantizes, and every code with scales of all magnitudes."""
    functional = pytest.importorskip("bitsandbytes.functional")
    form = METHODS["bitsandbytes"]({"load_in_8bit": True})
    stored = []
    for seed in range(4):
        weight = weights(torch.Generator().manual_seed(seed), 64, 256, dtype=torch.float16)
        stored.append(functional.int8_vectorwise_quant(weight)[:2])
    stored.append((torch.arange(-128, 128, dtype=torch.int8).repeat(200, 1), scales(200)))
    for codes, largest in stored:
        expected = functional.int8_vectorwise_dequant(codes, largest).to(DTYPES[name])
        parts = {"weight": numpy(codes), "SCB": numpy(largest)[None]}
        equal(ours(form, parts, (codes.shape[0], codes.shape[1]), NAMES[name]), expected)


@pytest.mark.parametrize("name", DTYPES)
def test_a_model_of_transformers_with_llm_int8(name: str, tmp_path: Path) -> None:
    """It quantizes a model on a CPU and saves it; ours has the weights that it dequantizes."""
    pytest.importorskip("bitsandbytes")
    source = llama(torch.bfloat16).save(tmp_path / "source")
    config = BitsAndBytesConfig(load_in_8bit=True)
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(source, quantization_config=config, dtype=torch.bfloat16, device_map="cpu")
    model.save_pretrained(tmp_path / "quantized")
    saved = {key for path in (tmp_path / "quantized").glob("*.safetensors") for key in load_file(path)}
    assert sum(key.endswith(".SCB") for key in saved) >= 7
    restored = dequantize(tmp_path / "quantized", tmp_path / "plain", NAMES[name])
    found = {key: each for path in restored.glob("*.safetensors") for key, each in load_file(path).items()}
    expected = model.dequantize(dtype=DTYPES[name]).state_dict()
    quantized = [key.removesuffix(".SCB") + ".weight" for key in saved if key.endswith(".SCB")]
    for key in quantized:
        assert found[key].dtype == DTYPES[name]
        assert torch.equal(found[key], expected[key].to(DTYPES[name])), key
    assert "quantization_config" not in json.loads((restored / "config.json").read_text())


@pytest.mark.parametrize("name", DTYPES)
def test_fbgemm_fp8(name: str) -> None:
    """The unit matrix through `torch._scaled_mm`, which `FbgemmFp8Linear.forward` calls where fbgemm is not."""
    form = METHODS["fbgemm_fp8"]({})
    codes = torch.arange(256, dtype=torch.uint8)
    codes = codes.masked_fill(codes & 0x7F == 0x7F, 0).repeat(64, 1).view(torch.float8_e4m3fn)
    of_rows = scales(64)[:, None]
    unit, ones = torch.eye(256).to(torch.float8_e4m3fn), torch.ones(256, 1)
    product = torch._scaled_mm(unit, codes.t(), scale_a=ones, scale_b=of_rows.t().contiguous(), out_dtype=DTYPES[name])
    found = ours(form, {"weight": numpy(codes), "weight_scale": numpy(of_rows)}, (64, 256), NAMES[name])
    # Equal as numbers: a sum with zeros has no -0.
    assert torch.equal(torch.from_numpy(found).view(DTYPES[name]), product.t())


def test_a_checkpoint_of_fbgemm(tmp_path: Path) -> None:
    """With the scales as `FbgemmFp8Linear` has them, [out, 1], and a bound of the activations."""
    weight = torch.randn(64, 128).to(torch.float8_e4m3fn)
    tensors = {
        "a.weight": weight,
        "a.weight_scale": torch.rand(64, 1),
        "a.input_scale_ub": torch.tensor([1200.0]),
        "a.bias": torch.zeros(64, dtype=torch.bfloat16),
    }
    (tmp_path / "source").mkdir()
    save_file(tensors, tmp_path / "source" / "model.safetensors", {"format": "pt"})
    config = {"quantization_config": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}}
    (tmp_path / "source" / "config.json").write_text(json.dumps(config))
    found = load_file(dequantize(tmp_path / "source", tmp_path / "plain") / "model.safetensors")
    assert found.keys() == {"a.weight", "a.bias"}
    assert torch.equal(found["a.weight"], (weight.float() * tensors["a.weight_scale"]).bfloat16())
