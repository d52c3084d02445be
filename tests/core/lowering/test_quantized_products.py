"""Which element types go together in StableHLO's products, and what the lowering to integers makes of them."""

from __future__ import annotations

import pytest

from requant.errors import LoweringError, ModuleTextError
from tests.core.lowering.modules import lowered, operations

PASS = "stablehlo-legalize-quant-to-math"
LEFT = "!quant.uniform<i8:f32, 0.5:3>"
RIGHT = "!quant.uniform<i8:f32, 0.25>"
COLUMNS = "!quant.uniform<i8:f32:1, {0.25, 0.5, 1.0, 2.0}>"
RESULT = "!quant.uniform<i8:f32, 2.0:1>"
RESULT_COLUMNS = "!quant.uniform<i8:f32:1, {2.0, 4.0, 8.0, 16.0}>"


def dot(left: str, right: str, result: str) -> str:
    types = f"tensor<2x3x{left}>", f"tensor<3x4x{right}>", f"tensor<2x4x{result}>"
    return f"""func.func @main(%x: {types[0]}, %y: {types[1]}) -> {types[2]} {{
      %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}
      return %r : {types[2]}
    }}"""


def convolution(left: str, right: str, result: str) -> str:
    types = f"tensor<1x4x4x2x{left}>", f"tensor<2x2x2x4x{right}>", f"tensor<1x3x3x4x{result}>"
    dims = "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1]}"
    counts = "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
    return f"""func.func @main(%x: {types[0]}, %y: {types[1]}) -> {types[2]} {{
      %r = stablehlo.convolution(%x, %y) {dims} {counts} : ({types[0]}, {types[1]}) -> {types[2]}
      return %r : {types[2]}
    }}"""


def channels(type_: str) -> str:
    """Return a per-axis type along the last dimension of a convolution's operands."""
    return type_.replace("f32:1", "f32:3")


@pytest.mark.parametrize("make", [dot, convolution])
@pytest.mark.parametrize(
    ("right", "result", "on_integers"),
    [(RIGHT, RESULT, True), (COLUMNS, RESULT_COLUMNS, True), (COLUMNS, RESULT, False)],
)
def test_weights_by_channel_with_a_result_per_tensor_go_through_floats(
    make: type, right: str, result: str, on_integers: bool
) -> None:
    text = make(LEFT, *(channels(each) if make is convolution else each for each in (right, result)))
    found = lowered(text, PASS)
    product = next(op for op in found.operation.walk() if op.name in ("stablehlo.dot_general", "stablehlo.convolution"))
    assert str(product.results[0].type).endswith("i32>" if on_integers else "f32>")
    assert ("stablehlo.round_nearest_even" in operations(found)) is not on_integers


@pytest.mark.parametrize("make", [dot, convolution])
@pytest.mark.parametrize(
    ("left", "right", "result", "reason"),
    [
        (LEFT, RIGHT.replace("i8", "i4"), RESULT, "one storage type"),
        (LEFT, RIGHT.replace("i8", "ui8"), RESULT, "one storage type"),
        (LEFT, RIGHT.replace("f32", "f16"), RESULT, "one expressed type"),
        (LEFT, RIGHT, RESULT.replace("f32", "f16"), "one expressed type"),
        (LEFT, RIGHT, RESULT_COLUMNS, "must be per-tensor"),
        (COLUMNS.replace("0.5, 1.0, 2.0", "0.5, 1.0"), RIGHT, RESULT, "lhs must be per-tensor"),
        (LEFT, "f32", RESULT, "rhs must be quantized"),
        (LEFT, RIGHT, "f32", "rhs must be quantized"),
        ("f32", RIGHT, RESULT, "rhs must be quantized"),
        ("f32", RIGHT, "f16", "must be f32"),
    ],
)
def test_element_types_that_do_not_go_together(make: type, left: str, right: str, result: str, reason: str) -> None:
    if make is convolution:
        left, right, result = (channels(each) for each in (left, right, result))
        left = left.replace("0.25, 0.5, 1.0", "0.25, 0.5")
    with pytest.raises(ModuleTextError, match=reason):
        lowered(make(left, right, result), PASS)


def test_bounds_and_u8_are_no_other_storage_type() -> None:
    for right in (RIGHT.replace("i8", "i8<-127:127>"), RIGHT.replace("i8", "u8")):
        lowered(dot(LEFT, right, RESULT), PASS)


def test_axes_of_weights_and_results() -> None:
    rows = "!quant.uniform<i8:f32:0, {0.25, 0.5, 1.0}>"
    with pytest.raises(ModuleTextError, match="C16: rhs is quantized along dimension 0, which is contracted"):
        lowered(dot(LEFT, rows, RESULT), PASS)
    inputs = "!quant.uniform<i8:f32:2, {0.25, 0.5}>"
    with pytest.raises(ModuleTextError, match="C29: rhs is quantized along dimension 2, its output features are 3"):
        lowered(convolution(LEFT, inputs, RESULT), PASS)
    width = "!quant.uniform<i8:f32:1, {0.25, 0.5, 1.0}>"
    with pytest.raises(ModuleTextError, match="C30: the result is quantized along dimension 1, its features are 3"):
        lowered(convolution(LEFT, channels(COLUMNS), width), PASS)


def test_weights_of_a_float_convolution_become_f32() -> None:
    with pytest.raises(LoweringError, match="operands of one type"):
        lowered(convolution("f16", RIGHT.replace("f32", "f16"), "f16"), PASS)
