"""LiteRT's quantized operators in integers and fractions, one element or row at a time: each `f32` is one rounding.

Written from the facts of LiteRT's and XNNPACK's sources. Codes are the stored integers; parameters are (scale, zero
point), the scale a number of f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

from tests.oracles.quantization import f32, litert_multiplier, multiply_double, nearest_away, wrap32
from tests.oracles.schemes import away, reduced_multiplier, up

Parameters = tuple[float, int]
Range = tuple[int, int]
HALF = Fraction(1, 2)


def rounded(exact: Fraction | int) -> Fraction:
    """The nearest f32. Numbers here are within its range."""
    return Fraction(f32(Fraction(exact)))


def clamped(value: int, bounds: Range) -> int:
    return min(max(value, bounds[0]), bounds[1])


def wrap16(value: int) -> int:
    return (value + 2**15) % 2**16 - 2**15


def fixed(value: int, factor: Fraction) -> int:
    """By the multiplier of a factor, which is taken as f64."""
    return multiply_double(value, *litert_multiplier(float(factor)))


def fixed_64(value: int, factor: Fraction) -> int:
    """LiteRT's rule for 64-bit accumulators."""
    m, shift = litert_multiplier(float(factor))
    return up(value * reduced_multiplier(m), 15 - shift)


def fixed_up(value: int, factor: Fraction) -> int:
    """With ties of the second rounding up."""
    m, shift = litert_multiplier(float(factor))
    return up(up(wrap32(value << max(shift, 0)) * m, 31), max(-shift, 0))


def in_f32(value: int, factor: Fraction, zero_point: int, bounds: Range) -> int:
    """XNNPACK: a product of f32, to even, then the zero point."""
    return clamped(round(rounded(rounded(value) * factor)) + zero_point, bounds)


def in_f32_with_bias(value: int, zero: int, factor: Fraction, zero_point: int, bounds: Range) -> int:
    """XNNPACK's sums: both zero points are a bias in f32, added before rounding."""
    bias = rounded(rounded(rounded(-zero) * factor) + zero_point)
    return clamped(round(rounded(rounded(rounded(value) * factor) + bias)), bounds)


def quotient(a: Fraction | float, b: Fraction | float) -> Fraction:
    return rounded(Fraction(a) / Fraction(b))


def multiply(a: int, b: int, of: Sequence[Parameters], bounds: Range, kernel: str, *, group: bool = False) -> int:
    """`group`: the element lies in a whole group of the optimized kernel."""
    (sa, za), (sb, zb), (sy, zy) = of
    product, factor = (a - za) * (b - zb), quotient(rounded(Fraction(sa) * Fraction(sb)), sy)
    if kernel == "xnnpack" and bounds[1] < 256 and Fraction(1, 2**16) <= factor < 2**8:
        return in_f32(product, factor, zy, bounds)
    scaled = fixed(product, factor)
    if group and kernel != "reference":
        return clamped(wrap16(clamped(scaled, (-(2**15), 2**15 - 1)) + zy), bounds)
    return clamped(scaled + zy, bounds)


def subtract(a: int, b: int, of: Sequence[Parameters], bounds: Range, kernel: str) -> tuple[int, int]:
    """The difference, which is not yet scaled, and the output."""
    (sa, za), (sb, zb), (sy, zy) = of
    ratios = [quotient(each, sy) for each in (sa, sb)]
    wide = bounds[1] > 255
    if kernel == "xnnpack" and not wide and all(Fraction(1, 2**10) <= each < 2**8 for each in ratios):
        shift = 20
        while max(ratios) * 2**shift >= 2**21:
            shift -= 1
        while max(ratios) * 2**shift < 2**20:
            shift += 1
        first, second = (round(each * 2**shift) for each in ratios)
        difference = first * (a - za) - second * (b - zb)
        return difference, clamped(up(difference, shift) + zy, bounds)
    left = 15 if wide else 20
    twice = 2 * max(Fraction(sa), Fraction(sb))
    sides = [fixed((code - zero) << left, Fraction(scale) / twice) for code, scale, zero in ((a, sa, za), (b, sb, zb))]
    difference = sides[0] - sides[1]
    return difference, clamped(fixed(difference, twice / rounded(2**left * Fraction(sy))) + zy, bounds)


