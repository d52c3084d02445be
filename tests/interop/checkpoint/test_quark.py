"""AMD Quark's own layers beside our reading of what they store: config.json, tensors, weights.

The tests import Quark when they run, so that it takes its seconds in one process only: it compiles its kernels, once,
and imports every model of transformers that has experts.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from requant.checkpoint.plan.stored_formats import stored_formats
from tests.interop.checkpoint.conversion import dequantize
from tests.interop.checkpoint.source_model import DTYPES
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.rows import ONLY_READ, QUARK
from tests.interop.conformance.subject import checkpoint

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not find_spec("quark"), reason="amd-quark 0.13 is not for Python 3.14"),
]

NAMES = {"bf16": "BF16", "f16": "F16", "f32": "F32"}
MX: dict[str, Any] = {
    "group_size": 32, "observer_cls": "PerBlockMXObserver", "scale_format": "e8m0", "scale_calculation_mode": "even",
}  # fmt: skip
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "fp8": ("fp8_e4m3", "per_tensor", {}),
    "fp8 channel": ("fp8_e4m3", "per_channel", {}),
    "int8": ("int8", "per_tensor", {}),
    "int8 channel": ("int8", "per_channel", {}),
    "int8 group": ("int8", "per_group", {"group_size": 32}),
    "uint8 channel": ("uint8", "per_channel", {"symmetric": False}),
    "int4": ("int4", "per_tensor", {}),
    "int4 channel": ("int4", "per_channel", {}),
    "int4 group": ("int4", "per_group", {"group_size": 32}),
    "uint4 group": ("uint4", "per_group", {"group_size": 32, "symmetric": False}),
    "mxfp4": ("fp4", "per_group", MX),
    "mxfp6": ("fp6_e3m2", "per_group", MX),
}
OBSERVERS = {
    "per_tensor": "PerTensorMinMaxObserver",
    "per_channel": "PerChannelMinMaxObserver",
    "per_group": "PerGroupMinMaxObserver",
}
AXES = {"per_tensor": None, "per_channel": 0, "per_group": -1}


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its module of configurations."""
    # It compiles with ninja, which is installed beside the interpreter.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    return import_module("quark.torch.quantization.config.config")


def tensor_config(config: Any, dtype: str, scheme: str, options: dict[str, Any]) -> Any:
    types: Any = import_module("quark.torch.quantization.config.type")
    observers = import_module("quark.torch.quantization.observer.observer")
    settings: dict[str, Any] = {"symmetric": True, "observer_cls": OBSERVERS[scheme], **options}
    settings["observer_cls"] = getattr(observers, settings["observer_cls"])
    return config.QTensorConfig(
        dtype=types.Dtype(dtype),
        is_dynamic=False,
        qscheme=types.QSchemeType(scheme),
        ch_axis=AXES[scheme],
        round_method=types.RoundType.half_even,
        scale_type=types.ScaleType.float,
        **settings,
    )


def quantized_linear(columns: int, out: int, **more: Any) -> Any:
    layers: Any = import_module("quark.torch.export.nn.modules.qparamslinear")
    return layers.QParamsLinear(torch.nn.Linear(columns, out, bias=False), "quark", **more)


def record_values(elements: int) -> None:
    record(systems.QUARK, [checkpoint(QUARK, "dequantize", ONLY_READ[QUARK])], elements)


