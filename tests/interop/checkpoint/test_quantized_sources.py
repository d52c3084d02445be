"""Models that are quantized when they are published, as transformers loads them and as we convert them.

What transformers computes of the stored tensors on a CPU is what our dequantization writes, with the same logits.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from llmcompressor.modeling.moe.conversion_mappings import patch_moe_mappings
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.conversion_mapping import get_checkpoint_conversion_mapping, register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightRenaming
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from requant.checkpoint.run.verdicts import Outcome
from requant.checkpoints import repack_checkpoint
from tests.interop.checkpoint.conversion import CPU, dequantize, quantize
from tests.interop.checkpoint.decompression import decompressed, tensors
from tests.interop.checkpoint.quantized_models import deepseek_v4, e4m3_codes, gpt_oss
from tests.interop.checkpoint.source_model import SourceModel
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.rows import FP4_OF_DEEPSEEK, MXFP4_OF_GPT_OSS, ONLY_READ
from tests.interop.conformance.subject import checkpoint

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
TOKENS = torch.arange(64).reshape(2, 32) * 7 % 256
PLAIN_IN_DEEPSEEK = ("default", "re:.*compressor.*", "re:.*indexer.*")


def loaded(folder: Path) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the logits of a model, all of whose weights are in the files, and its weights."""
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        return model.eval()(TOKENS).logits, model.state_dict()


