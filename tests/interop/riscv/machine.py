"""A RISC-V machine with vectors: QEMU's user mode runs one vector instruction over a file of numbers.

The program is written here in machine words (The RISC-V Instruction Set Manual, volume I, chapters "RV32I" and "V"), so
that it needs no compiler. `tests/interop/riscv/install` unpacks QEMU.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[Any]

DIRECTORY = Path(__file__).parents[3] / ".qemu-riscv"
QEMU = DIRECTORY / "qemu-riscv64"

needs_machine = pytest.mark.skipif(not QEMU.exists(), reason="no QEMU for RISC-V: tests/interop/riscv/install")

_ADDRESS, _CODE = 0x10000, 0x1000
_INPUT, _OUTPUT, _CHUNK = 0x100000, 0x200000, 1 << 16
_END = 0x300000
_READ, _WRITE, _EXIT = 63, 64, 93
VXRM, FRM = 0x00A, 0x002
"""The control registers of the rounding of integers and of floats."""

_ZERO, _T0, _T1, _S0, _S1, _S2, _S3 = 0, 5, 6, 8, 9, 18, 19
_A0, _A1, _A2, _A7 = 10, 11, 12, 17
_SOURCE, _TARGET = 4, 8
_WIDTHS = {1: 0, 2: 5, 4: 6, 8: 7}
_ECALL = 0x73


def _immediate(opcode: int, function: int, rd: int, rs1: int, value: int) -> int:
    return (value & 0xFFF) << 20 | rs1 << 15 | function << 12 | rd << 7 | opcode


def _addi(rd: int, rs1: int, value: int) -> int:
    return _immediate(0x13, 0, rd, rs1, value)


def _lui(rd: int, value: int) -> int:
    return value & 0xFFFFF000 | rd << 7 | 0x37


def _add(rd: int, rs1: int, rs2: int, *, subtract: bool = False) -> int:
    return subtract << 30 | rs2 << 20 | rs1 << 15 | rd << 7 | 0x33


def _shift(rd: int, rs1: int, places: int, *, right: bool = False) -> int:
    return _immediate(0x13, 5 if right else 1, rd, rs1, places)


def _branch(function: int, rs1: int, rs2: int, offset: int) -> int:
    bits = offset & 0x1FFF
    high = (bits >> 12) << 31 | (bits >> 5 & 0x3F) << 25
    return high | rs2 << 20 | rs1 << 15 | function << 12 | (bits >> 1 & 0xF) << 8 | (bits >> 11 & 1) << 7 | 0x63


def vnclip(*, signed: bool) -> int:
    """vnclip.wx or vnclipu.wx: the shift is in t1."""
    return (0x2F if signed else 0x2E) << 26 | 1 << 25 | _SOURCE << 20 | _T1 << 15 | 4 << 12 | _TARGET << 7 | 0x57


def vfncvt(form: int) -> int:
    """vfncvt.f.f.w (0x14), vfncvt.rod.f.f.w (0x15) or vfncvtbf16.f.f.w (0x1D)."""
    return 0x12 << 26 | 1 << 25 | _SOURCE << 20 | form << 15 | 1 << 12 | _TARGET << 7 | 0x57


def _program(instruction: int, size: int, register: tuple[int, int], shift: int) -> bytes:
    """The machine code: numbers of twice `size` bytes from the standard input, those of `size` bytes to its output."""
    log, sew = size.bit_length() - 1, size.bit_length() - 1
    vsetvli = (0x40 | 0x80 | sew << 3) << 20 | _S2 << 15 | 7 << 12 | _T0 << 7 | 0x57
    load = 1 << 25 | _S0 << 15 | _WIDTHS[2 * size] << 12 | _SOURCE << 7 | 0x07
    store = 1 << 25 | _S1 << 15 | _WIDTHS[size] << 12 | _TARGET << 7 | 0x27
    strip = [
        vsetvli, load, instruction, store,
        _shift(_S3, _T0, log + 1), _add(_S0, _S0, _S3),
        _shift(_S3, _T0, log), _add(_S1, _S1, _S3),
        _add(_S2, _S2, _T0, subtract=True),
    ]  # fmt: skip
    strip.append(_branch(1, _S2, _ZERO, -4 * len(strip)))
    body = [
        _addi(_A0, _ZERO, 0), _lui(_A1, _INPUT), _lui(_A2, _CHUNK), _addi(_A7, _ZERO, _READ), _ECALL,
        0,  # out of the loop at the end of the file
        _shift(_S2, _A0, log + 1, right=True), _lui(_S0, _INPUT), _lui(_S1, _OUTPUT), *strip,
        _shift(_A2, _A0, 1, right=True), _addi(_A0, _ZERO, 1), _lui(_A1, _OUTPUT), _addi(_A7, _ZERO, _WRITE), _ECALL,
    ]  # fmt: skip
    body.append(_branch(0, _ZERO, _ZERO, -4 * len(body)))
    body[5] = _branch(0, _A0, _ZERO, 4 * (len(body) - 5))
    number, value = register
    words = [
        _immediate(0x73, 5, _ZERO, value, number), _addi(_T1, _ZERO, shift), *body,
        _addi(_A0, _ZERO, 0), _addi(_A7, _ZERO, _EXIT), _ECALL,
    ]  # fmt: skip
    return struct.pack(f"<{len(words)}I", *words)


def _executable(code: bytes) -> bytes:
    """An ELF file with one segment, whose memory has the buffers behind the code."""
    entry = _ADDRESS + _CODE
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 243, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 7, 0, _ADDRESS, _ADDRESS, _CODE + len(code), _END - _ADDRESS, 0x1000)
    return (head + segment).ljust(_CODE, b"\0") + code


def narrowed(source: Array, instruction: int, register: tuple[int, int], shift: int = 0) -> Array:
    """What the instruction makes of numbers of 2, 4 or 8 bytes: unsigned integers of half of them, their bits.

    `register`: a control register and its value.
    """
    size = source.itemsize // 2
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "program")
        program.write_bytes(_executable(_program(instruction, size, register, shift)))
        program.chmod(0o700)
        data = Path(directory, "data")
        source.tofile(data)
        with data.open("rb") as stream:
            done = subprocess.run(
                [QEMU, "-cpu", "max", program], stdin=stream, capture_output=True, check=True, timeout=600
            )
    return np.frombuffer(done.stdout, f"<u{size}")
