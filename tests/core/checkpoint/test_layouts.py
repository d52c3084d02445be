"""Checkpoints in fine-grained fp8, GPTQ, AWQ and NF4: plans, config.json in both directions, and whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.plan.model import DequantizeStep, Direction, Plan, QuantizeStep, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.safetensors.writer import head_bytes, layout
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.weights.auto_round import AutoRoundMx, AutoRoundNvfp4
from requant.checkpoint.weights.awq import Awq
from requant.checkpoint.weights.compressed_tensors import CHANNEL, FloatQuantized, Grouping
from requant.checkpoint.weights.fine_grained_fp8 import FineGrainedFp8
from requant.checkpoint.weights.floats import Array
from requant.checkpoint.weights.gptq import Gptq
from requant.checkpoint.weights.mxfp4 import DEEPSEEK as DEEPSEEK_LAYOUT
from requant.checkpoint.weights.mxfp4 import Mxfp4
from requant.checkpoint.weights.nf4 import STATE, read_state
from requant.checkpoint.weights.weight_format import StoredRows, WeightFormat
from requant.errors import CheckpointError, ParameterError, UnknownNameError
from tests.support.planned_checkpoint import HeadersOnly, Tensors, checkpoint, header_of, planned, tensors_of

SCHEMES = [
    "FINE_GRAINED_FP8",
    "FINE_GRAINED_FP8_UE8M0",
    "GPTQ_W4A16",
    "GPTQ_W8A16:group=32,asymmetric",
    "GPTQ_W2A16:channel",
    "AWQ:group=64",
    "NF4",
]
TENSORS: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (128, 128),
    "model.layers.0.self_attn.q_proj.weight": (256, 128),
    "model.layers.0.self_attn.q_proj.bias": (256,),
    "model.layers.0.mlp.down_proj.weight": (128, 384),
    "model.layers.0.mlp.gate.weight": (128, 128),
    "model.layers.0.odd.weight": (12, 128),
    "model.norm.weight": (128,),
}
QUANTIZED = ["model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"]
ODD = "model.layers.0.odd"


def steps(plan: Plan, kind: type[QuantizeStep] | type[DequantizeStep]) -> dict[str, Any]:
    every: list[Any] = [step for task in plan.tasks for step in task.steps]
    return {step.module: step for step in every if isinstance(step, kind)}


def save(folder: Path, config: dict[str, Any]) -> Path:
    """A checkpoint of bf16 numbers."""
    folder.mkdir()
    header = layout([(name, "BF16", shape) for name, shape in TENSORS.items()], None)
    data = bytearray(header.size)
    head = head_bytes(header)
    data[: len(head)] = head
    numbers = np.random.default_rng(3).standard_normal(header.size // 2).astype(np.float32)
    bits = (numbers.view(np.uint32) >> 16).astype("<u2").tobytes()
    for entry in header.tensors:
        data[entry.begin : entry.end] = bits[: entry.end - entry.begin]
    (folder / "model.safetensors").write_bytes(data)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def tensors(folder: Path) -> dict[str, np.ndarray]:
    data = (folder / "model.safetensors").read_bytes()
    header = header_of(data, len(data))
    return {
        entry.name: np.frombuffer(data[entry.begin : entry.end], DTYPES[entry.dtype].array).reshape(entry.shape)
        for entry in header.tensors
    }


def convert(source: Path, target: Path, request: Request) -> Plan:
    plan = plan_conversion(open_store(source), request)
    run_plan(plan, open_store(source), open_store(target), threads=2)
    return plan


@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_directions(scheme: str, tmp_path: Path) -> None:
    """Every stored tensor and every value is that of the format; what is left is left, and config.json lists it."""
    source = save(tmp_path / "source", {"dtype": "bfloat16", "architectures": ["LlamaForCausalLM"]})
    profile = scheme_named(scheme).profiles[0]
    plan = convert(source, tmp_path / "there", Request(Direction.QUANTIZE, (SchemeFor(scheme),), profile))
    weight_format = scheme_named(scheme).format(profile)
    quantized = [*QUANTIZED, *([ODD] if scheme == "NF4" else [])]
    assert set(steps(plan, QuantizeStep)) == set(quantized)
    there, plain = tensors(tmp_path / "there"), tensors(source)
    back = convert(tmp_path / "there", tmp_path / "back", Request(Direction.DEQUANTIZE, (), ""))
    assert set(steps(back, DequantizeStep)) == set(quantized)
    restored = tensors(tmp_path / "back")
    for module in quantized:
        weight = plain.pop(f"{module}.weight")
        parts = dict.fromkeys(each.suffix for each in weight_format.stored("BF16", weight.shape))
        whole = weight_format.quantize(weight, "BF16", weight.shape, 0)
        stored = {region.suffix: array for region, array in whole}
        assert stored.keys() == parts.keys()
        for suffix, array in stored.items():
            np.testing.assert_array_equal(there.pop(f"{module}.{suffix}").reshape(array.shape), array)
        tensors_of_weight = weight_format.stored("BF16", weight.shape)
        values = weight_format.dequantize(StoredRows.whole(stored, tensors_of_weight, weight.shape), "BF16")
        np.testing.assert_array_equal(restored.pop(f"{module}.weight"), values)
    for name, array in plain.items():
        np.testing.assert_array_equal(there.pop(name), array)
        np.testing.assert_array_equal(restored.pop(name), array)
    assert not there
    assert not restored
    members = json.loads((tmp_path / "there" / "config.json").read_text())["quantization_config"]
    left = {"model.embed_tokens", "model.layers.0.mlp.gate", "lm_head", *({ODD} - set(quantized))}
    listed = ("modules_to_not_convert", "extra_config", "llm_int8_skip_modules")
    assert set(next(members[name] for name in listed if name in members)) == left
    assert "quantization_config" not in json.loads((tmp_path / "back" / "config.json").read_text())


def test_awq_takes_rows_of_whole_words_only() -> None:
    store = checkpoint({"model.safetensors": [("a.weight", "BF16", (24, 128)), ("b.weight", "BF16", (20, 128))]}, {})
    plan = planned(store, "AWQ", profile="autoawq")
    assert list(steps(plan, QuantizeStep)) == ["a"]
    assert json.loads(plan.config)["quantization_config"]["modules_to_not_convert"] == ["b"]


@pytest.mark.parametrize("scheme", ["GPTQ_W4A16:group=96", "AWQ:group=96"])
def test_groups_that_do_not_fit(scheme: str) -> None:
    store = checkpoint({"model.safetensors": [("a.weight", "BF16", (64, 128))]}, {})
    with pytest.raises(CheckpointError, match=r"groups of 96.*not a multiple"):
        planned(store, scheme, profile=scheme_named(scheme).profiles[0])


def gptq(rows: int = 96, columns: int = 128, groups: int = 1, bits: int = 4, scales: str = "F16") -> Tensors:
    return [
        ("a.qweight", "I32", (columns * bits // 32, rows)),
        ("a.qzeros", "I32", (groups, rows * bits // 32)),
        ("a.scales", scales, (groups, rows)),
    ]


G_IDX: Tensors = [("a.g_idx", "I32", (128,))]
FP8: Tensors = [("a.weight", "F8_E4M3", (576, 300)), ("a.weight_scale_inv", "F32", (5, 3))]
FP4: Tensors = [("a.weight", "I8", (576, 160)), ("a.scale", "F8_E8M0", (576, 10))]
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
MX_AUTO_ROUND = {
    **AUTO_ROUND, "packing_format": "auto_round:llm_compressor", "data_type": "mx_fp", "group_size": 32,
}  # fmt: skip
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
DEEPSEEK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


@pytest.mark.parametrize(
    ("members", "stored", "expected"),
    [
        # DeepSeek-V3 has blocks that are cut off; V3.1 says ue8m0, and stores its powers of two as F32.
        (DEEPSEEK, FP8, FineGrainedFp8(ragged=True)),
        ({**DEEPSEEK, "scale_fmt": "ue8m0"}, FP8, FineGrainedFp8(ragged=True)),
        (DEEPSEEK, [FP8[0], ("a.weight_scale_inv", "F8_E8M0", (5, 3))], FineGrainedFp8("F8_E8M0", ragged=True)),
        (DEEPSEEK, [FP8[0], ("a.weight_scale_inv", "U8", (5, 3))], FineGrainedFp8("U8", ragged=True)),
        (DEEPSEEK, [FP8[0], ("a.scale", "F8_E8M0", (5, 3))], FineGrainedFp8("F8_E8M0", ragged=True, scale="scale")),
        (DEEPSEEK, [FP8[0], ("a.scale", "F32", (5, 3))], FineGrainedFp8(ragged=True, scale="scale")),
        (
            {**DEEPSEEK, "weight_block_size": [32, 32], "expert_dtype": "fp4"},
            [FP8[0], ("a.scale", "F8_E8M0", (18, 10))],
            FineGrainedFp8("F8_E8M0", 32, 32, ragged=True, scale="scale"),
        ),
        ({**DEEPSEEK, "expert_dtype": "fp4"}, FP4, Mxfp4(DEEPSEEK_LAYOUT, "F8_E8M0")),
        (
            {**DEEPSEEK, "expert_dtype": "fp4"},
            [FP4[0], ("a.weight_scale_inv", "U8", (576, 10))],
            Mxfp4(DEEPSEEK_LAYOUT._replace(scales="weight_scale_inv"), "U8"),
        ),
        (GPTQ, [*gptq(), *G_IDX], Gptq(4, True, has_g_idx=True, ragged=True)),
        ({**GPTQ, "checkpoint_format": "gptq_v2"}, gptq(), Gptq(4, True, version=2, ragged=True)),
        ({**GPTQ, "bits": 8, "group_size": -1, "sym": False}, gptq(bits=8), Gptq(8, False, None, ragged=True)),
        ({**GPTQ, "group_size": 32}, gptq(groups=4, scales="BF16"), Gptq(4, True, 32, scale_dtype="BF16", ragged=True)),
        (
            MX_AUTO_ROUND,
            [("a.weight_packed", "U8", (64, 64)), ("a.weight_scale", "U8", (64, 4))],
            AutoRoundMx(4),
        ),
        (
            MX_AUTO_ROUND | {"extra_config": {"a": {"bits": 8, "data_type": "mx_fp_rceil"}, "b": {"bits": 16}}},
            [("a.weight", "F8_E4M3", (64, 128)), ("a.weight_scale", "U8", (64, 4))],
            AutoRoundMx(8),
        ),
        (
            MX_AUTO_ROUND | {"data_type": "nv_fp4_with_static_gs", "group_size": 16},
            [
                ("a.weight_packed", "U8", (64, 64)),
                ("a.weight_scale", "F8_E4M3", (64, 8)),
                ("a.weight_global_scale", "F32", ()),
            ],
            AutoRoundNvfp4(),
        ),
        (
            {**AUTO_ROUND, "packing_format": "auto_round:fp8_static", "data_type": "fp", "bits": 8, "group_size": -1},
            [("a.weight", "F8_E4M3", (64, 128)), ("a.weight_scale", "BF16", (64,))],
            FloatQuantized(CHANNEL, True),
        ),
        ({**GPTQ, "bits": 3}, gptq(bits=3), Gptq(3, True, ragged=True)),
        ({**GPTQ, "checkpoint_format": None, "format": "gptq_v2"}, gptq(), Gptq(4, True, version=2, ragged=True)),
        ({**GPTQ, "dynamic": {"-:b": {}, "+:[ab]": {"bits": 8}, "a": {}}}, gptq(bits=8), Gptq(8, True, ragged=True)),
        ({**AUTO_ROUND, "packing_format": "auto_round:auto_gptq"}, gptq(), Gptq(4, True, ragged=True)),
        ({**AUTO_ROUND, "packing_format": "auto_round"}, gptq(), Gptq(4, True, version=2, ragged=True)),
        (
            {**AUTO_ROUND, "packing_format": "auto_round", "extra_config": {".*a": {"bits": 8}, "b": {"bits": 16}}},
            gptq(bits=8),
            Gptq(8, True, version=2, ragged=True),
        ),
        (
            # A name goes before expressions, which are searched for anywhere in the names.
            {**AUTO_ROUND, "packing_format": "auto_round", "extra_config": {"b": {"bits": 4}, "a": {"bits": 8}}},
            gptq(bits=8),
            Gptq(8, True, version=2, ragged=True),
        ),
        (
            {**AUTO_ROUND, "packing_format": "auto_round", "extra_config": {"[ab]": {"bits": 4}, "a": {"bits": 8}}},
            gptq(bits=8),
            Gptq(8, True, version=2, ragged=True),
        ),
        (
            {**AUTO_ROUND, "packing_format": "auto_round:auto_awq"},
            [("a.qweight", "I32", (128, 4)), ("a.qzeros", "I32", (1, 4)), ("a.scales", "F16", (1, 32))],
            Awq(128),
        ),
        (
            AWQ,
            [("a.qweight", "I32", (128, 4)), ("a.qzeros", "I32", (1, 4)), ("a.scales", "BF16", (1, 32))],
            Awq(128, "BF16"),
        ),
        (
            {**AWQ, "version": "GEMM", "modules_to_not_convert": None},
            [("a.qweight", "I32", (128, 4)), ("a.qzeros", "I32", (1, 4)), ("a.scales", "F16", (1, 32))],
            Awq(128),
        ),
    ],
)
def test_checkpoints_of_others(members: dict[str, Any], stored: Tensors, expected: WeightFormat) -> None:
    store = checkpoint({"model.safetensors": [*stored, ("a.bias", "BF16", (8,))]}, {"quantization_config": members})
    plan = planned(store, None)
    (step,) = steps(plan, DequantizeStep).values()
    assert step.source.format == expected
    assert set(step.source.stored) == {name.removeprefix("a.") for name, _, _ in stored}


def test_deepseek_says_beside_the_quantization_how_experts_are_stored() -> None:
    """And it is no more said of what they become."""
    config = {"quantization_config": DEEPSEEK, "expert_dtype": "fp4", "model_type": "deepseek_v4"}
    store = checkpoint({"1.safetensors": [FP4[0]], "2.safetensors": [FP4[1]]}, config)
    for scheme in (None, "NVFP4A16"):
        plan = planned(store, scheme)
        (step,) = steps(plan, DequantizeStep if scheme is None else QuantizeStep).values()
        assert step.source.format == Mxfp4(DEEPSEEK_LAYOUT, "F8_E8M0")
        assert step.source.shape == (576, 320)
        assert [each.file for each in step.source.stored.values()] == ["1.safetensors", "2.safetensors"]
        assert json.loads(plan.config).keys() - {"quantization_config"} == {"model_type"}


def test_deepseek_v3_as_it_is_published() -> None:
    """Blocks are cut off, a scale is in another file, which becomes empty, and some modules were not converted."""
    members = DEEPSEEK | {"modules_to_not_convert": ["b", "lm_head"]}
    files: dict[str, Tensors] = {
        "1.safetensors": [FP8[0], ("b.weight", "BF16", (200, 300)), ("a.e_score_correction_bias", "F32", (8,))],
        "2.safetensors": [FP8[1]],
        "3.safetensors": [("lm_head.weight", "BF16", (8, 300))],
    }
    plan = planned(checkpoint(files, {"quantization_config": members}), None)
    assert tensors_of(plan) == {
        "1.safetensors": {
            "a.weight": ("BF16", (576, 300)),
            "b.weight": ("BF16", (200, 300)),
            "a.e_score_correction_bias": ("F32", (8,)),
        },
        "3.safetensors": {"lm_head.weight": ("BF16", (8, 300))},
    }
    (step,) = steps(plan, DequantizeStep).values()
    assert {suffix: each.file for suffix, each in step.source.stored.items()} == {
        "weight": "1.safetensors",
        "weight_scale_inv": "2.safetensors",
    }


def test_a_scale_of_another_module_is_no_mark() -> None:
    """transformers calls parameters of hyper-connections so, and other methods have no such weights."""
    plain: Tensors = [("hc.fn", "F32", (4, 8)), ("hc.scale", "F32", (3,)), ("a.norm.weight", "BF16", (8,))]
    store = checkpoint({"model.safetensors": [*FP8, *plain]}, {"quantization_config": DEEPSEEK})
    plan = planned(store, None)
    assert set(steps(plan, DequantizeStep)) == {"a"}
    assert {entry.name for task in plan.tasks for entry in task.header.tensors} == {
        "a.weight",
        *(name for name, _, _ in plain),
    }
    other: Tensors = [*gptq(), ("b.weight", "BF16", (8,)), ("b.scale", "BF16", (8,))]
    store = checkpoint({"model.safetensors": other}, {"quantization_config": GPTQ})
    assert set(steps(planned(store, None), DequantizeStep)) == {"a"}


@pytest.mark.parametrize(
    ("key", "bits"),
    [(r"layers\.1\.", 8), (r"^model\.layers", 8), ("model.layers.1.q", 8), ("q$", 8), ("k$", 4), (r"^layers", 4)],
)
def test_expressions_of_auto_round_are_searched_for(key: str, bits: int) -> None:
    members = {**AUTO_ROUND, "packing_format": "auto_round", "extra_config": {key: {"bits": 8}}}
    stored: Tensors = [(f"model.layers.1.q{name[1:]}", dtype, shape) for name, dtype, shape in gptq(bits=bits)]
    store = checkpoint({"model.safetensors": stored}, {"quantization_config": members})
    (step,) = steps(planned(store, None), DequantizeStep).values()
    assert step.source.format == Gptq(bits, True, version=2, ragged=True)


def test_modules_that_gptqmodel_leaves() -> None:
    """Their tensors, if they have any, are explained by nothing."""
    members = {**GPTQ, "dynamic": {"-:.*a$": {}}}
    store = checkpoint({"model.safetensors": gptq()}, {"quantization_config": members})
    with pytest.raises(CheckpointError, match="nothing in quantization_config applies to it"):
        planned(store, None)


def test_a_name_of_a_module_is_no_expression() -> None:
    members = {**AUTO_ROUND, "packing_format": "auto_round", "extra_config": {"a": {"bits": 8}}}
    stored: Tensors = [*gptq(bits=8), *((f"ab{name[1:]}", dtype, shape) for name, dtype, shape in gptq())]
    store = checkpoint({"model.safetensors": stored}, {"quantization_config": members})
    found = steps(planned(store, None), DequantizeStep)
    assert found["a"].source.format == Gptq(8, True, version=2, ragged=True)
    assert found["ab"].source.format == Gptq(4, True, version=2, ragged=True)


NF4_STATE = b'{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [3, 5], "more": 1}'


def nf4(state: bytes) -> HeadersOnly:
    """A checkpoint whose state is longer than ours."""
    members = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    stored: Tensors = [
        ("a.weight", "U8", (8, 1)),
        ("a.weight.absmax", "F32", (1,)),
        ("a.weight.quant_map", "F32", (16,)),
        (f"a.{STATE}", "U8", (len(state),)),
    ]
    store = checkpoint({"model.safetensors": stored}, {"quantization_config": members})
    header = header_of(store.start["model.safetensors"], store.sizes["model.safetensors"])
    places = {entry.name: entry.begin for entry in header.tensors}
    store.pieces["model.safetensors"] = {places[f"a.{STATE}"]: state}
    return store


def test_nf4_of_others() -> None:
    (step,) = steps(planned(nf4(NF4_STATE), None), DequantizeStep).values()
    assert step.source.shape == (3, 5)
    assert step.output == "a.weight"
    assert set(step.source.stored) == {"weight", "weight.absmax", "weight.quant_map", STATE}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (b"", "not in the form that bitsandbytes writes"),
        (b"[1]", "not in the form that bitsandbytes writes"),
        (b"\xff", "not in the form that bitsandbytes writes"),
        (b"[" * 4000, "not in the form that bitsandbytes writes"),
        (NF4_STATE.replace(b"nf4", b"fp4"), "type 'fp4' in blocks of 64 are not supported"),
        (NF4_STATE.replace(b"64", b"32"), "blocks of 32 are not supported"),
        (NF4_STATE.replace(b"more", b"nested_blocksize"), "quantized in blocks of 1 with the offset None"),
        (NF4_STATE.replace(b'more": 1', b'nested_blocksize": 256, "nested_offset": NaN'), "with the offset nan"),
        (NF4_STATE.replace(b"[3, 5]", b"15"), "not a list of integers"),
        (NF4_STATE.replace(b"[3, 5]", b"[3.0, 5]"), "not a list of integers"),
        (NF4_STATE.replace(b"[3, 5]", b"[0, 5]"), "no matrix"),
        (NF4_STATE.replace(b"[3, 5]", b"[15]"), "no matrix"),
    ],
)
def test_states_that_are_not_read(state: bytes, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_state(state)
    if state:
        with pytest.raises(CheckpointError, match=message):
            planned(nf4(state), None)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({**DEEPSEEK, "weight_block_size": None}, "weight_block_size is None"),
        ({**DEEPSEEK, "weight_block_size": [128, True]}, "weight_block_size"),
        ({**DEEPSEEK, "weight_block_size": [128, 0]}, "weight_block_size"),
        ({**DEEPSEEK, "weight_block_size": [4097, 128]}, "at most 4096"),
        ({**GPTQ, "bits": "4"}, "bits is 4; expected an integer"),
        ({**GPTQ, "bits": 5}, "5 bits"),
        ({**GPTQ, "is_marlin_format": True}, "packed as 'marlin'"),
        ({**GPTQ, "checkpoint_format": "gptq_p"}, "packed as 'gptq_p'"),
        ({**GPTQ, "dynamic": []}, "dynamic is \\[\\]; expected an object"),
        ({**GPTQ, "dynamic": {"a": 4}}, "dynamic.'?a'? is 4; expected an object"),
        ({**GPTQ, "dynamic": {"+:a": {"bits": 7}}}, "7 bits"),
        ({**GPTQ, "dynamic": {"+:(?=((.|[^!])+)+!)x": {}}}, "is not supported in a pattern"),
        ({**AUTO_ROUND, "packing_format": "auto_round:auto_awq", "bits": 8}, "AWQ weights of 8 bits"),
        ({**GPTQ, "group_size": 0}, "group_size is 0"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "packed as 'marlin'"),
        ({**AUTO_ROUND, "packing_format": "auto_round:fp8"}, "packed as 'auto_round:fp8'"),
        ({**AUTO_ROUND, "packing_format": "auto_round", "rotation_config": {"hadamard_type": "x"}}, "are rotated"),
        (MX_AUTO_ROUND | {"bits": 6}, "data_type 'mx_fp', 6 bits and a group_size of 32 is not supported"),
        (MX_AUTO_ROUND | {"data_type": "int"}, "data_type 'int', 4 bits"),
        (MX_AUTO_ROUND | {"data_type": ["mx_fp"]}, "data_type'? is .'mx_fp'.; expected a string"),
        (MX_AUTO_ROUND | {"data_type": "nv_fp"}, "group_size of 32 is not supported"),
        (MX_AUTO_ROUND | {"packing_format": "auto_round:fp8_static", "bits": 8}, "group_size of 32 is not supported"),
        ({**AUTO_ROUND, "packing_format": "auto_round", "extra_config": {"a": 4}}, "extra_config"),
        *(({**AWQ, "version": each}, f"version '{each}'") for each in ("gemv", "gemv_fast", "marlin", "llm-awq")),
        ({**AWQ, "version": None, "checkpoint_format": "gemv"}, "version 'gemv'"),
        ({**AWQ, "bits": 8}, "8 bits"),
        ({**AWQ, "zero_point": False}, "zero_point False"),
        ({**AWQ, "group_size": None}, "group_size is None"),
        ({**AWQ, "pack_method": "order"}, "pack_method 'order'"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": True}, "load_in_8bit True"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
            "type 'fp4'",
        ),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_quant_type": "nf4",
                "bnb_4bit_quant_storage": "bfloat16",
            },
            "bnb_4bit_quant_storage",
        ),
    ],
)
def test_configs_that_are_not_read(members: dict[str, Any], message: str) -> None:
    store = checkpoint({"model.safetensors": gptq()}, {"quantization_config": members})
    with pytest.raises(CheckpointError, match=message):
        planned(store, None)


@pytest.mark.parametrize(
    ("stored", "members", "message"),
    [
        ([FP8[0]], {}, "a.weight: is F8_E4M3, but its module has no known scale"),
        ([FP4[0]], {"expert_dtype": "fp4"}, "a.weight: is I8, the codes of a quantized weight, but its module has no"),
        (FP4, {}, 'weight is I8, but config.json does not say "expert_dtype": "fp4"'),
        (FP4, {"expert_dtype": "fp8"}, 'weight is I8, but config.json does not say "expert_dtype": "fp4"'),
        (FP4, {"expert_dtype": "fp6"}, "expert_dtype is 'fp6'; expected fp8 or fp4"),
        (FP4, {"expert_dtype": 4}, "expert_dtype is 4; expected a string"),
        ([FP4[0], ("a.scale", "F32", (576, 10))], {"expert_dtype": "fp4"}, "scale of E2M1 codes is F32"),
        (
            [FP4[0], ("a.scale", "F8_E8M0", (576, 5))],
            {"expert_dtype": "fp4"},
            r"scale is F8_E8M0 \[576, 5\]; expected F8_E8M0 \[576, 10\]",
        ),
        ([("a.weight", "I8", (4, 8)), ("a.scale", "U8", (4, 1))], {"expert_dtype": "fp4"}, "in groups of 32"),
        ([*FP8, ("a.scale", "F32", (5, 3))], {}, "has both weight_scale_inv and scale"),
        ([FP8[0], ("a.scale", "BF16", (5, 3))], {}, "cannot be of dtype BF16"),
        ([FP8[0], ("a.scale", "F8_E8M0", (18, 10))], {}, r"scale is F8_E8M0 \[18, 10\]; expected F8_E8M0 \[5, 3\]"),
        ([("a.weight", "BF16", (8, 8)), ("a.scale", "F32", (1, 1))], {}, "weight is BF16 .*; expected F8_E4M3"),
    ],
)
def test_what_deepseek_does_not_store(stored: Tensors, members: dict[str, Any], message: str) -> None:
    config = {"quantization_config": DEEPSEEK | members}
    store = checkpoint({"model.safetensors": [*stored, ("b.weight", "BF16", (8,))]}, config)
    with pytest.raises(CheckpointError, match=message):
        planned(store, None)


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("GPTQ_W4A16:group", "'group' is not a scheme option .did you mean group=SIZE"),
        ("GPTQ_W4A16:group=0", "group size is '0'"),
        ("GPTQ_W4A16:group=3x", "group size is '3x'"),
        ("GPTQ_W4A16:channel,group=32", "exclude each other"),
        ("GPTQ_W4A16:group=32,group=64", "options group=32 and group=64 exclude each other"),
        ("GPTQ_W4A16:group=32,group=32", "option group=32 is given twice"),
        ("GPTQ_W4A16:asymmetric,asymmetric", "option asymmetric is given twice"),
        ("AWQ:channel,channel", "option channel is given twice"),
        ("AWQ:asymmetric", "'asymmetric' is not a scheme option"),
        ("FINE_GRAINED_FP8:channel", "not an option; there are none"),
    ],
)
def test_options_that_are_refused(scheme: str, message: str) -> None:
    with pytest.raises((ParameterError, UnknownNameError), match=message):
        scheme_named(scheme)


@pytest.mark.parametrize("width", [2**40, 10**30])
def test_blocks_wider_than_the_weight(width: int) -> None:
    """They are as wide as the weight, and take no more memory than that."""
    weight = np.arange(4 * 30, dtype=np.uint8).reshape(4, 30)
    of_fp8: dict[str, Array] = {"weight": weight, "weight_scale_inv": np.array([[2.0]], np.float32)}
    of_compressed_tensors: dict[str, Array] = {"weight": weight, "weight_scale": np.array([[2.0]], np.float32)}
    dtypes = {"weight": "F8_E4M3", "weight_scale_inv": "F32", "weight_scale": "F32"}
    formats: tuple[tuple[WeightFormat, dict[str, Array]], ...] = (
        (FineGrainedFp8(height=128, width=width, ragged=True), of_fp8),
        (FloatQuantized(Grouping(128, width), True), of_compressed_tensors),
    )
    for weight_format, stored in formats:
        rows = StoredRows(stored, dtypes, (4, 30), 0, 4)
        codes = weight_format.codes(rows)
        assert codes.scales.tolist() == [[2.0]] * 4
        values = weight_format.dequantize(rows, "F32")
        assert values[0, 8] == 2 * 2.0**-6