def loaded_with_linear_experts(folder: Path) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the same of a model whose experts llm-compressor makes linear modules while transformers loads them."""
    from llmcompressor.modeling.moe.linearize import load_quantizable_moe

    kind = AutoConfig.from_pretrained(folder).model_type
    mapping = get_checkpoint_conversion_mapping(kind)
    try:
        with load_quantizable_moe(AutoModelForCausalLM):
            model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    finally:
        register_checkpoint_conversion_mapping(kind, mapping or [], overwrite=True)
    with torch.no_grad():
        return model.eval()(TOKENS).logits, model.state_dict()


def unquantized(source: SourceModel, numbers: dict[str, torch.Tensor]) -> SourceModel:
    """Return the model of a quantized one with these weights."""
    of_quantization = ("expert_dtype", "quantization_config")
    config = {name: value for name, value in source.config.items() if name not in of_quantization}
    return SourceModel(config, (numbers,))


def record_values(name: str, elements: int) -> None:
    """Record what was dequantized as by transformers."""
    record(systems.TRANSFORMERS, [checkpoint(name, "dequantize", ONLY_READ.get(name, "transformers"))], elements)


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether the bits are the same, but for those of a NaN."""
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        return False
    bits = [each.contiguous().reshape(-1).view(torch.uint8) for each in (first, second)]
    if torch.equal(*bits):
        return True
    nan = first.isnan()
    size = first.element_size()
    known = (~nan).reshape(-1).repeat_interleave(size)
    return bool(torch.equal(nan, second.isnan())) and bool(torch.equal(bits[0][known], bits[1][known]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_deepseek_bit_by_bit(dtype: str, tmp_path: Path) -> None:
    """All bytes of E2M1 codes with all scales; all codes of FP8 with all scales of one byte, and with random ones."""
    generator = torch.Generator().manual_seed(5)
    every = torch.arange(256, dtype=torch.uint8)
    fp8 = every[:, None].expand(256, 256).contiguous()
    stored = {
        "fp4.weight": every[None, :].expand(256, 256).contiguous().view(torch.int8),
        "fp4.scale": every[:, None].expand(256, 16).contiguous().view(torch.float8_e8m0fnu),
        "fp4_u8.weight": every[None, :].expand(256, 256).contiguous().view(torch.int8),
        "fp4_u8.scale": every[:, None].expand(256, 16).contiguous(),
        "fp8.weight": fp8.view(torch.float8_e4m3fn),
        "fp8.scale": every[None, :].clone().view(torch.float8_e8m0fnu),
        "fp8_u8.weight": fp8.clone().view(torch.float8_e4m3fn),
        "fp8_u8.scale": every[None, :].clone(),
        "fp8_f32.weight": e4m3_codes(generator, 256, 256),
        "fp8_f32.weight_scale_inv": torch.randn(1, 256, generator=generator) * 2.0**-20,
    }
    fp8_config = {"quant_method": "fp8", "weight_block_size": [256, 1]}
    config = {"expert_dtype": "fp4", "quantization_config": fp8_config}
    source = SourceModel(config, (stored,)).save(tmp_path / "source")
    ours = tensors(dequantize(source, tmp_path / "plain", dtype))
    dequantizer = Fp8Dequantize(None)
    for name, tensor in ours.items():
        scale = stored.get(name.replace("weight", "scale"), stored.get(f"{name}_scale_inv"))
        assert scale is not None
        assert same(tensor, dequantizer._dequantize_one(stored[name], scale, DTYPES[dtype])), name
        fp8 = "FINE_GRAINED_FP8" if scale.dtype == torch.float32 else "FINE_GRAINED_FP8_UE8M0"
        record_values(FP4_OF_DEEPSEEK if name.startswith("fp4") else fp8, tensor.numel())


@pytest.mark.parametrize("experts", ["fp4", "fp8"])
def test_deepseek_v4(experts: str, tmp_path: Path) -> None:
    source = deepseek_v4(tmp_path / "names", experts=experts).save(tmp_path / "source")
    logits, weights = loaded(source)
    assert logits.isfinite().all()
    plain = dequantize(source, tmp_path / "plain")
    plain_logits, plain_weights = loaded(plain)
    assert same(logits, plain_logits)
    assert weights.keys() == plain_weights.keys()
    for name, tensor in weights.items():
        # transformers keeps norms of a quantized model in F32.
        assert same(tensor, plain_weights[name].to(tensor.dtype)), name
    of_experts = sum(tensor.numel() for name, tensor in weights.items() if ".mlp.experts." in name)
    record_values(FP4_OF_DEEPSEEK if experts == "fp4" else "FINE_GRAINED_FP8", of_experts)


def test_deepseek_v4_to_fp8_blocks(tmp_path: Path) -> None:
    """Blocks whose scales are powers of two hold the numbers of FP4 within 14 exponents, and those of FP8 with 448."""
    source = deepseek_v4(tmp_path / "names").save(tmp_path / "source")
    converted = quantize(source, tmp_path / "fp8", "FINE_GRAINED_FP8_UE8M0", PLAIN_IN_DEEPSEEK, profile="transformers")
    assert same(loaded(converted)[0], loaded(source)[0])


@pytest.mark.parametrize("scheme", ["NVFP4A16", "MXFP4A16"])
def test_deepseek_v4_experts_to_4_bits(scheme: str, tmp_path: Path) -> None:
    """Groups of 16 that hold a 6 have a power of two for a scale in NVFP4 as well.

    transformers 5.23 puts NVFP4 experts together without their global scales.
    """
    ignore = (*PLAIN_IN_DEEPSEEK, "re:.*attn.*", "re:.*shared_experts.*")
    source = deepseek_v4(tmp_path / "names", largest_in_groups=True).save(tmp_path / "source")
    logits, _ = loaded(source)
    converted = quantize(source, tmp_path / "converted", scheme, ignore)
    assert same(loaded(converted)[0], logits) == (scheme == "MXFP4A16")
    assert same(loaded_with_linear_experts(converted)[0], logits)


@pytest.mark.parametrize("scheme", ["NVFP4A16", "FP8_BLOCK"])
def test_deepseek_v4_is_loaded_as_it_is_rounded(scheme: str, tmp_path: Path) -> None:
    source = deepseek_v4(tmp_path / "names").save(tmp_path / "source")
    converted = quantize(source, tmp_path / "converted", scheme, PLAIN_IN_DEEPSEEK)
    plain = tensors(dequantize(converted, tmp_path / "plain"))
    logits, weights = loaded_with_linear_experts(converted)
    assert logits.isfinite().all()
    for name, tensor in plain.items():
        if ".ffn.experts." in name:
            for theirs, ours in (("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3")):
                name = name.replace(f".{ours}.", f".{theirs}.")
            assert same(weights[f"model.{name.replace('.ffn.', '.mlp.')}"], tensor), name
    elements = sum(tensor.numel() for tensor in plain.values())
    record(systems.COMPRESSED_TENSORS, [checkpoint(scheme, "dequantize", CPU)], elements)


def test_deepseek_v4_is_repacked(tmp_path: Path) -> None:
    """transformers gets the numbers that compressed-tensors makes of the new codes and scales, and the logits stay."""
    source = deepseek_v4(tmp_path / "names")
    logits, weights = loaded(source.save(tmp_path / "source"))
    repack_checkpoint(tmp_path / "source", tmp_path / "converted", scheme="FP8_BLOCK")
    numbers = decompressed(tmp_path / "converted")
    found_logits, found = loaded(unquantized(source, numbers).save(tmp_path / "numbers"))
    assert same(found_logits, logits)
    assert all(same(tensor, found[name].to(tensor.dtype)) for name, tensor in weights.items())


def test_deepseek_v4_to_blocks_of_compressed_tensors(tmp_path: Path) -> None:
    """transformers 5.23 alone cannot put experts together whose scales are those of blocks; all else is loaded."""
    source = deepseek_v4(tmp_path / "names").save(tmp_path / "source")
    with pytest.raises(RuntimeError, match="automatic conversion of the weights"):
        loaded(quantize(source, tmp_path / "all", "FP8_BLOCK", PLAIN_IN_DEEPSEEK))
    converted = quantize(source, tmp_path / "others", "FP8_BLOCK", (*PLAIN_IN_DEEPSEEK, r"re:.*\.experts\..*"))
    assert loaded(converted)[0].isfinite().all()


def loaded_with_experts_of_modules(folder: Path) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the same of a gpt-oss whose experts are linear modules in the files, too."""
    names = ("gate_proj", "up_proj", "down_proj")
    renamings = [WeightRenaming(rf"\.experts\.(\d+)\.{name}\.", rf".experts.\1.{name}.") for name in names]
    with patch_moe_mappings("gpt_oss", renamings):
        return loaded_with_linear_experts(folder)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gpt_oss_bit_by_bit(dtype: str, tmp_path: Path) -> None:
    """All bytes of codes with all scales."""
    every = torch.arange(256, dtype=torch.uint8)
    blocks = torch.stack([every[None, :].expand(256, 256), every.flip(0)[None, :].expand(256, 256)])
    stored = {
        "a.experts.gate_up_proj_blocks": blocks.reshape(2, 256, 16, 16).contiguous(),
        "a.experts.gate_up_proj_scales": every[None, :, None].expand(2, 256, 16).contiguous(),
    }
    config = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    source = SourceModel(config, (stored,)).save(tmp_path / "source")
    ours = tensors(dequantize(source, tmp_path / "plain", dtype))
    expected = convert_moe_packed_tensors(*stored.values(), dtype=DTYPES[dtype])
    assert same(ours["a.experts.gate_up_proj"], expected)
    record_values(MXFP4_OF_GPT_OSS, expected.numel())


def test_gpt_oss(tmp_path: Path) -> None:
    source = gpt_oss().save(tmp_path / "source")
    logits, weights = loaded(source)
    assert logits.isfinite().all()
    plain_logits, plain_weights = loaded(dequantize(source, tmp_path / "plain"))
    assert same(logits, plain_logits)
    assert weights.keys() == plain_weights.keys()
    assert all(same(tensor, plain_weights[name]) for name, tensor in weights.items())
    of_experts = (tensor.numel() for name, tensor in weights.items() if name.endswith(("gate_up_proj", "down_proj")))
    record_values(MXFP4_OF_GPT_OSS, sum(of_experts))


@pytest.mark.parametrize("scheme", ["W8A8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4A16"])
@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_gpt_oss_is_quantized_as_in_memory(scheme: str, dtype: str, tmp_path: Path) -> None:
    """What llm-compressor makes of the model in memory, where experts are linear modules, is stored byte for byte."""
    source = gpt_oss(DTYPES[dtype], quantized=False).save(tmp_path / "source")
    expected = tensors(oneshot(source, tmp_path / "theirs", scheme))
    found = tensors(quantize(source, tmp_path / "ours", scheme, ("default",)))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert same(found[name], tensor), name
    # Bytes, as of whole directories.
    compared = sum(tensor.nbytes for tensor in expected.values())
    record(systems.LLM_COMPRESSOR, [checkpoint(scheme, "quantize", CPU)], compared)


@pytest.mark.parametrize("scheme", ["NVFP4A16", "MXFP4A16"])
def test_experts_of_gpt_oss_to_4_bits(scheme: str, tmp_path: Path) -> None:
    """Groups of 16 that hold a 6 keep their numbers, and the logits are those of the source with linear experts.

    llm-compressor multiplies in another order than transformers.
    """
    source = gpt_oss(largest_in_groups=True).save(tmp_path / "source")
    expected, weights = loaded_with_linear_experts(source)
    converted = quantize(source, tmp_path / "converted", scheme, ("default", "re:.*self_attn.*"))
    logits, _ = loaded_with_experts_of_modules(converted)
    assert same(logits, expected)
    for name, tensor in tensors(dequantize(converted, tmp_path / "plain")).items():
        assert torch.equal(weights[name], tensor), name
    with pytest.raises(AssertionError, match="missing_keys"):
        loaded(converted)


def test_experts_of_gpt_oss_to_fp8_blocks(tmp_path: Path) -> None:
    """Scales of BF16 round, and what they round to is loaded. The activations' groups of 128 do not fit 96 columns."""
    source = gpt_oss().save(tmp_path / "source")
    converted = quantize(source, tmp_path / "converted", "FP8_BLOCK", ("default",))
    plain = tensors(dequantize(converted, tmp_path / "plain"))
    with pytest.raises(RuntimeError, match="unflatten"):
        loaded_with_experts_of_modules(converted)
    originals = tensors(dequantize(source, tmp_path / "original"))
    for layer in range(2):
        experts = f"model.layers.{layer}.mlp.experts"
        for expert in range(4):
            for part, first in (("gate_proj", 0), ("up_proj", 1)):
                before = originals[f"{experts}.gate_up_proj"][expert, :, first::2].T.float()
                after = plain[f"{experts}.{expert}.{part}.weight"].float()
                assert (before - after).abs().max() <= before.abs().max() / 16
                bias = originals[f"{experts}.gate_up_proj_bias"][expert, first::2]
                assert same(plain[f"{experts}.{expert}.{part}.bias"], bias)


def with_stacked_experts(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors with the experts of a gpt-oss as transformers has them: gate and up interleaved, transposed."""
    stacked = {name: tensor for name, tensor in found.items() if ".experts." not in name}
    for block in {name.partition(".experts.")[0] for name in found.keys() - stacked.keys()}:
        for part in ("weight", "bias"):
            gate, up, down = (
                torch.stack([found[f"{block}.experts.{expert}.{name}_proj.{part}"] for expert in range(4)])
                for name in ("gate", "up", "down")
            )
            both = torch.stack([gate, up], dim=2).flatten(1, 2)
            for name, tensor in (("gate_up_proj", both), ("down_proj", down)):
                if part == "weight":
                    stacked[f"{block}.experts.{name}"] = tensor.transpose(1, 2).contiguous()
                else:
                    stacked[f"{block}.experts.{name}_bias"] = tensor
    return stacked


@pytest.mark.parametrize("scheme", ["NVFP4A16", "FP8_BLOCK", "MXFP4A16"])
def test_gpt_oss_is_repacked(scheme: str, tmp_path: Path) -> None:
    """The numbers that compressed-tensors makes of the new codes and scales are those of the source, of random groups.

    transformers loads experts stacked, so it gets these numbers instead, and the logits stay.
    """
    source = gpt_oss()
    logits, weights = loaded(source.save(tmp_path / "source"))
    report = repack_checkpoint(tmp_path / "source", tmp_path / "converted", scheme=scheme)
    of_experts = [name for name in report.verdicts if ".experts." in name and name.endswith(".weight")]
    assert len(of_experts) == 24
    assert {report.verdicts[name].outcome for name in of_experts} == {Outcome.EXACT}
    theirs = decompressed(tmp_path / "converted")
    ours = tensors(dequantize(tmp_path / "converted", tmp_path / "plain"))
    assert theirs.keys() == ours.keys()
    for name, tensor in theirs.items():
        assert same(tensor, ours[name]), name
    found_logits, found = loaded(unquantized(source, with_stacked_experts(theirs)).save(tmp_path / "numbers"))
    assert same(found_logits, logits)
    assert found.keys() == weights.keys()
    assert all(same(tensor, found[name]) for name, tensor in weights.items())
    elements = sum(theirs[name].numel() for name in of_experts)
    record(systems.COMPRESSED_TENSORS, [checkpoint(scheme, "dequantize", CPU)], elements)


@pytest.mark.parametrize("scheme", ["NVFP4A16", "FP8_BLOCK", "W8A8"])
def test_gpt_oss_with_plain_experts(scheme: str, tmp_path: Path) -> None:
    """transformers loads it, and those of llm-compressor, which it makes of the dequantized one."""
    source = gpt_oss().save(tmp_path / "source")
    ignore = ("re:.*experts.*", "re:.*router", "lm_head", "model.embed_tokens")
    logits, weights = loaded(quantize(source, tmp_path / "ours", scheme, ignore))
    plain = dequantize(source, tmp_path / "plain")
    expected, _ = loaded(quantize(plain, tmp_path / "twice", scheme, ignore))
    assert logits.isfinite().all()
    assert same(logits, expected)
    experts = tensors(plain)
    assert all(same(weights[name], tensor) for name, tensor in experts.items() if ".experts." in name)


def oneshot(source: Path, target: Path, scheme: str) -> Path:
    """Quantize a model in memory by llm-compressor, without data, and save it."""
    from llmcompressor import oneshot
    from llmcompressor.modeling.moe.linearize import load_quantizable_moe
    from llmcompressor.modifiers.quantization import QuantizationModifier

    with load_quantizable_moe(AutoModelForCausalLM):
        model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    modifier = QuantizationModifier(targets="Linear", scheme=scheme, ignore=["lm_head"])
    oneshot(model=model, recipe=modifier, pipeline="datafree")
    model.save_pretrained(target, save_compressed=True)
    return target