def prelu(x: int, alpha: int, of: Sequence[Parameters], bounds: Range) -> int:
    (sx, zx), (sa, za), (sy, zy) = of
    if x >= zx:
        return clamped(fixed(x - zx, quotient(sx, sy)) + zy, bounds)
    factor = quotient(rounded(Fraction(sx) * Fraction(sa)), sy)
    return clamped(fixed((x - zx) * (alpha - za), factor) + zy, bounds)


def mean_of_window(codes: Sequence[int]) -> int:
    return nearest_away(Fraction(sum(codes), len(codes)))


def relu(x: int, of: Sequence[Parameters], low: float, high: float | None, bounds: Range) -> int:
    (sx, zx), (sy, zy) = of
    least = max(bounds[0], zy + nearest_away(quotient(low, sy)))
    most = bounds[1] if high is None else min(bounds[1], zy + nearest_away(quotient(high, sy)))
    return clamped(fixed(x - zx, quotient(sx, sy)) + zy, (least, most))


def leaky(x: int, alpha: float, of: Sequence[Parameters], bounds: Range, kernel: str) -> int:
    (sx, zx), (sy, zy) = of
    ratio = quotient(sx, sy)
    below = rounded(ratio * Fraction(alpha))
    taken = Fraction(1, 256) <= ratio <= 128 and abs(below) >= Fraction(1, 256)
    if kernel == "xnnpack" and bounds[1] < 256 and taken and -128 + Fraction(1, 256) <= below <= 128:
        factor = round(256 * (ratio if x >= zx else below))
        return clamped((256 * zy + 128 + factor * (x - zx)) >> 8, bounds)
    if x >= zx:
        return clamped(fixed(x - zx, ratio) + zy, bounds)
    scaled = fixed(x - zx, quotient(rounded(Fraction(sx) * abs(Fraction(alpha))), sy))
    return clamped((-scaled if alpha < 0 else scaled) + zy, bounds)


def _exp(exact: Fraction) -> Fraction:
    with localcontext() as context:
        context.prec = 60
        return Fraction((Decimal(exact.numerator) / Decimal(exact.denominator)).exp())


def logistic(x: Fraction) -> Fraction:
    """In f32, of the power rounded to f32."""
    return rounded(1 / rounded(1 + rounded(_exp(min(-x, Fraction(88))))))


def tanh(x: Fraction) -> Fraction:
    power = _exp(2 * x)
    return rounded((power - 1) / (power + 1))


def entry(
    x: int, function: Callable[[Fraction], Fraction], of: Sequence[Parameters], bounds: Range, kernel: str
) -> int:
    """What a table of LOGISTIC or TANH has for a code."""
    (sx, zx), (sy, zy) = of
    scaled = rounded(function(rounded(Fraction(sx) * (x - zx))) * rounded(1 / Fraction(sy)))
    if kernel == "xnnpack":
        return clamped(round(rounded(scaled + zy)), bounds)
    return clamped(nearest_away(scaled) + zy, bounds)


SIGMOID = (
    32768, 33451, 34133, 34813, 35493, 36169, 36843, 37513, 38180, 38841, 39498, 40149, 40794, 41432, 42064, 42688,
    43304, 43912, 44511, 45102, 45683, 46255, 46817, 47369, 47911, 48443, 48964, 49475, 49975, 50464, 50942, 51409,
    51865, 52311, 52745, 53169, 53581, 53983, 54374, 54755, 55125, 55485, 55834, 56174, 56503, 56823, 57133, 57433,
    57724, 58007, 58280, 58544, 58800, 59048, 59288, 59519, 59743, 59959, 60168, 60370, 60565, 60753, 60935, 61110,
    61279, 61441, 61599, 61750, 61896, 62036, 62172, 62302, 62428, 62549, 62666, 62778, 62886, 62990, 63090, 63186,
    63279, 63368, 63454, 63536, 63615, 63691, 63765, 63835, 63903, 63968, 64030, 64090, 64148, 64204, 64257, 64308,
    64357, 64405, 64450, 64494, 64536, 64576, 64614, 64652, 64687, 64721, 64754, 64786, 64816, 64845, 64873, 64900,
    64926, 64950, 64974, 64997, 65019, 65039, 65060, 65079, 65097, 65115, 65132, 65149, 65164, 65179, 65194, 65208,
    65221, 65234, 65246, 65258, 65269, 65280, 65291, 65301, 65310, 65319, 65328, 65337, 65345, 65352, 65360, 65367,
    65374, 65381, 65387, 65393, 65399, 65404, 65410, 65415, 65420, 65425, 65429, 65433, 65438, 65442, 65445, 65449,
    65453, 65456, 65459, 65462, 65465, 65468, 65471, 65474, 65476, 65479, 65481, 65483, 65485, 65488, 65489, 65491,
    65493, 65495, 65497, 65498, 65500, 65501, 65503, 65504, 65505, 65507, 65508, 65509, 65510, 65511, 65512, 65513,
    65514, 65515, 65516, 65517, 65517, 65518, 65519, 65520, 65520, 65521, 65522, 65522, 65523, 65523, 65524, 65524,
    65525, 65525, 65526, 65526, 65526, 65527, 65527, 65528, 65528, 65528, 65529, 65529, 65529, 65529, 65530, 65530,
    65530, 65530, 65531, 65531, 65531, 65531, 65531, 65532, 65532, 65532, 65532, 65532, 65532, 65533, 65533, 65533,
    65533, 65533, 65533, 65533, 65533, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65535,
)  # fmt: skip
"""LiteRT's table of 2^16 / (1 + exp(-i / 24)), as its common.h has it."""


