"""Which scale belongs to which element of x: the shapes of QuantizeLinear and DequantizeLinear.

per tensor   one scale: rank 0, or 1 element
per axis     rank 1, as long as dimension `axis`
blocked      the rank and dimensions of x, but ceil(D / block_size) along `axis`; the last block may be short
"""

from __future__ import annotations

from requant.description import Kind, TensorValue
from requant.errors import TypeFitError, default_pointer
from requant.operators.description import Attribute, OperatorCall
from requant.operators.separate_parameters import Granularity, check_number_of_scales, normalized_axis

AXIS = Attribute(
    name="axis",
    kind=Kind.INTEGER,
    description="The dimension of x that the scales go along; negative values count from the end. Ignored with a "
    "single scale.",
    default=1,
    since=13,
)
BLOCK_SIZE = Attribute(
    name="block_size",
    kind=Kind.INTEGER,
    description="Elements along the axis that share a scale; 0: not blocked.",
    default=0,
    since=21,
    lowest=0,
)


def granularity_of(call: OperatorCall, x: TensorValue, scale_name: str, zero_point_name: str) -> Granularity:
    """Return what the shapes and attributes of a call say.

    Raise TypeFitError, ParameterError or LimitError for those that the operator does not take.
    """
    scale, zero_point = call.inputs[scale_name], call.given(zero_point_name)
    single = scale.shape in ((), (1,))
    if zero_point is not None and zero_point.shape != scale.shape and not (single and zero_point.shape in ((), (1,))):
        raise TypeFitError(
            f"{zero_point_name} has shape {list(zero_point.shape)}, and {scale_name} {list(scale.shape)}",
            pointer=f"/inputs/{zero_point_name}",
        )
    with default_pointer(f"/inputs/{scale_name}"):
        check_number_of_scales(scale.data.size)
        if call.integer("block_size"):
            return _blocked(call, x.shape, scale.shape)
        if single:
            return Granularity()
        if call.version < AXIS.since:
            raise TypeFitError(f"{scale_name} is one number; several along an axis are there from opset {AXIS.since}")
        if len(scale.shape) > 1:
            since = "" if call.version >= BLOCK_SIZE.since else f", which is there from opset {BLOCK_SIZE.since}"
            raise TypeFitError(f"{scale_name} of rank {len(scale.shape)} needs block_size{since}")
        axis = normalized_axis(call.integer("axis"), len(x.shape))
        if scale.shape[0] != x.shape[axis]:
            raise TypeFitError(
                f"{scale_name} has {scale.shape[0]} elements for dimension {axis} of x, which has {x.shape[axis]}"
            )
        return Granularity(axis)


def _blocked(call: OperatorCall, shape: tuple[int, ...], scales: tuple[int, ...]) -> Granularity:
    rank, block = len(shape), call.integer("block_size")
    if rank == 0 or len(scales) != rank:
        raise TypeFitError(f"with block_size the scales have rank {len(scales)}, and x {rank}; the same, at least 1")
    axis = normalized_axis(call.integer("axis"), rank)
    expected = tuple(-(-size // block) if place == axis else size for place, size in enumerate(shape))
    if scales != expected:
        raise TypeFitError(
            f"the scales have shape {list(scales)}; blocks of {block} along axis {axis} of {list(shape)} ask for "
            f"{list(expected)}"
        )
    return Granularity(
        axis, tuple(min(block, max(size, 1)) if place == axis else 1 for place, size in enumerate(shape))
    )
