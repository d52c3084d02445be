"""Random StableHLO functions with quantized types, for upstream's passes and ours."""

from __future__ import annotations

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


def elementwise(random: Random, name: str) -> str:
    storage, shape = random.choice(STORAGES), random.choice(("2x3", "?x3", "3", "2x?"))
    types = [f"tensor<{shape}x{per_tensor(random, storage)}>" for _ in range(3)]
    if random.random() < 0.2:
        types = [types[0]] * 3
    kind = random.choice(("add", "add", "binary", "unary", "compare", "clamp", "choose", "quantize", "requantize"))
    axis = shape.count("x")
    channel = f"tensor<{shape}x{per_axis(random, storage, axis, 3)}>" if shape.endswith("3") else types[2]
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


def product(random: Random, name: str) -> str:
    storage, hybrid, channels = random.choice(("i8", "i8", "i4", "ui8")), random.random() < 0.2, random.random() < 0.3
    rows, depth, columns = (random.choice((str(size), "?")) for size in (2, 3, 4))
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


def convolution(random: Random, name: str) -> str:
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


def chain(random: Random, name: str) -> str:
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
