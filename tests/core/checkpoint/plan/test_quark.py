"""Plans for what AMD Quark states in config.json, and what of it is refused."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest

from requant.checkpoint.plan.model import DequantizeStep
from requant.checkpoint.plan.stored_formats import stored_formats
from requant.checkpoint.weights.quark import QuarkWeight
from requant.errors import CheckpointError
from tests.support.planned_checkpoint import Tensors, checkpoint, planned

FP8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "ch_axis": None, "is_dynamic": False, "symmetric": True}
INT4 = {"dtype": "int4", "qscheme": "per_group", "ch_axis": -1, "group_size": 32, "symmetric": True}
FP4 = {"dtype": "fp4", "qscheme": "per_group", "ch_axis": -1, "group_size": 16}
EXPORT = {"pack_method": "reorder", "weight_format": "real_quantized"}
STORED: Tensors = [("a.weight", "F8_E4M3", (64, 128)), ("a.weight_scale", "F32", ())]


def config(weight: Any = FP8, **more: Any) -> dict[str, Any]:
    return {"quant_method": "quark", "global_quant_config": {"weight": weight}, "export": EXPORT, **more}


def plan(quantization: dict[str, Any], stored: Tensors = STORED) -> DequantizeStep:
    (step,) = planned(checkpoint({"m.safetensors": stored}, {"quantization_config": quantization}), None).steps
    assert isinstance(step, DequantizeStep)
    return step


@pytest.mark.parametrize(
    ("weight", "stored", "shape"),
    [
        (FP8, STORED, (64, 128)),
        (FP8, [STORED[0], ("a.weight_scale", "BF16", (1,))], (64, 128)),
        ({**FP8, "qscheme": "per_channel", "ch_axis": 0}, [STORED[0], ("a.weight_scale", "F32", (64,))], (64, 128)),
        (
            {**FP8, "qscheme": "per_block", "block_size": [32, 64]},
            [STORED[0], ("a.weight_scale", "F32", (2, 2))],
            (64, 128),
        ),
        (INT4, [("a.weight", "I32", (128, 8)), ("a.weight_scale", "F32", (4, 64))], (64, 128)),
        (INT4, [("a.weight", "I32", (128, 8)), ("a.weight_scale", "F32", (4, 61))], (61, 128)),
        (
            {**INT4, "symmetric": False},
            [("a.weight", "I32", (128, 8)), ("a.weight_scale", "F32", (4, 64)), ("a.weight_zero_point", "I32", (4, 8))],
            (64, 128),
        ),
        (
            {**INT4, "qscheme": "per_channel", "ch_axis": 0},
            [("a.weight", "I32", (64, 16)), ("a.weight_scale", "F32", (64,)), ("a.weight_zero_point", "I32", (8,))],
            (64, 128),
        ),
        (
            {**FP4, "dtype": "fp6_e2m3", "group_size": 32, "scale_format": "e8m0"},
            [("a.weight", "U8", (64, 96)), ("a.weight_scale", "U8", (64, 4))],
            (64, 128),
        ),
    ],
)
def test_what_is_read(weight: Any, stored: Tensors, shape: tuple[int, int]) -> None:
    step = plan(config(weight), stored)
    assert step.source.shape == shape
    assert set(step.source.stored) == {name.removeprefix("a.") for name, _, _ in stored}


def test_layers_of_a_type() -> None:
    typed = config(FP4, layer_type_quant_config={"Linear": {"weight": FP8}})
    assert stored_formats(typed, ()).of("a") == QuarkWeight("fp8_e4m3", "per_tensor")
    dynamic = config({**FP8, "is_dynamic": True})
    assert stored_formats(dynamic, ()).of("a") is None
    offline = config(algo_config=[{"name": "rotation", "r1": True, "r4": False}, {"name": "awq"}])
    assert stored_formats(offline, ()).of("a") is not None


@pytest.mark.parametrize(
    "pattern",
    ["*", "a*", "*.b", "a.?", "[ab].c", "[!a].c", "a.b", "*a*b*", "[a-c].c", "a[*]", "[]].c", "a.b[", "x^[\\^]"],
)
def test_patterns_of_a_shell(pattern: str) -> None:
    found = stored_formats(config(layer_quant_config={pattern: {"weight": FP4}}), ())
    for name in ("a", "a.b", "b.c", "c.c", "a.bb", "aab", "ba.ab", "a*", "].c", "a.b[", "x^^", "x^\\", "A.b"):
        expected = "fp4" if fnmatchcase(name, pattern) else "fp8_e4m3"
        assert getattr(found.of(name), "dtype", None) == expected, name


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a list": ({"quant_method": "quark", "global_quant_config": []}, "global_quant_config'? is .*expected an object"),
    "nothing": ({"quant_method": "quark"}, "nothing in quantization_config applies to it"),
    "excluded": (config(exclude=["a*"]), "nothing in quantization_config applies to it"),
    "exclude that is no list": (config(exclude="a"), "exclude'? is a; expected a list"),
    "another dtype": (config({**FP8, "dtype": "mx6"}), "dtype 'mx6' per_tensor, which is not supported"),
    "int3": (config({**INT4, "dtype": "int3"}), "dtype 'int3' per_group"),
    "no dtype": (config({}), "dtype 'None' None"),
    "FP8 in groups": (config({**FP8, "qscheme": "per_group"}), "'fp8_e4m3' per_group, which is not supported"),
    "columns": (config({**FP8, "qscheme": "per_channel", "ch_axis": 1}), "ch_axis is 1; expected 0 for per_channel"),
    "groups of rows": (config({**INT4, "ch_axis": 0}), "ch_axis is 0; expected 1 for per_group"),
    "groups of 0": (config({**INT4, "group_size": 0}), "group_size is 0"),
    "groups of a text": (config({**INT4, "group_size": "32"}), "group_size'? is 32; expected an integer"),
    "blocks of one side": (config({**FP8, "qscheme": "per_block", "block_size": [128]}), "block_size is .128."),
    "tall blocks": (config({**FP8, "qscheme": "per_block", "block_size": [10**9, 1]}), "block_size is .1000000000, 1."),
    "blocks that are not whole": (config({**FP8, "qscheme": "per_block", "block_size": [48, 1]}), "no whole blocks"),
    "float zero points": (config({**INT4, "zero_point_type": "float32"}), "zero_point_type is float32"),
    "scales of another format": (config({**FP4, "scale_format": "e5m3"}), "scale_format is 'e5m3' for fp4"),
    "powers for integers": (config({**INT4, "scale_format": "e8m0"}), "scale_format is 'e8m0' for int4"),
    "quantized biases": (
        {**config(), "global_quant_config": {"weight": FP8, "bias": FP8}},
        "bias states quantized biases",
    ),
    "three levels": (config([FP4, FP8, FP8]), "has 3 levels .fp4, fp8_e4m3, fp8_e4m3."),
    "other levels": (config([FP8, {**INT4, "is_scale_quant": False}]), "has 2 levels .fp8_e4m3, int4."),
    "levels of no objects": (config([1]), "weight is .1.; expected an object or a list"),
    "no levels": (config([]), "weight is .*; expected an object or a list"),
    "before 1.0": (config(INT4, export=None), "before 1.0 is not supported"),
    "another order": (config(export={"pack_method": "x"}), "pack_method is 'x'"),
    "weights before": (config(export={"weight_format": "fake_quantized"}), "weights before they are quantized"),
    "rotations": (config(algo_config=[{"name": "rotation"}]), "rotations of activations"),
    "online rotations": (
        config(algo_config=[{"name": "Rotation", "r4": False, "online_r1_rotation": True}]),
        "rotations of activations",
    ),
    "algorithms that are no objects": (config(algo_config=["x"]), "algo_config has the entry x"),
    "a layer that is a list": (config(layer_quant_config={"a": []}), "layer_quant_config'?.'?a'? is .*an object"),
    "many patterns": (config(exclude=[f"*{at}*" for at in range(1001)]), "1001 regular expressions; at most 1000"),
}  # fmt: skip


@pytest.mark.parametrize(("quantization", "message"), REFUSED.values(), ids=REFUSED)
def test_is_refused(quantization: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        plan(quantization)
