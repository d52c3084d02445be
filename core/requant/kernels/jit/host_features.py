"""The features of this machine's CPU, by their names in LLVM."""

from __future__ import annotations

from pathlib import Path

from llvmlite import binding

CPUINFO = Path("/proc/cpuinfo")

# LLVM finds few features of an ARM CPU by itself. The names on the right are those of Linux
# (Documentation/arch/arm64/elf_hwcaps.rst).
_ARM_NAMES = {
    "bf16": "bf16",
    "complxnum": "fcma",
    "crc": "crc32",
    "dotprod": "asimddp",
    "fp-armv8": "fp",
    "fp16fml": "asimdfhm",
    "fullfp16": "asimdhp",
    "i8mm": "i8mm",
    "jsconv": "jscvt",
    "lse": "atomics",
    "neon": "asimd",
    "rcpc": "lrcpc",
    "rdm": "asimdrdm",
    "sve": "sve",
    "sve2": "sve2",
}


def host_features() -> frozenset[str]:
    """Return what LLVM finds, and on Linux on ARM what the kernel says that every one of the cores has."""
    found = {name for name, has in binding.get_host_cpu_features().items() if has}
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return frozenset(found)
    # x86 calls the line "flags".
    cores = [set(line.partition(":")[2].split()) for line in lines if line.startswith("Features")]
    common = set.intersection(*cores) if cores else set()
    return frozenset(found | {name for name, linux_name in _ARM_NAMES.items() if linux_name in common})