def softmax_table(function: Callable[[float], float], first: float, last: float) -> list[int]:
    """LUTPopulateInt16 for an output from -1 to 1."""
    step, found = (last - first) / 512, []
    for index in range(512):
        begin = nearest_away(Fraction(function(first + index * step) * 32768))
        middle = nearest_away(Fraction((function(first + (index + 1) * step) * 32768 + begin) / 2))
        exact = nearest_away(Fraction(function(first + index * step + step / 2) * 32768))
        found.append(clamped(begin - nearest_away(Fraction(middle - exact, 2)), (-32768, 32767)))
    return [*found, clamped(nearest_away(Fraction(function(last) * 32768)), (-32768, 32767))]


def high_16(a: int, b: int) -> int:
    return min(up(a * b, 15), 2**15 - 1)


def hard_swish(x: int, of: Sequence[Parameters], bounds: Range) -> int:
    (sx, zx), (sy, zy) = of
    fine = quotient(sx, 128)
    (mo, eo), (mr, er) = (litert_multiplier(float(quotient(fine, each))) for each in (sy, quotient(3, 32768)))
    value = wrap16((x - zx) * 128)
    product, gate = high_16(value, reduced_multiplier(mo)), value
    if er > 0:
        gate = clamped(gate << (er - 1), (-(2**15), 2**15 - 1))
    gate = high_16(gate, reduced_multiplier(mr))
    gate = clamped(gate << 1, (-(2**15), 2**15 - 1)) if er > 0 else away(gate, -er)
    gate = (gate + 2**15) >> 1
    swished = abs(gate * product) // 2**15 * (-1 if gate * product < 0 else 1)
    return clamped(wrap16((-1 if eo == -16 else away(swished, -eo)) + zy), bounds)


def interpolated(x: int, scale: float, table: Sequence[int], *, of_tanh: bool) -> int:
    """LOGISTIC or TANH of i16, where the scale is no power of two."""
    factor, shift = float(Fraction(scale) * 4096 * 3), 0
    while factor <= 32767 / 2 and shift <= 30:
        factor, shift = factor * 2, shift + 1
    argument = up(x * int(factor), shift)
    bits = 8 if of_tanh else 9
    index, rest = abs(argument) >> bits, abs(argument) % 2**bits
    if index >= 255:
        curve = 0xFFFF << 8 if of_tanh else 0x7FFF << 10
    else:
        curve = (table[index] << bits) + rest * (table[index + 1] - table[index])
    if of_tanh:
        return (curve - 2**23 + 128 if argument >= 0 else -curve + 2**23 + 127) >> 8
    return (curve + 512 if argument >= 0 else 2**25 - curve + 511) >> 10


