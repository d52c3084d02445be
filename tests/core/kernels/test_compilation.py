"""How kernels are compiled: here, for another machine, to which instructions, by which parts of numba."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from llvmlite import binding
from numba.core import config
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from requant.kernels.convert.byte_table import HAS_TABLES, look_up
from requant.kernels.convert.dequantize.native import DEQUANTIZE
from requant.kernels.convert.floats.decoding import decode
from requant.kernels.convert.floats.encoding import ENCODE
from requant.kernels.convert.quantize.general import QUANTIZE_ANY
from requant.kernels.convert.quantize.native import QUANTIZE, Form
from requant.kernels.convert.requantize.fixed_point import requantize_by_multiplier
from requant.kernels.convert.requantize.real_factor import REQUANTIZE_F32, REQUANTIZE_F64
from requant.kernels.jit import bake
from requant.kernels.jit.baked import LEVELS_BY_MACHINE, pinned
from requant.kernels.jit.cross_compilation import TRIPLES, cross_compile_for
from requant.kernels.jit.jit import Kernel, target_features
from requant.kernels.jit.machine_code_cache import _OPTIONS, MachineCodeCache
from requant.kernels.jit.processor import IS_X86
from requant.kernels.jit.target import HOST_MACHINE, MACHINE_VARIABLE, machine_named
from tests.support.cases import EXHAUSTIVE

ROOT = Path(__file__).parents[3]

# Some small kernels are all there are, and none is in the cache.
_BEGIN = """
import threading
from requant.kernels.jit import compilation, jit, machine_code_cache, warmup
from requant.kernels.jit.machine_code_cache import MachineCodeCache
from requant.kernels.convert.packing import pack, unpack

small = [each for each in jit.all_kernels() if "packing" in each.name or "channel_order" in each.name]
assert len(small) > 3 and not any(each.is_cached() for each in small)
compilation.all_kernels = lambda: small
specialisations = sum(len(each._signatures) for each in small)
"""

_ASKED_FOR = (
    _BEGIN
    + """
# The last of the queue is asked for.
begun = compilation.start_compilation(2)
wanted = begun._queue[-1]
asker = threading.Thread(target=wanted.compiled)
asker.start()
asker.join()
assert wanted.ready
assert not begun.complete, "the one that was asked for had to wait for all"
assert compilation.start_compilation(2) is begun
compiled, total, left = begun.progress()
assert 0 < compiled < total == len(small) and (left is None or left >= 0)
assert begun.finish() == len(small)
assert begun.progress() == (total, total, 0)
# Nothing was compiled here, where the compiler would hold the GIL.
assert MachineCodeCache.loaded == specialisations
"""
)

_ASKED_FOR_LATER = (
    _BEGIN
    + """
import os, time
from pathlib import Path

def priorities():
    children = Path(f"/proc/self/task/{begun._workers[-1].native_id}/children").read_text().split()
    return {os.getpriority(os.PRIO_PROCESS, int(each)) for each in children}

compilation._URGENT_FROM_THE_START = 1
begun = compilation.start_compilation(1)
own = os.getpriority(os.PRIO_PROCESS, 0)
assert len(begun._workers) == 1
while begun._at_normal_priority or begun.progress().compiled < 2:
    time.sleep(0.01)
assert priorities() == {own + 10}
wanted = begun._queue[-1]
with jit.at_low_priority():
    begun._queue[0].compiled()
assert len(begun._workers) == 1
asker = threading.Thread(target=wanted.compiled)
asker.start()
while len(begun._workers) == 1 or not priorities():
    time.sleep(0.01)
assert priorities() == {own}, "a request waits for what has a low priority"
asker.join()
assert begun.finish() == len(small)
"""
)

_NOTHING_IS_KEPT = (
    _BEGIN
    + """
