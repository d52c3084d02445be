"""Models as NVIDIA ModelOpt exports them, with the names of public ones: to BF16, and in one pass to other schemes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from requant.checkpoint.plan.dry_run import plan_text
from requant.checkpoint.plan.model import Direction, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.run.verdicts import Outcome
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.difference import diff
from requant.checkpoint.verify.verification import verify
from requant.checkpoints import repack_checkpoint
from tests.support.model_directory import contents, make_model
from tests.support.model_optimizer import Shapes, write_model
from tests.support.safetensors_files import tensor_places, tensors_in


class Model(NamedTuple):
    """What `write_model` writes, and how many scales of activations it has."""

    modules: Shapes
    quantization: Mapping[str, Any]
    plain: Mapping[str, tuple[int, ...]]
    caches: tuple[str, ...] = ()
    dropped: int = 0


LAYER = "model.layers.{}"
PROJECTIONS = {
    "self_attn.q_proj": (256, 256),
    "self_attn.k_proj": (128, 256),
    "self_attn.v_proj": (128, 256),
    "self_attn.o_proj": (256, 256),
    "mlp.gate_proj": (384, 256),
    "mlp.up_proj": (384, 256),
    "mlp.down_proj": (256, 384),
}
PLAIN = {
    "model.embed_tokens.weight": (64, 256),
    "model.norm.weight": (256,),
    "lm_head.weight": (64, 256),
    **{
        f"model.layers.{n}.{name}.weight": (256,)
        for n in (0, 1)
        for name in ("input_layernorm", "post_attention_layernorm")
    },
}


def llama(algorithm: str, **members: Any) -> Model:
    modules = {f"{LAYER.format(n)}.{name}": (algorithm, shape) for n in (0, 1) for name, shape in PROJECTIONS.items()}
    with_inputs = algorithm in ("FP8", "NVFP4", "W4A8_NVFP4_FP8", "NVFP4_AWQ", "W8A8_SQ_PER_CHANNEL")
    quantization = {"quant_algo": algorithm, "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"], **members}
    return Model(modules, quantization, PLAIN, (), 14 if with_inputs else 0)


def llama_with_cache() -> Model:
    """Of Llama-3.1-8B-Instruct-FP8: the scales of keys and values are in k_proj and v_proj."""
    model = llama("FP8", kv_cache_quant_algo="FP8")
    caches = tuple(f"{LAYER.format(n)}.self_attn.{x}_proj.{x}_scale" for n in (0, 1) for x in "kv")
    return model._replace(caches=caches, dropped=14 + 4)


def deepseek() -> Model:
    """Of DeepSeek-R1-FP4: attention is plain, by wildcards, experts are modules of their own."""
    modules: dict[str, tuple[str | None, tuple[int, int]]] = {}
    for layer in (0, 1):
        name = LAYER.format(layer)
        attention = {
            "q_a_proj": (128, 256),
            "q_b_proj": (256, 128),
            "kv_a_proj_with_mqa": (64, 256),
            "o_proj": (256, 256),
        }
        modules |= {f"{name}.self_attn.{each}": (None, shape) for each, shape in attention.items()}
        for expert in ("experts.0", "experts.1", "shared_experts"):
            shapes = {"gate_proj": (128, 256), "up_proj": (128, 256), "down_proj": (256, 128)}
            modules |= {f"{name}.mlp.{expert}.{each}": ("NVFP4", shape) for each, shape in shapes.items()}
        modules[f"{name}.mlp.gate"] = (None, (2, 256))
    excluded = [
        "lm_head",
        *(f"{LAYER.format(n)}.{x}" for n in (0, 1) for x in ("self_attn*", "mlp.gate")),
        "model.layers.61*",
    ]
    quantization = {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None, "exclude_modules": excluded}
    return Model(modules, quantization, PLAIN, (), 18)


def mixed() -> Model:
    """Each module has its algorithm, experts have that of the module above them."""
    of_layer = {
        "self_attn.q_proj": ("FP8", (256, 256)),
        "self_attn.k_proj": ("FP8_PER_CHANNEL_PER_TOKEN", (128, 256)),
        "self_attn.v_proj": ("W8A16", (128, 256)),
        "self_attn.o_proj": ("MXFP8", (256, 256)),
        "mlp.gate_proj": ("FP8_PB_WO", (384, 256)),
        "mlp.up_proj": ("W4A16_AWQ", (384, 256)),
        "mlp.down_proj": ("NVFP4", (256, 384)),
        "mlp.experts.0.up_proj": ("W4A16_NVFP4", (128, 256)),
        "mlp.experts.10.up_proj": ("W4A16_NVFP4", (128, 256)),
    }
    modules: dict[str, tuple[str | None, tuple[int, int]]] = {}
    layers: dict[str, Any] = {}
    for n in (0, 1):
        for name, (algorithm, shape) in of_layer.items():
            module = f"{LAYER.format(n)}.{name}"
            modules[module] = algorithm, shape
            stated = f"{LAYER.format(n)}.mlp.experts" if "experts" in name else module
            size = {"W4A16_AWQ": 32, "FP8_PB_WO": 128}.get(algorithm, 16 if "NVFP4" in algorithm else None)
            layers[stated] = {"quant_algo": algorithm, **({} if size is None else {"group_size": size})}
    quantization = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None, "quantized_layers": layers}
    return Model(modules, {**quantization, "exclude_modules": ["lm_head"]}, PLAIN, (), 4)


MODELS = {
    "llama fp8": llama_with_cache(),
    "fp8 per channel": llama("FP8_PER_CHANNEL_PER_TOKEN"),
    "fp8 blocks": llama("FP8_PB_WO"),
    "mxfp8": llama("MXFP8", group_size=32),
    "w4a8": llama("W4A8_NVFP4_FP8", group_size=16),
    "smoothquant": llama("W8A8_SQ_PER_CHANNEL"),
    "w8a16": llama("W8A16"),
    "awq": llama("W4A16_AWQ", group_size=32, has_zero_point=False, pre_quant_scale=True),
    "nvfp4 awq": llama("NVFP4_AWQ", group_size=16, has_zero_point=False, pre_quant_scale=True),
    "deepseek nvfp4": deepseek(),
    "mixed": mixed(),
}
PLACES = (("config.json", "hf_quant_config.json"), ("config.json",), ("hf_quant_config.json",))


def write(folder: Path, model: Model, places: tuple[str, ...] = PLACES[0]) -> dict[str, np.ndarray]:
    return write_model(folder, model.modules, model.quantization, plain=model.plain, caches=model.caches, places=places)


def convert(source: Path, target: Path, scheme: str | None) -> Path:
    direction = Direction.DEQUANTIZE if scheme is None else Direction.QUANTIZE
    profile = "" if scheme is None else scheme_named(scheme).profiles[0]
    schemes = () if scheme is None else (SchemeFor(scheme),)
    plan = plan_conversion(LocalStore(source), Request(direction, schemes, profile, ("default",) if scheme else ()))
    run_plan(plan, LocalStore(source), LocalStore(target), threads=1)
    return target


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "model"), MODELS.items(), ids=MODELS)
def test_to_bf16(name: str, model: Model, tmp_path: Path) -> None:
    """The numbers, the names, and the files: those of the codes."""
    places = PLACES[list(MODELS).index(name) % 3]
    weights = write(tmp_path / "source", model, places)
    plan = plan_conversion(LocalStore(tmp_path / "source"), Request(Direction.DEQUANTIZE, (), ""))
    dropped = [each for each in plan.warnings if "dropped" in each]
    assert dropped == ([f"{model.dropped} scales of quantized activations are dropped"] if model.dropped else [])
    target = convert(tmp_path / "source", tmp_path / "plain", None)
    found = tensors_in(target)
    assert found.keys() == weights.keys()
    for tensor, numbers in weights.items():
        np.testing.assert_array_equal(
            np.frombuffer(found[tensor][2], np.uint16), numbers.view(np.uint16).reshape(-1), tensor
        )
    config = json.loads((target / "config.json").read_text())
    assert config == {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
    assert not (target / "hf_quant_config.json").exists()
    assert verify(LocalStore(target), LocalStore(tmp_path / "source")).faults == ()
    # Its own values have no fault either.
    of_source = verify(LocalStore(tmp_path / "source"))
    assert (of_source.faults, of_source.warnings) == ((), ())
    with_itself = diff(LocalStore(tmp_path / "source"), LocalStore(tmp_path / "source"))
    assert (with_itself.compared, with_itself.differences) == (len(weights), ())


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", ["NVFP4A16", "FP8_BLOCK"])
@pytest.mark.parametrize("name", ["llama fp8", "deepseek nvfp4", "mixed", "awq"])
def test_in_one_pass(name: str, scheme: str, tmp_path: Path) -> None:
    """The bytes that a directory of BF16 in between gives."""
    write(tmp_path / "source", MODELS[name], PLACES[2 if scheme == "FP8_BLOCK" else 0])
    once = convert(tmp_path / "source", tmp_path / "once", scheme)
    twice = convert(convert(tmp_path / "source", tmp_path / "plain", None), tmp_path / "twice", scheme)
    assert contents(once) == contents(twice)
    assert verify(LocalStore(once), LocalStore(tmp_path / "source")).faults == ()
    assert json.loads((once / "config.json").read_text())["quantization_config"]["quant_method"] == "compressed-tensors"
    text = plan_text(plan_conversion(LocalStore(tmp_path / "source"), Request(Direction.DEQUANTIZE, (), "")))
    assert "settings of another quantizer: hf_quant_config.json" in text


@pytest.mark.parametrize("scheme", ["FP8_DYNAMIC", "FP8_BLOCK", "FINE_GRAINED_FP8"])
def test_one_scale_for_a_tensor_is_one_for_each_channel_or_block(scheme: str, tmp_path: Path) -> None:
    write(tmp_path / "source", MODELS["llama fp8"])
    verdicts = repack_checkpoint(tmp_path / "source", tmp_path / "target", scheme).verdicts
    weights = {each.outcome for name, each in verdicts.items() if name.startswith("model.layers") and "proj" in name}
    assert weights == {Outcome.EXACT}


WRITTEN = {
    "MODELOPT_FP8_PER_CHANNEL_PER_TOKEN": ("FP8_PER_CHANNEL_PER_TOKEN", {"weight_scale": ("F32", [512])}),
    "MODELOPT_FP8_PB_WO": ("fp8_pb_wo", {"weight_scale": ("F32", [4, 1, 2, 1])}),
    "MODELOPT_W4A16_NVFP4": ("W4A16_NVFP4", {"weight_scale": ("F8_E4M3", [512, 16]), "weight_scale_2": ("F32", [])}),
}


@pytest.mark.parametrize("scheme", WRITTEN)
def test_what_is_written(scheme: str, tmp_path: Path) -> None:
    """The tensors, and the two files that say what they are; and all of it is read back."""
    source = make_model(tmp_path / "source", size=256, shards=1)
    target = convert(source, tmp_path / "target", scheme)
    algorithm, scales = WRITTEN[scheme]
    (path,) = target.glob("*.safetensors")
    up = "model.layers.0.mlp.up_proj"
    found = {each.name: (each.dtype, list(each.shape)) for each in tensor_places(path) if each.name.startswith(up)}
    codes = ("U8", [512, 128]) if "weight_scale_2" in scales else ("F8_E4M3", [512, 256])
    assert found == {f"{up}.{suffix}": each for suffix, each in {"weight": codes, **scales}.items()}
    group = {"group_size": 16} if "weight_scale_2" in scales else {}
    producer = {"name": "modelopt", "version": "0.47.0"}
    quantization = {"quant_algo": algorithm, "kv_cache_quant_algo": None, **group, "exclude_modules": ["lm_head"]}
    assert json.loads((target / "hf_quant_config.json").read_text()) == {
        "producer": producer, "quantization": quantization,
    }  # fmt: skip
    members = json.loads((target / "config.json").read_text())["quantization_config"]
    assert (members["quant_method"], members["quant_algo"], members["ignore"]) == ("modelopt", algorithm, ["lm_head"])
    assert verify(LocalStore(target), LocalStore(source)).faults == ()
    assert "hf_quant_config.json" in json.loads((target / "requant-manifest.json").read_text())["files"]
    plain = convert(target, tmp_path / "plain", None)
    (target / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16"}))
    (target / "requant-manifest.json").unlink()
    alone = convert(target, tmp_path / "alone", None)
    weights = [(each / path.name).read_bytes() for each in (plain, alone)]
    assert weights[0] == weights[1]


def test_its_own_file_is_checked_and_made_again(tmp_path: Path) -> None:
    source = make_model(tmp_path / "source", size=256)
    target = convert(source, tmp_path / "target", "MODELOPT_W4A16_NVFP4")
    expected = contents(target)
    own = target / "hf_quant_config.json"
    own.write_bytes(own.read_bytes().replace(b"16", b"32"))
    details = {fault.detail for fault in verify(LocalStore(target), LocalStore(source)).faults}
    assert "its text differs from the conversion of the source" in details
    own.unlink()
    faults = {(fault.file, fault.detail) for fault in verify(LocalStore(target)).faults}
    assert (own.name, "the file is missing; requant-manifest.json names it") in faults
    assert contents(convert(source, target, "MODELOPT_W4A16_NVFP4")) == expected
    # That of a source is not carried along.
    again = convert(target, tmp_path / "again", "FP8_DYNAMIC")
    assert not (again / own.name).exists()


def test_modules_that_are_left_are_excluded(tmp_path: Path) -> None:
    write(tmp_path / "source", MODELS["deepseek nvfp4"])
    target = convert(tmp_path / "source", tmp_path / "target", "MODELOPT_FP8_PER_CHANNEL_PER_TOKEN")
    stated = json.loads((target / "hf_quant_config.json").read_text())["quantization"]["exclude_modules"]
    assert stated == ["lm_head", "model.embed_tokens", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"]
    assert verify(LocalStore(target), LocalStore(tmp_path / "source")).faults == ()
