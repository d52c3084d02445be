"""Fine-grained fp8, the GPTQ layout, NF4 and AWQ beside the libraries that write and load them, on a CPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.weights.auto_round import AutoRoundMx, AutoRoundNvfp4
from requant.checkpoint.weights.fine_grained_fp8 import FineGrainedFp8
from requant.checkpoint.weights.gptq import Gptq
from requant.checkpoint.weights.nf4 import STATE, Nf4
from requant.checkpoint.weights.weight_format import StoredRows, WeightFormat
from tests.interop.checkpoint.conversion import dequantize, quantize
from tests.interop.checkpoint.source_model import DTYPES, LLAMA, llama, weights
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.rows import GPTQ_OF_3_BITS, ONLY_READ
from tests.interop.conformance.subject import checkpoint
from tests.interop.conformance.systems import System
from tests.support.stored_weights import quantized

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

NAMES = {"bf16": "BF16", "f16": "F16", "f32": "F32"}
TOKENS = torch.arange(96).reshape(3, 32) * 5 % LLAMA["vocab_size"]


def bits(tensor: torch.Tensor) -> np.ndarray:
    """What numpy sees of a tensor, in the elements that we use for its dtype."""
    if tensor.dtype in (torch.bfloat16, torch.float16):
        return np.asarray(tensor.contiguous().view(torch.uint16))
    if tensor.element_size() == 1:
        return np.asarray(tensor.contiguous().view(torch.uint8))
    return np.asarray(tensor.contiguous())


def stored(form: WeightFormat, weight: torch.Tensor, dtype: str) -> dict[str, np.ndarray]:
    return quantized(form, bits(weight), NAMES[dtype], 2 * form.rows_together)


def equal(ours: np.ndarray, theirs: torch.Tensor) -> None:
    np.testing.assert_array_equal(ours.reshape(-1).view(np.uint8), bits(theirs).reshape(-1).view(np.uint8))


def both(scheme: str, system: System, weight: torch.Tensor, left: Mapping[str, int] | None = None) -> None:
    """Record that a weight was quantized and dequantized as by the library; `left`: what dequantization leaves out."""
    profile = scheme_named(scheme).profiles[0]
    record(system, [checkpoint(scheme, "quantize", profile)], weight.numel())
    elements = weight.numel() - sum((left or {}).values())
    record(system, [checkpoint(scheme, "dequantize", profile)], elements, 0, left)


def sources(dtype: torch.dtype) -> list[torch.Tensor]:
    """Weights of many magnitudes, and such that f32 log2 of their scale is a power of two that it is not."""
    generator = torch.Generator().manual_seed(7)
    found = [weights(generator, 256, 512, dtype=dtype) for _ in range(4)]
    eights = 448 * 2.0 ** torch.arange(-20, 4).repeat_interleave(2)
    powers = torch.zeros(128 * 24, 256)
    powers[::128, ::128] = eights.reshape(24, 2)
    if dtype is not torch.float16:
        found.append(powers.to(dtype))
    if dtype is torch.float32:
        beside = torch.zeros(128 * 64, 128 * 10)
        places = torch.arange(-16, 48, dtype=torch.int32)
        exact = (448 * 2.0 ** torch.arange(-30, 10, 4)).to(torch.float32).view(torch.int32)
        beside[::128, ::128] = (exact[None] + places[:, None]).view(torch.float32)
        found.append(beside)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale_format", ["float", "ue8m0"])
def test_fine_grained_fp8_of_transformers(scale_format: str, dtype: str) -> None:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

    config = SimpleNamespace(weight_block_size=(128, 128), scale_fmt=scale_format)
    library: Any = Fp8Quantize(SimpleNamespace(quantization_config=config))
    form = FineGrainedFp8("F32" if scale_format == "float" else "F8_E8M0")
    for weight in sources(DTYPES[dtype]):
        expected = library.convert({"a.weight": weight})
        found = stored(form, weight, dtype)
        equal(found["weight"], expected["a.weight"])
        equal(found["weight_scale_inv"], expected["a.weight_scale_inv"])
        read: Any = Fp8Dequantize(library.hf_quantizer)
        plain = read._dequantize_one(expected["a.weight"], expected["a.weight_scale_inv"], DTYPES[dtype])
        shape = (weight.shape[0], weight.shape[1])
        rows = StoredRows.whole(found, form.stored(NAMES[dtype], shape), shape)
        equal(form.dequantize(rows, NAMES[dtype]), plain)
        both("FINE_GRAINED_FP8" if scale_format == "float" else "FINE_GRAINED_FP8_UE8M0", systems.TRANSFORMERS, weight)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("width", [8, 4, 2])
def test_gptq_of_auto_round(width: int, symmetric: bool, dtype: str) -> None:
    """Codes and scales are equal, and zero points but for their borrowing (`requant.checkpoint.weights.gptq`)."""
    missing_tensors = pytest.importorskip("auto_round.utils.missing_tensors")
    for weight in sources(DTYPES[dtype])[:4]:
        for group in (32, 128, 512):
            codes, zeros, scales = missing_tensors.quantize_weight_rtn(weight, width, group, symmetric)
            found = stored(Gptq(width, symmetric, group, version=2), weight, dtype)
            equal(found["qweight"], codes)
            equal(found["scales"], scales)
            ones = sum(1 << shift for shift in range(0, 32, width))
            of_library = zeros.numpy().astype(np.int64)
            np.testing.assert_array_equal((found["qzeros"].astype(np.int64) - ones - of_library) % (1 << 32), 0)
            subject = checkpoint(f"GPTQ_W{width}A16", "quantize", "auto-round")
            record(systems.AUTO_ROUND, [subject], weight.numel(), 0, {"auto_round_borrowed_zero_point": 0})


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("width", [2, 3, 4, 8])
def test_gptq_weights_of_auto_round(width: int, version: int, dtype: str) -> None:
    """What its layers multiply with, of any codes and zero points, in the order of activations too.

    A zero point of 0 is stored in version 1 as the highest, to which these layers add 1, and GPTQModel modulo 2^b.
    """
    qlinear = pytest.importorskip("auto_round_extension.torch.qlinear_torch_zp" if version == 1 else QLINEAR)
    rows, columns, group = 96, 256, 64
    generator = torch.Generator().manual_seed(width)
    layer = qlinear.QuantLinear(width, group, columns, rows, False)
    highest = 2**31
    for name in ("qweight", "qzeros"):
        shape = getattr(layer, name).shape
        setattr(layer, name, torch.randint(-highest, highest, shape, generator=generator).to(torch.int32))
    scales = torch.randn(layer.scales.shape, generator=generator) * 2.0 ** torch.randint(-12, 8, (rows,))
    layer.scales = scales.to(DTYPES[dtype])
    permuted = torch.arange(columns, dtype=torch.int32)[torch.randperm(columns, generator=generator)] // group
    for g_idx in (torch.arange(columns, dtype=torch.int32) // group, permuted):
        layer.g_idx = g_idx
        form = Gptq(width, False, group, version, NAMES[dtype], has_g_idx=True, ragged=True)
        parts = {name: bits(getattr(layer, name)) for name in ("qweight", "qzeros", "scales", "g_idx")}
        parts["g_idx"] = parts["g_idx"][None]
        rows_of = StoredRows.whole(parts, form.stored(NAMES[dtype], (rows, columns)), (rows, columns))
        ours = torch.from_numpy(form.dequantize(rows_of, NAMES[dtype])).view(DTYPES[dtype])
        theirs = layer(torch.eye(columns, dtype=DTYPES[dtype])).t()
        # A product with the unit matrix adds zeros, which take the sign of -0.
        compared, left = ~(ours.isinf() | theirs.isnan()), {}
        if version == 1:
            stored_zeros = torch.from_numpy(_fields(parts["qzeros"], width)[:, :rows].T.copy())
            borrowed = (stored_zeros == 2**width - 1)[:, g_idx.long()]
            compared, left = compared & ~borrowed, {"auto_round_borrowed_zero_point": int(borrowed.sum())}
        assert torch.equal(ours[compared], theirs[compared])
        name = GPTQ_OF_3_BITS if width == 3 else f"GPTQ_W{width}A16"
        elements = int((compared & (ours != 0)).sum())
        record(systems.AUTO_ROUND, [checkpoint(name, "dequantize", "auto-round")], elements, 0, left)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["MXFP4", "MXFP8", "NVFP4"])
def test_float_weights_of_auto_round(kind: str, dtype: str) -> None:
    """What its layers multiply with, of all codes with all scale bytes."""
    qmodules = pytest.importorskip("auto_round.experimental.qmodules")
    layer_class = getattr(qmodules, f"{kind}QuantLinear")
    rows, columns = 256, 256
    settings = SimpleNamespace(group_size=16, act_group_size=16)
    layer = layer_class(columns, rows, settings, dtype=DTYPES[dtype])
    codes = torch.arange(256, dtype=torch.uint8).repeat(rows, 1)
    scale_bytes = torch.arange(256, dtype=torch.uint8)[:, None].repeat(1, 16 if kind == "NVFP4" else 8)
    form: WeightFormat = AutoRoundNvfp4() if kind == "NVFP4" else AutoRoundMx(int(kind[-1]))
    for whole in (811.5, 0.0, 1e-42, 2.0**126) if kind == "NVFP4" else (1.0,):
        parts = {}
        if kind == "MXFP8":
            layer.weight = codes.view(torch.float8_e4m3fn)
            parts["weight"] = bits(codes)
        else:
            layer.weight_packed = codes[:, ::2].contiguous()
            parts["weight_packed"] = bits(layer.weight_packed)
        if kind == "NVFP4":
            layer.weight_scale = scale_bytes.view(torch.float8_e4m3fn)
            layer.weight_global_scale = torch.tensor([whole])
            layer._cached_weight = None
            parts["weight_global_scale"] = bits(layer.weight_global_scale)[None]
        else:
            layer.weight_scale = scale_bytes
        parts["weight_scale"] = bits(scale_bytes)
        theirs = layer.dequant_weight_online().to(DTYPES[dtype])
        stored_rows = StoredRows.whole(parts, form.stored(NAMES[dtype], (rows, columns)), (rows, columns))
        ours = torch.from_numpy(form.dequantize(stored_rows, NAMES[dtype])).view(DTYPES[dtype])
        assert torch.equal(ours.isnan(), theirs.isnan())
        numbers = ~ours.isnan()
        # As bits: the sign of a zero counts.
        integers = torch.int32 if dtype == "f32" else torch.int16
        assert torch.equal(ours[numbers].view(integers), theirs[numbers].view(integers))
        name = f"{kind} of AutoRound"
        record(systems.AUTO_ROUND, [checkpoint(name, "dequantize", ONLY_READ[name])], ours.numel())


QLINEAR = "auto_round_extension.torch.qlinear_torch"


def _fields(words: np.ndarray, width: int) -> np.ndarray:
    planes = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
    fields: np.ndarray = (planes.reshape(len(words), -1, width).astype(np.int64) << np.arange(width)).sum(2)
    return fields


@pytest.mark.parametrize("width", [4, 8])
def test_files_of_auto_round(width: int, tmp_path: Path) -> None:
    """Its model-free mode makes the same tensors of a whole checkpoint, and says the same of them in config.json.

    Compiled by torch.compile, which is its default on some systems, it gives other bits.
    """
    auto_round = pytest.importorskip("auto_round")
    source = llama(torch.bfloat16).save(tmp_path / "source")
    run = auto_round.AutoRound(
        str(source), scheme=f"W{width}A16", group_size=32, model_free=True, iters=0, enable_torch_compile=False
    )
    run.quantize_and_save(str(tmp_path / "theirs"), format="auto_round")
    ours = quantize(source, tmp_path / "ours", f"GPTQ_W{width}A16:group=32", profile="auto-round")
    tensors = [
        {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}
        for folder in (ours, tmp_path / "theirs")
    ]
    assert tensors[0].keys() == tensors[1].keys()
    for name, tensor in tensors[0].items():
        equal(bits(tensor), tensors[1][name])
    said = [
        json.loads((folder / "config.json").read_text())["quantization_config"]
        for folder in (ours, tmp_path / "theirs")
    ]
    for member in ("quant_method", "packing_format", "bits", "group_size", "sym", "data_type", "autoround_version"):
        assert said[0][member] == said[1][member], member
    assert said[1]["extra_config"].items() <= said[0]["extra_config"].items()


@pytest.mark.parametrize("dtype", DTYPES)
def test_nf4_of_bitsandbytes(dtype: str) -> None:
    functional = pytest.importorskip("bitsandbytes.functional")
    form = scheme_named("NF4").format("bitsandbytes")
    found = sources(DTYPES[dtype])
    for weight in [*found, found[0][:7, :33].contiguous(), found[1][:1, :1].contiguous()]:
        codes, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4")
        of_ours = stored(form, weight, dtype)
        equal(of_ours["weight"], codes)
        for suffix, tensor in state.as_dict(packed=True).items():
            equal(of_ours[f"weight.{suffix}"], tensor)
        shape = (weight.shape[0], weight.shape[1])
        ours = form.dequantize(StoredRows.whole(of_ours, form.stored(NAMES[dtype], shape), shape), NAMES[dtype])
        theirs = functional.dequantize_4bit(codes, state)
        if dtype == "bf16":
            # With AVX512-BF16 its rounding flushes subnormals.
            smallest = torch.finfo(torch.bfloat16).smallest_normal
            is_zero = bits(torch.where(theirs.abs() < smallest, 0.0, theirs.double())) == 0
            assert (ours[is_zero] & 0x7F80 == 0).all()
            ours, theirs = ours[~is_zero], theirs[torch.from_numpy(~is_zero)]
        equal(ours, theirs)
        left = {"bitsandbytes_subnormals": int(np.count_nonzero(is_zero))} if dtype == "bf16" else {}
        both("NF4", systems.BITSANDBYTES, weight, left)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nf4_of_bitsandbytes_with_quantized_scales(dtype: str) -> None:
    functional = pytest.importorskip("bitsandbytes.functional")
    for weight in sources(DTYPES[dtype])[:2]:
        codes, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=True)
        parts = {f"weight.{suffix}": bits(tensor)[None] for suffix, tensor in state.as_dict(packed=True).items()}
        form = Nf4(parts[STATE].size, nested=True)
        shape = (weight.shape[0], weight.shape[1])
        rows = StoredRows.whole({"weight": bits(codes), **parts}, form.stored("F32", shape), shape)
        assert rows.dtypes.keys() == rows.parts.keys()
        # In f32, into which nothing is flushed.
        state.dtype = torch.float32
        equal(form.dequantize(rows, "F32"), functional.dequantize_4bit(codes, state))


@pytest.mark.parametrize("dtype", DTYPES)
def test_awq_of_autoawq(dtype: str) -> None:
    """AutoAWQ casts the model to f16, quantizes, dequantizes, and packs what comes of that."""
    quantizer = pytest.importorskip("awq.quantize.quantizer")
    gemm = pytest.importorskip("awq.modules.linear.gemm")
    packing = pytest.importorskip("awq.utils.packing_utils")
    form = scheme_named("AWQ").format("autoawq")
    settings = SimpleNamespace(group_size=128, zero_point=True, w_bit=4)
    for weight in sources(DTYPES[dtype])[:4]:
        half = weight.half()
        plain, scales, zeros = quantizer.AwqQuantizer.pseudo_quantize_tensor(settings, half.clone())
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=torch.float16)
        linear.weight.data = plain
        expected = gemm.WQLinear_GEMM.from_linear(
            linear, 4, 128, False, scales.t().contiguous(), zeros.t().contiguous()
        )
        found = stored(form, weight, dtype)
        for suffix in ("qweight", "qzeros", "scales"):
            equal(found[suffix], getattr(expected, suffix))
        shape = (weight.shape[0], weight.shape[1])
        ours = form.dequantize(StoredRows.whole(found, form.stored(NAMES[dtype], shape), shape), "F16")
        read = packing.dequantize_gemm(expected.qweight, expected.qzeros, expected.scales, 4, 128)
        equal(ours, read.t().contiguous())
        both("AWQ", systems.AUTOAWQ, weight)


def loaded(folder: Path) -> torch.nn.Module:
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", device_map="cpu").eval()
    return model


def applied(layer: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = layer(rows)
        return found


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(TOKENS).logits
        return found


LOADED = {
    "FINE_GRAINED_FP8": (),
    "FINE_GRAINED_FP8_UE8M0": (),
    "GPTQ_W4A16:group=32": ("auto_round",),
    "GPTQ_W4A16:group=32,asymmetric": ("auto_round",),
    "GPTQ_W8A16": ("auto_round",),
    "GPTQ_W2A16:channel": ("auto_round",),
    "NF4": ("bitsandbytes",),
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("scheme", LOADED)
def test_transformers_loads(scheme: str, tied: bool, tmp_path: Path) -> None:
    """Its layers multiply by the weights that our dequantization writes, and its logits are near the source's.

    A layer's weight is what it makes of the identity: that sum has one term that is not zero. Sums of several
    terms depend on how the weight lies in memory where the processor has instructions for BF16, as AutoRound's
    lies transposed. bitsandbytes multiplies by kernels of its own.
    """
    for library in LOADED[scheme]:
        pytest.importorskip(library)
    source = llama(torch.bfloat16, tied=tied).save(tmp_path / "source")
    profile = scheme_named(scheme).profiles[0]
    ours = quantize(source, tmp_path / "ours", scheme, profile=profile)
    quantized, plain = loaded(ours), loaded(dequantize(ours, tmp_path / "restored", profile=profile))
    if scheme != "NF4":
        linear = {name: layer for name, layer in plain.named_modules() if isinstance(layer, torch.nn.Linear)}
        assert linear
        for name, layer in linear.items():
            identity = torch.eye(layer.in_features, dtype=torch.bfloat16)
            assert torch.equal(applied(quantized.get_submodule(name), identity), applied(layer, identity)), name
    found, restored = logits(quantized).float(), logits(plain).float()
    assert found.isfinite().all()
    assert (found - restored).norm() < 0.01 * restored.norm()
    exact = logits(loaded(source)).float()
    bound = {"2": 2.0, "4": 0.5, "8": 0.1}[scheme.replace("NF", "_W").replace("GRAINED_FP", "_W").partition("_W")[2][0]]
    assert (found - exact).norm() < bound * exact.norm()
