"""Compile kernels for another machine than this one: here on x86-64 for aarch64.

numba compiles for the process that it runs in, and takes the triple of its target from LLVM's process. llvmlite's LLVM
has the code generators of both machines, so another triple is all that is needed. What is compiled so is kept as object
code and never called here.
"""

from __future__ import annotations

from llvmlite import binding
from numba.core import config

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
"""What LLVM calls each machine in its own processes, by which the cache of machine code tells them apart."""


def cross_compile_for(machine: str) -> None:
    """Let numba compile for `machine` from here on. Call it before numba has compiled anything.

    Raise ValueError for a machine that has no triple here, and unless NUMBA_CPU_NAME and NUMBA_CPU_FEATURES say which
    CPU is meant: those of this machine would be taken.
    """
    if machine not in TRIPLES:
        raise ValueError(f"kernels cannot be compiled for {machine!r}; for {' and '.join(TRIPLES)} they can")
    if not all(getattr(config, option, None) for option in ("CPU_NAME", "CPU_FEATURES")):
        raise ValueError(f"name the CPU of {machine} by NUMBA_CPU_NAME and NUMBA_CPU_FEATURES")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.get_process_triple = lambda: TRIPLES[machine]
