"""Experts of gpt-oss: which modules they become, from which bytes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from requant.checkpoint.plan.dry_run import plan_text
from requant.checkpoint.plan.model import CopyStep, DequantizeStep, Plan, QuantizedSource, QuantizeStep
from requant.errors import CheckpointError
from tests.support.planned_checkpoint import HeadersOnly, Tensors, checkpoint, planned, tensors_of

X = "model.layers.0.mlp.experts"
Q = "model.layers.0.self_attn.q_proj"
HIDDEN, INNER, COUNT = 64, 96, 2
CONFIG = {"model_type": "gpt_oss", "hidden_size": HIDDEN}
BIASES: Tensors = [
    (f"{X}.gate_up_proj_bias", "BF16", (COUNT, 2 * INNER)),
    (f"{X}.down_proj_bias", "BF16", (COUNT, HIDDEN)),
    (f"{Q}.weight", "BF16", (32, HIDDEN)),
]
PLAIN: Tensors = [
    (f"{X}.gate_up_proj", "BF16", (COUNT, HIDDEN, 2 * INNER)),
    (f"{X}.down_proj", "BF16", (COUNT, INNER, HIDDEN)),
    *BIASES,
]
MXFP4: Tensors = [
    (f"{X}.gate_up_proj_blocks", "U8", (COUNT, 2 * INNER, HIDDEN // 32, 16)),
    (f"{X}.gate_up_proj_scales", "U8", (COUNT, 2 * INNER, HIDDEN // 32)),
    (f"{X}.down_proj_blocks", "U8", (COUNT, HIDDEN, INNER // 32, 16)),
    (f"{X}.down_proj_scales", "U8", (COUNT, HIDDEN, INNER // 32)),
    *BIASES,
]
QUANTIZED = {**CONFIG, "quantization_config": {"quant_method": "mxfp4"}}


def source(tensors: Tensors, config: dict[str, Any]) -> HeadersOnly:
    return checkpoint({"model.safetensors": tensors}, config)


def outputs(plan: Plan) -> dict[str, tuple[str, tuple[int, ...]]]:
    return tensors_of(plan)["model.safetensors"]


def modules(plan: Plan) -> dict[str, QuantizeStep]:
    return {step.module: step for step in plan.steps if isinstance(step, QuantizeStep)}


@pytest.mark.parametrize(("tensors", "config"), [(PLAIN, CONFIG), (MXFP4, QUANTIZED)])
def test_modules_and_biases(tensors: Tensors, config: dict[str, Any]) -> None:
    plan = planned(source(tensors, config), "W8A8")
    expected: dict[str, tuple[str, tuple[int, ...]]] = {}
    shapes = {Q: (32, HIDDEN)}
    for expert in range(COUNT):
        for part, rows, columns in (
            ("gate_proj", INNER, HIDDEN),
            ("up_proj", INNER, HIDDEN),
            ("down_proj", HIDDEN, INNER),
        ):
            shapes[f"{X}.{expert}.{part}"] = (rows, columns)
            expected[f"{X}.{expert}.{part}.bias"] = ("BF16", (rows,))
    for module, (rows, columns) in shapes.items():
        expected |= {f"{module}.weight": ("I8", (rows, columns)), f"{module}.weight_scale": ("BF16", (rows, 1))}
    assert outputs(plan) == expected
    assert {module: step.source.shape for module, step in modules(plan).items()} == shapes
    text = plan_text(plan)
    assert f"Quantized: {1 + 3 * COUNT} weights" in text
    assert f"{3 * COUNT} not named .weight: {X.replace('0', '*')}" in text


def test_the_bytes_of_a_part() -> None:
    """Those of one expert; gate and up have the same."""
    store = source(MXFP4, QUANTIZED)
    found = modules(planned(store, "W8A8"))
    gate, up, down = (found[f"{X}.1.{part}"].source for part in ("gate_proj", "up_proj", "down_proj"))
    assert isinstance(gate, QuantizedSource)
    assert isinstance(up, QuantizedSource)
    assert isinstance(down, QuantizedSource)
    assert gate.stored == up.stored
    assert gate != up
    blocks, scales = gate.stored["blocks"], gate.stored["scales"]
    assert (blocks.shape, scales.shape) == ((2 * INNER, HIDDEN // 2), (2 * INNER, HIDDEN // 32))
    assert (blocks.byte_count, scales.byte_count) == (INNER * HIDDEN, INNER * HIDDEN // 16)
    places = {
        step.source.tensor: step.source for step in planned(store, None).steps if isinstance(step, DequantizeStep)
    }
    whole = places[f"{X}.gate_up_proj"].stored["blocks"]
    assert (blocks.begin, blocks.end) == (whole.begin + INNER * HIDDEN, whole.end)


@pytest.mark.parametrize(("tensors", "config"), [(PLAIN, CONFIG), (MXFP4, QUANTIZED)])
def test_those_of_which_nothing_is_quantized_stay_together(tensors: Tensors, config: dict[str, Any]) -> None:
    plan = planned(source(tensors, config), "W8A8", ignore=["re:.*experts.*"])
    assert {name: each for name, each in outputs(plan).items() if ".experts." in name} == {
        name: (dtype, shape) for name, dtype, shape in PLAIN if ".experts." in name
    }
    plan = planned(source(tensors, config), "W8A8", ignore=["re:.*experts.*gate_proj", "re:.*experts.*up_proj"])
    assert outputs(plan)[f"{X}.0.up_proj.weight"] == ("BF16", (INNER, HIDDEN))
    assert outputs(plan)[f"{X}.0.down_proj.weight"] == ("I8", (HIDDEN, INNER))
    assert len([step for step in plan.steps if isinstance(step, CopyStep)]) == COUNT


def test_gate_and_up_share_a_global_scale() -> None:
    found = modules(planned(source(PLAIN, CONFIG), "NVFP4A16"))
    for expert in range(COUNT):
        gate, up = found[f"{X}.{expert}.gate_proj"], found[f"{X}.{expert}.up_proj"]
        assert gate.shares_scale_with == (up.source,)
        assert up.shares_scale_with == (gate.source,)
        assert not found[f"{X}.{expert}.down_proj"].shares_scale_with


def test_the_model_may_be_the_language_model_of_another() -> None:
    config = {"model_type": "x", "text_config": CONFIG}
    assert f"{X}.1.up_proj" in modules(planned(source(PLAIN, config), "W8A8"))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("gate_up_proj", (2, 192, 64), "[2, 192, 64]; expected [experts, 64, 2 * intermediate]"),
        ("gate_up_proj", (2, 64, 191), "expected [experts, 64, 2 * intermediate]"),
        ("gate_up_proj", (2, 64), "expected [experts, 64, 2 * intermediate]"),
        ("gate_up_proj", (8193, 64, 2), "8193 experts; at most 8192"),
        ("down_proj", (2, 64, 96), "expected [experts, intermediate, 64]"),
        ("gate_up_proj_bias", (2, 191), "expected [experts, 2 * intermediate]"),
        ("down_proj_bias", (2, 96), "expected [experts, 64]"),
        ("down_proj_bias", (2, 64, 1), "expected [experts, 64]"),
    ],
)
def test_other_shapes_are_refused(name: str, shape: tuple[int, ...], message: str) -> None:
    store = source([(f"{X}.{name}", "BF16", shape), (f"{Q}.weight", "BF16", (32, HIDDEN))], CONFIG)
    with pytest.raises(CheckpointError) as raised:
        planned(store, "W8A8")
    assert message in raised.value.detail
    assert raised.value.tensor == f"{X}.{name}"


@pytest.mark.parametrize("dtype", ["F4", "U8", "F8_E4M3"])
def test_other_dtypes_are_refused(dtype: str) -> None:
    """Even where some of the experts are not to be quantized."""
    tensors: Tensors = [(f"{X}.gate_up_proj", dtype, (COUNT, HIDDEN, 2 * INNER)), *PLAIN[1:]]
    with pytest.raises(CheckpointError, match=f"is {dtype}; only BF16, F16, F32 is taken apart"):
        planned(source(tensors, CONFIG), "W8A8", ignore=["re:.*gate_proj", "re:.*up_proj"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({f"{X}.gate_up_proj_scales": None}, "lacks scales (U8 [2, 192, 2])"),
        ({f"{X}.gate_up_proj_blocks": None}, "blocks have shape []; expected [experts, out, in / 32, 16]"),
        ({f"{X}.gate_up_proj_blocks": ("U8", (2, 192, 32))}, "blocks have shape [2, 192, 32]"),
        ({f"{X}.gate_up_proj_blocks": ("I8", (2, 192, 2, 16))}, "blocks is I8"),
        ({f"{X}.gate_up_proj_scales": ("U8", (2, 192, 3))}, "scales is U8 [2, 192, 3]; expected U8 [2, 192, 2]"),
        ({f"{X}.gate_up_proj_scales": ("F8_E8M0", (2, 192, 2))}, "scales is F8_E8M0"),
        ({f"{X}.gate_up_proj": ("BF16", (2, 64, 192))}, "two tensors would be named"),
    ],
)
def test_what_transformers_does_not_store_is_refused(changes: dict[str, Any], message: str) -> None:
    tensors = {name: (dtype, shape) for name, dtype, shape in MXFP4} | changes
    store = source([(name, *each) for name, each in tensors.items() if each is not None], QUANTIZED)
    with pytest.raises(CheckpointError) as raised:
        planned(store, None)
    assert message in raised.value.detail


def test_mxfp4_of_another_model_is_not_taken_apart() -> None:
    """Which rows are gate's is known of gpt-oss alone."""
    store = source(MXFP4, {**QUANTIZED, "model_type": "other"})
    plan = planned(store, "W8A8")
    assert set(modules(plan)) == {Q}
    assert outputs(plan)[f"{X}.gate_up_proj"] == ("BF16", (COUNT, HIDDEN, 2 * INNER))
