"""Module text: what is read is printed so that it reads the same, and what is wrong is told with its place."""

from __future__ import annotations

import pytest

from requant.description import NO_LIMITS, ModuleLimits
from requant.errors import DeadlineError, LimitError, ModuleTextError
from requant.errors.cancellation import cancellation_check
from requant.lowering.module import read_module

QUANTIZED = "!quant.uniform<i8:f32, 1.000000e+00>"

# One line for each syntax, as StableHLO prints it. `%f` is tensor<2x3xf32>, `%p` is tensor<i1>, `%z` is tensor<f32>.
LINES = [
    "%0 = stablehlo.constant dense<[2, 3]> : tensor<2xi64>",
    "%0 = stablehlo.constant dense<0x7FC00000> : tensor<f32>",
    "%0 = stablehlo.constant dense<[0.333333343, 1.000000e+00]> : tensor<2xf32>",
    f"%0 = stablehlo.constant() {{value = dense<1> : tensor<2xi8>}} : () -> tensor<2x{QUANTIZED}>",
    "%0 = stablehlo.add %f, %f : tensor<2x3xf32>",
    "%0 = stablehlo.convert %f : (tensor<2x3xf32>) -> tensor<2x3xi32>",
    "%0 = stablehlo.select %p, %f, %f : tensor<i1>, tensor<2x3xf32>",
    "%0 = stablehlo.clamp %z, %f, %z : (tensor<f32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>",
    "%0 = stablehlo.compare LT, %f, %f, TOTALORDER : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>",
    "%0 = stablehlo.transpose %f, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>",
    "%0 = stablehlo.broadcast_in_dim %z, dims = [] : (tensor<f32>) -> tensor<2xf32>",
    "%0 = stablehlo.slice %f [0:2, 0:3:2] : (tensor<2x3xf32>) -> tensor<2x2xf32>",
    "%0 = stablehlo.concatenate %f, %f, dim = 0 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>",
    "%0 = stablehlo.iota dim = 0 : tensor<4xi32>",
    "%0 = stablehlo.optimization_barrier %f : tensor<2x3xf32>",
    "%0 = stablehlo.reshape %f : (tensor<2x3xf32>) -> tensor<6xf32>",
    "%0 = stablehlo.pad %f, %z, low = [0, 1], high = [1, 0], interior = [0, 1] : (tensor<2x3xf32>, tensor<f32>) "
    "-> tensor<3x6xf32>",
    "%0 = stablehlo.reduce(%f init: %z) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) "
    "-> tensor<2xf32>",
    "%0 = stablehlo.reduce_precision %f, format = e5m2 : tensor<2x3xf32>",
    "%0 = stablehlo.get_dimension_size %f, dim = 0 : (tensor<2x3xf32>) -> tensor<i32>",
    "%0 = stablehlo.dot %f, %g, precision = [DEFAULT, HIGH] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>",
    "%0 = stablehlo.dot_general %f, %g, contracting_dims = [1] x [0], precision = [DEFAULT, HIGH] : "
    "(tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>",
    "%0 = stablehlo.dot_general %f, %f, batching_dims = [0] x [0], contracting_dims = [1] x [1] : "
    "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2xf32>",
    "%0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = "
    "{stride = [1, 1], pad = [[0, 1], [0, 1]], rhs_dilate = [1, 1], reverse = [false, true]} "
    "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x4x2xf32>, tensor<2x2x2x3xf32>) "
    "-> tensor<1x4x4x3xf32>",
    "%0 = chlo.broadcast_add %f, %z : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>",
    "%0 = chlo.broadcast_multiply %f, %v {broadcast_dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<3xf32>) "
    "-> tensor<2x3xf32>",
    f"%0 = quant.qcast %f : tensor<2x3xf32> to tensor<2x3x{QUANTIZED}>",
    "%0 = tosa.const values(dense<13> : tensor<1xi8>) : () -> tensor<1xi8>",
    "%0 = arith.fptosi %f : tensor<2x3xf32> to tensor<2x3xi8>",
]  # fmt: skip
ARGUMENTS = (
    "%f: tensor<2x3xf32>, %g: tensor<3x2xf32>, %p: tensor<i1>, %z: tensor<f32>, %v: tensor<3xf32>, "
    "%x: tensor<1x4x4x2xf32>, %w: tensor<2x2x2x3xf32>"
)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split()[2])
def test_what_is_printed_is_what_was_written(line: str) -> None:
    text = f"builtin.module {{\n  func.func @main({ARGUMENTS}) {{\n    {line}\n    func.return\n  }}\n}}\n"
    assert read_module(text).write() == text


