"""Finite weights whose scale is beyond its dtype are refused, with tensor and place: their whole group is lost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import requant
from requant.checkpoint.weights.floats import bits_of
from requant.errors import CheckpointError
from tests.support import safetensors_files
from tests.support.hand_made_plan import read_safetensors, write_safetensors

MODULE, ROWS, COLUMNS = "model.layers.0.self_attn.q_proj", 64, 128
LARGEST = {"F16": 65504.0, "BF16": float.fromhex("0x1.fep127"), "F32": float.fromhex("0x1.fffffep127")}
# 1.75 times the largest power of two: p of the group overflows.
MX_LIMIT = {"F16": 57344.0, "BF16": 1.75 * 2.0**127, "F32": 1.75 * 2.0**127}


def model(folder: Path, dtype: str, placed: dict[tuple[int, int], float]) -> Path:
    weight = np.full((ROWS, COLUMNS), 0.5, np.float32)
    for place, value in placed.items():
        weight[place] = value
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", {f"{MODULE}.weight": (dtype, bits_of(weight, dtype))})
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("scheme", ["MXFP4A16", "MXFP8A16"])
def test_mx(tmp_path: Path, scheme: str, dtype: str) -> None:
    limit = MX_LIMIT[dtype]
    source = model(tmp_path / "a", dtype, {(37, 101): -limit, (40, 1): LARGEST[dtype]})
    with pytest.raises(CheckpointError, match=f"too large for a finite scale, at flat index {37 * COLUMNS + 101} "):
        requant.quantize_checkpoint(source, tmp_path / "refused", scheme)
    assert not (tmp_path / "refused" / "config.json").exists()
    requant.quantize_checkpoint(source, tmp_path / "converted", scheme, not_finite="convert")
    below = np.nextafter(np.float32(limit), np.float32(0)) if dtype == "F32" else np.float32(limit * (1 - 2.0**-7))
    source = model(tmp_path / "b", dtype, {(37, 101): -float(below)})
    requant.quantize_checkpoint(source, tmp_path / "below", scheme)
    written = read_safetensors(tmp_path / "below" / "model.safetensors")
    assert max(written[f"{MODULE}.weight_scale"]) > 127


@pytest.mark.parametrize(
    ("scheme", "dtype", "low", "high", "place"),
    [
        ("W4A16_ASYM", "F16", -LARGEST["F16"], 40.0, r"weight_scale \[37, 0\]"),
        ("W4A16_ASYM", "BF16", -LARGEST["BF16"], LARGEST["BF16"], r"weight_scale \[37, 0\]"),
        ("W4A16_ASYM", "F32", -LARGEST["F32"], LARGEST["F32"], r"weight_scale \[37, 0\]"),
        ("W4A16_ASYM:group=32", "F16", -40000.0, 40000.0, r"weight_scale \[37, 3\]"),
        ("W8A16:channel,asymmetric", "F16", -40000.0, 40000.0, r"weight_scale \[37, 0\]"),
        ("GPTQ_W4A16", "BF16", -(2.0**20), 1.0, r"scales \[0, 37\]"),
        ("GPTQ_W4A16:asymmetric", "F32", -LARGEST["F32"], LARGEST["F32"], r"scales \[0, 37\]"),
        ("AWQ", "F16", -40000.0, 40000.0, r"scales \[0, 37\]"),
    ],
)
def test_other_scales(tmp_path: Path, scheme: str, dtype: str, low: float, high: float, place: str) -> None:
    source = model(tmp_path / "source", dtype, {(37, 101): low, (37, 99): high})
    with pytest.raises(CheckpointError, match=place) as caught:
        requant.quantize_checkpoint(source, tmp_path / "refused", scheme)
    assert (caught.value.file, caught.value.tensor) == ("model.safetensors", f"{MODULE}.weight")
    requant.quantize_checkpoint(source, tmp_path / "converted", scheme, not_finite="convert")


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_fine_grained_fp8(tmp_path: Path, dtype: str) -> None:
    """448 / amax overflows. Of a block of zeros nothing is lost."""
    weight = np.zeros((256, 256), np.float32)
    weight[:128] = 0.5
    source = model(tmp_path / "zeros", dtype, {})
    write_safetensors(source / "model.safetensors", {f"{MODULE}.weight": (dtype, bits_of(weight, dtype))})
    requant.quantize_checkpoint(source, tmp_path / "of-zeros", "FINE_GRAINED_FP8")
    weight[200, 130] = -1e-37
    source = model(tmp_path / "tiny", dtype, {})
    write_safetensors(source / "model.safetensors", {f"{MODULE}.weight": (dtype, bits_of(weight, dtype))})
    with pytest.raises(CheckpointError, match=r"overflows F32: weight_scale_inv \[1, 1\]") as caught:
        requant.quantize_checkpoint(source, tmp_path / "refused", "FINE_GRAINED_FP8")
    assert (caught.value.file, caught.value.tensor) == ("model.safetensors", f"{MODULE}.weight")
    requant.quantize_checkpoint(source, tmp_path / "powers", "FINE_GRAINED_FP8_UE8M0")
    requant.quantize_checkpoint(source, tmp_path / "converted", "FINE_GRAINED_FP8", not_finite="convert")
    written = safetensors_files.read_safetensors(tmp_path / "converted" / "model.safetensors")
    assert written[f"{MODULE}.weight"][1].view(np.uint8)[200, 129:132].tolist() == [0x7F, 0xFE, 0x7F]
    assert not requant.verify_checkpoint(tmp_path / "converted", source).verification.faults


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("scheme", ["W8A8", "W4A16", "W2A16", "FP8_DYNAMIC", "FP8_DYNAMIC:tensor", "NVFP4A16"])
def test_no_symmetric_scale_overflows(tmp_path: Path, scheme: str, dtype: str) -> None:
    largest = LARGEST[dtype]
    source = model(tmp_path / "source", dtype, {(37, 101): largest, (37, 99): -largest})
    requant.quantize_checkpoint(source, tmp_path / "out", scheme)


@pytest.mark.parametrize(("dtype", "refused", "accepted"), [("F16", 0.041, 0.0411), ("BF16", 2.0**-118, 2.0**-115)])
def test_the_global_scale_of_nvfp4(tmp_path: Path, dtype: str, refused: float, accepted: float) -> None:
    """2688 / A overflows for a small A, in F16 from 65520 on. A weight of zeros loses nothing."""

    def quantized(name: str, largest: float, not_finite: str = "refuse") -> float:
        source = model(tmp_path / name, dtype, {})
        weight = np.zeros((ROWS, COLUMNS), np.float32)
        weight[37, 101] = -largest
        write_safetensors(source / "model.safetensors", {f"{MODULE}.weight": (dtype, bits_of(weight, dtype))})
        requant.quantize_checkpoint(source, tmp_path / f"{name}-out", "NVFP4A16", not_finite=not_finite)
        stored = read_safetensors(tmp_path / f"{name}-out" / "model.safetensors")
        return float(np.frombuffer(stored[f"{MODULE}.weight_global_scale"], "<f4")[0])

    with pytest.raises(CheckpointError, match=f"scale overflows {dtype}: the largest .* too small") as caught:
        quantized("refused", refused)
    assert (caught.value.file, caught.value.tensor) == ("model.safetensors", f"{MODULE}.weight")
    assert quantized("converted", refused, not_finite="convert") == 1
    assert quantized("accepted", accepted) > 1000
    assert quantized("zeros", 0.0) == 1
