"""Does a quantized type fit the tensor that it is put on: rank, number of scales, blocks.

The tensor type itself does not ask: `tensor<2x3x!quant.uniform<i8:f32:5, {1.0}>>` is a type of MLIR.
"""

from __future__ import annotations

from requant.errors import TypeFitError
from requant.mlir.types import TensorType, Type, UniformPerAxisType, UniformSubChannelType


def check_fits(tensor: TensorType, *, short_blocks: bool = False) -> None:
    """Check that the element type of `tensor` fits it.

    Raises TypeFitError, which names both numbers that disagree. Dynamic dimensions are not checked, as in MLIR. With
    `short_blocks` a last block may be shorter than the others, as in ONNX.
    """
    if problem := fit_fault(tensor, short_blocks=short_blocks):
        raise TypeFitError(problem)


def fit_fault(container: Type, *, short_blocks: bool = False) -> str | None:
    """Return why the quantized type in `container` does not fit, or None. A container that is no tensor is a scalar."""
    element = container.element if isinstance(container, TensorType) else container
    if isinstance(element, UniformPerAxisType):
        if not isinstance(container, TensorType):
            return "a per-axis type needs a tensor; this is a scalar"
        return None if container.shape is None else _per_axis_fault(container.shape, element)
    if isinstance(element, UniformSubChannelType):
        if not isinstance(container, TensorType) or container.shape is None:
            return "a sub-channel type needs a ranked tensor"
        return _sub_channel_fault(container.shape, element, short_blocks)
    return None


def _per_axis_fault(shape: tuple[int | None, ...], element: UniformPerAxisType) -> str | None:
    axis, count = element.axis, len(element.scales)
    if axis >= len(shape):
        return f"axis {axis} of the quantized type is not below the rank {len(shape)} of the tensor"
    if shape[axis] not in (None, count):
        return f"{count} scales for dimension {axis}, which has {shape[axis]} elements"
    return None


def _sub_channel_fault(shape: tuple[int | None, ...], element: UniformSubChannelType, short_blocks: bool) -> str | None:
    rank = len(shape)
    for axis, block in element.blocks:
        if axis >= rank:
            return f"axis {axis} of the quantized type is not below the rank {rank} of the tensor"
        dimension = shape[axis]
        if dimension is not None and dimension % block and not short_blocks:
            return f"dimension {axis} has {dimension} elements, which blocks of {block} do not divide"
    if 0 in shape:
        return f"dimension {shape.index(0)} has 0 elements; a sub-channel type needs at least 1 in every dimension"
    if len(element.scale_shape) != rank:
        return f"scales of rank {len(element.scale_shape)} for a tensor of rank {rank}"
    # The last of several blocks for one axis decides, as in MLIR.
    blocks = dict(element.blocks)
    for axis, (dimension, count) in enumerate(zip(shape, element.scale_shape, strict=True)):
        if axis not in blocks:
            expected = 1
        elif dimension is None:
            continue
        else:
            expected = -(-dimension // blocks[axis])
        if count != expected:
            return f"{count} scales along axis {axis}, where the dimension and its blocks ask for {expected}"
    return None
