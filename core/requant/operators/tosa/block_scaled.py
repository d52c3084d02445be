"""What TOSA's two block-scaled casts share: element types, block_size, and the shape of scales (TOSA 1.1, EXT-MXFP).

A block is 32 elements of the last dimension, and its scale 2^e is an f8E8M0FNU.
"""

from __future__ import annotations

from collections.abc import Mapping

from requant.convert.blocks.blocking import block_count
from requant.convert.blocks.mx import BLOCK
from requant.description import Choices, Kind
from requant.errors import TypeFitError, default_pointer
from requant.formats.elements import FLOATS
from requant.mlir.types import TensorType
from requant.operators.description import Attribute

SOURCE = "TOSA 1.1 draft, extension EXT-MXFP; reference model of tosa-tools 2026.8.0"
SCALE = FLOATS["f8E8M0FNU"]
REALS = {"f32": 1, "bf16": 1}

MX_FORMATS: Mapping[str, str] = {
    "f8E4M3FN": "mxfp8_e4m3",
    "f8E5M2": "mxfp8_e5m2",
    "f6E2M3FN": "mxfp6_e2m3",
    "f6E3M2FN": "mxfp6_e3m2",
    "f4E2M1FN": "mxfp4_e2m1",
    "i8": "mxint8",
}
"""The MX format of each element type. i8 are the codes of !tosa.mxint8, which stand for 64ths."""

ELEMENTS = dict.fromkeys(MX_FORMATS, 1)

BLOCK_SIZE = Attribute(
    name="block_size",
    kind=Kind.TEXT,
    description="Elements along the last dimension that share a scale.",
    default="BLOCK_SIZE_32",
    choices=Choices("TosaBlockSize", ("BLOCK_SIZE_32",), "TOSA's block sizes for casts."),
)


def scale_shape(shape: tuple[int, ...], name: str, format_name: str) -> tuple[int, ...]:
    """Return the shape of the scales of a tensor of `shape`, the operand of that name.

    Raise TypeFitError for rank 0, an empty dimension, or blocks that do not divide the last one.
    """
    with default_pointer(f"/inputs/{name}"):
        if 0 in shape:
            raise TypeFitError(f"{name} has a dimension of 0; TOSA's tensors have at least 1 of each")
        block_count(shape, BLOCK, format_name)
    return (*shape[:-1], shape[-1] // BLOCK)


def check_scale_shape(scale: TensorType, expected: tuple[int, ...], name: str) -> None:
    """Raise TypeFitError unless scales have the shape that the blocks ask for."""
    if scale.shape != expected:
        raise TypeFitError(
            f"{name} has shape {list(scale.shape or ())}; the blocks require {list(expected)}",
            pointer=f"/inputs/{name}",
        )
