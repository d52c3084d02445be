"""The codes of compressed-tensors-cuda beside those of the library's own GPU kernels, in Triton's interpreter.

The interpreter computes each operation of a kernel with numpy: it shows what the kernels compute, and not that a GPU
computes the same. That follows from IEEE 754: they divide with `div.rn.f32`, which keeps subnormals.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.interop.checkpoint.conversion import CPU, CUDA, quantize
from tests.interop.checkpoint.schemes import OPTIONS, PRESETS
from tests.interop.checkpoint.source_model import DTYPES, SourceModel, weights
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint

pytest.importorskip("triton", reason="Triton is for Linux")

pytestmark = pytest.mark.interop

FILE = "model.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sources of each dtype and what llm-compressor has made of them."""
    folder = tmp_path_factory.mktemp("triton")
    for name, dtype in DTYPES.items():
        generator = torch.Generator().manual_seed(23)
        tensors = {
            f"{module}.weight": weights(generator, *shape, dtype=dtype)
            for module, shape in {"model.a": (72, 128), "model.b": (65, 384)}.items()
        }
        SourceModel({"model_type": "none", "dtype": str(dtype).removeprefix("torch.")}, (tensors,)).save(
            folder / "sources" / name
        )
    program = (sys.executable, "-W", "ignore", "-m", "tests.interop.checkpoint.triton_interpreter")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([*program, folder / "sources", folder / "theirs"], cwd=ROOT, env=environment, check=True)
    return folder


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scheme", [*PRESETS, *OPTIONS])
def test_files(scheme: str, dtype: str, folder: Path, tmp_path: Path) -> None:
    ours = quantize(folder / "sources" / dtype, tmp_path / "ours", scheme, profile=CUDA)
    content = (ours / FILE).read_bytes()
    assert content == (folder / "theirs" / dtype / scheme / FILE).read_bytes()
    subject = checkpoint(scheme.partition(":")[0], "quantize", CUDA)
    record(systems.LLM_COMPRESSOR, [subject], len(content), isa="Triton's interpreter")


@pytest.mark.parametrize("scheme", ["W8A8", "W4A16_ASYM", "FP8_BLOCK"])
def test_the_other_profile_has_other_codes(scheme: str, folder: Path, tmp_path: Path) -> None:
    ours = quantize(folder / "sources" / "bf16", tmp_path / "ours", scheme, profile=CPU)
    assert (ours / FILE).read_bytes() != (folder / "theirs" / "bf16" / scheme / FILE).read_bytes()
