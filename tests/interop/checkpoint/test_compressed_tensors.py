"""compressed-tensors itself decompresses what we write to the weights that our dequantization writes, for every scheme.

This includes what transformers cannot load. The library decompresses with torch's operations alone, which give the same
bits on a GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.interop.checkpoint.conversion import CPU, CUDA, dequantize, quantize
from tests.interop.checkpoint.decompression import decompressed, tensors
from tests.interop.checkpoint.schemes import OPTIONS, PRESETS
from tests.interop.checkpoint.source_model import DTYPES, mixture_of_experts
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

# compressed-tensors 0.20 cannot unpack zero points that fill a single row of words.
IGNORE = ("re:.*conv$", "model.layers.0.self_attn.v_proj", r"re:.*mlp\.gate$")


@pytest.mark.parametrize(("dtype", "profile"), [*((each, CPU) for each in DTYPES), ("bf16", CUDA)])
@pytest.mark.parametrize("scheme", [*PRESETS, *OPTIONS])
def test_weights(scheme: str, dtype: str, profile: str, tmp_path: Path) -> None:
    source = mixture_of_experts(DTYPES[dtype]).save(tmp_path / "source")
    target = quantize(source, tmp_path / "target", scheme, IGNORE, profile=profile)
    expected = decompressed(target)
    restored = tensors(dequantize(target, tmp_path / "restored"))
    assert sorted(restored) == sorted(expected)
    for name, tensor in expected.items():
        # NVFP4 and MX weights become bf16 whatever the model's dtype is; all bf16 values are f32 values.
        converted = tensor if tensor.dtype in (restored[name].dtype, torch.int64) else tensor.to(restored[name].dtype)
        assert torch.equal(restored[name].reshape(-1).view(torch.uint8), converted.reshape(-1).view(torch.uint8)), name
    elements = sum(tensor.numel() for tensor in expected.values())
    record(systems.COMPRESSED_TENSORS, [checkpoint(scheme.partition(":")[0], "dequantize", profile)], elements)
    print(f"compressed-tensors, {scheme.replace(':', ' ')}, {profile}, {dtype}: {elements:,} elements equal")  # noqa: T201