@pytest.mark.parametrize("pack_method", ["reorder", "order"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights(config: Any, kind: str, pack_method: str, tmp_path: Path) -> None:
    """Of random codes with random scales and zero points, as its layer dequantizes them."""
    generator = torch.Generator().manual_seed(5)
    out, columns = 64, 128
    spec = tensor_config(config, *KINDS[kind])
    layer_config = config.QLayerConfig(weight=spec)
    layer = quantized_linear(columns, out, pack_method=pack_method, quant_config=layer_config)
    # What is saved has these names, and not those of the layer.
    state = {name.replace("weight_quantizer.", "weight_"): tensor for name, tensor in layer.state_dict().items()}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        shape = tensor.shape
        if name == "weight_scale" and getattr(spec, "scale_format", None) == "e8m0":
            found[name] = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        elif tensor.is_floating_point() and tensor.element_size() > 1:
            found[name] = torch.randn(shape, generator=generator) * 2.0 ** torch.randint(-140, 120, (1,)).item()
        elif name == "weight_zero_point" and not shape:
            found[name] = torch.tensor(3).to(tensor.dtype)
        elif tensor.dtype == torch.int32:
            found[name] = torch.randint(-(2**31), 2**31, shape, generator=generator).to(torch.int32)
        else:
            found[name] = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).view(tensor.dtype)
    layer.weight.data = found["weight"]
    quantizer: Any = layer.weight_quantizer
    quantizer.scale = found["weight_scale"]
    if "weight_zero_point" in found:
        quantizer.zero_point = found["weight_zero_point"]
    theirs = layer._get_qweight(layer.weight)
    folder = tmp_path / "quantized"
    folder.mkdir()
    save_file({f"a.{name}": each.contiguous() for name, each in found.items()}, folder / "model.safetensors")
    stated = config.QConfig(global_quant_config=layer_config).to_dict()
    stated["export"] = {
        "kv_cache_group": [], "min_kv_scale": 0.0, "pack_method": pack_method, "weight_format": "real_quantized",
        "weight_merge_groups": None,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps({"dtype": "bfloat16", "quantization_config": stated}))
    for name, dtype in DTYPES.items():
        target = dequantize(folder, tmp_path / name, NAMES[name])
        ours, expected = load_file(target / "model.safetensors")["a.weight"], theirs.to(dtype)
        assert ours.shape == expected.shape == (out, columns)
        assert torch.equal(ours.isnan(), expected.isnan())
        numbers = ~ours.isnan()
        integers = torch.int32 if dtype == torch.float32 else torch.int16
        assert torch.equal(ours[numbers].view(integers), expected[numbers].view(integers))
        record_values(ours.numel())


def test_two_levels(config: Any, tmp_path: Path) -> None:
    """FP4 whose scales are FP8 with one scale for all, as NVFP4 has them."""
    generator = torch.Generator().manual_seed(6)
    out, columns = 64, 128
    second = tensor_config(config, "fp8_e4m3", "per_tensor", {"is_scale_quant": True})
    first = tensor_config(config, "fp4", "per_group", {"group_size": 16})
    layer_config = config.QLayerConfig(weight=[first, second])
    layer = quantized_linear(columns, out, quant_config=layer_config)
    packed = torch.randint(0, 256, (out, columns // 2), generator=generator, dtype=torch.uint8)
    scales = torch.arange(512, dtype=torch.int32).to(torch.uint8).reshape(out, 8).view(torch.float8_e4m3fn)
    quantizer: Any = layer.weight_quantizer
    layer.weight.data = packed
    folder = tmp_path / "quantized"
    folder.mkdir()
    stated = config.QConfig(global_quant_config=layer_config).to_dict()
    stated["export"] = {"pack_method": "reorder", "weight_format": "real_quantized"}
    (folder / "config.json").write_text(json.dumps({"dtype": "float32", "quantization_config": stated}))
    for number, whole in enumerate((1.7e-3, 3e38, 1e-42)):
        quantizer[0].scale, quantizer[1].scale = scales, torch.tensor(whole)
        theirs = layer._get_qweight(layer.weight)
        found = {"a.weight": packed, "a.weight_scale": scales, "a.weight_scale_2": torch.tensor(whole)}
        save_file(found, folder / "model.safetensors")
        ours = load_file(dequantize(folder, tmp_path / str(number)) / "model.safetensors")["a.weight"]
        assert torch.equal(ours.isnan(), theirs.isnan())
        numbers = ~ours.isnan()
        assert torch.equal(ours[numbers].view(torch.int32), theirs[numbers].view(torch.int32))
        record_values(ours.numel())


def test_which_modules_a_pattern_means(config: Any) -> None:
    """Quark's own choice for names beside ours."""
    parser: Any = import_module("quark.torch.export.main_export.quant_config_parser")

    def layer(kind: str) -> Any:
        return config.QLayerConfig(weight=tensor_config(config, *KINDS[kind]))

    layers = {
        "*self_attn*": layer("fp8"),
        "model.layers.[13].mlp.*": layer("int8 channel"),
        "*.q_proj": layer("int4 group"),
        "*.mlp.?p_proj": layer("int8"),
    }
    whole = config.QConfig(
        global_quant_config=layer("mxfp4"),
        layer_quant_config=layers,
        exclude=["lm_head", "*.gate", "model.layers.2*", "a.[!b]"],
    )
    formats = stored_formats({**whole.to_dict(), "export": {}}, ())
    parts = ("self_attn.q_proj", "cross.q_proj", "mlp.up_proj", "mlp.down_proj", "mlp.gate", "mlp.gate.x")
    names = [f"model.layers.{at}.{part}" for at in (0, 1, 2, 3, 13, 21) for part in parts]
    for name in [*names, "lm_head", "model.lm_head", "a.b", "a.c", "a.cc"]:
        theirs = parser.get_layer_quant_config(whole, torch.nn.Linear, name)
        ours: Any = formats.of(name)
        stated: Any = None if theirs is None else theirs.weight
        assert (ours is None) == (stated is None), name
        if ours is not None:
            assert (ours.dtype, ours.scheme) == (stated.dtype.value, stated.qscheme.value), name
