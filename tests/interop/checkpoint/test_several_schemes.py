"""Several schemes in one run beside llm-compressor's, with as many config groups: the same files, byte for byte."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme, preset_name_to_scheme

from requant.checkpoint.plan.dry_run import outputs_of
from requant.checkpoint.plan.model import Direction, Plan, QuantizeStep, Request, SchemeFor
from requant.checkpoint.plan.recipe import Recipe
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.verify.verification import verify
from tests.interop.checkpoint import llm_compressor
from tests.interop.checkpoint.conversion import CPU, convert, dequantize
from tests.interop.checkpoint.decompression import tensors
from tests.interop.checkpoint.schemes import PRESETS, theirs
from tests.interop.checkpoint.source_model import (
    DTYPES,
    SourceModel,
    llama,
    mixture_of_experts,
    qwen3_moe,
    with_dtypes_in_turn,
)
from tests.interop.checkpoint.test_llm_compressor import assert_same_directories, files
from tests.interop.checkpoint.test_transformers import loaded, same
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

Schemes = Sequence[tuple[str, Sequence[str]]]
MODELS: Mapping[str, tuple[Callable[[torch.dtype], SourceModel], tuple[str, ...]]] = {
    "llama": (llama, ("lm_head", "model.embed_tokens")),
    "qwen3_moe": (qwen3_moe, ("lm_head", "model.embed_tokens", r"re:.*mlp\.gate$")),
    "all kinds of tensors": (
        mixture_of_experts,
        ("lm_head", "model.embed_tokens", "re:.*visual", r"re:.*mlp\.gate$", "re:.*conv$"),
    ),
}
"""How each is made, and what is ignored."""

MIXTURES: Mapping[str, Schemes] = {
    "experts and attention": [("NVFP4A16", ["re:.*mlp.*"]), ("FP8_BLOCK", ["re:.*self_attn.*"])],
    "attention and the rest": [("FP8_DYNAMIC", ["re:.*self_attn.*"]), ("W4A16", ["Linear"])],
    "two sizes in one container": [("W8A16", [r"re:.*down_proj$"]), ("W4A16:group=32", ["Linear"])],
    "activations differ": [("W8A8", ["re:.*self_attn.*"]), ("W4A8", ["re:.*mlp.*"])],
    "formats of blocks": [("MXFP4A16", ["re:.*mlp.*"]), ("MXFP8A16", ["re:.*self_attn.*"])],
    "a part of a fused set": [("NVFP4A16", [r"re:.*q_proj$", r"re:.*gate_proj$"]), ("FP8_DYNAMIC", ["Linear"])],
    "two parts of a fused set": [
        ("NVFP4A16", [r"re:.*(q|v)_proj$", "re:.*gate_proj$"]),
        ("W8A8", [r"re:.*k_proj$"]),
        ("NVFP4A16", ["Linear"]),
    ],
    "asymmetric, and one weight by its name": [
        ("W4A16_ASYM", ["model.layers.0.self_attn.q_proj", r"re:.*layers\.1.*down_proj$"]),
        ("FP8A16", ["Linear"]),
    ],
}


def config_of(schemes: Schemes, ignore: Iterable[str]) -> QuantizationConfig:
    """Return what `model_free_ptq` is given."""
    groups = {}
    for number, (name, targets) in enumerate(schemes):
        known = preset_name_to_scheme(name, list(targets)) if name in PRESETS else theirs(name)
        groups[f"group_{number}"] = QuantizationScheme(**{**known.model_dump(), "targets": list(targets)})
    return QuantizationConfig(config_groups=groups, ignore=list(ignore))


def ours(source: Path, target: Path, schemes: Schemes, ignore: tuple[str, ...]) -> Plan:
    stated = tuple(SchemeFor(name, tuple(targets)) for name, targets in schemes)
    return convert(source, target, Request(Direction.QUANTIZE, stated, CPU, ignore))


def bytes_by_scheme(plan: Plan) -> Counter[str]:
    """Return how many bytes of tensors are by each scheme."""
    recipe = Recipe(plan.request)
    sizes = {entry.name: entry.end - entry.begin for task in plan.tasks for entry in task.header.tensors}
    found: Counter[str] = Counter()
    for step in plan.steps:
        if isinstance(step, QuantizeStep):
            number = recipe.scheme_of(f"{step.module}.weight")
            assert number is not None
            found[recipe.schemes[number].name.partition(":")[0]] += sum(sizes[name] for name in outputs_of(step))
    return found


@pytest.mark.parametrize(("name", "dtype"), with_dtypes_in_turn(MIXTURES))
def test_directories(name: str, dtype: str, tmp_path: Path) -> None:
    compared: Counter[str] = Counter()
    for model, (make, ignore) in MODELS.items():
        source = make(DTYPES[dtype]).save(tmp_path / f"{model}-source")
        expected = llm_compressor.quantize(source, tmp_path / f"{model}-theirs", config_of(MIXTURES[name], ignore))
        plan = ours(source, tmp_path / f"{model}-ours", MIXTURES[name], ignore)
        assert_same_directories(tmp_path / f"{model}-ours", expected, source)
        compared += bytes_by_scheme(plan)
        # Ours, and what the library writes, is found faultless.
        assert verify(open_store(tmp_path / f"{model}-ours")).faults == ()
        assert verify(open_store(expected)).faults == ()
    for scheme, count in compared.items():
        record(systems.LLM_COMPRESSOR, [checkpoint(scheme, "quantize", CPU)], count)
    print(f"llm-compressor, {name}, {dtype}: {sum(compared.values()):,} bytes of weights equal")  # noqa: T201


LOADED = [name for name in MIXTURES if "asymmetric" not in name]


@pytest.mark.parametrize("name", LOADED)
def test_transformers_loads_it(name: str, tmp_path: Path) -> None:
    """Its logits are those of llm-compressor's files, and its weights those that our dequantization writes."""
    make, ignore = MODELS["llama"]
    source = make(torch.bfloat16).save(tmp_path / "source")
    expected = llm_compressor.quantize(source, tmp_path / "theirs", config_of(MIXTURES[name], ignore))
    ours(source, tmp_path / "ours", MIXTURES[name], ignore)
    (logits, weights), (other_logits, _) = loaded(tmp_path / "ours"), loaded(expected)
    assert logits.isfinite().all()
    assert same(logits, other_logits)
    for tensor, value in tensors(dequantize(tmp_path / "ours", tmp_path / "restored")).items():
        assert same(weights[tensor], value), tensor


