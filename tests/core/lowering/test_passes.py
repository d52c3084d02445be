"""Passes on quantized functions, with the page's examples, and that they keep every bit."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from requant.errors import LoweringError, ModuleTextError, UnknownNameError
from requant.lowering.passes import PASSES, parse_pass
from tests.core.lowering.carried import Array, evaluated, numbers
from tests.core.lowering.modules import lowered, operations
from tests.interop.stablehlo_programs import carried, chain, convolution, elementwise, product
from tests.support.cases import examples


def cast(source: str, target: str, op: str = "quant.qcast") -> str:
    return f"""func.func @main(%x: {source}) -> {target} {{
      %q = {op} %x : {source} to {target}
      return %q : {target}
    }}"""


PER_AXIS = "tensor<2x3x!quant.uniform<u8<3:250>:f16:1, {0.5:3, 2.0, 3.0:200}>>"
BLOCKS = "tensor<4x6x!quant.uniform<i8:f32:{0:2, 1:3}, {{0.5:3, 1.0}, {2.0, 3.0:-4}}>>"


def test_a_scalar_is_divided_shifted_and_truncated() -> None:
    found = operations(lowered(cast("f32", "!quant.uniform<i8<-100:100>:f32, 0.5:3>"), "lower-quant-ops"))
    assert found == [
        "arith.constant", "arith.constant", "arith.divf", "arith.sitofp", "arith.addf", "arith.fptosi",
        "arith.constant", "arith.constant", "arith.maxsi", "arith.minsi", "quant.scast", "func.return",
    ]  # fmt: skip


def test_a_zero_point_of_zero_is_left_out() -> None:
    text = lowered(cast("f32", "!quant.uniform<i8:f32, 0.5:256>"), "lower-quant-ops").write()
    assert "arith.addf" not in text, "256 is 0 in 8 bits"


def test_per_axis_and_blocks_become_linalg() -> None:
    text = lowered(cast(PER_AXIS, "tensor<2x3xf16>", "quant.dcast"), "lower-quant-ops").write()
    assert "dense<[3, 0, -56]> : tensor<3xi8>" in text
    assert "affine_map<(d0, d1) -> (d1)>" in text
    assert "arith.uitofp" in text
    text = lowered(cast("tensor<4x6xf32>", BLOCKS), "lower-quant-ops").write()
    assert "affine_map<(d0, d1) -> ((d0 floordiv 2), (d1 floordiv 3))>" in text


def test_dynamic_and_unranked_tensors() -> None:
    dynamic = lowered(cast("tensor<?x3xf32>", "tensor<?x3x!quant.uniform<i8:f32, 0.5>>"), "lower-quant-ops")
    assert operations(dynamic)[:4] == ["arith.constant", "arith.constant", "arith.constant", "tensor.dim"]
    unranked = cast("tensor<*x!quant.uniform<i8:f16:1, {0.5, 2.0, 3.0}>>", "tensor<*xf16>", "quant.dcast")
    found = operations(lowered(unranked, "lower-quant-ops"))
    assert found.count("tensor.reshape") == found.count("shape.split_at") == 2


@pytest.mark.parametrize(
    "type_", ["!quant.any<i8:f32>", "!quant.uniform<ui8:f32, 1.0>", "!quant.calibrated<f32<-1.0:1.0>>"]
)
def test_what_mlir_does_not_lower(type_: str) -> None:
    with pytest.raises(LoweringError, match=r"quant.qcast: .*, at line 2, column 7") as caught:
        lowered(cast("f32", type_), "lower-quant-ops")
    assert (caught.value.line, caught.value.column) == (2, 7)


def test_strip_func_quant_types() -> None:
    text = """!q = !quant.uniform<i8:f32, 0.5:3>
    func.func private @other(tensor<2x!q>) -> (tensor<2x!q>, f32)
    func.func @main(%x: tensor<2x!q>, %y: f32, %z: tensor<2x!q>) -> (tensor<2x!q>, f32, tensor<2x!q>) {
      %r:2 = call @other(%x) : (tensor<2x!q>) -> (tensor<2x!q>, f32)
      %d = quant.dcast %z : tensor<2x!q> to tensor<2xf32>
      return %r#0, %y, %x : tensor<2x!q>, f32, tensor<2x!q>
    }"""
    module = lowered(text, "strip-func-quant-types")
    assert operations(module) == ["quant.scast", "func.call", "quant.dcast", "func.return"]
    assert "func.func private @other(tensor<2xi8>) -> (tensor<2xi8>, f32)" in module.write()
    with pytest.raises(LoweringError, match="signless"):
        lowered(text.replace("i8:f32", "ui8:f32"), "strip-func-quant-types")


def module(*lines: str) -> str:
    """Return a function of a float, a quantized and a stored tensor, whose types are aliases; the last line returns."""
    aliases = (
        "!r = tensor<4xf32>\n!q = tensor<4x!quant.uniform<i8:f32, 2.0:1>>\n!p = tensor<4x!quant.uniform<i8:f32, 3.0>>"
    )
    body = "\n".join(lines)
    result = lines[-1].rpartition(" : ")[2]
    return f"{aliases}\n!s = tensor<4xi8>\nfunc.func @main(%x: !r, %q: !q, %s: !s) -> {result} {{\n{body}\n}}"


# Each is what MLIR, as TensorFlow 2.21 carries it, makes of the function: a cast of a cast folds to the original value
# if its type is the same, judged by the operands as they were written, and the inner cast stays.
FOLDED = [
    (("%1 = quant.qcast %x : !r to !q", "%2 = quant.dcast %1 : !q to !r", "return %2 : !r"), "%x", ("qcast",)),
    (("%1 = quant.dcast %q : !q to !r", "%2 = quant.qcast %1 : !r to !q", "return %2 : !q"), "%q", ("dcast",)),
    (("%1 = quant.dcast %q : !q to !r", "%2 = quant.qcast %1 : !r to !p", "return %2 : !p"), None, ("dcast", "qcast")),
    (
        ("%1 = quant.qcast %x : !r to !q", "%2 = quant.dcast %1 : !q to !r", "%3 = quant.qcast %2 : !r to !p",
         "%4 = quant.dcast %3 : !p to !r", "return %4 : !r"), "%x", ("qcast", "qcast"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "returned", "casts"), FOLDED)
def test_a_cast_of_a_cast_is_folded(lines: tuple[str, ...], returned: str | None, casts: tuple[str, ...]) -> None:
    text = lowered(module(*lines), "lower-quant-ops").write()
    assert (f"func.return {returned} :" in text) == (returned is not None)
    assert [text.count(each) for each in ("arith.divf", "arith.mulf")] == [
        casts.count("qcast"),
        casts.count("dcast"),
    ], "the inner casts are lowered, used or not"


def test_storage_casts_are_folded_where_functions_are_stripped() -> None:
    there_and_back = ("%1 = quant.scast %q : !q to !s", "%2 = quant.scast %1 : !s to !q", "return %2 : !q")
    stripped = lowered(module(*there_and_back), "strip-func-quant-types")
    assert operations(stripped) == ["quant.scast", "quant.scast", "func.return"]
    assert "func.return %q : tensor<4xi8>" in stripped.write()
    kept = lowered(module(*there_and_back), "lower-quant-ops")
    assert operations(kept) == ["quant.scast", "quant.scast", "func.return"], "they are legal there, so nothing folds"
    other = ("%1 = quant.scast %q : !q to !s", "%2 = quant.scast %1 : !s to !p", "return %2 : !p")
    assert operations(lowered(module(*other), "strip-func-quant-types")) == ["quant.scast"] * 4 + ["func.return"]


BLOCKS_OF_ONE = "!quant.uniform<u8:f32:{0:1, 1:6}, {{0.5:200}, {1.0}, {2.0}, {3.0}}>"
BLOCKS_OF_TWO = "!quant.uniform<u8:f32:{0:2, 1:6}, {{0.5:200}, {1.0}}>"
ONE_BLOCK = "!quant.uniform<u8:f32:{0:4, 1:6}, {{0.5:200}}>"


@pytest.mark.parametrize(
    ("type_", "options", "expected"),
    [
        (ONE_BLOCK, "", "uniform<u8:f32, 5.000000e-01:200>"),
        (ONE_BLOCK, "{sign-extend-zero-points=true}", "uniform<u8:f32, 5.000000e-01:-56>"),
        (BLOCKS_OF_ONE, "", "uniform<u8:f32:0, {5.000000e-01:200,1.000000e+00,2.000000e+00,3.000000e+00}>"),
        (BLOCKS_OF_TWO, "", "uniform<u8:f32:{0:2, 1:6}, {{5.000000e-01:-56}, {1.000000e+00}}>"),
        ("!quant.uniform<u8:f32:{0:2, 1:3}, {{0.5:1, 1.0}, {1.0, 1.0}}>", "", "uniform<u8:f32:{0:2, 1:3}, "),
    ],
)
def test_normalize_quant_types(type_: str, options: str, expected: str) -> None:
    module = lowered(cast(f"tensor<4x6x{type_}>", "tensor<4x6xf32>", "quant.dcast"), f"normalize-quant-types{options}")
    assert module.write().count(f"!quant.{expected}") == 2


def test_upstream_ignores_the_size_of_blocks() -> None:
    text = f"func.func private @f(tensor<4x6x{BLOCKS_OF_TWO}>)"
    module = lowered(text, "normalize-quant-types{ignore-block-size=true}")
    assert "tensor<4x6x!quant.uniform<u8:f32:0, {5.000000e-01:200,1.000000e+00}>>" in module.write()


@pytest.mark.parametrize(
    "name", ["nope", "", "lower-quant-ops{", "lower-quant-ops{x=1}", "x" * 1000, "lower quant ops"]
)
def test_unknown_passes_and_options(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        parse_pass(name)
    assert len(caught.value.detail) < 1000


def test_every_pass_says_what_it_does() -> None:
    assert all(each.summary and name == each.name for name, each in PASSES.items())


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


def quantized_convolution(left: str, right: str, result: str) -> str:
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


@pytest.mark.parametrize("make", [dot, quantized_convolution])
@pytest.mark.parametrize(
    ("right", "result", "on_integers"),
    [(RIGHT, RESULT, True), (COLUMNS, RESULT_COLUMNS, True), (COLUMNS, RESULT, False)],
)
def test_weights_by_channel_with_a_result_per_tensor_go_through_floats(
    make: type, right: str, result: str, on_integers: bool
) -> None:
    text = make(LEFT, *(channels(each) if make is quantized_convolution else each for each in (right, result)))
    found = lowered(text, PASS)
    product = next(op for op in found.operation.walk() if op.name in ("stablehlo.dot_general", "stablehlo.convolution"))
    assert str(product.results[0].type).endswith("i32>" if on_integers else "f32>")
    assert ("stablehlo.round_nearest_even" in operations(found)) is not on_integers


@pytest.mark.parametrize("make", [dot, quantized_convolution])
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
    if make is quantized_convolution:
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
        lowered(quantized_convolution(LEFT, inputs, RESULT), PASS)
    width = "!quant.uniform<i8:f32:1, {0.25, 0.5, 1.0}>"
    with pytest.raises(ModuleTextError, match="C30: the result is quantized along dimension 1, its features are 3"):
        lowered(quantized_convolution(LEFT, channels(COLUMNS), width), PASS)


def test_weights_of_a_float_convolution_become_f32() -> None:
    with pytest.raises(LoweringError, match="operands of one type"):
        lowered(quantized_convolution("f16", RIGHT.replace("f32", "f16"), "f16"), PASS)


TO_QDQ = "stablehlo-legalize-quantized-op-to-qdq"
TO_QUANTIZED = "stablehlo-legalize-qdq-to-quantized-op"


def both(make: Callable[..., str], random: Random, draw: np.random.Generator, name: str) -> tuple[str, Array, Array]:
    text, arguments, _ = carried(make(random, "main"))
    given = [numbers(argument, draw, inside=True) for argument in arguments]
    before = evaluated(text, arguments, given)
    return text, before, evaluated(lowered(text, name).write(), arguments, given)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "make", "count"),
    [(TO_QDQ, elementwise, 120), (TO_QDQ, product, 60), (TO_QDQ, convolution, 30), (TO_QUANTIZED, chain, 100)],
)
def test_rewriting_keeps_every_bit(name: str, make: Callable[..., str], count: int) -> None:
    random, draw = Random(f"before {name} {make.__name__}"), np.random.default_rng(1)
    for _ in range(examples(count)):
        text, before, after = both(make, random, draw, name)
        assert before.tobytes() == after.tobytes(), text
