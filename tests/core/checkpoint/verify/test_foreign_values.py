"""Verification finds what no other program's quantizer writes either."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.verification import verify
from tests.support.foreign_models import FOREIGN, save
from tests.support.safetensors_files import tensor_places

CASES: dict[str, list[tuple[str, float, str]]] = {
    "torchao": [
        ("self_attn.q_proj._weight_qdata", 0xFF, "NaN"),
        ("self_attn.q_proj._weight_scale", np.nan, "NaN"),
        ("self_attn.k_proj._weight_scale", -1.0, "negative"),
        ("self_attn.v_proj._weight_scale", 0xFF, "NaN"),
        ("self_attn.o_proj._weight_scale", 0xFF, "NaN"),
        ("mlp.gate_proj._weight_scale", 0x7F, "NaN"),
        ("mlp.gate_proj._weight_scale", 0x81, "negative"),
        ("mlp.gate_proj._weight_per_tensor_scale", np.inf, "infinite"),
        ("mlp.up_proj._weight_qdata", 8, "outside of [-8, 7]"),
        ("mlp.up_proj._weight_zero_point", 0xF7, "outside of [-8, 7]"),
    ],
    "compressed-tensors, mixed": [
        ("self_attn.q_proj.weight", 0x7F, "NaN"),
        ("self_attn.v_proj.weight_scale", 0xFF, "NaN"),
        ("mlp.gate_proj.weight", 8, "outside of [-8, 7]"),
        ("self_attn.k_scale", 0x7FC0, "NaN"),
    ],
    "Quark": [
        ("self_attn.q_proj.weight", 0x7F, "NaN"),
        ("self_attn.q_proj.weight_scale", np.inf, "infinite"),
        ("self_attn.o_proj.weight_scale", 0xBF80, "negative"),
        ("mlp.gate_proj.weight_scale", 0x7F, "NaN"),
        ("mlp.gate_proj.weight_scale_2", -1, "negative"),
        ("mlp.up_proj.weight_scale", 0xFF, "NaN"),
    ],
    "auto-round, floats": [
        ("self_attn.q_proj.weight", 0xFF, "NaN"),
        ("mlp.up_proj.weight_scale", 0xFF, "NaN"),
        ("mlp.down_proj.weight_global_scale", np.nan, "NaN"),
    ],
    "compressed-tensors, ordered": [("self_attn.q_proj.weight_g_idx", 3, "weight_g_idx has")],
    "GPTQ of 3 bits": [("mlp.up_proj.g_idx", 4, "outside of the 4 groups")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"), [(kind, *each) for kind, cases in CASES.items() for each in cases]
)
def test_is_found(kind: str, name: str, value: float, message: str, tmp_path: Path) -> None:
    folder = save(tmp_path / "source", FOREIGN[kind], layers=1)
    tensor = f"model.layers.0.{name}"
    (path,) = (path for path in folder.glob("*.safetensors") if tensor in {each.name for each in tensor_places(path)})
    (entry,) = (each for each in tensor_places(path) if each.name == tensor)
    width = {"F32": "<f4", "I32": "<i4", "BF16": "<u2"}.get(entry.dtype, "|u1")
    data = bytearray(path.read_bytes())
    data[entry.begin : entry.begin + np.dtype(width).itemsize] = np.array([value]).astype(width).tobytes()
    path.write_bytes(data)
    (fault,) = verify(LocalStore(folder)).faults
    assert message in fault.detail