def test_an_order_that_loaders_do_not_see(tmp_path: Path) -> None:
    """model_free_ptq goes by the order of groups, and compressed-tensors by the alphabet.

    It does not load what the other writes. Ours has the same tensors, and names the modules.
    """
    make, ignore = MODELS["llama"]
    source = make(torch.bfloat16).save(tmp_path / "source")
    schemes = [("FP8_BLOCK", ["re:.*self_attn.*"]), ("W4A16", ["re:.*layers.*"])]
    expected = llm_compressor.quantize(source, tmp_path / "theirs", config_of(schemes, ignore))
    plan = ours(source, tmp_path / "ours", schemes, ignore)
    mine, other = files(tmp_path / "ours"), files(expected)
    stored = [name for name in other if name.endswith(".safetensors")]
    assert len(stored) == 4
    assert all(mine[name] == other[name] for name in stored)
    groups = json.loads(mine["config.json"])["quantization_config"]["config_groups"].values()
    attention = {step.module for step in plan.steps if isinstance(step, QuantizeStep) and "attn" in step.module}
    assert [{*group["targets"]} for group in groups] == [{*schemes[0][1], *attention}, {*schemes[1][1]}]
    logits, weights = loaded(tmp_path / "ours")
    assert logits.isfinite().all()
    for tensor, value in tensors(dequantize(tmp_path / "ours", tmp_path / "restored")).items():
        assert same(weights[tensor], value), tensor
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        loaded(expected)


def with_modifier(source: Path, target: Path, schemes: Schemes) -> Path:
    """Quantize by a recipe for a model that is loaded: llm-compressor's `QuantizationModifier`."""
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    groups: dict[str, Any] = config_of(schemes, ()).config_groups
    oneshot(model=model, recipe=QuantizationModifier(config_groups=groups, ignore=["lm_head"]))
    model.save_pretrained(target, save_compressed=True)
    return target


@pytest.mark.parametrize("name", [name for name in LOADED if "part" not in name])
def test_recipes_with_a_modifier(name: str, tmp_path: Path) -> None:
    """The same tensors, but that -0 becomes 0 in FP8, with one scheme too: it adds a zero point, which is 0."""
    make, ignore = MODELS["llama"]
    source = make(torch.bfloat16).save(tmp_path / "source")
    expected = tensors(with_modifier(source, tmp_path / "theirs", MIXTURES[name]))
    ours(source, tmp_path / "ours", MIXTURES[name], ignore)
    mine = tensors(tmp_path / "ours")
    assert mine.keys() == expected.keys()
    for tensor, value in expected.items():
        assert (mine[tensor].dtype, mine[tensor].shape) == (value.dtype, value.shape), tensor
        bits, others = (each.reshape(-1).view(torch.uint8) for each in (mine[tensor], value))
        if value.dtype == torch.float8_e4m3fn:
            bits, others = (torch.where(each == 0x80, 0, each) for each in (bits, others))
        assert torch.equal(bits, others), tensor


def test_a_modifier_refuses_parts_of_a_fused_set(tmp_path: Path) -> None:
    """Where one of them is NVFP4. model_free_ptq takes them, as we do with a warning."""
    make, ignore = MODELS["llama"]
    source = make(torch.bfloat16).save(tmp_path / "source")
    schemes = MIXTURES["a part of a fused set"]
    with pytest.raises(AssertionError, match="need all fused layers to have same quantization"):
        with_modifier(source, tmp_path / "theirs", schemes)
    plan = ours(source, tmp_path / "ours", schemes, ignore)
    assert any("different schemes" in warning for warning in plan.warnings)
