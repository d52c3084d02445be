"""The instruction set of this machine, at the granularity that common kernel libraries distinguish."""

from __future__ import annotations

import platform
from functools import cache

# The widest first; each is named by the last of the features that it needs.
_X86 = (
    ("AVX-512 and AMX", ("avx512f", "amx-int8")),
    ("AVX-512", ("avx512f", "avx512vnni")),
    ("AVX-512 without VNNI", ("avx512f",)),
    ("AVX2", ("avx2", "fma")),
    ("SSE4.2", ("sse4.2",)),
)
_ARM = (("SVE2", ("sve2",)), ("SVE", ("sve",)), ("NEON with dot products", ("dotprod",)), ("NEON", ("neon",)))


@cache
def host() -> str:
    """Return the architecture and the widest set of vector instructions, such as x86-64 with AVX2."""
    # Where the clients are tested, it is not installed, and nothing is recorded.
    from llvmlite.binding import get_host_cpu_features

    machine = {"x86_64": "x86-64", "AMD64": "x86-64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    features = get_host_cpu_features()
    for name, needed in {"x86-64": _X86, "aarch64": _ARM}.get(machine, ()):
        if all(features.get(each) for each in needed):
            return f"{machine} with {name}"
    return machine
