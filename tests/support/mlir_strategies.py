"""Texts of the type language, right and wrong, made from a seeded generator.

`type_text(random.Random(seed))` makes a text that is a type in all but rare cases (a random scale may lie outside the
range of a random expressed type), `mutated` spoils a text a little. `type_texts` and `mutated_texts` are the same for
Hypothesis. Nothing here knows the parser: whether a text is a type is for the parser, or for MLIR, to say.
"""

from __future__ import annotations

import struct
from random import Random

from hypothesis import strategies as st

FLOAT_TYPES = [
    "f16", "bf16", "tf32", "f32", "f64", "f80", "f128", "f8E5M2", "f8E4M3", "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ",
    "f8E4M3B11FNUZ", "f8E3M4", "f8E8M0FNU", "f6E2M3FN", "f6E3M2FN", "f4E2M1FN",
]  # fmt: skip
FLOAT_STORAGES = ["f8E4M3FN", "f8E5M2", "f4E2M1FN"]
BLOCK_VALUES = ["f8E4M3FN", "f8E5M2", "f6E2M3FN", "f6E3M2FN", "f4E2M1FN", "!tosa.mxint8"]
_PLAIN_SCALES = ["1.0", "0.5", "2.0", "1.5", "0.998", "0.1", "3.0", "1.25", "2.", "4.0e-1", "1.0e0", "5.E-1", "01.0"]
_PIECES = [
    *"<>{}:,-()[]+.x?*! 017e_$;#\t\né\"", "->", "//", "0x", "1.0", "true", "false", "nan", "i8", "u8", "ui4",
    "f32", "quant", "!quant.any<i8>", "tensor", "tuple<", "-0", "9223372036854775808", "2147483648",
    "0x7FF8000000000000", "1.0e400",
]  # fmt: skip


def type_text(random: Random) -> str:
    """Return the text of one type of any kind."""
    kind = random.random()
    if kind < 0.5:
        return quantized_text(random)
    if kind < 0.55:
        return block_scaled_text(random)
    if kind < 0.9:
        return _tensor(random)
    if kind < 0.95:
        return _tuple(random, depth=0)
    return _builtin(random)


def quantized_text(random: Random) -> str:
    """Return the text of one type of the quant dialect."""
    name, fields = random.choices(
        [("any", _any), ("uniform", _per_tensor), ("uniform", _per_axis), ("uniform", _sub_channel),
         ("calibrated", _calibrated), ("quantile", _quantile)],
        [1, 4, 3, 4, 1, 2],
    )[0]  # fmt: skip
    body = _spaced(random, [name, "<", *fields(random), ">"])
    return f"!quant<{body}>" if random.random() < 0.05 else f"!quant.{body.replace(' ', '', body.index('<'))}"


def block_scaled_text(random: Random) -> str:
    """Return the text of one of TOSA's block-scaled types, with or without scales."""
    fields = ["BLOCK_SHAPE_32", ":", "f8E8M0FNU", ":", random.choice(BLOCK_VALUES)]
    if random.random() < 0.6:
        scales = [_float(random) for _ in range(random.choice([1, 1, 2, 3, 20]))]
        fields += [",", "{", *[piece for scale in scales for piece in (scale, ",")][:-1], "}"]
    body = _spaced(random, ["block_scaled", "<", *fields, ">"])
    return f"!tosa<{body}>" if random.random() < 0.05 else f"!tosa.{body.replace(' ', '', body.index('<'))}"


def mutated(random: Random, text: str) -> str:
    """Return `text` with one to three small changes: characters deleted, doubled, swapped, replaced or put in."""
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice([1, 1, 1, 2, 5]))
        piece = random.choice(_PIECES)
        text = random.choice(
            [
                text[:start] + text[end:],
                text[:start] + piece + text[start:],
                text[:start] + piece + text[end:],
                text[:start] + text[start:end] * 2 + text[end:],
                text[:start] + text[start:end][::-1] + text[end:],
            ]
        )
    return text


