"""Known answers of weights in fine-grained fp8, GPTQ, AWQ and NF4: what is stored, and the values of that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from requant.checkpoint.weights.awq import Awq
from requant.checkpoint.weights.fine_grained_fp8 import FineGrainedFp8
from requant.checkpoint.weights.floats import bits_of
from requant.checkpoint.weights.gptq import Gptq
from requant.checkpoint.weights.nf4 import Nf4
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.self_test.known_calls import SHAPE, KnownCall, reals

Array = NDArray[Any]

DTYPES = ("BF16", "F16", "F32")
_UE8M0 = "fine-grained fp8 with E8M0 scales"
FORMATS: dict[str, tuple[WeightFormat, tuple[int, int]]] = {
    # Blocks that are cut off at both edges, groups that end within a vector.
    "fine-grained fp8": (FineGrainedFp8("F32", 5, 20, ragged=True), SHAPE),
    _UE8M0: (FineGrainedFp8("F8_E8M0", 5, 20, ragged=True), SHAPE),
    "GPTQ": (Gptq(4, False, 8, version=2), (32, 64)),
    "AWQ": (Awq(8), (32, 64)),
    "NF4": (Nf4(), (32, 64)),
}
"""With the shape of the weight."""


def weight(dtype: str, shape: tuple[int, int]) -> Array:
    """Return the bits of a weight."""
    return bits_of(reals()[: shape[0] * shape[1]].reshape(shape), dtype)


def _stored(name: str) -> Iterable[Array]:
    """Yield, of each dtype, the stored tensors in the order of the format, and the values in f32."""
    weight_format, shape = FORMATS[name]
    for dtype in DTYPES:
        parts = weight_format.quantize(weight(dtype, shape), dtype, shape, 0)
        stored = {region.suffix: array for region, array in parts}
        dtypes = {each.suffix: each.dtype for each in weight_format.stored(dtype, shape)}
        yield from stored.values()
        yield weight_format.dequantize(stored, dtypes, "F32", shape, 0, shape[0])


KNOWN_WEIGHT_LAYOUTS = (
    KnownCall("fine-grained fp8", lambda: _stored("fine-grained fp8"), "f1d7076effab641c"),
    KnownCall(
        "fine-grained fp8 with E8M0 scales", lambda: _stored("fine-grained fp8 with E8M0 scales"), "2a61f1f35fa98add"
    ),
    KnownCall("GPTQ", lambda: _stored("GPTQ"), "49800648bc769395"),
    KnownCall("AWQ", lambda: _stored("AWQ"), "06bc0b5733b266ba"),
    KnownCall("NF4", lambda: _stored("NF4"), "23a565ff9710b4c7"),
)