def mean(
    codes: Sequence[int],
    of: Sequence[Parameters],
    bounds: Range,
    kernel: str,
    *,
    image: bool = False,
    image_group: bool = False,
) -> int:
    """`image`: rows and columns of an image are reduced, and kept as dimensions of 1; `image_group`: in whole groups of
    16 channels of i8."""
    (sx, zx), (sy, zy) = of
    count, wide = len(codes), bounds[1] > 255
    total = sum(codes) - zx * count
    if kernel == "xnnpack" and not wide:
        factor = rounded(quotient(sx, sy) * quotient(1, count))
        return in_f32_with_bias(sum(codes), zx * count, factor, zy, bounds)
    if kernel != "reference" and not wide and image:
        shifted = quotient(rounded(zx * Fraction(sx)), sy)
        half = rounded(shifted + (HALF if shifted > 0 else -HALF))
        factor = quotient(sx, rounded(count * Fraction(sy)))
        rule = fixed_up if image_group else fixed
        return clamped(rule(sum(codes), factor) + zy - int(half), bounds)
    m, e = litert_multiplier(float(Fraction(sx) / Fraction(sy)))
    k = min(count.bit_length() - 1, 32, 31 + e)
    return clamped(multiply_double(total, m * 2**k // count, e - k) + zy, bounds)


def total(codes: Sequence[int], of: Sequence[Parameters], bounds: Range, kernel: str) -> int:
    """SUM. The reference kernel takes i8 as bytes."""
    (sx, zx), (sy, zy) = of
    count, ratio, wide = len(codes), quotient(sx, sy), bounds[1] > 255
    if kernel == "reference":
        found = fixed(sum(code % 256 for code in codes) - zx * count, Fraction(sx) / Fraction(sy))
        byte = clamped(found + zy, (0, 255))
        return byte - 256 if byte > bounds[1] else byte
    if kernel == "xnnpack" and not wide:
        return in_f32_with_bias(sum(codes), zx * count, ratio, zy, bounds)
    bias = rounded(rounded(-zx * ratio) * count)
    return clamped(nearest_away(rounded(rounded(rounded(sum(codes)) * ratio) + bias)) + zy, bounds)


def softmax_in_f32(codes: Sequence[int], scale: float, beta: float, bounds: Range) -> list[int]:
    factor = rounded(-Fraction(scale) * Fraction(beta))
    powers = [rounded(_exp(rounded(factor * (max(codes) - code)))) for code in codes]
    added = Fraction(0)
    for each in powers:
        added = rounded(added + each)
    inverse = rounded(1 / rounded(added / 256))
    found = [rounded(each * inverse) for each in powers]
    if bounds[0]:
        return [clamped(nearest_away(each) - 128, bounds) for each in found]
    return [clamped(math.floor(rounded(each + HALF)), bounds) for each in found]


def high_32(a: int, b: int) -> int:
    return up(a * b, 31)


def power(a: int) -> int:
    """gemmlowp's exp_on_negative_values with 26 bits behind the point."""
    if a == 0:
        return 2**31 - 1
    quarter = a % 2**24 - 2**24
    x = quarter * 32 + 2**28
    x2 = high_32(x, x)
    x3, x4 = high_32(x2, x), high_32(x2, x2)
    series = x + away(high_32(away(x4, 2) + x3, 715827883) + x2, 1)
    found = 1895147668 + high_32(1895147668, series)
    for place, factor in enumerate((1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)):
        if (quarter - a) >> (24 + place) & 1:
            found = high_32(found, factor)
    return found


def softmax_in_fixed_point(codes: Sequence[int], scale: float, beta: float, bounds: Range) -> tuple[int, list[int]]:
    """The reciprocal of the sum, and the output."""
    m, e = litert_multiplier(min(float(Fraction(beta) * Fraction(scale)) * 2.0**26, 2.0**31 - 1))
    radius = 31 * 2**26 // 2**e
    found = []
    for code in codes:
        difference = code - max(codes)
        found.append(power(multiply_double(difference, m, e)) if difference >= -radius else None)
    added = sum(away(each, 12) for each in found if each is not None)
    zeros = 32 - added.bit_length()
    half = (added * 2**zeros - 2**31 + 2**31) >> 1
    x = 1515870810 + high_32(half, -1010580540)
    for _ in range(3):
        x += high_32(x, 2**29 - high_32(half, x)) * 4
    x = min(x * 2, 2**31 - 1)
    return x, [
        bounds[0] if each is None else clamped(away(high_32(x, each), 12 - zeros + 23) + bounds[0], bounds)
        for each in found
    ]


def softmax_of_i16(
    codes: Sequence[int], scale: float, beta: float, tables: tuple[Sequence[int], Sequence[int]]
) -> list[int]:
    """`tables`: of exp and of 1 / (1 + x), 513 entries each."""

    def look(value: int, table: Sequence[int]) -> int:
        i = 256 + (value >> 7)
        return table[i] + up((table[i + 1] - table[i]) * (value % 128), 7)

    factor = Fraction(float(rounded(Fraction(scale) * Fraction(beta))) / (10.0 / 65535.0))
    powers = [look(clamped(fixed(code - max(codes), factor) + 32767, (-32768, 32767)), tables[0]) for code in codes]
    zeros = 32 - sum(powers).bit_length()
    inverse = look(clamped(up(sum(powers) << (zeros - 1), 14) - 98304, (-32768, 32767)), tables[1])
    return [clamped(up(each * inverse, 31 - zeros), (0, 32767)) for each in powers]


def joined(x: int, of: Sequence[Parameters], bounds: Range) -> int:
    """CONCATENATION of u8."""
    (sx, zx), (sy, zy) = of
    if (sx, zx) == (sy, zy):
        return x
    factor = rounded(Fraction(sx) * rounded(1 / Fraction(sy)))
    return clamped(nearest_away(rounded(rounded(x * factor) + rounded(-zx * factor))) + zy, bounds)


def place_of_10_bits(index: int, size: int, places: int, *, align: bool, half: bool) -> tuple[int, int, int]:
    """Lower and upper index, and the weight of the upper of 1024."""
    less = 1 if align and places > 1 else 0
    ratio = (1024 * (size - less) + (places - less) // 2) // (places - less)
    place = index * ratio + (ratio // 2 - 512 if half else 0)
    lower = max(int(Fraction(place, 1024)), 0)
    return lower, min(int(Fraction(place + 1023, 1024)), size - 1), place - 1024 * lower


def bilinear_of_10_bits(corners: Sequence[int], down: int, along: int) -> int:
    """Corners p00, p01, p10, p11."""
    weights = [(1024 - down) * (1024 - along), (1024 - down) * along, down * (1024 - along), down * along]
    return away(sum(p * w for p, w in zip(corners, weights, strict=True)), 20)


def place_of_11_bits(index: int, size: int, places: int, *, align: bool, half: bool) -> tuple[int, int, int]:
    """Lower and upper index, and the weight of the upper of 2048."""
    less = 1 if align and places > 1 else 0
    ratio = quotient(size - less, places - less)
    place = rounded(index * ratio)
    if half:
        place = rounded(place + rounded(rounded(HALF * ratio) - HALF))
    place = min(max(place, Fraction(0)), Fraction(size - 1))
    lower = math.floor(place)
    return lower, min(lower + 1, size - 1), round((place - lower) * 2048)


def bilinear_of_11_bits(corners: Sequence[int], down: int, along: int) -> int:
    p00, p01, p10, p11 = corners
    top, bottom = p00 * 2048 + (p01 - p00) * along, p10 * 2048 + (p11 - p10) * along
    return up(top * 2048 + (bottom - top) * down, 22)


def place_of_f32(index: int, size: int, places: int, *, align: bool, half: bool) -> tuple[int, int, Fraction]:
    less = 1 if align and places > 1 else 0
    ratio = quotient(size - less, places - less)
    place = rounded(rounded((index + HALF) * ratio) - HALF) if half else rounded(index * ratio)
    lower = max(math.floor(place), 0)
    return lower, min(math.ceil(place), size - 1), rounded(place - lower)


def bilinear_of_f32(corners: Sequence[int], down: Fraction, along: Fraction, kernel: str) -> int:
    p00, p01, p10, p11 = corners
    up_, left = rounded(1 - down), rounded(1 - along)
    terms = [(p00, up_, left), (p10, down, left), (p01, up_, along), (p11, down, along)]
    if kernel == "reference":
        products = [rounded(rounded(p * a) * b) for p, a, b in terms]
    else:
        products = [rounded(p * rounded(a * b)) for p, a, b in (terms[0], terms[2], terms[1], terms[3])]
    added = Fraction(0)
    for each in products:
        added = rounded(added + each)
    return int(rounded(added + HALF))


def nearest_index(index: int, size: int, places: int, *, align: bool, half: bool) -> int:
    less = 1 if align and places > 1 else 0
    place = rounded((index + (HALF if half else 0)) * quotient(size - less, places - less))
    return clamped(nearest_away(place) if align else math.floor(place), (0, size - 1))
