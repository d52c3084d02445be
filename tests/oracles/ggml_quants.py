"""The values of GGUF's blocks, an element at a time, from the structures and formulas of ggml 0.25's ggml-common.h and
ggml-quants.c; nothing of ours but the file with the grids, which is read here anew.

Steps are Python floats rounded to f32 by `f32`: a product, sum or difference of two f32 has at most 53 significant bits
that count, so that the second rounding changes nothing.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

GRIDS = Path(__file__).parents[2] / "core/requant/checkpoint/gguf/i_quant_grids.txt"
QUANTILES = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
E2M1_HALVES = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]


def f32(value: float) -> float:
    """The nearest f32."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return float(rounded)


def f16_at(block: bytes, at: int) -> float:
    (value,) = struct.unpack_from("<e", block, at)
    return float(value)


def number(block: bytes, at: int, size: int) -> int:
    return int.from_bytes(block[at : at + size], "little")


def bits(value: int, at: int, count: int) -> int:
    return value >> at & ((1 << count) - 1)


@cache
def grids() -> dict[str, list[list[int]]]:
    """The vectors of each grid."""
    found: dict[str, list[list[int]]] = {}
    text = "".join(line for line in GRIDS.read_text().splitlines(keepends=True) if line[0] != "#")
    for part in text.split("\n\n"):
        if lines := part.split():
            name, width = lines[0], int(lines[1])
            numbers = [int(word) for word in lines[2:] if word.lstrip("-").isdigit() and len(word) < 4]
            packed = base64.b64decode("".join(lines[2 + len(numbers) :]))
            size = 2 if len(numbers) <= 4 else 4
            digits = [numbers[bits(byte, at, size)] for byte in packed for at in range(0, 8, size)]
            found[name] = [digits[at : at + width] for at in range(0, len(digits), width)]
    return found


