"""The kernels' machine code: vectors as wide as those of the processor that they are compiled for, and nothing of the
arithmetic done one by one.

A release of numba or LLVM that stops making vectors of them would change no bit and be ten times slower.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from requant.kernels.convert.byte_table import HAS_TABLES, look_up
from requant.kernels.convert.dequantize.native import DEQUANTIZE
from requant.kernels.convert.floats.decoding import decode
from requant.kernels.convert.floats.encoding import ENCODE
from requant.kernels.convert.quantize.general import QUANTIZE_ANY
from requant.kernels.convert.quantize.native import QUANTIZE, Form
from requant.kernels.convert.requantize.fixed_point import requantize_by_multiplier
from requant.kernels.convert.requantize.real_factor import REQUANTIZE_F32, REQUANTIZE_F64
from requant.kernels.jit.jit import Kernel, target_features
from requant.kernels.jit.processor import IS_X86
from tests.support.cases import EXHAUSTIVE

pytestmark = pytest.mark.skipif(not IS_X86, reason="looks for instructions of x86-64")

FEATURES = target_features()
REGISTER = "zmm" if "avx512f" in FEATURES else "ymm" if "avx2" in FEATURES else "xmm"
# Scalar arithmetic on floats: the names of packed instructions end in ps and pd.
SCALAR = re.compile(r"v?(?:div|mul|add|sub|fn?m(?:add|sub)\d+|round|rndscale|max|min|cvttss2si|cvtss2si)s[sd]")
# Calls of numba's runtime go through registers; those of a mathematical library are by name.
LIBRARY = re.compile(r"\b(?:round|roundeven|rint|trunc|floor|ceil|fma|__ext\w+|__trunc\w+)f?\b(?!\()")

MAIN: dict[str, tuple[Kernel, str]] = {
    "f32 to i8, divided": (QUANTIZE[Form(False, False)], "divps"),
    "f32 to i8, zero point first, divided": (QUANTIZE[Form(False, True)], "divps"),
    "f32 to i8, ties away, divided": (QUANTIZE[Form(False, False, away=True)], "divps"),
    "f32 to i8": (QUANTIZE[Form(True, False)], "fmadd"),
    "f32 to i16": (QUANTIZE[Form(True, False, bits=16)], "fmadd"),
    "f32 to i32": (QUANTIZE[Form(False, False, bits=32)], "divps"),
    "f16 to i8": (QUANTIZE[Form(True, False, source="f16")], "fmadd"),
    "bf16 to i8": (QUANTIZE[Form(True, False, source="bf16")], "fmadd"),
    "any, f32": (QUANTIZE_ANY["<f4", False], "divps"),
    "i8 to f32": (DEQUANTIZE[False], "mulps"),
    "f32 to f8": (ENCODE["<f4"], "divps"),
    "f64 to f8": (ENCODE["<f8"], "addpd"),
    "f8 to f32": (decode, "mulps"),
    "i32 to i8, fixed point": (requantize_by_multiplier, "pmuludq"),
    "i32 to i8, f32": (REQUANTIZE_F32, "mulps"),
    "i32 to i8, f64": (REQUANTIZE_F64, "mulpd"),
}


if HAS_TABLES:
    MAIN["i8 to i8, table"] = look_up, "vperm"


@cache
def instructions(name: str) -> list[tuple[str, str]]:
    """Of a kernel that is compiled anew, which takes seconds."""
    return re.findall(r"^\s+([a-z][a-z0-9]+)[ \t]+(\S.*)$", MAIN[name][0].assembly(), re.MULTILINE)


@pytest.mark.parametrize("name", list(MAIN) if EXHAUSTIVE else ["f32 to i32"])
def test_arithmetic_is_done_in_the_widest_registers(name: str) -> None:
    operation = MAIN[name][1]
    if operation == "fmadd" and "fma" not in FEATURES:
        pytest.skip("without fused multiply-add, no plan takes this kernel")
    found = instructions(name)
    assert any(operation in opcode and REGISTER in operands for opcode, operands in found)
    assert not [opcode for opcode, _ in found if SCALAR.fullmatch(opcode)]
    assert not [operands for opcode, operands in found if opcode.startswith("call") and LIBRARY.search(operands)]


@pytest.mark.exhaustive
@pytest.mark.skipif("avx512bw" not in FEATURES, reason="asks for words of 512 bits")
@pytest.mark.parametrize("name", ["f32 to i8, divided", "f32 to i8", "f16 to i8", "bf16 to i8"])
def test_bytes_go_out_as_words(name: str) -> None:
    """Sixteen elements become bytes one by one in two steps; as words, sixty-four in three."""
    opcodes = [opcode for opcode, operands in instructions(name) if REGISTER in operands]
    assert "vpackssdw" in opcodes
    assert "vpaddsw" in opcodes
