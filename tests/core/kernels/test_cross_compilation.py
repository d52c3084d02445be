"""Kernels for another machine: what numba is made to do beyond its public interface (docs/architecture.md).

Whether such kernels run there is tested by `make arm64`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from llvmlite import binding
from numba.core import config

from requant.kernels.jit import bake
from requant.kernels.jit.baked import LEVELS_BY_MACHINE, pinned
from requant.kernels.jit.cross_compilation import TRIPLES, cross_compile_for
from requant.kernels.jit.target import HOST_MACHINE, MACHINE_VARIABLE, machine_named

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
    with pytest.raises(RuntimeError, match="of 7 compiled kernels 0 were written"):
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