def test_a_reducer_of_its_own() -> None:
    text = """func.func @main(%x: tensor<2x3xf32>, %z: tensor<f32>) -> tensor<2xf32> {
      %0 = stablehlo.reduce(%x init: %z) across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
       reducer(%a: tensor<f32>, %b: tensor<f32>) {
        %1 = stablehlo.subtract %b, %a : tensor<f32>
        stablehlo.return %1 : tensor<f32>
      }
      return %0 : tensor<2xf32>
    }"""
    printed = read_module(text).write()
    assert "reducer(%a: tensor<f32>, %b: tensor<f32>) {" in printed
    assert read_module(printed).write() == printed


def test_aliases_and_both_places_of_attributes() -> None:
    text = """!q = !quant.uniform<u8:f32, 5.0e-1:3>
    func.func private @f(tensor<2x!q>, !quant<any<i8>>)
    func.func @g(%x: tensor<2xf32>) {
      %0 = "stablehlo.transpose"(%x) <{permutation = array<i64: 0>}> : (tensor<2xf32>) -> tensor<2xf32>
      %1 = "stablehlo.transpose"(%x) {permutation = array<i64: 0>} : (tensor<2xf32>) -> tensor<2xf32>
      return
    }"""
    printed = read_module(text).write()
    assert "tensor<2x!quant.uniform<u8:f32, 5.000000e-01:3>>, !quant.any<i8>" in printed
    assert printed.count("stablehlo.transpose %x, dims = [0] : ") == 2


