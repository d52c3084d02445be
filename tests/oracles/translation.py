"""Which system holds which quantized type, written from the systems' documents alone.

A type is described in plain values: `Case`. Nothing of ours is imported.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction

WIDTHS = {"i2": 2, "u2": 2, "i4": 4, "u4": 4, "i8": 8, "u8": 8, "i16": 16, "u16": 16, "i32": 32, "u32": 32, "i24": 24}
FLOATS = ("f8E4M3FN", "f8E5M2", "f4E2M1FN")


@dataclass(frozen=True)
class Case:
    """A type: storage, its written bounds, granularity with scales and zero points, expressed type, shape.

    `blocks`: the block size along each dimension of `shape`, as long as the dimension where there is one block.
    """

    storage: str
    expressed: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    bounds: tuple[int, int] | None = None
    axis: int | None = None
    blocks: tuple[int, ...] | None = None
    shape: tuple[int, ...] = (4, 64)

    @property
    def range(self) -> tuple[int, int]:
        """What the storage type holds."""
        if self.storage in FLOATS:
            return {"f8E4M3FN": (-448, 448), "f8E5M2": (-57344, 57344), "f4E2M1FN": (-6, 6)}[self.storage]
        width = WIDTHS[self.storage]
        return (0, 2**width - 1) if self.storage[0] == "u" else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)

    @property
    def text(self) -> str:
        """The type as MLIR text."""
        bounds = "" if self.bounds is None else f"<{self.bounds[0]}:{self.bounds[1]}>"
        head = f"!quant.uniform<{self.storage}{bounds}:{self.expressed}"
        items = [f"{scale_text(s)}:{z}" for s, z in zip(self.scales, self.zero_points, strict=True)]
        dimensions = "".join(f"{size}x" for size in self.shape)
        if self.blocks is not None:
            counts = [-(-size // block) for size, block in zip(self.shape, self.blocks, strict=True)]
            pairs = ", ".join(f"{d}:{b}" for d, b in enumerate(self.blocks) if counts[d] > 1)
            for count in reversed(counts):
                items = ["{" + ", ".join(items[i : i + count]) + "}" for i in range(0, len(items), count)]
            return f"tensor<{dimensions}{head}:{{{pairs}}}, {items[0]}>>"
        if self.axis is not None:
            return f"tensor<{dimensions}{head}:{self.axis}, {{{', '.join(items)}}}>>"
        return f"tensor<{dimensions}{head}, {items[0]}>>"


def scale_text(scale: float) -> str:
    """Digits with a point that read back to the scale."""
    mantissa, mark, exponent = repr(scale).partition("e")
    return (mantissa if "." in mantissa else mantissa + ".0") + mark + exponent


def in_f32(scale: float) -> float:
    """The nearest f32."""
    found: float = struct.unpack("<f", struct.pack("<f", scale))[0]
    return found


def in_format(scale: float, expressed: str) -> float:
    """The nearest number of f32, f16 or bf16, ties to even."""
    if expressed == "f16":
        found: float = struct.unpack("<e", struct.pack("<e", scale))[0]
        return found
    if expressed == "bf16":
        exact = Fraction(scale)
        exponent = 0
        while exact >= Fraction(2) ** (exponent + 1):
            exponent += 1
        while exact < Fraction(2) ** exponent:
            exponent -= 1
        unit = Fraction(2) ** max(exponent - 7, -133)
        return float(round(exact / unit) * unit)
    return in_f32(scale)


def zero_points_within(case: Case, low: int, high: int) -> bool:
    return all(low <= z <= high for z in case.zero_points)


def whole(case: Case) -> bool:
    return case.bounds is None or case.bounds == case.range


def onnx_opset(case: Case) -> int | None:
    """The first opset that holds the type, None for none (QuantizeLinear and DequantizeLinear)."""
    since = {
        "i8": 10, "u8": 10, "i32": 10, "f8E4M3FN": 19, "f8E5M2": 19, "i16": 21, "u16": 21, "i4": 21, "u4": 21,
        "f4E2M1FN": 23, "i2": 25, "u2": 25,
    }  # fmt: skip
    reals = {"f32": 10, "f16": 19, "bf16": 19}
    if case.storage not in since or case.expressed not in reals or not whole(case):
        return None
    no_zero = case.storage in FLOATS or case.storage == "i32"
    if not zero_points_within(case, *((0, 0) if no_zero else case.range)):
        return None
    found = max(since[case.storage], reals[case.expressed])
    if case.blocks is not None:
        shared = [
            d for d, (size, block) in enumerate(zip(case.shape, case.blocks, strict=True)) if min(block, size) > 1
        ]
        return None if len(shared) > 1 else max(found, 21)
    return max(found, 13) if case.axis is not None else found


def onednn_operators(case: Case) -> set[str]:
    """Which of oneDNN Graph's operators take the type."""
    if not whole(case):
        return set()
    if case.storage in ("f8E4M3FN", "f8E5M2"):
        taken = case.expressed == "f32" and case.blocks is None and not any(case.zero_points)
        return {"Quantize", "Dequantize"} if taken else set()
    if case.storage not in ("i8", "u8", "i4", "u4") or not zero_points_within(case, -(2**31), 2**31 - 1):
        return set()
    if case.blocks is not None:
        divide = all(size % block == 0 for size, block in zip(case.shape, case.blocks, strict=True))
        if len(case.shape) < 2 or not divide or case.expressed not in ("f32", "f16", "bf16"):
            return set()
        return {"DynamicDequantize"}
    if case.expressed != "f32" or case.storage in ("i4", "u4"):
        return {"DynamicDequantize"} if case.expressed in ("f32", "f16", "bf16") else set()
    return {"Quantize", "Dequantize", "DynamicQuantize", "DynamicDequantize"}