machine_code_cache._writable = lambda: None
begun = compilation.start_compilation(1)
directory = MachineCodeCache.handed_over
assert directory.is_dir() and directory.stat().st_mode & 0o777 == 0o700
assert begun.finish() == len(small)
assert MachineCodeCache.loaded == specialisations
assert not directory.exists() and MachineCodeCache.handed_over is None
"""
)

_WORKERS_FAIL = (
    _BEGIN
    + """
compilation._WORKER = "this is no module"
reports = []
assert compilation.compile_kernels(lambda *report: reports.append(report)) == len(small)
assert reports[-1] == (len(small), len(small))
assert MachineCodeCache.loaded == 0
"""
)

_NOT_WAITED_FOR = (
    _BEGIN
    + """
with jit.without_waiting():
    try:
        pack.compiled()
    except jit.NotCompiledError as error:
        assert "packing.pack" in str(error)
    else:
        raise AssertionError("it was compiled")
pack.compiled()
with jit.without_waiting():
    pack.compiled()
"""
)


def run(program: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)


_PROGRAMS = {
    "others compile what is asked for first": _ASKED_FOR,
    "what a request waits for has a priority of its own": _ASKED_FOR_LATER,
    "nothing is kept": _NOTHING_IS_KEPT,
    "not waited for": _NOT_WAITED_FOR,
}


@pytest.mark.parametrize("name", _PROGRAMS if EXHAUSTIVE else ["not waited for"])
def test_compilation(name: str, tmp_path: Path) -> None:
    done = run(_PROGRAMS[name], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.exhaustive
def test_without_workers_kernels_are_compiled_in_place(tmp_path: Path) -> None:
    done = run(_WORKERS_FAIL, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "A process that compiles kernels failed: it ended with 1." in done.stderr


OTHERS = sorted(TRIPLES.keys() - {HOST_MACHINE})
# The field e_machine of an ELF file (System V ABI).
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}

_COMPILE_ONE = """
from requant.kernels.convert.packing import pack
from requant.kernels.jit import processor
from requant.kernels.jit.jit import target_features
from numba.core.registry import cpu_target
pack.compile()
print(cpu_target.target_context.codegen().magic_tuple()[0], processor.IS_X86, *sorted(target_features()))
"""


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_CPU_")}
    return subprocess.run([sys.executable, "-c", script], env={**clean, **environment}, capture_output=True, text=True)


def machines_of_code(kernels: Iterable[Path]) -> set[int]:
    found = set()
    for kernel in kernels:
        content = kernel.read_bytes()
        start = content.index(b"\x7fELF")
        found.add(int.from_bytes(content[start + 18 : start + 20], "little"))
    return found


@pytest.mark.parametrize("machine", OTHERS)
def test_a_kernel_is_compiled_for_another_machine(machine: str, tmp_path: Path) -> None:
    level = list(LEVELS_BY_MACHINE[machine])[-1]
    run = python(_COMPILE_ONE, **pinned(level), NUMBA_CACHE_DIR=str(tmp_path), **{MACHINE_VARIABLE: machine})
    assert not run.stderr
    assert run.stdout.split() == [
        TRIPLES[machine],
        str(machine == "x86_64"),
        *sorted(LEVELS_BY_MACHINE[machine][level]),
    ]
    assert machines_of_code(tmp_path.rglob("*.kernel")) == {ELF_MACHINES[machine]}


@pytest.mark.skipif(sys.platform != "linux" or HOST_MACHINE not in TRIPLES, reason="the triples are those of Linux")
def test_on_the_machine_itself_llvm_calls_it_the_same() -> None:
    """Otherwise the cache there would not have what was compiled for it here."""
    assert TRIPLES[HOST_MACHINE] == binding.get_process_triple()


def test_a_bake_tells_the_compiler_which_machine_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        bake, "_BAKE", "from requant.kernels.jit.target import TARGET_MACHINE; print(len(TARGET_MACHINE))"
    )
    with pytest.raises(RuntimeError, match="of 7 files of machine code 0 were written"):
        bake.bake(tmp_path, "aarch64", ["neoverse-n1"])


def test_another_machine_is_not_taken_for_one_with_the_cpu_of_this(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in ("CPU_NAME", "CPU_FEATURES"):
        monkeypatch.setattr(config, option, None, raising=False)
    with pytest.raises(ValueError, match="name the CPU of aarch64 by NUMBA_CPU_NAME and NUMBA_CPU_FEATURES"):
        cross_compile_for("aarch64")
    with pytest.raises(ValueError, match="kernels cannot be compiled for 'riscv64'; for x86_64 and aarch64 they can"):
        cross_compile_for("riscv64")


@pytest.mark.parametrize(("name", "machine"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("riscv64", "riscv64")])
def test_a_machine_has_one_name_on_all_systems(name: str, machine: str) -> None:
    assert machine_named(name) == machine


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
    "f32 to i8, no correction": (QUANTIZE[Form(True, False, exact=True)], "fmadd"),
    "f32 to i16": (QUANTIZE[Form(True, False, bits=16)], "fmadd"),
    "f32 to i32": (QUANTIZE[Form(False, False, bits=32)], "divps"),
    "f16 to i8": (QUANTIZE[Form(True, False, source="f16")], "fmadd"),
    "bf16 to i8": (QUANTIZE[Form(True, False, source="bf16")], "fmadd"),
    "any, f32": (QUANTIZE_ANY["<f4", False], "divps"),
    "i8 to f32": (DEQUANTIZE[False, 4], "mulps"),
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


def test_a_cache_is_asked_for_these_methods_alone() -> None:
    assert _Cache.__abstractmethods__ == {"cache_path", "load_overload", "save_overload", "enable", "disable", "flush"}
    assert not MachineCodeCache.__abstractmethods__
    assert list(inspect.signature(_Cache.load_overload).parameters) == ["self", "sig", "target_context"]
    assert list(inspect.signature(_Cache.save_overload).parameters) == ["self", "sig", "data"]


class Remembering(_Cache):
    """Has nothing, and keeps what it is given."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.given: list[Any] = []

    cache_path = ""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        self.asked.append((sig, target_context))

    def save_overload(self, sig: Any, data: Any) -> None:
        self.given.append((sig, data))

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def flush(self) -> None: ...


