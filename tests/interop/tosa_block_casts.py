"""TOSA's block-scaled casts as graphs, run by the reference model.

Its Python binding gives no arrays of f8E8M0FNU, nor of elements narrower than a byte. So what it makes of a tensor is
read through its own CAST_FROM_BLOCK_SCALED: elements at a scale of 1, scales times an element of 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tosa_reference_model
import tosa_serializer as serializer
from numpy.typing import NDArray

Array = NDArray[Any]

ELEMENTS = {
    "f8E4M3FN": serializer.DType.FP8E4M3,
    "f8E5M2": serializer.DType.FP8E5M2,
    "f6E2M3FN": serializer.DType.FP6E2M3,
    "f6E3M2FN": serializer.DType.FP6E3M2,
    "f4E2M1FN": serializer.DType.FP4E2M1,
    "i8": serializer.DType.MXINT8,
}
REALS = {"f32": serializer.DType.FP32, "bf16": serializer.DType.BF16, "f16": serializer.DType.FP16}
_SCALE = serializer.DType.FP8UE8M0


def _scale_shape(shape: tuple[int, ...]) -> list[int]:
    return [*shape[:-1], shape[-1] // 32]


def _to(graph: Any, source: Any, data: Any, scale: Any) -> None:
    attribute = serializer.TosaSerializerAttribute()
    attribute.CastToBlockScaledAttribute(serializer.BlockSize.BLOCK_SIZE_32)
    graph.addOperator(serializer.Op.CAST_TO_BLOCK_SCALED, [source.name], [data.name, scale.name], attribute)


def _from(graph: Any, data: Any, scale: Any, target: Any) -> None:
    attribute = serializer.TosaSerializerAttribute()
    attribute.CastFromBlockScaledAttribute(serializer.BlockSize.BLOCK_SIZE_32)
    graph.addOperator(serializer.Op.CAST_FROM_BLOCK_SCALED, [data.name, scale.name], [target.name], attribute)


def _run(graph: Any, inputs: list[Array]) -> list[Array]:
    outputs, status = tosa_reference_model.run(graph.serialize(), inputs)
    assert status == tosa_reference_model.GraphStatus.TOSA_VALID
    return list(outputs)


def cast_to_blocks(source: Array, real: str, element: str) -> tuple[Array, Array]:
    """The numbers that the elements stand for, and for each element the number that its scale stands for: f32.

    `source`: f32, or the codes of bf16.
    """
    graph, shape = serializer.TosaSerializer(), list(source.shape)
    given = graph.addPlaceholder(shape, REALS[real])
    data = graph.addIntermediate(shape, ELEMENTS[element])
    scale = graph.addIntermediate(_scale_shape(source.shape), _SCALE)
    _to(graph, given, data, scale)
    one = graph.addConst(_scale_shape(source.shape), _SCALE, np.ones(source.size // 32, np.float32))
    ones = graph.addConst(shape, ELEMENTS["f8E4M3FN"], np.ones(source.size, np.float32))
    elements, scales = (graph.addOutput(shape, REALS["f32"]) for _ in range(2))
    _from(graph, data, one, elements)
    _from(graph, ones, scale, scales)
    found = _run(graph, [source])
    return found[0], found[1]


def cast_from_blocks(data: Array, scales: Array, element: str, real: str) -> Array:
    """f32, or the codes of bf16. `data`: the numbers that elements stand for, for i8 the codes; `scales`: numbers."""
    graph = serializer.TosaSerializer()
    elements = graph.addConst(list(data.shape), ELEMENTS[element], data.astype(np.float32).ravel())
    scale = graph.addConst(_scale_shape(data.shape), _SCALE, scales.astype(np.float32).ravel())
    output = graph.addOutput(list(data.shape), REALS[real])
    _from(graph, elements, scale, output)
    (found,) = _run(graph, [])
    return found if real == "f32" else found.view(np.uint16)


def takes(shape: tuple[int, ...], real: str, element: str) -> bool:
    """Whether the model takes a CAST_TO_BLOCK_SCALED of a shape and an input type."""
    graph = serializer.TosaSerializer()
    given = graph.addPlaceholder(list(shape), REALS[real])
    data = graph.addOutput(list(shape), ELEMENTS[element])
    scale = graph.addIntermediate(_scale_shape(shape), _SCALE)
    _to(graph, given, data, scale)
    dtype = {"f32": np.float32, "bf16": np.uint16, "f16": np.float16}[real]
    try:
        _run(graph, [np.zeros(shape, dtype)])
    except ValueError as error:
        if str(error) != "Invalid TOSA graph":
            raise
        return False
    return True
