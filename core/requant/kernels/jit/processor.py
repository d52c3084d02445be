"""What a kernel asks of the processor: its widest vectors, and subnormal numbers taken for zero.

Both are asked for inside the kernel and hold for nothing else. Neither changes a result: the first is a hint to the
compiler, and the second is used only where a subnormal and a zero give the same (see
`requant.kernels.convert.quantize.native`). Without it, a subnormal number costs as much as some tens of others.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from requant.kernels.jit.jit import intrinsic, target_features
from requant.kernels.jit.target import TARGET_MACHINE

IS_X86 = TARGET_MACHINE == "x86_64"
IS_AARCH64 = TARGET_MACHINE == "aarch64"

# MXCSR: flush results to zero, and take subnormal operands for zero.
_FLUSH_TO_ZERO = 0x8040


_FEATURES = target_features()


def _has(machine: str, feature: str) -> bool:
    """Whether kernels are compiled for `machine`, and for one that has `feature`, by its name in LLVM."""
    return machine == TARGET_MACHINE and feature in _FEATURES


# Every 64-bit ARM has both of these.
HAS_FMA = IS_AARCH64 or _has("x86_64", "fma")
"""Whether a fused multiply-add is one instruction."""

HAS_F16_CONVERSION = IS_AARCH64 or _has("x86_64", "f16c")
"""Whether f16 become f32 and back by an instruction; otherwise LLVM would call a function that is not there."""

HAS_AVX = _has("x86_64", "avx")
"""Whether there are vectors of 256 bits of floats."""

HAS_AVX2 = _has("x86_64", "avx2")
"""Whether there are vectors of 256 bits of integers."""

HAS_AVX512F = _has("x86_64", "avx512f")
"""Whether there are vectors of 512 bits, with masks."""

HAS_AVX512BW = _has("x86_64", "avx512bw")
"""Whether there are vectors of 512 bits with elements of 8 and 16."""

HAS_VBMI = _has("x86_64", "avx512vbmi")
"""Whether one instruction finds 64 bytes in a table of 128."""

HAS_VNNI = _has("x86_64", "avx512vnni")
"""Whether one instruction adds up products of unsigned and signed bytes."""

HAS_DOT_PRODUCT = _has("aarch64", "dotprod")
"""Whether one instruction adds up products of signed bytes."""


@intrinsic
def prefer_wide_vectors(typing_context: Any) -> tuple[Any, Any]:
    """Ask for 512-bit vectors in this kernel, where the processor has them; LLVM's default is 256 on many."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # Attributes that llvmlite has no name for go in as text.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


def _call_with_control_word(builder: Any, name: str, place: Any) -> None:
    pointer = ir.IntType(8).as_pointer()
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [pointer]), name)
    builder.call(function, [builder.bitcast(place, pointer)])


@intrinsic
def begin_flushing(typing_context: Any, wanted: Any) -> tuple[Any, Any]:
    """Take subnormals for zero from here on, if `wanted`. Return what `end_flushing` takes to undo it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        if not IS_X86:
            return word(0)
        place = builder.alloca(word)
        _call_with_control_word(builder, "llvm.x86.sse.stmxcsr", place)
        before = builder.load(place)
        flags = builder.select(arguments[0], word(_FLUSH_TO_ZERO), word(0))
        builder.store(builder.or_(before, flags), place)
        _call_with_control_word(builder, "llvm.x86.sse.ldmxcsr", place)
        return before

    return types.int32(wanted), generate


@intrinsic
def end_flushing(typing_context: Any, before: Any) -> tuple[Any, Any]:
    """Compute with subnormals again, if that was so before `begin_flushing`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if IS_X86:
            place = builder.alloca(ir.IntType(32))
            builder.store(arguments[0], place)
            _call_with_control_word(builder, "llvm.x86.sse.ldmxcsr", place)
        return context.get_dummy_value()

    return types.void(before), generate