def cast_operands(random: Random, operation: str) -> tuple[str, str]:
    """Return the texts of an operand and a result for `quant.qcast`, `dcast` or `scast`, often ones that it takes."""
    expressed, width = random.choice(["f32", "f32", "f16"]), random.choice([8, 8, 4])
    storage = random.choice(["i", "i", "u", "u", "ui", "si"]) + str(width)
    blocks = {random.randint(0, 2): random.choice([1, 2, 3]) for _ in range(random.randint(0, 3))}
    sizes = [random.randint(1, 3) for _ in range(random.randint(1, 3))]
    block_list = ",".join(f"{axis}:{size}" for axis, size in blocks.items())
    scales = ",".join(["1.0"] * sizes[0])
    for size in sizes[1:]:
        scales = ",".join([f"{{{scales}}}"] * size)
    quantized = random.choice(
        [
            f"!quant.uniform<{storage}:{expressed}, 1.0>",
            f"!quant.uniform<{storage}:{expressed}:{random.randint(0, 2)}, {{{','.join(['1.0'] * sizes[0])}}}>",
            *[f"!quant.uniform<{storage}:{expressed}:{{{block_list}}}, {{{scales}}}>"] * 3,
            f"!quant.any<{storage}:{expressed}>",
            random.choice([f"!quant.any<{storage}>", f"!quant.calibrated<{expressed}<0.0:1.0>>", "i8"]),
            f"!quant.uniform<f8E5M2:{expressed}, 1.0>",
        ]
    )
    other = f"i{width}" if operation == "quant.scast" else expressed
    if random.random() < 0.1:
        other = random.choice(["f32", "f16", "i8", "i4", "ui8", "index"])
    shape = [str(size * blocks.get(axis, 1)) for axis, size in enumerate(reversed(sizes))]
    if random.random() < 0.6:
        shape = [random.choice(["?", "0", "1", "4", dimension]) for dimension in shape]
    shapes = [random.choice([*[shape] * 8, shape[1:], [*shape, "2"], ["*"]])] * 2
    if random.random() < 0.1:
        shapes[1] = ["2", "?"]
    sides = [f"tensor<{''.join(f'{dimension}x' for dimension in shapes[0])}{other}>",
             f"tensor<{''.join(f'{dimension}x' for dimension in shapes[1])}{quantized}>"]  # fmt: skip
    if random.random() < 0.2:
        sides = [random.choice([other, sides[0]]), quantized]
    if operation == "quant.dcast" or (operation == "quant.scast" and random.random() < 0.5):
        sides.reverse()
    return sides[0], sides[1]


type_texts = st.randoms(use_true_random=False).map(type_text)
quantized_texts = st.randoms(use_true_random=False).map(quantized_text)
mutated_texts = st.randoms(use_true_random=False).map(lambda random: mutated(random, type_text(random)))


def _spaced(random: Random, tokens: list[str]) -> str:
    """Join tokens, in one text of five with blanks, line ends and comments between them."""
    if random.random() < 0.8:
        return "".join(tokens)
    gaps = random.choices(
        ["", " ", "\n", "\t", " \r\n ", " // {1.0 : 2}\n", "//\n"], [20, 8, 1, 1, 1, 1, 1], k=len(tokens)
    )
    gaps[0] = gaps[-1] = ""
    return "".join(token + gap for token, gap in zip(tokens, gaps, strict=True))


def _integer(random: Random, low: int, high: int) -> list[str]:
    value = random.choice([low, high, 0, random.randint(low, high), random.randint(max(low, -9), min(high, 9) or high)])
    sign = ["-"] if value < 0 or random.random() < 0.01 else []
    style = random.random()
    magnitude = f"0x{abs(value):X}" if style < 0.05 else f"0{abs(value)}" if style < 0.08 else str(abs(value))
    return [*sign, magnitude]


def _bits(value: float) -> str:
    return f"0x{int.from_bytes(struct.pack('>d', value)):X}"


def _float(random: Random) -> str:
    """Return a positive float of any size, in any spelling."""
    choice = random.random()
    if choice < 0.5:
        return random.choice(_PLAIN_SCALES)
    if choice < 0.75:
        return f"{random.uniform(0.0, 4.0):.{random.randint(1, 20)}f}"
    if choice < 0.85:
        return f"{random.uniform(1.0, 10.0):.{random.randint(1, 17)}f}{random.choice('eE')}{random.randint(-50, 40):+d}"
    if choice < 0.9:
        return f"{random.randint(1, 10 ** random.randint(1, 12))}.{random.choice(['', '0', '5'])}"
    if choice < 0.95:
        return _bits(random.choice([random.uniform(0.0, 4.0), 2.0 ** random.randint(-40, 40), 1.0 + 2.0**-52]))
    bits = random.getrandbits(64) if random.random() < 0.5 else random.getrandbits(63)
    return random.choice([f"0x{bits:X}", f"0x{bits:016x}", "0x7FF8000000000000", "0x7FF0000000000000", "0.0"])


def _scale(random: Random, expressed: str) -> str:
    """Return a float, mostly one that a small format can hold too."""
    if expressed.startswith(("f4", "f6", "f8")) and random.random() < 0.8:
        return f"{random.uniform(0.5, 6.0):.{random.randint(1, 10)}f}"
    return _float(random)


def _expressed(random: Random) -> str:
    return random.choice(FLOAT_TYPES) if random.random() < 0.5 else "f32"


def _integer_storage(random: Random) -> tuple[str, int, int, int]:
    """Return a storage name, its width and its default bounds."""
    prefix = random.choice(["i", "u", "i", "u", "si", "ui"])
    width = random.choice([8, 8, 8, 4, 16, 32, random.randint(1, 32)])
    low, high = (0, (1 << width) - 1) if "u" in prefix else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
    zero = "0" if random.random() < 0.03 else ""
    return f"{prefix}{zero}{width}", width, low, high


def _bounds(random: Random, low: int, high: int) -> list[str]:
    return ["<", *_integer(random, low, high), ":", *_integer(random, low, high), ">"]


