"""Weights and calibration of NVIDIA ModelOpt beside ModelOpt, and weights beside compressed-tensors' converter of them.

The tests import ModelOpt when they run, so that it takes its seconds in one process only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from requant.checkpoint.quantization_config.model_optimizer import formats_from_config
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.verify.verification import verify
from requant.checkpoint.weights.floats import values
from requant.checkpoint.weights.weight_format import StoredRows, StoredTensor
from tests.core.calibration.methods.observation import find, samples
from tests.interop.calibration_cases import CalibrationComparison
from tests.interop.checkpoint.conversion import dequantize, quantize
from tests.interop.checkpoint.source_model import DTYPES, LLAMA, llama
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint
from tests.support.stored_weights import matrix

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

NAMES = {"bf16": "BF16", "f16": "F16", "f32": "F32"}
HOSTILE = [
    0x7FC00000, 0x7F800000, 0xFF800000, 0, 0x80000000, 1, 0x00400000, 0x7F7FFFFF, 0xBF800000, 0x3F800001, 0x39B0D20D,
    0x3FB50913, 0x47800000, 0x33000001, 0x3F808000, 0x3F818000,
]  # fmt: skip
BYTES = torch.arange(256, dtype=torch.uint8)
NIBBLES = (BYTES[:16:2] | BYTES[1:16:2] << 4).repeat(256, 1)
STORED = {
    torch.uint8: "U8", torch.int8: "I8", torch.float8_e4m3fn: "F8_E4M3", torch.float32: "F32", torch.bfloat16: "BF16",
}  # fmt: skip


def scales(count: int) -> torch.Tensor:
    """Hostile ones, and others of all magnitudes."""
    random = np.random.default_rng(1)
    rest = random.standard_normal(count) * 2.0 ** random.integers(-140, 120, count)
    hostile = np.array(HOSTILE, np.uint32).view(np.float32)
    return torch.from_numpy(np.append(hostile, rest.astype(np.float32))[:count])


def numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype is torch.float8_e4m3fn:
        return np.asarray(tensor.view(torch.uint8))
    return np.asarray(tensor.view(torch.uint16) if tensor.dtype in (torch.bfloat16, torch.float16) else tensor)


def ours(algorithm: str, stored: dict[str, torch.Tensor], dtype: str, group: int | None = None) -> np.ndarray:
    form = formats_from_config({"quant_algo": algorithm, "group_size": group}).every
    assert form is not None
    tensors = {name: StoredTensor(name, STORED[each.dtype], tuple(each.shape)) for name, each in stored.items()}
    resolved, shape = form.resolve_from_stored(tensors, None)
    expected = {each.suffix: each for each in resolved.stored("F32", shape)}
    assert expected.keys() == stored.keys()
    parts = {name: numpy(each).reshape(matrix(expected[name].shape)) for name, each in stored.items()}
    dtypes = {name: each.dtype for name, each in tensors.items()}
    return resolved.dequantize(StoredRows(parts, dtypes, shape, 0, shape[0]), dtype)


def equal(found: np.ndarray, expected: torch.Tensor, dtype: str) -> None:
    """Equal bits, but for those of NaN."""
    nan = np.isnan(values(found, dtype))
    np.testing.assert_array_equal(nan, expected.isnan().numpy())
    integers = np.uint32 if dtype == "F32" else np.uint16
    np.testing.assert_array_equal(found.view(integers)[~nan], numpy(expected).view(integers)[~nan])


@pytest.fixture
def qtensor() -> Any:
    return import_module("modelopt.torch.quantization.qtensor")


@pytest.fixture
def mtq() -> Any:
    return import_module("modelopt.torch.quantization")


@pytest.fixture
def export() -> Any:
    return import_module("modelopt.torch.export")


def record_scheme(scheme: str, operation: str, elements: int) -> None:
    record(systems.MODEL_OPTIMIZER, [checkpoint(scheme, operation, "modelopt")], elements)


@pytest.mark.parametrize("name", DTYPES)
def test_nvfp4(qtensor: Any, name: str) -> None:
    """All codes with all scales, and hostile second ones."""
    dtype, bytes_ = DTYPES[name], BYTES[:, None].view(torch.float8_e4m3fn)
    for second in scales(30):
        weight = qtensor.NVFP4QTensor(torch.Size((256, 16)), dtype, NIBBLES)
        expected = weight.dequantize(dtype, scale=bytes_, double_scale=second, block_sizes={-1: 16})
        stored = {"weight": NIBBLES, "weight_scale": bytes_, "weight_scale_2": second}
        equal(ours("NVFP4", stored, NAMES[name]), expected, NAMES[name])
    record_scheme("MODELOPT_W4A16_NVFP4", "dequantize", 30 * 2 * NIBBLES.numel())


@pytest.mark.parametrize("name", DTYPES)
def test_mx(qtensor: Any, name: str) -> None:
    dtype = DTYPES[name]
    codes, bytes_ = BYTES.repeat(256, 1).view(torch.float8_e4m3fn), BYTES[:, None].repeat(1, 8)
    expected = qtensor.MXFP8QTensor(torch.Size((256, 256)), dtype, codes).dequantize(dtype, scale=bytes_)
    equal(ours("MXFP8", {"weight": codes, "weight_scale": bytes_}, NAMES[name]), expected, NAMES[name])
    packed, each = NIBBLES.repeat(1, 2), BYTES[:, None].contiguous()
    weight = qtensor.MXFP4QTensor(torch.Size((256, 32)), dtype, packed)
    expected = weight.dequantize(dtype, scale=each, block_sizes={-1: 32})
    equal(ours("MXFP4", {"weight": packed, "weight_scale": each}, NAMES[name]), expected, NAMES[name])


def cases(
    qtensor: Any, dtype: torch.dtype
) -> Iterator[tuple[str, dict[str, torch.Tensor], Callable[[], torch.Tensor]]]:
    codes, many = BYTES.repeat(100, 1), scales(100)
    eights, signed = codes.view(torch.float8_e4m3fn), codes.view(torch.int8)
    fp8, int8 = (qtensor.FP8QTensor(codes.shape, dtype, eights), qtensor.INT8QTensor(codes.shape, dtype, signed))
    by_row = {"weight": eights, "weight_scale": many}
    yield "FP8_PER_CHANNEL_PER_TOKEN", by_row, lambda: fp8.dequantize(dtype, scale=many[:, None])
    yield "W8A16", {**by_row, "weight": signed}, lambda: int8.dequantize(dtype, scale=many[:, None])
    for scale in many[:40]:
        yield "FP8", {"weight": eights, "weight_scale": scale}, lambda scale=scale: fp8.dequantize(dtype, scale=scale)  # type: ignore[misc]
    for size in (16, 128):
        grid = many[-7:, None][: -(-100 // size)].repeat(1, 256 // size)
        sizes = {-1: size, -2: size}
        yield (
            "FP8_PB_WO",
            {"weight": eights, "weight_scale": grid},
            lambda grid=grid, sizes=sizes: fp8.dequantize(dtype, scale=grid, block_sizes=sizes),  # type: ignore[misc]
        )


@pytest.mark.parametrize("name", DTYPES)
def test_fp8_and_int8(qtensor: Any, name: str) -> None:
    for algorithm, stored, expected in cases(qtensor, DTYPES[name]):
        group = 256 // stored["weight_scale"].shape[1] if algorithm == "FP8_PB_WO" else None
        theirs = expected()
        equal(ours(algorithm, stored, NAMES[name], group), theirs, NAMES[name])
        if (scheme := f"MODELOPT_{algorithm}") in WRITTEN:
            record_scheme(scheme, "dequantize", theirs.numel())


def test_the_packing_of_int4() -> None:
    """Codes with a scale of 1 are the numbers that were packed."""
    export = import_module("modelopt.torch.export.quant_utils")
    codes = torch.randint(-8, 8, (20, 64), generator=torch.Generator().manual_seed(0)).float()
    ones = torch.ones(20, 2)
    packed = export.pack_int4_in_uint8(codes, ones, 32)
    equal(ours("W4A16_AWQ", {"weight": packed, "weight_scale": ones}, "F32"), codes, "F32")


def test_the_config() -> None:
    """What it writes in config.json says the same as its own file."""
    convert: Any = import_module("modelopt.torch.export.convert_hf_config").convert_hf_quant_config_format
    layers = {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4", "group_size": 16}}
    for stated in (
        {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head", "model.layers.0.*"]},
        {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]},
        {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "exclude_modules": []},
    ):
        other = formats_from_config({"quant_method": "modelopt", "quantization": stated})
        of_config = formats_from_config(convert({"quantization": stated, "producer": {"name": "modelopt"}}))
        assert of_config.excluded == other.excluded
        assert of_config.layers == other.layers
        assert type(of_config.every) is type(other.every)


def test_compressed_tensors_converts_to_the_same_numbers() -> None:
    """Its NVFP4 divides by the reciprocal of weight_scale_2, which is exact for powers of two; its -0 is 0 here."""
    converters: Any = import_module("compressed_tensors.entrypoints.convert.converters")
    compressors: Any = import_module("compressed_tensors.compressors")
    quantization: Any = import_module("compressed_tensors.quantization")
    scheme = quantization.QuantizationScheme(**quantization.quant_scheme.NVFP4A16, targets=["Linear"])
    compressor = compressors.BaseCompressor.get_value_from_registry("nvfp4-pack-quantized")
    bytes_ = BYTES[:0x7F, None].contiguous().view(torch.float8_e4m3fn)
    for exponent in range(-40, 20):
        stored = {
            "weight": NIBBLES[:0x7F],
            "weight_scale": bytes_,
            "weight_scale_2": torch.tensor(2.0**exponent),
            "input_scale": torch.tensor(0.5),
        }
        converter = converters.ModelOptNvfp4Converter(targets=["re:.*"])
        converted = converter.process({f"a.{name}": each for name, each in stored.items()})
        local = {name.removeprefix("a."): each for name, each in converted.items()}
        theirs = compressor.decompress(local, scheme)["weight"]
        del stored["input_scale"]
        np.testing.assert_array_equal(values(ours("NVFP4", stored, "BF16"), "BF16"), theirs.float().numpy())


CONFIGS = [
    "FP8_DEFAULT_CFG",
    "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
    "NVFP4_DEFAULT_CFG",
    "W4A16_NVFP4_CFG",
    "MXFP8_DEFAULT_CFG",
    "MXFP4_DEFAULT_CFG",
    "INT8_WEIGHT_ONLY_CFG",
    "INT8_SMOOTHQUANT_CFG",
    "INT4_AWQ_CFG",
]
# Its search among 3 powers of the activations instead of 11.
QUICKLY = {"INT4_AWQ_CFG": {"algorithm": {"method": "awq_lite", "alpha_step": 0.5}}}
TOKENS = torch.arange(64).reshape(2, 32) * 7 % LLAMA["vocab_size"]


@pytest.mark.parametrize("name", CONFIGS)
def test_an_exported_model(mtq: Any, export: Any, name: str, tmp_path: Path) -> None:
    """Its export of a whole model on a CPU: the plain model computes nearly what the source does.

    Also where ModelOpt has moved scales from weights to activations, and where its own file alone says what is stored.
    """
    source = llama(torch.bfloat16).save(tmp_path / "source")
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(source, dtype=torch.bfloat16).eval()
    with torch.inference_mode():
        exact = model(TOKENS).logits.float()
        mtq.quantize(model, {**getattr(mtq, name), **QUICKLY.get(name, {})}, forward_loop=lambda each: each(TOKENS))
        export.export_hf_checkpoint(model, export_dir=tmp_path / "exported")
    if name in ("W4A16_NVFP4_CFG", "MXFP8_DEFAULT_CFG"):
        (tmp_path / "exported" / "config.json").write_text((source / "config.json").read_text())
    restored = dequantize(tmp_path / "exported", tmp_path / "plain")
    plain = load(restored, dtype=torch.bfloat16).eval()
    with torch.inference_mode():
        found = plain(TOKENS).logits.float()
    bound = 0.5 if "4" in name else 0.1
    assert (found - exact).norm() < bound * exact.norm()
    left = {key for path in restored.glob("*.safetensors") for key in load_file(path)}
    assert left == {key for path in source.glob("*.safetensors") for key in load_file(path)}


WRITTEN = {
    "MODELOPT_FP8_PER_CHANNEL_PER_TOKEN": "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "MODELOPT_FP8_PB_WO": "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
    "MODELOPT_W4A16_NVFP4": "W4A16_NVFP4_CFG",
}


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("scheme", WRITTEN)
def test_our_files_are_those_of_its_export(mtq: Any, export: Any, scheme: str, name: str, tmp_path: Path) -> None:
    """Of a model without rows of zeros, where it stops: the bytes of all tensors, and what its two files say."""
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(**{**LLAMA, "intermediate_size": 448})).to(DTYPES[name])
    with torch.no_grad():
        for number, (key, parameter) in enumerate(model.named_parameters()):
            if "_proj" in key:
                # Of magnitudes from subnormal scales to large ones, with groups of zeros, ties and -0.
                parameter *= 2.0 ** (number % 7 - 3)
                parameter[:, 32:64] *= 2.0**-9
                parameter[1::2, 64:96] = 0
                parameter[::3, 96:112] = torch.arange(16) * 0.25 * parameter[0, 0].abs() * (1 - 2 * (number % 2))
    model.save_pretrained(tmp_path / "source")
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(tmp_path / "source", dtype=DTYPES[name]).eval()
    with torch.inference_mode():
        mtq.quantize(model, getattr(mtq, WRITTEN[scheme]), forward_loop=lambda each: each(TOKENS))
        export.export_hf_checkpoint(model, export_dir=tmp_path / "theirs")
    ours = quantize(tmp_path / "source", tmp_path / "ours", scheme, profile="modelopt")
    found, expected = (
        {key: each for path in folder.glob("*.safetensors") for key, each in load_file(path).items()}
        for folder in (ours, tmp_path / "theirs")
    )
    assert found.keys() == expected.keys()
    for key, each in expected.items():
        assert found[key].dtype == each.dtype, key
        assert found[key].shape == each.shape, key
        np.testing.assert_array_equal(
            found[key].reshape(-1).view(torch.uint8).numpy(), each.reshape(-1).view(torch.uint8).numpy(), key
        )
    # Bytes, as of whole directories.
    record_scheme(scheme, "quantize", sum(each.nbytes for each in expected.values()))
    for folder in (ours, tmp_path / "theirs"):
        stated = json.loads((folder / "hf_quant_config.json").read_text())
        assert stated == json.loads((ours / "hf_quant_config.json").read_text())
    said = [
        json.loads((each / "config.json").read_text())["quantization_config"] for each in (ours, tmp_path / "theirs")
    ]
    assert said[0] == said[1]
    assert verify(open_store(str(ours)), open_store(str(tmp_path / "source"))).faults == ()


def test_calibration_by_entropy() -> None:
    """Histograms of few bins: its search takes seconds for 2048, which `tests/vectors` have."""
    calibrator: Any = import_module("modelopt.torch.quantization.calib").HistogramCalibrator
    rng = np.random.default_rng(7)
    comparison = CalibrationComparison(
        "Model Optimizer HistogramCalibrator", systems.MODEL_OPTIMIZER, "entropy_model_optimizer"
    )

    def theirs(tensor: np.ndarray, first: int, **settings: Any) -> list[float]:
        histogram = calibrator(**settings)
        histogram.collect(torch.from_numpy(tensor))
        largest = histogram.compute_amax("entropy", start_bin=first).item()
        return [-largest, largest]

    for index in range(100):
        tensor = samples(rng, int(rng.integers(1, 400)), 10.0 ** rng.integers(-44, 33))
        bits, unsigned, bins = int(rng.integers(2, 6)), bool(rng.integers(2)), int(rng.choice([2, 7, 64, 100, 257]))
        first, levels = int(rng.integers(1, bins + 1)), 1 << (bits - 1 + unsigned)
        comparison.add(
            (index, bits, unsigned, bins, first),
            partial(find, "entropy_model_optimizer", [tensor], bins=bins, quantized_bins=levels, first_bins=first),
            partial(theirs, tensor, first, num_bits=bits, unsigned=unsigned, num_bins=bins),
        )
    comparison.finish(100)
