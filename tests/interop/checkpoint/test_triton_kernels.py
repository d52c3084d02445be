"""The codes of compressed-tensors-cuda beside those of the library's own GPU kernels, in Triton's interpreter.

The interpreter computes each operation of a kernel with numpy. That a GPU computes the same follows from what Triton
compiles the kernels to, which takes no GPU: instructions whose results PTX defines as IEEE 754 does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors.nvfp4 import helpers as nvfp4_helpers
from compressed_tensors.quantization.lifecycle import forward_helpers

from tests.conftest import ROOT
from tests.interop.checkpoint.conversion import CPU, CUDA, quantize
from tests.interop.checkpoint.schemes import OPTIONS, PRESETS
from tests.interop.checkpoint.source_model import DTYPES, SourceModel, weights
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint
from tests.support.cases import OF_THE_DAY

triton = pytest.importorskip("triton", reason="Triton is for Linux")

pytestmark = pytest.mark.interop

FILE = "model.safetensors"
# The interpreter takes a minute for each: one each day.
DTYPE = list(DTYPES)[OF_THE_DAY % len(DTYPES)]

# PTX ISA, Floating-Point Instructions: results are rounded to nearest even unless the name has another rounding, and
# subnormals are kept, unless it has `.ftz`, `.approx` or `.full`.
EXACT = {
    *("add.f32", "mul.f32", "div.rn.f32", "abs.f32", "min.f32", "max.f32", "min.xorsign.abs.f32", "selp.f32"),
    *("setp.lt.f32", "setp.le.f32", "setp.gt.f32", "setp.ge.f32"),
    *("cvt.f32.bf16", "cvt.rn.bf16.f32", "cvt.f32.f16", "cvt.rn.f16.f32", "cvt.rni.f32.f32", "cvt.rzi.s16.f32"),
    *("cvt.rn.satfinite.e4m3x2.f32", "cvt.rn.f16x2.e4m3x2"),
}
INSTRUCTION = re.compile(r"\b[a-z]\w*(?:\.\w+)*\.(?:b?f16|b?f16x2|f32|f32x2|f64|e4m3x2)\b(?:\.\w+)*")
AMPERE, HOPPER = 80, 90


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a source and what llm-compressor has made of it."""
    folder = tmp_path_factory.mktemp("triton")
    generator, dtype = torch.Generator().manual_seed(23), DTYPES[DTYPE]
    tensors = {
        f"{module}.weight": weights(generator, *shape, dtype=dtype)
        for module, shape in {"model.a": (72, 128), "model.b": (65, 384)}.items()
    }
    model = SourceModel({"model_type": "none", "dtype": str(dtype).removeprefix("torch.")}, (tensors,))
    model.save(folder / "sources" / DTYPE)
    program = (sys.executable, "-W", "ignore", "-m", "tests.interop.checkpoint.triton_interpreter")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([*program, folder / "sources", folder / "theirs"], cwd=ROOT, env=environment, check=True)
    return folder


@pytest.mark.parametrize("scheme", [*PRESETS, *OPTIONS])
def test_files(scheme: str, folder: Path, tmp_path: Path) -> None:
    ours = quantize(folder / "sources" / DTYPE, tmp_path / "ours", scheme, profile=CUDA)
    content = (ours / FILE).read_bytes()
    assert content == (folder / "theirs" / DTYPE / scheme / FILE).read_bytes()
    subject = checkpoint(scheme.partition(":")[0], "quantize", CUDA)
    record(systems.LLM_COMPRESSOR, [subject], len(content), isa="Triton's interpreter")


@pytest.mark.parametrize("scheme", ["W8A8", "W4A16_ASYM", "FP8_BLOCK"])
def test_the_other_profile_has_other_codes(scheme: str, folder: Path, tmp_path: Path) -> None:
    ours = quantize(folder / "sources" / DTYPE, tmp_path / "ours", scheme, profile=CPU)
    assert (ours / FILE).read_bytes() != (folder / "theirs" / DTYPE / scheme / FILE).read_bytes()


def ptx(kernel: Any, capability: int, types: dict[str, str], constants: dict[str, Any]) -> str:
    """Return the PTX of a kernel for a compute capability. Arguments that are not named are integers."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: types.get(name, "constexpr" if name in constants else "i32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(name),): each for name, each in constants.items()})
    text: str = triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["ptx"]
    return text


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(
    ("codes", "capability"),
    # The library has no kernel for FP8 before Hopper.
    [*product(["symmetric", "asymmetric", "NVFP4", "MXFP4"], [AMPERE, HOPPER]), ("FP8", HOPPER)],
)
def test_a_gpu_rounds_as_ieee_754(
    codes: str, dtype: str, capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    packed = codes in ("NVFP4", "MXFP4")
    kernel = nvfp4_helpers._quantize_and_pack_fp4_kernel if packed else forward_helpers._quantize_kernel
    pointers = {name: f"*{dtype}" for name in kernel.arg_names if name.endswith("_ptr")}
    constants: dict[str, Any] = {"has_zero_point": codes == "asymmetric", "has_global_scale": codes == "NVFP4"}
    if packed:
        constants["BLOCK_SIZE"] = 1024
        pointers |= {"packed_ptr": "*u8", "scale_ptr": "*fp32", "global_scale_ptr": "*fp32"}
    else:
        constants |= {"quant_type": codes == "FP8", "num_bits": 8, "use_intel_libdevice": False}
        constants |= {"BLOCK_SIZE_R": 32, "BLOCK_SIZE_C": 32}
    found = set(INSTRUCTION.findall(ptx(kernel, capability, pointers, constants)))
    assert "div.rn.f32" in found
    assert found <= EXACT
    # Without a rounding in its name, an addition may be fused with a multiplication.
    assert not {"add.f32", "mul.f32"} <= found
