"""Quantized types on tensors that they fit or not. What MLIR says of the same is in test_vectors.test_cast."""

from __future__ import annotations

import pytest

from requant.errors import TypeFitError
from requant.mlir import TensorType, parse_type
from requant.mlir.fit import check_fits, fit_fault

_PER_AXIS = "!quant.uniform<i8:f32:1, {1.0,2.0,3.0}>"
_BLOCKS = "!quant.uniform<i8:f32:{0:1, 1:2}, {{1.0,2.0},{3.0,4.0}}>"


def _tensor(text: str) -> TensorType:
    type_ = parse_type(text)
    assert isinstance(type_, TensorType)
    return type_


@pytest.mark.parametrize(
    "text",
    [
        "tensor<4xf32>",
        "tensor<*x!quant.uniform<i8:f32, 1.0>>",
        f"tensor<2x3x{_PER_AXIS}>",
        f"tensor<0x3x{_PER_AXIS}>",
        f"tensor<2x?x{_PER_AXIS}>",
        f"tensor<*x{_PER_AXIS}>",
        f"tensor<2x4x{_BLOCKS}>",
        f"tensor<?x4x{_BLOCKS}>",
        "tensor<4x2x!quant.uniform<i8:f32:{0:2,0:4}, {{1.0}}>>",
        "tensor<4x?x!quant.uniform<i8:f32:{0:2}, {{1.0},{2.0}}>>",
    ],
)
def test_fits(text: str) -> None:
    check_fits(_tensor(text))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (f"tensor<3x{_PER_AXIS}>", ("axis 1", "rank 1")),
        (f"tensor<2x4x{_PER_AXIS}>", ("3 scales", "4 elements")),
        (f"tensor<*x{_BLOCKS}>", ("ranked",)),
        (f"tensor<2x{_BLOCKS}>", ("axis 1", "rank 1")),
        (f"tensor<2x5x{_BLOCKS}>", ("5 elements", "blocks of 2")),
        (f"tensor<0x4x{_BLOCKS}>", ("0 elements",)),
        (f"tensor<2x4x1x{_BLOCKS}>", ("rank 2", "rank 3")),
        (f"tensor<2x8x{_BLOCKS}>", ("2 scales", "ask for 4")),
        ("tensor<4x?x!quant.uniform<i8:f32:{0:2}, {{1.0,1.0},{2.0,2.0}}>>", ("2 scales", "axis 1", "ask for 1")),
    ],
)
def test_does_not_fit(text: str, numbers: tuple[str, ...]) -> None:
    with pytest.raises(TypeFitError) as caught:
        check_fits(_tensor(text))
    for number in numbers:
        assert number in caught.value.detail


def test_scalars() -> None:
    assert fit_fault(parse_type("!quant.uniform<i8:f32, 1.0>")) is None
    assert "scalar" in (fit_fault(parse_type(_PER_AXIS)) or "")
    assert "ranked tensor" in (fit_fault(parse_type(_BLOCKS)) or "")
