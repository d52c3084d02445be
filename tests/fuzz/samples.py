"""JSON values out of nothing: numbers at the edges, texts, tensors. All come from the `Random` that they are given."""

from __future__ import annotations

import base64
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from tests.requests.document import TEXTS, TYPE_TEXTS
from tests.requests.inference import datatype_of
from tests.support.mlir_strategies import mutated, type_text
from tests.support.oip_wire import DTYPES

# A number in the spelling that is sent: what Python would write otherwise, or not at all.
SPELLED = "\ue000"
SPELLINGS = [
    "-0", "0e0", "1E+2", "1e400", "-1e400", "1e-400", "0.1e-320", "NaN", "Infinity", "-Infinity", "1.0", "5e-1",
    "9" * 400, "0." + "1" * 400, "01", "1.", ".5", "+1", "0x10", "1_000", "18446744073709551616", "1e309",
]  # fmt: skip
_INTEGERS = [
    0, 1, -1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, -128, -129, 255, 256, 1000, 4096, 4097,
    32767, 65535, 65536, 1 << 24, (1 << 24) + 1, 1 << 30, (1 << 31) - 1, 1 << 31, -(1 << 31), -(1 << 31) - 1,
    (1 << 32) - 1, 1 << 32, 1 << 53, (1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1, (1 << 64) - 1, 1 << 64, 10**30,
]  # fmt: skip
_FLOATS = [
    0.0, -0.0, 0.5, -0.5, 1.0, 1.5, 2.5, 0.1, -2.5, 1e-45, 1.4e-45, 1.1754943508222875e-38, 1e-38, 5e-324, 1e-10, 1e10,
    65504.0, 65520.0, 448.0, 464.0, 16777217.0, 2147483648.0, -2147483648.5, 9.2e18, 1.8e19, 3.4028234663852886e38,
    3.4028235677973366e38, 1e39, -1e39, 1.7976931348623157e308, 0.99999994, 1.00000012,
]  # fmt: skip
_WORDS = ["NaN", "Infinity", "-Infinity", "", "null", "0", "1", "-1", "1.0", "1e400", "true", "None", "[]", "[[]]",
          "{}", "é", "\u0000", "\ud800", "\U0001f600", "%s%n", "a" * 100, "q" * 5000, " ", "../../x"]  # fmt: skip
ELEMENTS = [
    "f32", "f32", "f32", "f16", "bf16", "f64", "i8", "ui8", "si8", "i4", "ui4", "i1", "i16", "ui16", "i32", "ui32",
    "i64", "ui64", "i2", "i3", "i7", "i24", "f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E8M0FNU", "f4E2M1FN", "f6E2M3FN",
    "tf32", "index", "i128", "u8", "i0",
]  # fmt: skip


def integer(random: Random) -> int:
    if random.random() < 0.7:
        return random.choice(_INTEGERS) + random.choice([0, 0, 0, 1, -1])
    return random.randint(-20, 20)


def real(random: Random) -> float:
    match random.randrange(4):
        case 0:
            return random.choice(_FLOATS) * random.choice([1, 1, 1, -1, 2.0, 0.5])
        case 1:
            return random.uniform(-10, 10)
        case 2:
            return random.uniform(-1, 1) * 2.0 ** random.randint(-160, 160)
        case _:
            return float(random.randint(-300, 300)) / random.choice([1, 2, 4, 10])


def any_text(random: Random) -> str:
    match random.randrange(5):
        case 0:
            return random.choice(_WORDS)
        case 1:
            return type_text(random)
        case 2:
            return random.choice(TYPE_TEXTS)
        case 3:
            return mutated(random, random.choice(TYPE_TEXTS))
        case _:
            return random.choice(TEXTS)


def anything(random: Random) -> Any:
    """A JSON value of any kind."""
    return random.choice(_KINDS)(random)


def _list(random: Random) -> list[Any]:
    kind = random.choice(_KINDS)
    return [kind(random) for _ in range(random.choice([0, 0, 1, 1, 2, 3, 5, 17]))]


_KINDS: list[Callable[[Random], Any]] = [
    integer,
    real,
    any_text,
    lambda random: random.choice([True, False, None]),
    lambda random: SPELLED + random.choice(SPELLINGS),
    lambda random: [],
    lambda random: {},
    _list,
    lambda random: tensor(random),
]


def tensor(random: Random, shape: list[int] | None = None, element: str | None = None) -> dict[str, Any]:
    """A JSON tensor whose values are as many as its type says, mostly of a kind that it takes."""
    if shape is None and random.random() < 0.02:
        shape = random.choice([[20_000], [4, 5000], [300, 300]])
    elif shape is None:
        shape = [random.choice([0, 1, 1, 2, 2, 3, 4, 5, 8, 32]) for _ in range(random.choice([0, 1, 1, 2, 2, 3, 4]))]
    if element is None:
        element = random.choice(ELEMENTS) if random.random() < 0.6 else random.choice(TYPE_TEXTS)
        element = element if not element.startswith("tensor<") else element.rpartition("x")[2].removesuffix(">")
    elements = min(int(np.prod(shape)), 100_000)
    count = min(elements, 5000)
    values: list[Any]
    if element.startswith(("f", "b", "t")) and not element.startswith(("f4", "f6", "f8")):
        values = [real(random) for _ in range(count)]
        if random.random() < 0.15:
            # One number throughout: a range of nothing, at any magnitude.
            values = values[:1] * count
        if values and random.random() < 0.2:
            values[random.randrange(count)] = random.choice(["NaN", "Infinity", "-Infinity"])
    else:
        unsigned = element.startswith(("u", "f", "!quant.uniform<u"))
        limit = random.choice([1, 7, 15, 127, 255, 300, 1 << 16, 1 << 31])
        values = [random.randint(0 if unsigned else -limit, limit) for _ in range(count)]
    said = f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"
    if random.random() < 0.2 or elements > count:
        dtype = DTYPES[datatype_of(element)] if random.random() < 0.95 else random.choice(list(DTYPES.values()))
        with np.errstate(all="ignore"):
            numbers = np.resize(np.array([float(each) for each in values]), elements).astype(dtype)
        return {"type": said, "data": base64.b64encode(numbers.tobytes()).decode()}
    return {"type": said, "values": values}
