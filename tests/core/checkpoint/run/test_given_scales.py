"""Scales of activations that are given: the tensors that they become, and the members of config.json beside them."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant
from requant.checkpoint.plan.dry_run import plan_document, plan_text
from requant.checkpoint.plan.model import Direction, Plan, QuantizeStep, Repack, request_of
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.verification import verify
from requant.checkpoint.workers import parse_plan_file, plan_file_of, work
from requant.checkpoints import conversion_request
from requant.command.exit_status import DONE, WRONG_USAGE
from requant.command.main import main
from requant.errors import CheckpointError, ParameterError, RequantError, StorageError
from tests.core.checkpoint.plan.test_refusals_say_what_to_do import ADVICE
from tests.support.hand_made_plan import Tensors, write_safetensors
from tests.support.model_directory import LLAMA, contents, modules_of_llama, quantization_config, save_model
from tests.support.safetensors_files import read_safetensors, tensors_in

HIDDEN = 32
SHAPES = modules_of_llama(HIDDEN, inner=64, keys=16)
MODULES = [*SHAPES]
ATTENTION = [f"model.layers.{layer}.self_attn" for layer in range(2)]
INPUTS = {module: 0.0123 * 1.7**number for number, module in enumerate(MODULES)}
KV = {f"{module}.{name}": 0.031 + at for at, module in enumerate(ATTENTION) for name in ("k_scale", "v_scale")}
PARAMETER = {"FP8": "input_scale", "NVFP4": "input_global_scale"}
WITHOUT_DATA = {"FP8": "FP8_DYNAMIC:tensor", "NVFP4": "NVFP4A16"}

OF_FP8_INPUTS = {
    "num_bits": 8,
    "type": "float",
    "symmetric": True,
    "group_size": None,
    "strategy": "tensor",
    "dynamic": False,
    "observer": "static_minmax",
}
OF_NVFP4_INPUTS = {
    **OF_FP8_INPUTS,
    "num_bits": 4,
    "group_size": 16,
    "strategy": "tensor_group",
    "dynamic": "local",
    "scale_dtype": "torch.float8_e4m3fn",
}
OF_KV_CACHE = {name: value for name, value in OF_FP8_INPUTS.items() if name != "observer"}


def make(folder: Path, dtype: str = "BF16") -> Path:
    """A model in two files, with a head and norms."""
    random = np.random.default_rng(29)
    shards: tuple[Tensors, Tensors] = ({}, {})
    named = {**SHAPES, "lm_head": (HIDDEN, HIDDEN), "model.norm": (HIDDEN,)}
    for number, (name, shape) in enumerate(named.items()):
        values = random.standard_normal(shape).astype(np.float32)
        bits: Any = {
            "BF16": (values.view(np.uint32) >> 16).astype(np.uint16),
            "F16": values.astype(np.float16).view(np.uint16),
            "F32": values,
        }[dtype]
        shards[number % 2][f"{name}.weight"] = (dtype, bits)
    stated = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[dtype]
    return save_model(folder, shards, LLAMA | {"torch_dtype": stated})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("source") / "model")


def planned(model: Path, scheme: Any, **options: Any) -> Plan:
    return plan_conversion(LocalStore(model), conversion_request(Direction.QUANTIZE, scheme=scheme, **options))


def homes(folder: Path) -> dict[str, str]:
    return dict(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"])


def nearest(number: Fraction, digits: int, least: int) -> Fraction:
    """Return the nearest number of so many binary digits, ties to even. 2^least: the least step."""
    exponent = math.floor(math.log2(number))
    exponent += (number >= Fraction(2) ** (exponent + 1)) - (number < Fraction(2) ** exponent)
    step = Fraction(2) ** max(exponent - digits + 1, least)
    return round(number / step) * step


def stored(number: float, dtype: str) -> bytes:
    """Return a number in f32, then in the dtype."""
    in_f32 = nearest(Fraction(number), 24, -149)
    digits, least = {"BF16": (8, -133), "F16": (11, -24), "F32": (24, -149)}[dtype]
    value = float(nearest(in_f32, digits, least))
    if dtype == "F16":
        return struct.pack("<e", value)
    return struct.pack("<f", value)[2 if dtype == "BF16" else 0 :]


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("scheme", PARAMETER)
def test_the_tensors_and_config(scheme: str, dtype: str, tmp_path: Path) -> None:
    source = make(tmp_path / "source", dtype)
    plain, target = tmp_path / "plain", tmp_path / "target"
    requant.quantize_checkpoint(source, plain, WITHOUT_DATA[scheme])
    report = requant.quantize_checkpoint(source, target, scheme, input_scales=INPUTS, kv_scales=KV)
    added = {name: value for name, value in tensors_in(target).items() if name not in tensors_in(plain)}
    assert tensors_in(target) == {**tensors_in(plain), **added}
    of_input = "F32" if scheme == "NVFP4" else dtype
    assert added == {
        **{f"{module}.{PARAMETER[scheme]}": (of_input, (1,), stored(x, of_input)) for module, x in INPUTS.items()},
        **{name: (dtype, (1,), stored(x, dtype)) for name, x in KV.items()},
    }
    # Each lies beside the weight that it belongs to.
    places = homes(target)
    suffix = "weight_packed" if scheme == "NVFP4" else "weight"
    assert all(places[f"{module}.{PARAMETER[scheme]}"] == places[f"{module}.{suffix}"] for module in MODULES)
    assert all(places[name] == places[f"{name.rpartition('.')[0]}.k_proj.{suffix}"] for name in KV)
    # config.json differs in what is said of activations, and nothing else does.
    config, before = quantization_config(target), quantization_config(plain)
    group = config["config_groups"]["group_0"]
    assert group["input_activations"] == (OF_FP8_INPUTS if scheme == "FP8" else OF_NVFP4_INPUTS)
    assert config["kv_cache_scheme"] == OF_KV_CACHE
    assert before["kv_cache_scheme"] is None
    before["config_groups"]["group_0"]["input_activations"] = group["input_activations"]
    assert config == {**before, "kv_cache_scheme": OF_KV_CACHE}
    assert not [each for each in report.warnings if "tensor-parallel" not in each and "for the same inputs" not in each]
    assert verify(LocalStore(target), LocalStore(source)).faults == ()


@pytest.mark.parametrize("scheme", ["W4A16:group=32", "FP8_DYNAMIC", "MXFP4A16"])
def test_a_cache_with_any_scheme(scheme: str, model: Path, tmp_path: Path) -> None:
    requant.quantize_checkpoint(model, tmp_path / "plain", scheme)
    requant.quantize_checkpoint(model, tmp_path / "target", scheme, kv_scales=KV)
    added = {name: ("BF16", (1,), stored(number, "BF16")) for name, number in KV.items()}
    assert tensors_in(tmp_path / "target") == {**tensors_in(tmp_path / "plain"), **added}
    expected = {**quantization_config(tmp_path / "plain"), "kv_cache_scheme": OF_KV_CACHE}
    assert quantization_config(tmp_path / "target") == expected


def test_a_part_of_the_model(model: Path, tmp_path: Path) -> None:
    """Of several schemes each module has what its own one has, and a weight that is left can lie beside a scale."""
    schemes = [("NVFP4", ["re:.*mlp.*"]), ("FP8", [r"re:.*o_proj$"]), ("W8A16:channel", [r"re:.*q_proj$"])]
    given = {module: number for module, number in INPUTS.items() if "mlp" in module or "o_proj" in module}
    requant.quantize_checkpoint(model, tmp_path / "target", schemes, input_scales=given, kv_scales=KV)
    names = {name for name in tensors_in(tmp_path / "target") if name.rpartition(".")[2].startswith("input_")}
    parameter = {module: "input_global_scale" if "mlp" in module else "input_scale" for module in given}
    assert names == {f"{module}.{parameter[module]}" for module in given}
    tensors = tensors_in(tmp_path / "target")
    assert f"{ATTENTION[0]}.k_proj.weight" in tensors
    assert tensors[f"{ATTENTION[0]}.k_scale"][2] == stored(KV[f"{ATTENTION[0]}.k_scale"], "BF16")
    assert verify(LocalStore(tmp_path / "target"), LocalStore(model)).faults == ()


def test_ways_to_state_them(model: Path, tmp_path: Path) -> None:
    """By names of modules or tensors, in a mapping or in files: one plan. The request has the names of tensors."""
    named = {f"{module}.input_scale": number for module, number in INPUTS.items()}
    exact = {name: float(np.float32(number)) for name, number in named.items()}
    tensors: Tensors = {name: ("F32", np.array([number], np.float32)) for name, number in exact.items()}
    tensors["model.layers.0.mlp.up_proj.weight"] = ("BF16", np.zeros((2, 3), np.uint16))
    tensors[f"{ATTENTION[0]}.k_scale"] = ("BF16", np.array([0x3F80], np.uint16))
    (tmp_path / "scales.json").write_text(json.dumps(exact))
    (tmp_path / "shards").mkdir()
    write_safetensors(tmp_path / "scales.safetensors", tensors)
    halves = list(tensors)[:9], list(tensors)[9:]
    for number, half in enumerate(halves):
        write_safetensors(tmp_path / "shards" / f"{number}.safetensors", {name: tensors[name] for name in half})
    of_modules = {name.removesuffix(".input_scale"): number for name, number in exact.items()}
    ways: list[Any] = [exact, of_modules, tmp_path / "scales.json", str(tmp_path / "scales.safetensors")]
    ways += [tmp_path / "shards", {name: np.float32(number) for name, number in exact.items()}]
    plans = [planned(model, "FP8", input_scales=way) for way in ways]
    assert len({plan.digest for plan in plans}) == 1
    assert all(plan.request.input_scales == tuple(sorted(exact.items())) for plan in plans)
    assert request_of(json.loads(json.dumps(plans[0].request.members))) == plans[0].request
    changed = {**exact, min(exact): 0.5}
    assert planned(model, "FP8", input_scales=changed).digest != plans[0].digest
    # Requests without are those of earlier versions.
    assert planned(model, "FP8_DYNAMIC").request.members.keys().isdisjoint({"input_scales", "kv_scales"})


def test_tensors_of_each_dtype(model: Path, tmp_path: Path) -> None:
    bits = {"BF16": np.array([0x3DCD], np.uint16), "F16": np.array([0x2E66], np.uint16)}
    values = {"BF16": 0.10009765625, "F16": 0.0999755859375}
    for dtype, array in bits.items():
        of_file: Tensors = {f"{module}.input_scale": (dtype, array.reshape(())) for module in INPUTS}
        write_safetensors(tmp_path / f"{dtype}.safetensors", of_file)
        plan = planned(model, "FP8", input_scales=tmp_path / f"{dtype}.safetensors")
        assert {number for _, number in plan.request.input_scales} == {values[dtype]}


def test_certificate_dequantization_and_sources(model: Path, tmp_path: Path) -> None:
    """Given scales have no verdict, are dropped with the codes, and another run goes from these codes."""
    report = requant.quantize_checkpoint(
        model, tmp_path / "target", "NVFP4", input_scales=INPUTS, kv_scales=KV, certify=True
    )
    assert {name.removesuffix(".weight") for name in report.verdicts} == {*MODULES, "lm_head", "model.norm"}
    assert verify(LocalStore(tmp_path / "target"), LocalStore(model)).faults == ()
    assert verify(LocalStore(tmp_path / "target"), LocalStore(model), sample=0.3, seed=5).faults == ()
    requant.dequantize_checkpoint(tmp_path / "target", tmp_path / "restored")
    assert tensors_in(tmp_path / "restored").keys() == tensors_in(model).keys()
    assert "quantization_config" not in json.loads((tmp_path / "restored" / "config.json").read_text())
    requant.quantize_checkpoint(tmp_path / "target", tmp_path / "again", "FP8", input_scales=INPUTS)
    requant.quantize_checkpoint(tmp_path / "restored", tmp_path / "from_restored", "FP8", input_scales=INPUTS)
    assert tensors_in(tmp_path / "again") == tensors_in(tmp_path / "from_restored")
    assert not {name for name in tensors_in(tmp_path / "again") if "global" in name or "k_scale" in name}


def test_a_changed_scale_is_found(model: Path, tmp_path: Path) -> None:
    requant.quantize_checkpoint(model, tmp_path / "target", "FP8", input_scales=INPUTS)
    name = f"{MODULES[0]}.input_scale"
    path = tmp_path / "target" / homes(tmp_path / "target")[name]
    tensors = read_safetensors(path)
    data = path.read_bytes()
    tensors[name] = ("BF16", tensors[name][1] + np.uint16(1))
    write_safetensors(path, tensors, {"format": "pt"})
    assert len(path.read_bytes()) == len(data)
    faults = verify(LocalStore(tmp_path / "target"), LocalStore(model), hashes=False).faults
    assert [fault.tensor for fault in faults] == [name]


def test_resume_and_plan_files(model: Path, tmp_path: Path) -> None:
    source, whole = LocalStore(model), tmp_path / "whole"
    plan = planned(model, "NVFP4", input_scales=INPUTS, kv_scales=KV)
    run_plan(plan, source, LocalStore(whole))
    file = parse_plan_file(plan_file_of(plan, source, LocalStore(tmp_path / "worked")).to_json())
    work(file.plan(source), source, LocalStore(tmp_path / "worked"), threads=1)
    assert contents(tmp_path / "worked") == contents(whole)
    resumed = tmp_path / "resumed"
    run_plan(plan, source, LocalStore(resumed))
    (resumed / plan.tasks[1].output).unlink()
    report = run_plan(plan, source, LocalStore(resumed))
    assert plan.tasks[0].output in report.kept
    assert contents(resumed) == contents(whole)
    with pytest.raises(RequantError, match="another plan"):
        run_plan(planned(model, "NVFP4", input_scales=INPUTS), source, LocalStore(resumed))


def test_dry_runs_count_them(model: Path) -> None:
    plan = planned(model, "FP8", input_scales=INPUTS, kv_scales=KV)
    kept = {each["reason"]: each for each in plan_document(plan, "")["kept"]}
    assert kept["scales of activations, as they are given"]["count"] == len(INPUTS) + len(KV)
    assert "scales of activations, as they are given" in plan_text(plan)
    assert sum(isinstance(step, QuantizeStep) for step in plan.steps) == len(MODULES)


def without(scales: Mapping[str, float], *parts: str) -> dict[str, float]:
    return {name: number for name, number in scales.items() if not any(part in name for part in parts)}


UP = "model.layers.0.mlp.up_proj"
REFUSED: dict[str, tuple[str, Callable[[], dict[str, Any]], str]] = {
    "no such module": ("FP8", lambda: {"input_scales": {**INPUTS, "model.layers.9.mlp.up_proj": 1.0}}, "no such mod"),
    "no module at all": ("FP8", lambda: {"input_scales": {**INPUTS, "": 1.0}}, "no such module"),
    "a head that stays": ("FP8", lambda: {"input_scales": {**INPUTS, "lm_head": 1.0}}, "not quantized: remove its"),
    "another parameter": (
        "FP8",
        lambda: {"input_scales": {**without(INPUTS, UP), f"{UP}.input_global_scale": 1.0}},
        r"another parameter: model\.layers\.0\.mlp\.up_proj\.input_scale, largest magnitude of the inputs / 448: give",
    ),
    "the other parameter": (
        "NVFP4",
        lambda: {"input_scales": {**without(INPUTS, UP), f"{UP}.input_scale": 1.0}},
        r"input_global_scale, 448 \* 6 / largest magnitude of the inputs: give",
    ),
    "twice": (
        "FP8",
        lambda: {"input_scales": {**INPUTS, f"{UP}.input_scale": 1.0}},
        "its own name too: remove one",
    ),
    "missing": (
        "FP8",
        lambda: {"input_scales": without(INPUTS, "up_proj", "o_proj")},
        r"no scale for the inputs of model\.layers\.\*\.mlp\.up_proj, model\.layers\.\*\.self_attn\.o_proj \(4\): give "
        r"input_scales with model\.layers\.1\.mlp\.up_proj\.input_scale, largest magnitude",
    ),
    "zero": ("FP8", lambda: {"input_scales": {**INPUTS, UP: 0.0}}, r"up_proj: given scale: is 0\.0: give a finite"),
    "minus zero": ("FP8", lambda: {"input_scales": {**INPUTS, UP: -0.0}}, r"is -0\.0"),
    "negative": ("NVFP4", lambda: {"input_scales": {**INPUTS, UP: -2}}, r"is -2\.0: give a finite number above 0"),
    "not a number": ("NVFP4", lambda: {"input_scales": {**INPUTS, UP: math.nan}}, "is nan: give"),
    "infinite": ("NVFP4", lambda: {"input_scales": {**INPUTS, UP: math.inf}}, "is inf: give"),
    "an integer beyond f64": ("NVFP4", lambda: {"input_scales": {**INPUTS, UP: 10**400}}, "is inf: give"),
    "too large for f32": ("NVFP4", lambda: {"input_scales": {**INPUTS, UP: 1e39}}, r"is 1e\+39, which is inf as F32"),
    "too small for f32": ("NVFP4", lambda: {"input_scales": {**INPUTS, UP: 1e-46}}, r"is 1e-46, which is 0\.0 as F32"),
    "rounds to infinity": ("FP8", lambda: {"input_scales": {**INPUTS, UP: 3.4e38}}, r"which is inf as BF16"),
    "no attention": (
        "FP8_DYNAMIC",
        lambda: {"kv_scales": {**KV, "model.layers.0.mlp.k_scale": 1.0}},
        "with one of k",
    ),
    "of the projection": (
        "FP8_DYNAMIC",
        lambda: {"kv_scales": {**KV, "model.layers.0.self_attn.k_proj.k_scale": 1.0}},
        "with one of k_proj",
    ),
    "a name of inputs": ("FP8_DYNAMIC", lambda: {"kv_scales": {**KV, UP: 1.0}}, r"name it X\.k_scale or X\.v_scale"),
    "no values": ("FP8_DYNAMIC", lambda: {"kv_scales": without(KV, "v_scale")}, r"self_attn\.v_scale \(2\)"),
    "a layer without": (
        "FP8_DYNAMIC",
        lambda: {"kv_scales": without(KV, "layers.1")},
        r"give kv_scales with model\.layers\.1\.self_attn\.k_scale",
    ),
    "infinite keys": ("FP8_DYNAMIC", lambda: {"kv_scales": {**KV, f"{ATTENTION[1]}.k_scale": math.inf}}, "is inf"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, model: Path) -> None:
    scheme, options, said = REFUSED[name]
    with pytest.raises(CheckpointError, match=said) as refused:
        planned(model, scheme, **options())
    assert ADVICE.search(refused.value.detail)


def test_all_that_is_wrong_is_said_at_once(model: Path) -> None:
    wrong = {**without(INPUTS, "q_proj"), UP: math.nan, "model.layers.0.mlp.upproj": 1.0}
    with pytest.raises(CheckpointError) as refused:
        planned(model, "FP8", input_scales=wrong, kv_scales=without(KV, "layers.1"))
    assert all(said in refused.value.detail for said in ("4 problems", "is nan", "upproj", "q_proj", "k_scale"))


def test_schemes_that_take_none_or_need_them(model: Path) -> None:
    with pytest.raises(ParameterError, match=r"found with data: give them .*--input-scales.* such as FP8_DYNAMIC"):
        planned(model, "FP8")
    with pytest.raises(ParameterError, match="found with data"):
        planned(model, [("W4A16:group=16", ["re:.*attn.*"]), ("NVFP4", ["Linear"])])
    with pytest.raises(ParameterError, match="has no scales of inputs: leave out input_scales, or choose one of FP8"):
        planned(model, "NVFP4A16", input_scales=INPUTS)
    with pytest.raises(ParameterError, match="schemes of compressed-tensors: leave them out"):
        planned(model, "FINE_GRAINED_FP8", kv_scales=KV)
    mixed = [("FP8", [r"re:.*mlp.*"]), ("FP8_DYNAMIC", ["Linear"])]
    with pytest.raises(CheckpointError, match="the scheme of the module has no scale of inputs: remove it"):
        planned(model, mixed, input_scales=INPUTS)
    with pytest.raises(ParameterError, match="a repack takes no scales of activations"):
        plan_conversion(LocalStore(model), conversion_request(Direction.QUANTIZE, scheme="NVFP4", repack=Repack.EXACT))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b"[1]", "is no object"),
        ("a.json", b"{", "is not JSON"),
        ("a.json", b"{}", "has no scale; expected names such as X.input_scale or X.input_global_scale"),
        ("a.json", b'{"a": "1"}', "has no number for 'a'"),
        ("a.json", b'{"a": true}', "has no number for 'a'"),
        ("a.json", b'{"a": [1.0]}', "has no number for 'a'"),
        ("a.json", b'{"a": 1, "a": 2}', "duplicate member"),
        ("a.safetensors", b"{}", "is no safetensors file"),
    ],
)
def test_wrong_files(name: str, content: bytes, said: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ParameterError, match=said):
        planned(model, "FP8", input_scales=tmp_path / name)


@pytest.mark.parametrize(
    ("dtype", "array", "said"),
    [
        ("I32", np.array([1], np.int32), r"is I32 \[1\]; expected one element of BF16, F16, F32"),
        ("F64", np.array([1], np.float64), r"is F64 \[1\]"),
        ("F8_E4M3", np.array([1], np.uint8), r"is F8_E4M3 \[1\]"),
        ("F32", np.ones(2, np.float32), r"is F32 \[2\]; expected one element"),
        ("F32", np.ones((0, 1), np.float32), r"is F32 \[0, 1\]"),
        ("F32", np.ones((4, 1), np.float32), r"is F32 \[4, 1\]"),
    ],
)
def test_wrong_tensors(dtype: str, array: Any, said: str, model: Path, tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a.safetensors", {f"{UP}.input_scale": (dtype, array)})
    with pytest.raises(ParameterError, match=said):
        planned(model, "FP8", input_scales=tmp_path / "a.safetensors")


def test_files_that_are_not_there(model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("a.json", "a.safetensors", "empty", "a"):
        with pytest.raises(StorageError, match="does not exist"):
            planned(model, "FP8", input_scales=tmp_path / name)
    write_safetensors(tmp_path / "other.safetensors", {"model.norm.weight": ("F32", np.ones(2, np.float32))})
    with pytest.raises(ParameterError, match="has no scale"):
        planned(model, "FP8", input_scales=tmp_path / "other.safetensors")
    with pytest.raises(ParameterError, match="expected a mapping of names to numbers, or a path"):
        planned(model, "FP8", input_scales=[1.0])
    with pytest.raises(ParameterError, match="expected text"):
        planned(model, "FP8", input_scales={1: 1.0})


@pytest.mark.parametrize("value", [[], {"a": "1"}, {"a": True}, None, 3])
def test_requests_that_are_none(value: object, model: Path) -> None:
    members = planned(model, "FP8", input_scales=INPUTS).request.members
    with pytest.raises((KeyError, TypeError, ValueError)):
        request_of({**members, "kv_scales": value})


@pytest.mark.exhaustive
def test_the_command(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "inputs.json").write_text(json.dumps(INPUTS))
    (tmp_path / "kv.json").write_text(json.dumps(KV))
    files = ["--input-scales", str(tmp_path / "inputs.json"), "--kv-scales", str(tmp_path / "kv.json")]
    target = str(tmp_path / "target")
    quantize = ["checkpoint", "quantize", str(model), target, "--scheme", "fp8"]
    assert main([*quantize, *files]) == DONE
    requant.quantize_checkpoint(model, tmp_path / "python", "FP8", input_scales=INPUTS, kv_scales=KV)
    assert contents(tmp_path / "target") == contents(tmp_path / "python")
    assert main(["checkpoint", "verify", target, "--source", str(model)]) == DONE
    (tmp_path / "target" / "requant-manifest.json").unlink()
    stated = ["checkpoint", "verify", target, "--source", str(model), "--scheme", "FP8"]
    assert main([*stated, *files]) == DONE
    capsys.readouterr()
    assert main(quantize) == WRONG_USAGE
    assert "--input-scales" in capsys.readouterr().err
    plan = ["checkpoint", "plan", str(model), "--scheme", "NVFP4", *files, "--json"]
    assert main(plan) == DONE
    members = json.loads(capsys.readouterr().out)["request"]
    assert members["kv_scales"] == KV
    assert main(["checkpoint", "schemes"]) == DONE
    assert "one given f32 scale for each module" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["checkpoint", "plan", str(model), "--dequantize", *files])
    assert ended.value.code == WRONG_USAGE
    assert "--input-scales is not for --dequantize" in capsys.readouterr().err


def test_other_weights_than_the_request_of_a_plan_are_refused_again(model: Path) -> None:
    """The request of a plan is planned again by workers and by `verify --source`: it gives the same plan."""
    plan = planned(model, "NVFP4", input_scales=INPUTS, kv_scales=KV)
    assert plan_conversion(LocalStore(model), plan.request).digest == plan.digest
    wrong = replace(plan.request, input_scales=plan.request.input_scales[1:])
    with pytest.raises(CheckpointError, match="no scale for the inputs"):
        plan_conversion(LocalStore(model), wrong)


@pytest.mark.parametrize("scheme", PARAMETER)
def test_scales_of_fused_modules_that_differ_are_warned_of(model: Path, scheme: str) -> None:
    """Of q_proj, k_proj and v_proj, and of gate_proj and up_proj: they have the same inputs."""
    one = dict.fromkeys(INPUTS, 0.5)
    said = "get different scales for the same inputs. vLLM uses the largest of them"
    assert not any(said in each for each in planned(model, scheme, input_scales=one).warnings)
    others = one | {"model.layers.0.self_attn.k_proj": 0.25, "model.layers.1.mlp.up_proj": 0.75}
    others["model.layers.1.mlp.down_proj"] = others["model.layers.0.self_attn.o_proj"] = 0.125
    (warning,) = (each for each in planned(model, scheme, input_scales=others).warnings if said in each)
    named = "model.layers.*.self_attn.q_proj/k_proj/v_proj, model.layers.*.mlp.gate_proj/up_proj (2)"
    assert warning.startswith(f"the parts of {named} {said}")
    # The same number as it is stored.
    nearly = one | {"model.layers.0.self_attn.k_proj": 0.5 + 2**-40}
    assert not any(said in each for each in planned(model, scheme, input_scales=nearly).warnings)
