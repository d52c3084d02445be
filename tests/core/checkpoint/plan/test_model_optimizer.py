"""What the config of NVIDIA ModelOpt says of modules, where it says it, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.name_patterns import ShellPatterns
from requant.checkpoint.plan.model import DequantizeStep, Direction, Plan, Request
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.weights.model_optimizer import FloatGroups, ModelOptimizerWeight
from requant.errors import CheckpointError, ParameterError
from tests.support.hand_made_plan import Tensors
from tests.support.model_optimizer import stored
from tests.support.planned_checkpoint import HeadersOnly, checkpoint, planned

A, B = "model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"
Shapes = dict[str, tuple[str, tuple[int, ...]]]


def module(algorithm: str, shape: tuple[int, int] = (256, 256)) -> Shapes:
    tensors: Tensors = stored(algorithm, shape, np.random.default_rng(0))[0]
    return {suffix: (dtype, array.shape) for suffix, (dtype, array) in tensors.items()}


def store(
    modules: Mapping[str, Shapes], quantization: object, *, other: object = None, others: Shapes | None = None
) -> HeadersOnly:
    """A checkpoint. `quantization`: the member of config.json. `other`: what hf_quant_config.json holds, or text."""
    tensors = [(f"{name}.{suffix}", *each) for name, parts in modules.items() for suffix, each in parts.items()]
    tensors += [(name, *each) for name, each in (others or {}).items()]
    config = {} if quantization is None else {"quantization_config": quantization}
    made = checkpoint({"model.safetensors": tensors}, {"torch_dtype": "bfloat16", **config})
    if other is not None:
        made.add("hf_quant_config.json", other.encode() if isinstance(other, str) else json.dumps(other).encode())
    return made


def stated(algorithm: object = "NVFP4", **members: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algorithm, **members}


def forms(plan: Plan) -> dict[str, Any]:
    return {step.module: step.source.format for step in plan.steps if isinstance(step, DequantizeStep)}


@pytest.mark.parametrize("method", ["modelopt", "modelopt_fp4", "modelopt_mixed"])
def test_where_it_is_said(method: str) -> None:
    """In config.json, flat or below `quantization`, or in the other file alone. config.json goes first."""
    modules = {A: module("NVFP4")}
    flat = store(modules, {**stated(group_size=16), "quant_method": method})
    nested = store(modules, {"quant_method": method, "quantization": {"quant_algo": "NVFP4", "group_size": 16}})
    other = store(modules, None, other={"quantization": {"quant_algo": "NVFP4", "group_size": 16}})
    both = store(modules, stated(), other={"quantization": {"quant_algo": "FP8"}})
    expected = {A: ModelOptimizerWeight(FloatGroups(4, 16, "F8_E4M3"))}
    for each in (flat, nested, other, both):
        assert forms(planned(each, None)) == expected
    assert planned(flat, None).digest != planned(other, None).digest


@pytest.mark.parametrize("quantization", [{"quant_algo": None}, {"kv_cache_quant_algo": "FP8"}, {}])
def test_a_file_that_says_nothing_of_weights(quantization: dict[str, Any]) -> None:
    """Then they are plain, as before."""
    plain = store({A: {"weight": ("BF16", (256, 256))}}, None, other={"quantization": quantization})
    assert json.loads(planned(plain, "W8A8").config)["quantization_config"]["quant_method"] == "compressed-tensors"
    with pytest.raises(CheckpointError, match="the weights are not quantized"):
        planned(plain, None)


def test_a_change_of_the_other_file_is_another_plan() -> None:
    plans = [
        planned(store({A: module("FP8_PB_WO")}, None, other={"quantization": {"quant_algo": name}}), None)
        for name in ("FP8_PB_WO", "fp8_pb_real")
    ]
    assert plans[0].digest != plans[1].digest


def test_mixed_precision() -> None:
    """The nearest module above that has an entry; a null is plain; exclusions go first."""
    layers = {
        "model.layers.0": {"quant_algo": "FP8"},
        "model.layers.0.mlp.experts": {"quant_algo": "w4a16_nvfp4", "group_size": 16},
        "model.layers.0.mlp.experts.1": {"quant_algo": None},
        "model.layers.1": {"quant_algo": "MXFP8", "group_size": 32},
    }
    modules: dict[str, Shapes] = {
        "model.layers.0.mlp.up_proj": module("FP8"),
        "model.layers.0.mlp.experts.0.up_proj": module("W4A16_NVFP4"),
        "model.layers.0.mlp.experts.1.up_proj": {"weight": ("BF16", (4, 4))},
        "model.layers.1.mlp.up_proj": module("MXFP8"),
        "model.layers.10.mlp.up_proj": {"weight": ("BF16", (4, 4))},
    }
    config = stated("MIXED_PRECISION", quantized_layers=layers, ignore=["lm_head", "model.layers.1?.*"])
    found = forms(planned(store(modules, config), None))
    assert {name: type(each.layout).__name__ for name, each in found.items()} == {
        "model.layers.0.mlp.up_proj": "Fp8",
        "model.layers.0.mlp.experts.0.up_proj": "FloatGroups",
        "model.layers.1.mlp.up_proj": "FloatGroups",
    }
    of_plain = {**modules, "model.layers.10.mlp.up_proj": module("FP8")}
    with pytest.raises(CheckpointError, match=r"layers.10.mlp.up_proj: has quantized parameters, but nothing"):
        planned(store(of_plain, config), None)


NVFP4 = {A: module("NVFP4")}
CASES: Mapping[str, tuple[HeadersOnly, str]] = {
    "no algorithm": (store(NVFP4, stated(None)), "nothing in quantization_config applies to it"),
    "a number": (store(NVFP4, stated(4)), "quantization_config.quant_algo is 4; expected a string"),
    "another algorithm": (
        store(NVFP4, stated("W8A8_SQ_PER_TENSOR")),
        "quant_algo is 'W8A8_SQ_PER_TENSOR'; expected one of",
    ),
    "a second rounding": (store(NVFP4, stated("W4A8_AWQ")), "export the model as W4A16_AWQ"),
    "low rank": (store(NVFP4, stated("NVFP4_SVD")), "svdquant_lora_a, svdquant_lora_b"),
    "a bias of the cache": (store(NVFP4, stated(kv_cache_scheme="NVFP4_AFFINE")), "another kv_cache_quant_algo"),
    "groups of 3": (store(NVFP4, stated(group_size=3)), "group_size is 3; expected an even number"),
    "huge groups": (store(NVFP4, stated(group_size=1 << 20)), "group_size is 1048576; expected"),
    "groups as text": (store(NVFP4, stated(group_size="16")), "group_size is 16; expected an integer"),
    "groups that divide nothing": (
        store({A: {**module("NVFP4"), "weight_scale": ("F8_E4M3", (256, 7))}}, stated()),
        "weight_scale is F8_E4M3 [256, 7]; expected F8_E4M3 [256, 16]",
    ),
    "another group size": (
        store(NVFP4, stated(group_size=32)),
        "weight_scale is F8_E4M3 [256, 16]; expected F8_E4M3 [256, 8]",
    ),
    "exclusions as text": (store(NVFP4, stated(ignore="lm_head")), "ignore is lm_head; expected a list"),
    "an exclusion that is a number": (store(NVFP4, stated(exclude_modules=[4])), "exclude_modules has the entry 4"),
    "excluded": (store(NVFP4, stated(ignore=["model.layers.*"])), "nothing in quantization_config applies to it"),
    "a wildcard that is wrong": (
        store(NVFP4, stated(ignore=["[z-a]?"])),
        "quantization_config: a pattern is not a regular expression",
    ),
    "mixed without layers": (store(NVFP4, stated("MIXED_PRECISION")), "quantized_layers is missing or empty"),
    "mixed of mixed": (
        store(NVFP4, stated("MIXED_PRECISION", quantized_layers={A: {"quant_algo": "MIXED_PRECISION"}})),
        "quant_algo is 'MIXED_PRECISION'; expected one of",
    ),
    "a layer that is a string": (
        store(NVFP4, stated("MIXED_PRECISION", quantized_layers={A: "NVFP4"})),
        f"quantized_layers.{A} is NVFP4; expected an object",
    ),
    "no second scale": (
        store({A: {name: each for name, each in module("NVFP4").items() if name != "weight_scale_2"}}, stated()),
        "lacks weight_scale_2 (F32 [])",
    ),
    "no scale": (
        store({A: {"weight": ("U8", (256, 128))}, B: module("NVFP4")}, stated()),
        "but its module has no scale",
    ),
    "integers without scale": (
        store({A: {"weight": ("I8", (256, 128))}, B: module("W8A16")}, stated("W8A16")),
        "is I8, the codes of a quantized weight",
    ),
    "an unknown part": (
        store({A: {"weight": ("BF16", (4, 4)), "pre_quant_scale": ("BF16", (4,))}, B: module("NVFP4")}, stated()),
        "pre_quant_scale: is a parameter of a quantized weight",
    ),
    "SVDQuant": (
        store({A: {**module("NVFP4"), "svdquant_lora_a": ("BF16", (8, 256))}}, stated()),
        "export the model without SVDQuant",
    ),
    "experts in one tensor": (
        store(
            NVFP4,
            stated(),
            others={
                "model.layers.0.experts.gate_up_proj": ("U8", (4, 256, 128)),
                "model.layers.0.experts.gate_up_proj_weight_scale": ("F8_E4M3", (4, 256, 16)),
                "model.layers.0.experts.gate_up_proj_weight_scale_2": ("F32", (4,)),
            },
        ),
        "gate_up_proj_weight_scale: is a scale of experts in one tensor of rank 3",
    ),
    "a plain model": (
        store({A: {"weight": ("BF16", (4, 4))}}, None, other={"quantization": {"quant_algo": "FP8"}}),
        "or hf_quant_config.json beside it, says that the weights are quantized, but no module has a scale",
    ),
    "no JSON": (store(NVFP4, None, other="{"), "hf_quant_config.json is not JSON that is read"),
    "a list": (store(NVFP4, None, other=[]), "hf_quant_config.json is not a JSON object"),
    "a list below": (store(NVFP4, None, other={"quantization": []}), "hf_quant_config.json.quantization is []"),
    "below": (store(NVFP4, None, other={"quantization": {"quant_algo": 3}}), "quantization.quant_algo is 3"),
}


@pytest.mark.parametrize(("made", "message"), CASES.values(), ids=CASES)
def test_is_refused(made: HeadersOnly, message: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        planned(made, None)
    assert message in raised.value.detail


def test_the_file_with_the_fault_is_named(tmp_path: Path) -> None:
    made = store(NVFP4, None, other={"quantization": {"quant_algo": "X"}})
    with pytest.raises(CheckpointError) as raised:
        planned(made, None)
    assert raised.value.file == "hf_quant_config.json"
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "hf_quant_config.json").write_text("[" * 200)
    with pytest.raises(CheckpointError, match=r"hf_quant_config.json is not JSON"):
        plan_conversion(LocalStore(tmp_path), Request(Direction.DEQUANTIZE, (), ""))


PATTERNS = [
    "lm_head",
    "model.layers.1*",
    "model.*.self_attn.*",
    "*router",
    "a[0-3!]b",
    "a[!0-3]c",
    "?",
    "x.y",
    "a]b",
    "[",
    "*a*b*",
]
NAMES = [
    "lm_head", "lm_head.x", "model.layers.1", "model.layers.11.mlp", "model.layers.2.mlp", "model.layers.2.self_attn.q",
    "model.self_attn.q", "a.router", "router", "routers", "a2b", "a!b", "a5b", "a5c", "a2c", "x", "xy", "x.y", "x-y",
    "a]b", "[", "ab", "cab", "acb-", "ba", "modelXlayers.1",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_wildcards_mean_what_a_shell_means(pattern: str) -> None:
    alone = ShellPatterns([pattern])
    for name in NAMES:
        assert alone.match(name) == fnmatchcase(name, pattern), name


def test_wildcards_together() -> None:
    together = ShellPatterns(PATTERNS)
    for name in NAMES:
        assert together.match(name) == any(fnmatchcase(name, each) for each in PATTERNS), name
    assert not ShellPatterns([]).match("a")
    # Names and beginnings may be many, other wildcards not.
    many = ShellPatterns([f"model.layers.{n}.self_attn*" for n in range(5000)])
    assert many.match("model.layers.4999.self_attn.q_proj")
    with pytest.raises(ParameterError, match="at most 1000"):
        ShellPatterns([f"*.{n}.*" for n in range(1001)])
