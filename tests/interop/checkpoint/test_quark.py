"""AMD Quark's own layers beside our reading of what they store: config.json, tensors, weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.interop.checkpoint.conversion import dequantize
from tests.interop.checkpoint.source_model import DTYPES

pytest.importorskip("quark")

from quark.torch.export.nn.modules.qparamslinear import QParamsLinear
from quark.torch.quantization.config.config import QConfig, QLayerConfig, QTensorConfig
from quark.torch.quantization.config.type import Dtype, QSchemeType, RoundType, ScaleType
from quark.torch.quantization.observer.observer import (
    PerBlockMXObserver,
    PerChannelMinMaxObserver,
    PerGroupMinMaxObserver,
    PerTensorMinMaxObserver,
)

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

NAMES = {"bf16": "BF16", "f16": "F16", "f32": "F32"}


def tensor_config(dtype: Dtype, scheme: QSchemeType, **more: Any) -> QTensorConfig:
    observer = {
        QSchemeType.per_tensor: PerTensorMinMaxObserver,
        QSchemeType.per_channel: PerChannelMinMaxObserver,
        QSchemeType.per_group: PerGroupMinMaxObserver,
    }[scheme]
    axis = {QSchemeType.per_tensor: None, QSchemeType.per_channel: 0, QSchemeType.per_group: -1}[scheme]
    settings: dict[str, Any] = {
        "symmetric": True,
        "round_method": RoundType.half_even,
        "scale_type": ScaleType.float,
        "observer_cls": observer,
        **more,
    }
    return QTensorConfig(dtype=dtype, is_dynamic=False, qscheme=scheme, ch_axis=axis, **settings)


KINDS: dict[str, Any] = {
    "fp8": tensor_config(Dtype.fp8_e4m3, QSchemeType.per_tensor),
    "fp8 channel": tensor_config(Dtype.fp8_e4m3, QSchemeType.per_channel),
    "int8": tensor_config(Dtype.int8, QSchemeType.per_tensor),
    "int8 channel": tensor_config(Dtype.int8, QSchemeType.per_channel),
    "int8 group": tensor_config(Dtype.int8, QSchemeType.per_group, group_size=32),
    "uint8 channel": tensor_config(Dtype.uint8, QSchemeType.per_channel, symmetric=False),
    "int4": tensor_config(Dtype.int4, QSchemeType.per_tensor),
    "int4 channel": tensor_config(Dtype.int4, QSchemeType.per_channel),
    "int4 group": tensor_config(Dtype.int4, QSchemeType.per_group, group_size=32),
    "uint4 group": tensor_config(Dtype.uint4, QSchemeType.per_group, group_size=32, symmetric=False),
    "mxfp4": tensor_config(
        Dtype.fp4, QSchemeType.per_group, group_size=32, observer_cls=PerBlockMXObserver, scale_format="e8m0",
        scale_calculation_mode="even",
    ),
    "mxfp6": tensor_config(
        Dtype.fp6_e3m2, QSchemeType.per_group, group_size=32, observer_cls=PerBlockMXObserver, scale_format="e8m0",
        scale_calculation_mode="even",
    ),
}  # fmt: skip


@pytest.mark.parametrize("pack_method", ["reorder", "order"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights(kind: str, pack_method: str, tmp_path: Path) -> None:
    """Of random codes with random scales and zero points, as its layer dequantizes them."""
    generator = torch.Generator().manual_seed(5)
    out, columns = 64, 128
    spec = KINDS[kind]
    layer_config = QLayerConfig(weight=spec)
    with torch.device("cpu"):
        linear = torch.nn.Linear(columns, out, bias=False)
        layer = QParamsLinear(linear, "quark", pack_method=pack_method, quant_config=layer_config)
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
    stated = QConfig(global_quant_config=layer_config).to_dict()
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


def test_two_levels(tmp_path: Path) -> None:
    """FP4 whose scales are FP8 with one scale for all, as NVFP4 has them."""
    generator = torch.Generator().manual_seed(6)
    out, columns = 64, 128
    second = tensor_config(Dtype.fp8_e4m3, QSchemeType.per_tensor, is_scale_quant=True)
    first = tensor_config(Dtype.fp4, QSchemeType.per_group, group_size=16)
    layer_config = QLayerConfig(weight=[first, second])
    layer = QParamsLinear(torch.nn.Linear(columns, out, bias=False), "quark", quant_config=layer_config)
    packed = torch.randint(0, 256, (out, columns // 2), generator=generator, dtype=torch.uint8)
    scales = torch.arange(512, dtype=torch.int32).to(torch.uint8).reshape(out, 8).view(torch.float8_e4m3fn)
    quantizer: Any = layer.weight_quantizer
    layer.weight.data = packed
    folder = tmp_path / "quantized"
    folder.mkdir()
    stated = QConfig(global_quant_config=layer_config).to_dict()
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


def test_which_modules_a_pattern_means() -> None:
    """Quark's own choice for names beside ours."""
    from quark.torch.export.main_export.quant_config_parser import get_layer_quant_config

    from requant.checkpoint.plan.stored_formats import stored_formats

    layers = {
        "*self_attn*": QLayerConfig(weight=KINDS["fp8"]),
        "model.layers.[13].mlp.*": QLayerConfig(weight=KINDS["int8 channel"]),
        "*.q_proj": QLayerConfig(weight=KINDS["int4 group"]),
        "*.mlp.?p_proj": QLayerConfig(weight=KINDS["int8"]),
    }
    config = QConfig(
        global_quant_config=QLayerConfig(weight=KINDS["mxfp4"]),
        layer_quant_config=layers,
        exclude=["lm_head", "*.gate", "model.layers.2*", "a.[!b]"],
    )
    formats = stored_formats({**config.to_dict(), "export": {}}, ())
    parts = ("self_attn.q_proj", "cross.q_proj", "mlp.up_proj", "mlp.down_proj", "mlp.gate", "mlp.gate.x")
    names = [f"model.layers.{at}.{part}" for at in (0, 1, 2, 3, 13, 21) for part in parts]
    for name in [*names, "lm_head", "model.lm_head", "a.b", "a.c", "a.cc"]:
        theirs = get_layer_quant_config(config, torch.nn.Linear, name)
        ours: Any = formats.of(name)
        stated: Any = None if theirs is None else theirs.weight
        assert (ours is None) == (stated is None), name
        if ours is not None:
            assert (ours.dtype, ours.scheme) == (stated.dtype.value, stated.qscheme.value), name