def test_a_dispatcher_asks_the_cache_that_it_was_given_and_a_result_can_be_rebuilt() -> None:
    def twice(x: Any) -> Any:
        return x + x

    dispatcher: Any = numba.njit(nogil=True)(twice)
    cache = Remembering()
    dispatcher._cache = cache
    dispatcher.compile((numba.int64,))
    ((asked, context),) = cache.asked
    ((saved, given),) = cache.given
    assert asked == saved
    assert context is cpu_target.target_context
    assert type(given) is CompileResult
    result: Any = given
    assert not result.library.has_dynamic_globals
    assert result.codegen.magic_tuple() == context.codegen().magic_tuple()
    # The library comes first: its name, and the object code beside the LLVM code, which is not kept.
    reduced = result._reduce()
    (name, kind, (code, bitcode)), *_ = reduced
    assert (type(name), kind, type(code), type(bitcode)) == (str, "object", bytes, bytes)
    assert any(each.name for each in binding.parse_bitcode(bitcode).functions)
    assert isinstance(dumps(reduced[1:]), bytes)  # type: ignore[no-untyped-call]
    assert "target_context" in inspect.signature(CompileResult._rebuild).parameters
    assert list(inspect.signature(rtsys.initialize).parameters) == ["ctx"]
    assert dispatcher(np.int64(21)) == 42


def test_every_option_that_changes_machine_code_is_one_of_numba() -> None:
    missing = [option for option in _OPTIONS if not hasattr(config, option)]
    # What is not set in the environment is absent.
    assert set(missing) <= {"CPU_FEATURES", "USING_SVML"}


def test_the_features_of_the_target_are_its_last_part() -> None:
    triple, name, features = cpu_target.target_context.codegen().magic_tuple()
    assert triple == binding.get_process_triple()
    assert isinstance(name, str)
    assert all(each[:1] in "+-" for each in features.split(",") if each)
