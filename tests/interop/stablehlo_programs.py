"""Random StableHLO functions with quantized types, for upstream's passes and ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

STORAGES = ("i8", "i8<-100:101>", "i4", "i16", "i32", "ui8", "u8")
ELEMENTWISE = ("subtract", "multiply", "divide", "power", "atan2", "remainder", "maximum", "minimum")
UNARY = ("abs", "negate", "tanh", "logistic", "exponential", "floor", "cosine", "sign", "round_nearest_even", "cbrt")


def per_tensor(random: Random, storage: str, *, zero: bool = False) -> str:
    zero_point = 0 if zero else random.choice((0, 0, 1, 2, 5, 7))
    scale = random.choice((1.0, 2.0, 3.0, 0.5, 0.025, 0.075, round(random.uniform(0.01, 4.0), 5)))
    return f"!quant.uniform<{storage}:f32, {scale}:{zero_point}>"


def per_axis(random: Random, storage: str, axis: int, count: int, *, like: float = 0.0) -> str:
    """Return a per-axis type. With `like`, scales of a fixed ratio to 1, 2, 3..., as convolutions need them."""
    scales = [f"{like * (index + 1)}" if like else f"{random.uniform(0.1, 3.0):.5f}" for index in range(count)]
    points = [0 if like else random.choice((0, 0, 3)) for _ in scales]
    listed = ", ".join(f"{scale}:{point}" for scale, point in zip(scales, points, strict=True))
    return f"!quant.uniform<{storage}:f32:{axis}, {{{listed}}}>"


def function(name: str, arguments: list[str], lines: list[str], result: str) -> str:
    given = ", ".join(f"%a{index}: {type_}" for index, type_ in enumerate(arguments))
    return f"func.func @{name}({given}) -> {result} {{\n  " + "\n  ".join(lines) + f"\n  return %r : {result}\n}}"


def elementwise(random: Random, name: str, *, dynamic: bool = True) -> str:
    storage, shape = random.choice(STORAGES), random.choice(("2x3", "?x3", "3", "2x?"))
    shape = shape if dynamic or "?" not in shape else "2x3"
    types = [f"tensor<{shape}x{per_tensor(random, storage)}>" for _ in range(3)]
    if random.random() < 0.2:
        types = [types[0]] * 3
    kind = random.choice(("add", "add", "binary", "unary", "compare", "clamp", "choose", "quantize", "requantize"))
    axis = shape.count("x")
    channel = f"tensor<{shape}x{per_axis(random, storage, axis, 3)}>"
    if shape.endswith("?") and storage == "i32":
        # Upstream fails to add such tensors along a dynamic axis; we do not.
        channel = types[2]
    real = f"tensor<{shape}xf32>"
    if kind in ("add", "binary"):
        op = "add" if kind == "add" else random.choice(ELEMENTWISE)
        if op == "add" and random.random() < 0.15:
            types = [channel] * 3
        line = f"%r = stablehlo.{op} %a0, %a1 : ({types[0]}, {types[1]}) -> {types[2]}"
        return function(name, types[:2], [line], types[2])
    if kind == "unary":
        line = f"%r = stablehlo.{random.choice(UNARY)} %a0 : ({types[0]}) -> {types[1]}"
        return function(name, types[:1], [line], types[1])
    if kind == "compare":
        direction = random.choice(("LT", "GE", "EQ"))
        line = f"%r = stablehlo.compare {direction}, %a0, %a1 : ({types[0]}, {types[1]}) -> tensor<{shape}xi1>"
        return function(name, types[:2], [line], f"tensor<{shape}xi1>")
    if kind == "clamp":
        lines = [f"%r = stablehlo.clamp %a0, %a1, %a2 : {types[0]}"]
        return function(name, [types[0]] * 3, lines, types[0])
    if kind == "choose":
        lines = [f"%r = stablehlo.select %a0, %a1, %a1 : tensor<{shape}xi1>, {types[0]}"]
        return function(name, [f"tensor<{shape}xi1>", types[0]], lines, types[0])
    if kind == "quantize":
        target = random.choice((types[0], channel))
        lines = [
            f"%q = stablehlo.uniform_quantize %a0 : ({real}) -> {target}",
            f"%r = stablehlo.uniform_dequantize %q : ({target}) -> {real}",
        ]
        return function(name, [real], lines, real)
    pairs = ((types[0], types[1]), (types[0], types[0]), (channel, types[0]), (types[0], channel))
    source, target = random.choice(pairs)
    return function(name, [source], [f"%r = stablehlo.uniform_quantize %a0 : ({source}) -> {target}"], target)


def product(random: Random, name: str, *, dynamic: bool = True) -> str:
    storage, hybrid, channels = random.choice(("i8", "i8", "i4", "ui8")), random.random() < 0.2, random.random() < 0.3
    rows, depth, columns = (random.choice((str(size), "?" if dynamic else str(size))) for size in (2, 3, 4))
    if channels:
        columns = "4"
    batch = random.choice(("", "", "5x")) if not channels else ""
    axis = 2 if batch else 1
    left = "f32" if hybrid else per_tensor(random, storage)
    plain = not batch and random.random() < 0.4
    right = per_axis(random, storage, axis, 4, like=0.5) if channels else per_tensor(random, storage, zero=not plain)
    result = (
        "f32" if hybrid else per_axis(random, storage, axis, 4, like=1.5) if channels else per_tensor(random, storage)
    )
    types = [f"tensor<{batch}{rows}x{depth}x{left}>", f"tensor<{batch}{depth}x{columns}x{right}>"]
    target = f"tensor<{batch}{rows}x{columns}x{result}>"
    if plain:
        line = f"%r = stablehlo.dot %a0, %a1 : ({types[0]}, {types[1]}) -> {target}"
    else:
        dims = "batching_dims = [0] x [0], contracting_dims = [2] x [1]" if batch else "contracting_dims = [1] x [0]"
        line = f"%r = stablehlo.dot_general %a0, %a1, {dims} : ({types[0]}, {types[1]}) -> {target}"
    return function(name, types, [line], target)


def convolution(random: Random, name: str, *, dynamic: bool = True) -> str:
    storage, channels = "i8", random.random() < 0.4
    first_last = channels or random.random() < 0.6
    left, padding = per_tensor(random, storage), random.choice((0, 0, 1))
    right = (
        per_axis(random, storage, 3, 3, like=0.5)
        if channels
        else per_tensor(random, storage, zero=random.random() < 0.8)
    )
    result = per_axis(random, storage, 3, 3, like=0.25) if channels else per_tensor(random, storage)
    size = 3 + 2 * padding
    if first_last:
        shapes = ("1x4x4x2", "2x2x2x3", f"1x{size}x{size}x3")
        numbers = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
    else:
        shapes = ("1x2x4x4", "3x2x2x2", f"1x3x{size}x{size}")
        numbers = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
    types = [f"tensor<{shape}x{element}>" for shape, element in zip(shapes, (left, right, result), strict=True)]
    pad = f"pad = [[{padding}, {padding}], [{padding}, {padding}]], " if padding else ""
    groups = "batch_group_count = 1 : i64, feature_group_count = 1 : i64"
    window = f"{{stride = [1, 1], {pad}rhs_dilate = [1, 1]}} {{{groups}}}"
    signature = f"({types[0]}, {types[1]}) -> {types[2]}"
    line = f"%r = stablehlo.convolution(%a0, %a1) dim_numbers = {numbers}, window = {window} : {signature}"
    return function(name, types[:2], [line], types[2])


# Storage, expressed type and granularity are chosen independently for each operand and result: StableHLO's verifier
# takes some of these and refuses the others.
_MIXED_STORAGES = ("i8", "i8", "i8", "i8", "i4", "i8<-127:127>", "ui8", "i16", "i32", "u8")
_MIXED_EXPRESSED = ("f32",) * 9 + ("bf16", "f16", "f64")


def _mixed(random: Random, like: str, axis: int, count: int, real: bool) -> str:
    """Return an element type of a product: float, per tensor or per axis, of the storage `like` or another."""
    storage = like if random.random() < 0.75 else random.choice(_MIXED_STORAGES)
    expressed = random.choice(_MIXED_EXPRESSED)
    if real:
        return expressed
    kind = random.random()
    if kind < 0.5:
        return per_tensor(random, storage, zero=random.random() < 0.6).replace(":f32", f":{expressed}")
    if random.random() < 0.1:
        axis, count = random.randint(0, 4), random.choice((count, 2, 3))
    like_ratio = random.choice((0.0, 0.5, 1.5))
    return per_axis(random, storage, axis, count, like=like_ratio).replace(":f32:", f":{expressed}:")


def mixed_product(random: Random, name: str) -> str:
    """Return dot or dot_general of any mixture of per-tensor, per-axis and float operands."""
    storage, real = random.choice(_MIXED_STORAGES), random.choice(("", "", "", "", "l-t", "l-t", "--t", "-r-", "l--"))
    batch = random.choice(("", "", "5x"))
    axis = 2 if batch else 1
    left = _mixed(random, storage, axis, 3, "l" in real) if random.random() < 0.1 else (
        random.choice(_MIXED_EXPRESSED) if "l" in real else per_tensor(random, storage)
    )  # fmt: skip
    right = _mixed(random, storage, axis, 4, "r" in real)
    wide = random.choice((storage, storage, storage, "i32"))
    result = _mixed(random, wide, axis, 4, "t" in real)
    dynamic = random.choice(("2", "2", "?")), random.choice(("3", "3", "?"))
    types = [f"tensor<{batch}{dynamic[0]}x{dynamic[1]}x{left}>", f"tensor<{batch}{dynamic[1]}x4x{right}>"]
    target = f"tensor<{batch}{dynamic[0]}x4x{result}>"
    if not batch and random.random() < 0.4:
        line = f"%r = stablehlo.dot %a0, %a1 : ({types[0]}, {types[1]}) -> {target}"
    else:
        dims = "batching_dims = [0] x [0], contracting_dims = [2] x [1]" if batch else "contracting_dims = [1] x [0]"
        line = f"%r = stablehlo.dot_general %a0, %a1, {dims} : ({types[0]}, {types[1]}) -> {target}"
    return function(name, types, [line], target)


def mixed_convolution(random: Random, name: str) -> str:
    """Return a convolution of any mixture of per-tensor, per-axis and float operands, in several layouts."""
    storage, real = random.choice(_MIXED_STORAGES), random.choice(("", "", "", "", "l-t", "l-t", "--t", "-r-", "l--"))
    last = random.random() < 0.6
    output, kernel = (3, 3) if last else (1, 0)
    left = random.choice(_MIXED_EXPRESSED) if "l" in real else per_tensor(random, storage)
    right = _mixed(random, storage, kernel, 3, "r" in real)
    result = _mixed(random, random.choice((storage, storage, storage, "i32")), output, 3, "t" in real)
    padding, dilation = random.choice((0, 0, 0, 1)), random.choice((1, 1, 1, 2))
    size = 4 + (3 if dilation == 2 else 0) + 2 * padding - 1
    if last:
        shapes = ("1x4x4x2", "2x2x2x3", f"1x{size}x{size}x3")
        numbers = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
    else:
        shapes = ("1x2x4x4", "3x2x2x2", f"1x3x{size}x{size}")
        numbers = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
    types = [f"tensor<{shape}x{element}>" for shape, element in zip(shapes, (left, right, result), strict=True)]
    pads = f"pad = [[{padding}, {padding}], [{padding}, {padding}]], " if padding else ""
    dilated = f"lhs_dilate = [{dilation}, {dilation}], " if dilation > 1 else ""
    groups = "batch_group_count = 1 : i64, feature_group_count = 1 : i64"
    window = f"{{stride = [1, 1], {pads}{dilated}rhs_dilate = [1, 1]}} {{{groups}}}"
    signature = f"({types[0]}, {types[1]}) -> {types[2]}"
    line = f"%r = stablehlo.convolution(%a0, %a1) dim_numbers = {numbers}, window = {window} : {signature}"
    return function(name, types[:2], [line], types[2])


def chain(random: Random, name: str, *, dynamic: bool = True) -> str:
    """Return dequantize, operations and quantize, of which some make one quantized operation."""
    storage = random.choice(("i8", "ui8", "i16"))
    types = [f"tensor<2x3x{per_tensor(random, storage)}>" for _ in range(3)]
    real = "tensor<2x3xf32>"
    lines = [f"%{index} = stablehlo.uniform_dequantize %a{index} : ({types[index]}) -> {real}" for index in range(2)]
    last, count = "%0", random.choice((1, 1, 2))
    for index in range(count):
        op = random.choice((*ELEMENTWISE, *UNARY))
        operands = f"{last}, %1" if op in ELEMENTWISE else last
        lines.append(f"%c{index} = stablehlo.{op} {operands} : {real}")
        last = f"%c{index}"
        if random.random() < 0.3:
            lines.append(f"%q{index} = stablehlo.uniform_quantize {last} : ({real}) -> {types[2]}")
            lines.append(f"%d{index} = stablehlo.uniform_dequantize %q{index} : ({types[2]}) -> {real}")
            last = f"%d{index}"
    lines.append(f"%r = stablehlo.uniform_quantize {last} : ({real}) -> {types[2]}")
    return function(name, types[:2], lines, types[2])


_SIGNATURE = re.compile(r"func\.func @(\w+)\((.*)\) -> (.*) \{")
_SHAPE = re.compile(r"tensor<((?:[0-9?]+x)*)(.*)>")
# The sizes behind `?`: of each operand of a product from the last dimension on, and of all other operands.
_PRODUCT, _OTHER = ((5, 2, 3), (5, 3, 4)), (2, 3)


@dataclass(frozen=True)
class Argument:
    """An argument as it goes in: integers or floats that numpy has, and what the function has in their place."""

    element: str
    shape: tuple[int, ...]
    type: str

    @property
    def storage(self) -> str | None:
        return self.type.partition("uniform<")[2].partition(":f32")[0].partition("<")[0] or None


def carrier(element: str) -> str:
    """How elements go in and out: integers that numpy does not have in the next wider one."""
    found = re.search(r"uniform<(u?i?)(\d+)", element)
    if found is None:
        return "i8" if element == "i1" else element
    return f"{'ui' if found[1] == 'ui' else 'i'}{max(8, int(found[2]))}"


def carried(text: str) -> tuple[str, list[Argument], str]:
    """Return a function between plain numbers around what a function does with quantized ones.

    With it come its arguments, and the element type of its result.
    """
    found = _SIGNATURE.match(text)
    assert found is not None
    name, listed, result = found.groups()
    types = [each.split(": ", 1)[1] for each in re.split(r", (?=%a)", listed)]
    body = text[found.end() : text.rindex("return %r")]
    lines, arguments, given = [], [], []
    for index, type_ in enumerate(types):
        shape, element = _parts(type_)
        inside = carrier(element)
        sizes = _sizes(shape, index if "stablehlo.dot" in body else None)
        arguments.append(Argument(inside, sizes, element))
        outer = f"tensor<{shape}{inside}>"
        given.append(f"%x{index}: {outer}")
        lines += _converted(f"%x{index}", f"%a{index}", outer, shape, element, into=True)
    shape, element = _parts(result)
    outer = f"tensor<{shape}{carrier(element)}>"
    ending = _converted("%r", "%out", outer, shape, element, into=False)
    whole = "\n  ".join([*lines, *body.strip().splitlines(), *ending, f"return %out : {outer}"])
    return f"func.func @{name}({', '.join(given)}) -> {outer} {{\n  {whole}\n}}", arguments, carrier(element)


def _parts(type_: str) -> tuple[str, str]:
    found = _SHAPE.fullmatch(type_)
    assert found is not None
    return found[1], found[2]


def _sizes(shape: str, operand: int | None) -> tuple[int, ...]:
    known = shape.split("x")[:-1]
    sizes = _OTHER if operand is None else _PRODUCT[operand]
    behind = (0,) * (len(known) - len(sizes)) + sizes[max(0, len(sizes) - len(known)) :]
    return tuple(size if each == "?" else int(each) for each, size in zip(known, behind, strict=True))


def _converted(source: str, target: str, outer: str, shape: str, element: str, *, into: bool) -> list[str]:
    """The lines from plain numbers to an element type, or back."""
    here = f"tensor<{shape}{element}>"
    if not element.startswith("!quant"):
        types = (outer, here) if into else (here, outer)
        return [f"{target} = stablehlo.convert {source} : ({types[0]}) -> {types[1]}"]
    width = element.partition("uniform<")[2].partition(":f32")[0].partition("<")[0]
    stored = f"tensor<{shape}{width if width.startswith('ui') else width.replace('u', 'i')}>"
    if into:
        return [
            f"{target}_stored = stablehlo.convert {source} : ({outer}) -> {stored}",
            f"{target} = stablehlo.bitcast_convert {target}_stored : ({stored}) -> {here}",
        ]
    return [
        f"{target}_stored = stablehlo.bitcast_convert {source} : ({here}) -> {stored}",
        f"{target} = stablehlo.convert {target}_stored : ({stored}) -> {outer}",
    ]
