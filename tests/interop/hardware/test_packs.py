"""The test benches of packs, in gcc, Icarus Verilog and Verilator: right kernels and designs pass, wrong ones fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from requant.packs.pack import pack_files
from tests.interop.hardware.icarus import simulate, verilator

pytestmark = pytest.mark.interop

KERNEL = """
#include <stdint.h>
int8_t kernel(int32_t input, int32_t input_zero_point, int8_t output_zero_point, int32_t multiplier, int8_t shift);
int8_t kernel(int32_t input, int32_t input_zero_point, int8_t output_zero_point, int32_t multiplier, int8_t shift)
{
    int left = shift > 0 ? shift : 0, right = shift < 0 ? -shift : 0;
    int32_t a = (int32_t)((uint32_t)((int64_t)input - input_zero_point) << left);
    int64_t high = ((int64_t)a * multiplier + (INT64_C(1) << 30)) >> 31;
    int64_t magnitude = high < 0 ? -high : high;
    int64_t rounded = (magnitude + ((INT64_C(1) << right) >> 1)) >> right;
    int64_t total = (high < 0 ? -rounded : rounded) + output_zero_point;
    return (int8_t)(total < -128 ? -128 : total > 127 ? 127 : total);
}
"""
DESIGN = """
module dut (
    input  wire signed [31:0] input_zero_point,
    input  wire signed [7:0]  output_zero_point,
    input  wire signed [31:0] multiplier,
    input  wire signed [7:0]  shift,
    input  wire signed [31:0] value,
    output wire signed [7:0]  result
);
    wire [5:0] left = shift > 0 ? shift[5:0] : 6'd0;
    wire [5:0] right = shift < 0 ? -shift[5:0] : 6'd0;
    wire signed [63:0] shifted = (64'sd0 + value - input_zero_point) <<< left;
    wire signed [31:0] a = shifted[31:0];
    wire signed [63:0] high = (64'sd1 * a * multiplier + (64'sd1 <<< 30)) >>> 31;
    wire signed [63:0] magnitude = high < 0 ? -high : high;
    wire signed [63:0] rounded = (magnitude + ((64'sd1 <<< right) >>> 1)) >>> right;
    wire signed [63:0] total = (high < 0 ? -rounded : rounded) + 64'sd1 * output_zero_point;
    assign result = total > 64'sd127 ? 8'sd127 : total < -64'sd128 ? -8'sd128 : total[7:0];
endmodule
"""
WRONG = {KERNEL: ("INT64_C(1) << 30", "INT64_C(1) << 29"), DESIGN: ("64'sd1 <<< 30", "64'sd1 <<< 29")}


@pytest.fixture
def case(tmp_path: Path) -> Path:
    for path, content in pack_files("litert").items():
        folder, _, name = path.partition("/")
        if folder == "requantize-i32-i8":
            (tmp_path / name).write_bytes(content)
    return tmp_path


def source(text: str, *, right: bool) -> str:
    return text if right else text.replace(*WRONG[text])


@pytest.mark.parametrize("right", [True, False])
def test_in_c(case: Path, *, right: bool) -> None:
    (case / "kernel.c").write_text(source(KERNEL, right=right))
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", "testbench", "testbench.c", "kernel.c"], cwd=case, check=True)
    ended = subprocess.run(["./testbench"], cwd=case, capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) == right
    assert (" vectors, 0 failed" in ended.stdout) == right


@pytest.mark.parametrize("right", [True, False])
def test_in_icarus(case: Path, *, right: bool) -> None:
    (case / "dut.sv").write_text(source(DESIGN, right=right))
    if right:
        assert " vectors, 0 failed" in simulate(case, "testbench.sv", "dut.sv")
    else:
        with pytest.raises(AssertionError):  # it ends with a status that is not 0
            simulate(case, "testbench.sv", "dut.sv")


@pytest.mark.parametrize("right", [True, False])
def test_in_verilator(case: Path, *, right: bool) -> None:
    """Which has two states: nothing is unknown."""
    (case / "dut.sv").write_text(source(DESIGN, right=right))
    program, environment = verilator()
    command = [program, "--binary", "-Wno-lint", "--top-module", "testbench", "testbench.sv", "dut.sv"]
    subprocess.run(command, cwd=case, env=environment, check=True, capture_output=True)
    ended = subprocess.run(["obj_dir/Vtestbench"], cwd=case, capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) == right
    assert (" vectors, 0 failed" in ended.stdout) == right