def _storage(random: Random) -> tuple[list[str], int, int]:
    """Return the tokens of a storage, and its default bounds."""
    choice = random.random()
    if choice < 0.1:
        name = random.choice(FLOAT_STORAGES)
        high = {"f8E4M3FN": 448, "f8E5M2": 57344, "f4E2M1FN": 6}[name]
        low, tokens = -high, [name]
    elif choice < 0.2:
        low, high = -2, 3
        tokens = ["!quant.quantile<", *_quantile(random), ">"]
    else:
        name, _, low, high = _integer_storage(random)
        tokens = [name]
    return tokens + (_bounds(random, low, high) if random.random() < 0.3 else []), low, high


def _parameter(random: Random, expressed: str, low: int, high: int) -> list[str]:
    scale = [_scale(random, expressed)]
    if random.random() < 0.4:
        return scale
    if random.random() < 0.05:
        low, high = -(1 << 63), (1 << 63) - 1
    return [*scale, ":", *_integer(random, low, high)]


def _separated(items: list[list[str]]) -> list[str]:
    return [token for item in items for token in [",", *item]][1:]


def _any(random: Random) -> list[str]:
    storage, _, _ = _storage(random)
    return storage + ([":", _expressed(random)] if random.random() < 0.5 else [])


def _per_tensor(random: Random) -> list[str]:
    storage, low, high = _storage(random)
    expressed = _expressed(random)
    return [*storage, ":", expressed, ",", *_parameter(random, expressed, low, high)]


def _per_axis(random: Random) -> list[str]:
    storage, low, high = _storage(random)
    expressed = _expressed(random)
    parameters = [_parameter(random, expressed, low, high) for _ in range(random.randint(1, 5))]
    tokens = ["{", *_separated(parameters), "}"]
    if random.random() < 0.1:
        tokens = ["{", *tokens, "}"]
    return [*storage, ":", expressed, ":", *_integer(random, 0, 3), ",", *tokens]


def _sub_channel(random: Random) -> list[str]:
    name, width, low, high = _integer_storage(random)
    storage = [name] + (_bounds(random, low, high) if random.random() < 0.2 else [])
    expressed = _expressed(random)
    blocks = [[*_integer(random, 0, 3), ":", *_integer(random, 1, 64)] for _ in range(random.randint(0, 3))]
    if low == 0 and random.random() < 0.2:
        low = -(1 << (width - 1))

    def nested(sizes: list[int]) -> list[str]:
        if not sizes:
            return _parameter(random, expressed, low, high)
        return ["{", *_separated([nested(sizes[1:]) for _ in range(sizes[0])]), "}"]

    sizes = [random.randint(1, 3) for _ in range(random.randint(1, 3))]
    return [*storage, ":", expressed, ":", "{", *_separated(blocks), "}", ",", *nested(sizes)]


def _calibrated(random: Random) -> list[str]:
    low, high = (["-"] if random.random() < 0.7 else []), _float(random)
    return [_expressed(random), "<", *low, _float(random), ":", high, ">"]


def _quantile(random: Random) -> list[str]:
    storage = random.choice(["i1", "i2", "si1", "si2", "ui1", "ui2", "i8", "ui8", "f8E4M3FN", "f4E2M1FN", "f16", "i40"])
    value = random.choice([*FLOAT_TYPES, "i8", "ui8", "si4"])
    size = 2 if storage.endswith("1") else 4
    bounds: list[str] = []
    if (size == 4 and not storage.endswith("i2")) or random.random() < 0.2:
        low = random.randint(-3, 3)
        bounds = [",", "<", *(["-"] if low < 0 else []), str(abs(low)), ":", *(["-"] if low + size <= 0 else []),
                  str(abs(low + size - 1)), ">"]  # fmt: skip
    signs = [["-"] if random.random() < 0.4 else [] for _ in range(size)]
    entries = _separated([[*sign, _float(random)] for sign in signs])
    return [storage, ":", value, ",", "{", *entries, "}", *bounds]


def _builtin(random: Random) -> str:
    integer = f"{random.choice(['i', 'si', 'ui'])}{random.choice(['8', '1', '32', '64', '04', '0', '16777215', '128'])}"
    return random.choice([*FLOAT_TYPES, "index", integer, integer, integer, integer])


def _tensor(random: Random) -> str:
    element = random.choices([quantized_text, block_scaled_text, _builtin], [16, 1, 4])[0](random)
    if random.random() < 0.1:
        return f"tensor<*{random.choice(['x', ' x '])}{element}>"
    dimensions = [
        random.choice(["?", "0", "1", "02", str(random.randint(1, 99)), "4"]) for _ in range(random.randint(0, 4))
    ]
    blank = random.choice(["", "", "", "", " "])
    shape = "".join(f"{dimension}{blank}x{blank}" for dimension in dimensions)
    encoding = random.choice(["", "", "", "", "", "", ', "row"', ",", ' , "a b" ', ', "<->"'])
    return f"tensor<{shape}{element}{encoding}>"


def _tuple(random: Random, depth: int) -> str:
    members = [
        _tuple(random, depth + 1) if depth < 3 and random.random() < 0.2 else random.choice([_tensor, _builtin])(random)
        for _ in range(random.randint(0, 3))
    ]
    return f"tuple<{', '.join(members)}>"