def q2_k(block: bytes) -> Iterator[float]:
    d, dmin = f16_at(block, 80), f16_at(block, 82)
    for element in range(256):
        half, rest = divmod(element, 128)
        pair, place = divmod(rest, 32)
        scale = block[element // 16]
        code = bits(block[16 + 32 * half + place], 2 * pair, 2)
        yield f32(f32(f32(d * (scale & 15)) * code) - f32(dmin * (scale >> 4)))


def q3_k(block: bytes) -> Iterator[float]:
    d = f16_at(block, 108)
    for element in range(256):
        half, rest = divmod(element, 128)
        pair, place = divmod(rest, 32)
        group = element // 16
        low = bits(block[96 + group % 8], 4 * (group // 8), 4)
        scale = low + 16 * bits(block[104 + group % 4], 2 * (group // 4), 2) - 32
        code = bits(block[32 + 32 * half + place], 2 * pair, 2)
        if not bits(block[place], 4 * half + pair, 1):
            code -= 4
        yield f32(f32(d * scale) * code)


def scale_and_minimum(packed: bytes, group: int) -> tuple[int, int]:
    """get_scale_min_k4."""
    if group < 4:
        return packed[group] & 63, packed[group + 4] & 63
    both = packed[group + 4]
    return (both & 15) + 16 * (packed[group - 4] >> 6), (both >> 4) + 16 * (packed[group] >> 6)


def _with_minimums(block: bytes, code: Callable[[int, int], int]) -> Iterator[float]:
    d, dmin = f16_at(block, 0), f16_at(block, 2)
    for element in range(256):
        group, place = divmod(element, 32)
        scale, minimum = scale_and_minimum(block[4:16], group)
        yield f32(f32(f32(d * scale) * code(group, place)) - f32(dmin * minimum))


def q4_k(block: bytes) -> Iterator[float]:
    def code(group: int, place: int) -> int:
        return bits(block[16 + 32 * (group // 2) + place], 4 * (group % 2), 4)

    return _with_minimums(block, code)


def q5_k(block: bytes) -> Iterator[float]:
    def code(group: int, place: int) -> int:
        return bits(block[48 + 32 * (group // 2) + place], 4 * (group % 2), 4) + 16 * bits(block[16 + place], group, 1)

    return _with_minimums(block, code)


def q6_k(block: bytes) -> Iterator[float]:
    d = f16_at(block, 208)
    for element in range(256):
        half, rest = divmod(element, 128)
        quarter, place = divmod(rest, 32)
        low = bits(block[64 * half + 32 * (quarter % 2) + place], 4 * (quarter // 2), 4)
        code = low + 16 * bits(block[128 + 32 * half + place], 2 * quarter, 2) - 32
        (scale,) = struct.unpack_from("b", block, 192 + element // 16)
        yield f32(f32(d * scale) * code)


def q8_k(block: bytes) -> Iterator[float]:
    (d,) = struct.unpack_from("<f", block)
    yield from (f32(d * code) for code in struct.unpack_from("256b", block, 4))


def _halves(block: bytes, at: int, count: int) -> list[int]:
    """The codes of `count` bytes: all lower halves, then all upper ones."""
    return [bits(block[at + place], shift, 4) for shift in (0, 4) for place in range(count)]


def iq4_nl(block: bytes) -> Iterator[float]:
    d = f16_at(block, 0)
    yield from (f32(d * QUANTILES[code]) for code in _halves(block, 2, 16))


def iq4_xs(block: bytes) -> Iterator[float]:
    d, upper = f16_at(block, 0), number(block, 2, 2)
    for group in range(8):
        scale = bits(block[4 + group // 2], 4 * (group % 2), 4) + 16 * bits(upper, 2 * group, 2) - 32
        yield from (f32(f32(d * scale) * QUANTILES[code]) for code in _halves(block, 8 + 16 * group, 16))


def mxfp4(block: bytes) -> Iterator[float]:
    yield from (f32(2.0 ** (block[0] - 128) * E2M1_HALVES[code]) for code in _halves(block, 1, 16))


def _e4m3_half(byte: int) -> float:
    exponent, mantissa = bits(byte, 3, 4), byte & 7
    if byte == 0x7F:
        return 0.0
    return 2.0**-10 * mantissa if exponent == 0 else 2.0 ** (exponent - 8) * (1 + mantissa / 8)


def nvfp4(block: bytes) -> Iterator[float]:
    for group in range(4):
        scale = _e4m3_half(block[group])
        yield from (f32(scale * E2M1_HALVES[code]) for code in _halves(block, 4 + 8 * group, 8))


def q1_0(block: bytes) -> Iterator[float]:
    d = f16_at(block, 0)
    yield from (d if bits(block[2 + element // 8], element % 8, 1) else -d for element in range(128))


def q2_0(block: bytes) -> Iterator[float]:
    d = f16_at(block, 0)
    yield from (f32((bits(block[2 + element // 4], 2 * (element % 4), 2) - 1) * d) for element in range(64))


def tq1_0(block: bytes) -> Iterator[float]:
    d = f16_at(block, 52)
    for begin, width, count in ((0, 32, 5), (32, 16, 5), (48, 4, 4)):
        for digit in range(count):
            for place in range(width):
                shifted = block[begin + place] * 3**digit % 256
                yield f32((shifted * 3 // 256 - 1) * d)


def tq2_0(block: bytes) -> Iterator[float]:
    d = f16_at(block, 64)
    for element in range(256):
        half, rest = divmod(element, 128)
        yield f32((bits(block[32 * half + rest % 32], 2 * (rest // 32), 2) - 1) * d)


def _seven(word: int) -> list[bool]:
    signs = [bool(bits(word, at, 1)) for at in range(7)]
    return [*signs, sum(signs) % 2 == 1]


def _eight(byte: int) -> list[bool]:
    return [bool(bits(byte, at, 1)) for at in range(8)]


def _scaled(scale: float, magnitudes: list[int], minuses: list[bool]) -> Iterator[float]:
    for magnitude, minus in zip(magnitudes, minuses, strict=True):
        yield f32(f32(scale * magnitude) * (-1.0 if minus else 1.0))


def iq2_xxs(block: bytes) -> Iterator[float]:
    d = f16_at(block, 0)
    for group in range(8):
        at = 2 + 8 * group
        word = number(block, at + 4, 4)
        scale = f32(f32(d * (0.5 + (word >> 28))) * 0.25)
        for part in range(4):
            yield from _scaled(scale, grids()["IQ2_XXS"][block[at + part]], _seven(bits(word, 7 * part, 7)))


def iq2_xs(block: bytes) -> Iterator[float]:
    d = f16_at(block, 0)
    for part in range(32):
        word = number(block, 2 + 2 * part, 2)
        scale = f32(f32(d * (0.5 + bits(block[66 + part // 4], 4 * (part // 2 % 2), 4))) * 0.25)
        yield from _scaled(scale, grids()["IQ2_XS"][word & 511], _seven(word >> 9))


def iq2_s(block: bytes) -> Iterator[float]:
    d = f16_at(block, 0)
    for part in range(32):
        place = block[2 + part] + 256 * bits(block[66 + part // 4], 2 * (part % 4), 2)
        scale = f32(f32(d * (0.5 + bits(block[74 + part // 4], 4 * (part // 2 % 2), 4))) * 0.25)
        yield from _scaled(scale, grids()["IQ2_S"][place], _eight(block[34 + part]))


def iq3_xxs(block: bytes) -> Iterator[float]:
    d, grid = f16_at(block, 0), grids()["IQ3_XXS"]
    for part in range(32):
        word = number(block, 66 + 4 * (part // 4), 4)
        scale = f32(f32(d * (0.5 + (word >> 28))) * 0.5)
        magnitudes = grid[block[2 + 2 * part]] + grid[block[3 + 2 * part]]
        yield from _scaled(scale, magnitudes, _seven(bits(word, 7 * (part % 4), 7)))


def iq3_s(block: bytes) -> Iterator[float]:
    d, grid = f16_at(block, 0), grids()["IQ3_S"]
    for part in range(32):
        places = [block[2 + at] + 256 * bits(block[66 + at // 8], at % 8, 1) for at in (2 * part, 2 * part + 1)]
        scale = f32(d * (1 + 2 * bits(block[106 + part // 8], 4 * (part // 4 % 2), 4)))
        yield from _scaled(scale, grid[places[0]] + grid[places[1]], _eight(block[74 + part]))


def _shifted(scale: float, place: int, minus: int) -> Iterator[float]:
    yield from (f32(scale * (value + (-0.125 if minus else 0.125))) for value in grids()["IQ1_S"][place])


def iq1_s(block: bytes) -> Iterator[float]:
    d = f16_at(block, 0)
    for part in range(32):
        word = number(block, 34 + 2 * (part // 4), 2)
        place = block[2 + part] + 256 * bits(word, 3 * (part % 4), 3)
        yield from _shifted(f32(d * (2 * bits(word, 12, 3) + 1)), place, word >> 15)


def iq1_m(block: bytes) -> Iterator[float]:
    words = [number(block, 48 + 2 * at, 2) for at in range(4)]
    d = f16_at(sum((word >> 12) << 4 * at for at, word in enumerate(words)).to_bytes(2, "little"), 0)
    for part in range(32):
        upper = bits(block[32 + part // 2], 4 * (part % 2), 4)
        step = bits(words[part // 8], 3 * (part // 2 % 4), 3)
        yield from _shifted(f32(d * (2 * step + 1)), block[part] + 256 * (upper & 7), upper >> 3)


VALUES: dict[str, Callable[[bytes], Iterator[float]]] = {
    name.upper(): function
    for name, function in {
        "q2_k": q2_k, "q3_k": q3_k, "q4_k": q4_k, "q5_k": q5_k, "q6_k": q6_k, "q8_k": q8_k,
        "q1_0": q1_0, "q2_0": q2_0, "mxfp4": mxfp4, "nvfp4": nvfp4, "tq1_0": tq1_0, "tq2_0": tq2_0,
        "iq4_nl": iq4_nl, "iq4_xs": iq4_xs, "iq3_s": iq3_s, "iq3_xxs": iq3_xxs, "iq2_s": iq2_s,
        "iq2_xs": iq2_xs, "iq2_xxs": iq2_xxs, "iq1_s": iq1_s, "iq1_m": iq1_m,
    }.items()
}  # fmt: skip
"""By the names of the types."""