BODY = "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {{\n  {}\n  return %x : tensor<2xf32>\n}}"


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("", 1, 1, "could not parse"),
        ("func.func @a() {", 1, 17, "block definition"),
        (BODY.format("%0 = stablehlo.foo %x : tensor<2xf32>"), 2, 3, "unknown operation stablehlo.foo"),
        (BODY.format('"scf.for"() : () -> ()'), 2, 3, "unknown operation scf.for"),
        (BODY.format("%0 = stablehlo.add %x, %y : tensor<2xf32>"), 2, 26, "%y is used but not defined"),
        (BODY.format("%0 = stablehlo.add %0, %x : tensor<2xf32>"), 2, 3, "before its definition"),
        (BODY.format("%0 = stablehlo.add %x, %x : tensor<2x!quant.uniform<i8:f32, 1>>"), 2, 63, "decimal point"),
        (BODY.format("%0 = quant.qcast %x : tensor<2xf32> to tensor<3x!quant.uniform<i8:f32, 1.0>>"), 2, 3, "shape"),
        (BODY.format("%0 = stablehlo.constant dense<1> : tensor<f32>"), 2, 33, "expected a f32"),
        (BODY.format("%0 = stablehlo.constant dense<1.0> : tensor<i8>"), 2, 33, "an integer"),
        (BODY.format('"stablehlo.compare"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xi1>'), 2, 3, "_direc"),
        (BODY.format('"stablehlo.add"() : () -> ()'), 2, 3, "expected 2 operands and 1 result, found 0 and 0"),
        (BODY.format("%0 = arith.constant " + "9" * 5000 + " : i8"), 2, 5024, "cannot be read"),
        ("func.func @f(%x: i8) -> i8 {}", 1, 1, "end with a return"),
        ("func.func @f() {return}\nfunc.func @f() {return}", 1, 1, 'Redefinition of symbol "f"'),
        ("func.func @f(i8)", 1, 1, "without a body must be private"),
        ("{" * 100, 1, 65, "nested more than 64 deep"),
        (BODY.format('"' + "a" * 1000), 2, 3, "an unterminated string"),
        (BODY.format('"' + "a" * 1000 + '\\q"'), 2, 3, "an invalid escape"),
        ("func.func @f() {\n \x00 }", 2, 2, "unexpected character"),
        ('func.func @f() { "func.return"() [^bb0] : () -> () ^bb0: return }', 1, 1, "branches"),
        (
            "func.func @f(%x: tensor<2x!quant.uniform<i8:f32, 1.0>>, %y: tensor<2x!quant.uniform<i8:f32, 1.0:300>>) {\n"
            "  %0 = stablehlo.add %x, %y : (tensor<2x!quant.uniform<i8:f32, 1.0>>, "
            "tensor<2x!quant.uniform<i8:f32, 1.0:300>>) -> tensor<2x!quant.uniform<i8:f32, 1.0>>\n  return\n}",
            2, 3, "zero point 300 is outside the storage bounds -128 to 127 (C7)",
        ),
    ],
)  # fmt: skip
def test_wrong_text_has_a_place(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(ModuleTextError) as caught:
        read_module(text)
    found = caught.value
    assert says in found.detail
    assert (found.line, found.column) == (line, column)
    assert len(found.detail) < 600
    shown, mark = found.caret.split("\n")
    character = text[found.offset : found.offset + 1]
    assert mark.strip() == "^"
    assert not character.isprintable() or character == "\n" or shown[len(mark) - 1 : len(mark)] == character


def test_messages_quote_little_of_the_text() -> None:
    size = "9" * 1000
    text = f"func.func @f(%x: tensor<2xf32>) {{\n  %0 = stablehlo.add %x, %x : tensor<{size}xf32>\n  return\n}}"
    with pytest.raises(ModuleTextError, match="operand is used with type") as caught:
        read_module(text)
    assert size[:160] not in caught.value.detail


def test_limits() -> None:
    ten = "func.func @f(%x: tensor<2xf32>) {" + "stablehlo.add %x, %x : tensor<2xf32>\n" * 8 + "return }"
    read_module(ten, ModuleLimits(operations=10))
    with pytest.raises(LimitError, match="more than 9 operations"):
        read_module(ten, ModuleLimits(operations=9))
    with pytest.raises(LimitError, match="characters, and may have 100"):
        read_module(ten, ModuleLimits(characters=100))
    constant = "func.func @f() { %c = stablehlo.constant dense<1> : tensor<99999999x99999999xi8> return }"
    with pytest.raises(LimitError, match="constants have more than 1048576 elements"):
        read_module(constant)


def test_reading_and_lowering_can_be_cancelled() -> None:
    def cancel() -> None:
        raise DeadlineError("over", limit=1)

    many = "func.func @f(%x: tensor<2xf32>) {" + "stablehlo.add %x, %x : tensor<2xf32>\n" * 100 + "return }"
    module = read_module(many)
    token = cancellation_check.set(cancel)
    try:
        with pytest.raises(DeadlineError):
            read_module(many)
        with pytest.raises(DeadlineError):
            module.check_size()
    finally:
        cancellation_check.reset(token)


@pytest.mark.parametrize("sign", ["!", "#"])
@pytest.mark.parametrize("limits", [ModuleLimits(), NO_LIMITS.module], ids=["limits", "no limits"])
def test_aliases_that_double(sign: str, limits: ModuleLimits) -> None:
    first, twice = ("tuple<i8>", "tuple<{0}, {0}>") if sign == "!" else ("[1]", "[{0}, {0}]")
    lines = [f"{sign}a0 = {first}"]
    lines += [f"{sign}a{index + 1} = {twice.format(f'{sign}a{index}')}" for index in range(40)]
    used = "(!a40)" if sign == "!" else "() attributes {x = #a40}"
    with pytest.raises(LimitError, match="with its aliases written out"):
        read_module("\n".join([*lines, f"func.func private @f{used}"]), limits)
