"""The types of tensors in GGUF files. Source: ggml.h (`enum ggml_type`) and llama.h (`enum llama_ftype`), ggml 0.25."""

from __future__ import annotations

from dataclasses import dataclass

from requant.errors.names import entry_named


@dataclass(frozen=True, slots=True)
class TensorType:
    """A type by its number in files: `block_bytes` bytes hold `block` elements along the innermost dimension."""

    name: str
    number: int
    block: int
    block_bytes: int

    def size(self, elements: int) -> int:
        """Return the bytes of that many elements, a multiple of the block."""
        return elements // self.block * self.block_bytes


_ALL = (
    TensorType("F32", 0, 1, 4),
    TensorType("F16", 1, 1, 2),
    TensorType("Q4_0", 2, 32, 18),
    TensorType("Q4_1", 3, 32, 20),
    TensorType("Q5_0", 6, 32, 22),
    TensorType("Q5_1", 7, 32, 24),
    TensorType("Q8_0", 8, 32, 34),
    TensorType("Q8_1", 9, 32, 36),
    TensorType("Q2_K", 10, 256, 84),
    TensorType("Q3_K", 11, 256, 110),
    TensorType("Q4_K", 12, 256, 144),
    TensorType("Q5_K", 13, 256, 176),
    TensorType("Q6_K", 14, 256, 210),
    TensorType("Q8_K", 15, 256, 292),
    TensorType("IQ2_XXS", 16, 256, 66),
    TensorType("IQ2_XS", 17, 256, 74),
    TensorType("IQ3_XXS", 18, 256, 98),
    TensorType("IQ1_S", 19, 256, 50),
    TensorType("IQ4_NL", 20, 32, 18),
    TensorType("IQ3_S", 21, 256, 110),
    TensorType("IQ2_S", 22, 256, 82),
    TensorType("IQ4_XS", 23, 256, 136),
    TensorType("I8", 24, 1, 1),
    TensorType("I16", 25, 1, 2),
    TensorType("I32", 26, 1, 4),
    TensorType("I64", 27, 1, 8),
    TensorType("F64", 28, 1, 8),
    TensorType("IQ1_M", 29, 256, 56),
    TensorType("BF16", 30, 1, 2),
    TensorType("TQ1_0", 34, 256, 54),
    TensorType("TQ2_0", 35, 256, 66),
    TensorType("MXFP4", 39, 32, 17),
    TensorType("NVFP4", 40, 64, 36),
)

TENSOR_TYPES = {each.name: each for each in _ALL}
TYPE_OF_NUMBER = {each.number: each for each in _ALL}

FILE_TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 7,
    "Q5_0": 8,
    "Q5_1": 9,
    "BF16": 32,
    "TQ1_0": 36,
    "TQ2_0": 37,
    "MXFP4": 38,
}
"""The types that tensors are converted to, each with the value of `general.file_type`."""

FLOATS = ("F32", "F16", "BF16")


def target_type(name: str) -> TensorType:
    """Return the type to convert to by its name. Raises UnknownNameError."""
    entry_named(FILE_TYPES, name, "GGUF type to convert to")
    return TENSOR_TYPES[name]
