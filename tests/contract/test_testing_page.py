"""docs/testing.md: its tests run in a project of their own, and fail and pass as the page shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from requant.testing import assert_bits_equal
from tests.conftest import ROOT
from tests.support.page_programs import DOCS, blocks

MUL: dict[str, Any] = {
    "input1": np.arange(-128, 128).astype(np.int8),
    "input1_type": "!quant.uniform<i8:f32, 0.5:3>",
    "input2": np.arange(127, -129, -1).astype(np.int8),
    "input2_type": "!quant.uniform<i8:f32, 0.25:-1>",
    "output_type": "!quant.uniform<i8:f32, 16.0:5>",
}


def test_a_project_outside(tmp_path: Path) -> None:
    shown = [each for each in blocks((DOCS / "testing.md").read_text()) if each.language == "python"]
    for block in shown:
        assert block.file
        (tmp_path / block.file).write_text(block.text)
    paths = os.pathsep.join((str(ROOT / "core"), str(tmp_path)))
    command = [sys.executable, "-m", "pytest", "-p", "requant.pytest_plugin", "-p", "no:cacheprovider", "--noconftest"]
    ran = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    said = [line[1:].strip() for line in ran.stdout.splitlines() if line.startswith("E")]
    failure, passed = ((block.output or "").strip() for block in shown)
    assert said == [line.strip() for line in failure.splitlines()], ran.stdout
    assert f"1 failed, {passed}" in ran.stdout


def test_an_operator_shows_its_stages() -> None:
    import requant

    assert_bits_equal(requant.litert.MUL(**MUL), operation="litert.MUL", **MUL)
    with pytest.raises(AssertionError) as failed:
        assert_bits_equal(requant.litert.MUL(**MUL, kernel="xnnpack"), operation="litert.MUL", **MUL)
    said = str(failed.value)
    assert "[67]: -25, expected -26, which stand for -480.0 and -496.0" in said
    assert "  product = -3904\n  scaled = -31\n" in said
    assert said.endswith("these bits are those of:\n  kernel xnnpack")


def test_two_arrays() -> None:
    zeros = np.array([0.0, 1.0], np.float32)
    assert_bits_equal(zeros, zeros.copy())
    with pytest.raises(AssertionError, match="1 of 2 elements have other bits"):
        assert_bits_equal(-zeros * [1, -1], zeros.astype(np.float64))
    with pytest.raises(AssertionError, match=r"the shape is \(2,\); expected \(1, 2\)"):
        assert_bits_equal(zeros, zeros.reshape(1, 2))
    with pytest.raises(AssertionError, match="the dtype is float32; expected float64"):
        assert_bits_equal(zeros, zeros.astype(np.float64))
    with pytest.raises(TypeError, match="needs the expected array"):
        assert_bits_equal(zeros)


def test_nothing_explains_the_bits() -> None:
    x = np.arange(64, dtype=np.float32)
    with pytest.raises(AssertionError, match="no rule gives all of these bits"):
        assert_bits_equal(
            np.arange(64).astype(np.int8), operation="quantize", input=x, output_type="!quant.uniform<i8:f32, 0.7:3>"
        )
