"""The form and the bit width of a quantized weight in the graph."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from requant.errors import ParameterError
from requant.errors.names import entry_named


class Operator(StrEnum):
    """The operator that reads the codes. Each rounds in its own way (`requant.checkpoint.onnx.block_quantization`)."""

    MATMUL_NBITS = "MatMulNBits"
    """com.microsoft.MatMulNBits in place of the MatMul."""
    DEQUANTIZE_LINEAR = "DequantizeLinear"
    """DequantizeLinear of opset 21, in blocks, before the MatMul."""


BLOCK_SIZES = (16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class WeightForm:
    """Codes of `bits`, one scale, and one zero point unless symmetric, for each `block_size` elements along K.

    Raises ParameterError for what onnxruntime's quantizer does not write.
    """

    operator: Operator
    bits: int = 4
    block_size: int = 128
    symmetric: bool = False

    def __post_init__(self) -> None:
        allowed = (4, 8) if self.operator is Operator.MATMUL_NBITS else (4,)
        if self.bits not in allowed:
            named = " or ".join(map(str, allowed))
            raise ParameterError(f"{self.operator} holds weights of {named} bits, not of {self.bits}")
        if self.block_size not in BLOCK_SIZES:
            raise ParameterError(f"the block size {self.block_size} is not one of {', '.join(map(str, BLOCK_SIZES))}")

    @property
    def profile(self) -> str:
        """Return the name of the arithmetic."""
        return f"onnxruntime-{self.operator.lower()}"

    def blocks(self, k: int) -> int:
        """Return the number of blocks along K."""
        return -(-k // self.block_size)


_NAMED = {
    "MatMulNBits4": (Operator.MATMUL_NBITS, 4),
    "MatMulNBits8": (Operator.MATMUL_NBITS, 8),
    "DequantizeLinear4": (Operator.DEQUANTIZE_LINEAR, 4),
}
FORM_NAMES = tuple(_NAMED)
"""The names of operators with bits, by which `--scheme` asks for them."""


def form_named(name: str, *, block_size: int = 128, symmetric: bool = False) -> WeightForm:
    """Return a form by its name. The defaults are those of onnxruntime's quantizer.

    Raises UnknownNameError, ParameterError.
    """
    operator, bits = entry_named(_NAMED, name, "form of ONNX weights")
    return WeightForm(operator, bits, block_size, symmetric)