def litert_operators(case: Case) -> set[str] | None:
    """Which of QUANTIZE and DEQUANTIZE take the type; None if LiteRT has no use for its parameters."""
    if case.expressed != "f32" or case.blocks is not None or not whole(case):
        return None
    if not zero_points_within(case, *case.range):
        return None
    one, centred = case.axis is None, not any(case.zero_points)
    match case.storage:
        case "i8" | "u8":
            return {"QUANTIZE", "DEQUANTIZE"}
        case "i16":
            return {"QUANTIZE", "DEQUANTIZE"} if one and centred else {"QUANTIZE"}
        case "i4" | "u4":
            return {"QUANTIZE", "DEQUANTIZE"} if one else {"DEQUANTIZE"}
        case "i2":
            return {"DEQUANTIZE"}
        case "i32":
            return set() if centred else None
        case _:
            return None


def torch_dtype(case: Case) -> str | None:
    """The dtype of quantized_decomposed that holds the type, None for none."""
    if case.expressed != "f32" or case.blocks is not None or case.storage in FLOATS:
        return None
    if not zero_points_within(case, *(case.bounds or case.range)):
        return None
    width = WIDTHS[case.storage]
    if case.storage[0] == "u":
        return "uint8" if width <= 8 else "uint16" if width <= 16 else None
    return "int8" if width <= 8 else "int16" if width <= 16 else "int32"


def tosa_zero_point(case: Case) -> bool:
    """Whether TOSA holds the zero point."""
    if case.storage not in ("i8", "u8", "i16", "u16", "i32") or case.blocks is not None or not whole(case):
        return False
    if len(set(case.zero_points)) > 1 or not zero_points_within(case, *case.range):
        return False
    zero = case.zero_points[0]
    return case.storage in ("i8", "u8") or zero == 0 or (case.storage == "u16" and zero == 32768)


def stablehlo_takes(case: Case) -> bool:
    """Whether StableHLO has the type."""
    if case.storage in FLOATS or case.blocks is not None or WIDTHS[case.storage] not in (2, 4, 8, 16, 32):
        return False
    return zero_points_within(case, *(case.bounds or case.range))
