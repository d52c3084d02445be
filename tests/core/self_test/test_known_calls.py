"""Every known call from the oracles, in exact numbers or plain lists."""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.self_test import known_calls as known
from requant.self_test.known_calls import BINS, ELEMENTS, FIRST, KNOWN_CALLS, LAST, SHAPE, KnownCall
from tests.oracles import blocks as block_oracle
from tests.oracles import calibration as calibration_oracle
from tests.oracles import profiles as profile_oracle
from tests.oracles import quantization as oracle
from tests.oracles import ranges as range_oracle
from tests.oracles import schemes as scheme_oracle
from tests.oracles import small_floats as small
from tests.oracles.torch_histogram import HistogramObserver, histc, linspace
from tests.support.cases import sample

Array = NDArray[Any]
LARGEST = (1 << 63) - 1


def blocks(size: int) -> list[list[float]]:
    listed = [float(x) for x in known.reals()]
    return [listed[begin : begin + size] for begin in range(0, ELEMENTS, size)]


def real(name: str, code: int) -> float:
    value = small.value_of(name, code & (small.FORMATS[name].sign - 1))
    assert isinstance(value, Fraction)
    return math.copysign(float(value), -1.0 if code & small.FORMATS[name].sign else 1.0)


def mx(name: str) -> Iterable[Array]:
    made = [block_oracle.quantize_mx(name, "ocp", block) for block in blocks(32)]
    element, _ = block_oracle.MX[name]
    reals = [
        (((code ^ 128) - 128) / 64 if element is None else real(element, code)) * 2.0 ** (block.scale - 127)
        for block in made
        for code in block.elements
    ]
    codes = [code for block in made for code in block.elements]
    yield np.array([block.scale for block in made], np.uint8)
    yield np.array(codes, np.uint8)
    yield np.array(reals, np.float32)


def nvfp4() -> Iterable[Array]:
    scale = block_oracle.global_scale_of([float(x) for x in known.reals()])
    made = [block_oracle.quantize_nvfp4(block, scale) for block in blocks(16)]
    yield np.array([block.scale for block in made], np.uint8)
    yield np.array([code for block in made for code in block.elements], np.uint8)
    # f32 in this order: the scales of both levels first.
    both = [oracle.f32(Fraction(scale) * Fraction(real("f8E4M3FN", block.scale))) for block in made]
    values = [
        math.copysign(oracle.f32(Fraction(both[index]) * Fraction(real("f4E2M1FN", code))), real("f4E2M1FN", code))
        for index, block in enumerate(made)
        for code in block.elements
    ]
    yield np.array(values, np.float32)


def gguf(name: str) -> Iterable[Array]:
    made = [block_oracle.quantize_gguf(name, block) for block in blocks(32)]
    yield np.frombuffer(b"".join(made), np.uint8)
    yield np.array([value for block in made for value in block_oracle.dequantize_gguf(name, block)], np.float32)


def packed(width: int, dtype: str = "|i1") -> Iterable[Array]:
    stored = known.codes(width, dtype).tolist()
    word = sum((q % (1 << width)) << (index * width) for index, q in enumerate(stored))
    yield np.frombuffer(word.to_bytes(-(-len(stored) * width // 8), "little"), np.uint8)
    yield np.array(stored, dtype)


def fake_quantized(scheme: str, *, per_channel: bool = False) -> Iterable[Array]:
    values = []
    for index, x in enumerate(known.reals()):
        high = index % SHAPE[1] + 1.0 if per_channel else 20.0
        values.append(range_oracle.fake_quantize(float(x), -high / 2, high, 0, 63, scheme))
    yield np.array(values, np.float32)


def looked_up() -> Iterable[Array]:
    factor = scheme_oracle.factor("litert", 0.75, None, 0.5)
    derived = scheme_oracle.derive("litert", factor)
    assert derived is not None
    m, shift, _ = derived
    wide = [
        scheme_oracle.requantized("litert", (q ^ 128) - 128, -3, m, shift, 3, (-(2**31), 2**31 - 1), factor)
        for q in range(256)
    ]
    whole = [q for q in wide if q is not None]
    times = (1 << 16) // 256
    all_of_them = whole * times + whole[:64]
    yield np.array([min(max(q, -128), 127) for q in all_of_them], np.int8)
    yield np.array([sum(q < -128 for q in all_of_them), sum(q > 127 for q in all_of_them)])


def ordered(name: str, dtype: str) -> Callable[[Any], int | None]:
    """The place of a number among all of its type, both zeros at 0; None for NaN."""

    def of_float(x: Any) -> int:
        bits = int(x.view(f"u{x.itemsize}"))
        sign = 1 << (8 * x.itemsize - 1)
        return -(bits - sign) if bits & sign else bits

    def of_small(code: Any) -> int | None:
        if isinstance(small.value_of(name, int(code) & 0x7F), str):
            return None
        return -(int(code) & 0x7F) if code & 0x80 else int(code)

    return of_small if name.startswith("f8") else of_float if dtype[1] == "f" else int


def bucket(difference: int) -> tuple[int, int]:
    low = high = min(abs(difference), LARGEST)
    if low > 16:
        low = 1 << (low.bit_length() - 1)
        low, high = max(low, 17), 2 * low - 1
    return (low, high) if difference >= 0 else (-high, -low)


def tallied(
    differences: Sequence[int | None], pairs: Sequence[tuple[Fraction, Fraction] | None], alike: Sequence[bool]
) -> Iterable[Array]:
    counted = Counter(bucket(d) for d in differences if d is not None)
    apart = [index for index, difference in enumerate(differences) if difference != 0]
    finite = [pair for pair in pairs if pair is not None]
    errors = [abs(y - x) for x, y in finite]
    bits = len(alike) - sum(alike)
    yield np.array([len(apart), bits, sum(d is None for d in differences), len(pairs) - len(finite)])
    yield np.array([(*ends, count) for ends, count in sorted(counted.items())]).ravel()
    yield np.array(apart[:500])
    signal, noise = sum(x * x for x, _ in finite), sum(error * error for error in errors)
    sqnr = round(10 * math.log10(signal / noise), 9)
    yield np.array([float(max(errors)), float(sum(errors)) / len(errors), sqnr])


def compared(name: str, dtype: str) -> Iterable[Array]:
    a, b = known.compared(dtype)
    place = ordered(name, dtype)
    differences: list[int | None] = []
    pairs: list[tuple[Fraction, Fraction] | None] = []
    for x, y in zip(a, b, strict=True):
        first, second = place(x), place(y)
        both_missing = first is None and second is None
        undefined = first is None or second is None
        differences.append(0 if both_missing else None if undefined else second - first)  # type: ignore[operator]
        if undefined:
            pairs.append(None)
        elif name.startswith("f8"):
            pairs.append((Fraction(real(name, int(x))), Fraction(real(name, int(y)))))
        else:
            pairs.append((Fraction(x.item()), Fraction(y.item())))
    yield from tallied(differences, pairs, [x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True)])


def compared_reals() -> Iterable[Array]:
    a, b = known.compared("|i1", "<f4")
    pairs = [((Fraction(int(q)) - 3) / 2, Fraction(float(y))) for q, y in zip(a, b, strict=True)]
    differences = [oracle.nearest_even((y - x) * 2) for x, y in pairs]
    # Bits of two types are not compared.
    yield from tallied(differences, pairs, [True] * len(pairs))


def extremes(dtype: str, *, cycle: bool) -> Iterable[Array]:
    """Of keys with the order of the numbers: the pattern, of negative ones with all bits but the sign's flipped."""
    rows = known.reals(dtype).reshape(SHAPE)
    ends = np.array([(min(group), max(group)) for group in (rows.T if cycle else rows).tolist()], dtype)
    bits = int(dtype[2]) * 8
    for column in ends.T:
        patterns = [int(pattern) for pattern in column.astype(dtype).view(f"<i{dtype[2]}")]
        yield np.array([p ^ ((1 << (bits - 1)) - 1) if p < 0 else p for p in patterns], f"<i{dtype[2]}")


def in_order(dtype: str) -> Iterable[Array]:
    groups = calibration_oracle.members(SHAPE, (SHAPE[0], 3))
    listed = known.reals(dtype).tolist()
    yield np.array([listed[index] for group in groups for index in group], dtype)
    yield np.cumsum([0, *map(len, groups)])


def counted(dtype: str, *, magnitudes: bool) -> Iterable[Array]:
    histogram = calibration_oracle.magnitude_histogram if magnitudes else calibration_oracle.value_histogram
    tensors = [known.rows_of(dtype, *which).values for which in ((0, 1.0), (9999, 1.5))]
    rows = [histogram([tensor[:300] for tensor in tensors], BINS), histogram([t[300:] for t in tensors], BINS)]
    longest = max(len(counts) for counts, _ in rows)
    yield np.array([[*counts, *[0] * (longest - len(counts))] for counts, _ in rows])
    yield np.array([len(counts) for counts, _ in rows])


def percentiles(*, magnitudes: bool) -> Iterable[Array]:
    listed = known.reals()
    ends = [
        calibration_oracle.percentile([listed[group]], known.PERCENTILE, BINS, magnitudes=magnitudes)
        for group in calibration_oracle.members(SHAPE, (SHAPE[0], 3))
    ]
    yield from np.array(ends, np.float64).T


def entropy() -> Iterable[Array]:
    yield np.array(calibration_oracle.most_telling_part(known.counts_of_bins(130), 16))


def entropy_model_optimizer() -> Iterable[Array]:
    yield np.array([calibration_oracle.most_telling_length(known.counts_of_bins(130)[60:].tolist(), 16, 20)])


def squared_errors(dtype: str, *, cycle: bool) -> Iterable[Array]:
    differences = [
        (Fraction(float(b)) - Fraction(float(a))) ** 2
        for a, b in zip(known.reals(dtype), known.reals(dtype, 77), strict=True)
    ]
    sums = [Fraction(0)] * SHAPE[cycle]
    for index, difference in enumerate(differences):
        sums[index % SHAPE[1] if cycle else index // SHAPE[1]] += difference
    yield np.array([float(total) for total in sums])


def torch_histogram() -> Iterable[Array]:
    observer = HistogramObserver(BINS, 4)
    yield (counts := histc(known.reals(), BINS, FIRST, LAST))
    yield linspace(FIRST, LAST, BINS + 1)
    observer.counts, observer.low, observer.high = counts, FIRST, LAST
    wider = observer._moved(FIRST * 2, LAST * 3)
    yield wider
    observer.counts, observer.low, observer.high = wider, FIRST * 2, LAST * 3
    yield np.array(observer.search(), np.float32)


def integers_of_32_bits() -> Iterable[Array]:
    r = profile_oracle.reciprocal(0.3)
    products = (profile_oracle.product(float(x), r, profile_oracle.F32) for x in known.reals())
    yield np.array([oracle.nearest_even(Fraction(product)) + 5 for product in products], np.int32)


def halves() -> Iterable[Array]:
    """By CPython's own conversion of numbers; NaN by their bits."""
    exact = [f32_bits_of_f16(code) for code in known.F16_CODES.tolist()]
    between = [bits ^ 0x1000 for bits in exact]
    yield np.array(exact, np.uint32)
    yield np.array([f16_bits_of_f32(bits) for bits in exact], np.uint16)
    yield np.array([f16_bits_of_f32(bits) for bits in between], np.uint16)


def f32_bits_of_f16(code: int) -> int:
    if code & 0x7FFF > 0x7C00:
        return (code & 0x8000) << 16 | 0x7FC00000 | (code & 0x3FF) << 13
    (value,) = struct.unpack("<e", code.to_bytes(2, "little"))
    return int.from_bytes(struct.pack("<f", value), "little")


def f16_bits_of_f32(bits: int) -> int:
    sign = bits >> 16 & 0x8000
    if bits & 0x7FFFFFFF > 0x7F800000:
        return sign | 0x7E00 | bits >> 13 & 0x1FF
    (value,) = struct.unpack("<f", bits.to_bytes(4, "little"))
    try:
        return int.from_bytes(struct.pack("<e", value), "little")
    except OverflowError:
        return sign | 0x7C00


ANSWERS: dict[str, Callable[[], Iterable[Array]]] = {
    "mxfp8_e4m3": lambda: mx("mxfp8_e4m3"),
    "mxint8": lambda: mx("mxint8"),
    "nvfp4": nvfp4,
    "Q8_0": lambda: gguf("Q8_0"),
    "Q4_1": lambda: gguf("Q4_1"),
    "packed i4": lambda: packed(4),
    "packed i3": lambda: packed(3),
    "packed i12": lambda: packed(12, "<i2"),
    "packed i24": lambda: packed(24, "<i4"),
    "packed i48": lambda: packed(48, "<i8"),
    "packed i61": lambda: packed(61, "<i8"),
    "tf_fake_quant": lambda: fake_quantized("tf_fake_quant"),
    "tf_fake_quant per channel": lambda: fake_quantized("tf_fake_quant", per_channel=True),
    "tf_fake_quant_vars": lambda: fake_quantized("tf_fake_quant_vars"),
    "litert fake quantize": lambda: fake_quantized("litert"),
    "table of bytes": looked_up,
    "compare i8": lambda: compared("i8", "|i1"),
    "compare i16": lambda: compared("i16", "<i2"),
    "compare i32": lambda: compared("i32", "<i4"),
    "compare i64": lambda: compared("i64", "<i8"),
    "compare f8": lambda: compared("f8E4M3FN", "|u1"),
    "compare f32": lambda: compared("f32", "<f4"),
    "compare f64": lambda: compared("f64", "<f8"),
    "compare reals": compared_reals,
    "extremes f16": lambda: extremes("<f2", cycle=False),
    "extremes f16 in a cycle": lambda: extremes("<f2", cycle=True),
    "extremes f32": lambda: extremes("<f4", cycle=False),
    "extremes f32 in a cycle": lambda: extremes("<f4", cycle=True),
    "extremes f64": lambda: extremes("<f8", cycle=False),
    "extremes f64 in a cycle": lambda: extremes("<f8", cycle=True),
    "channel order f32": lambda: in_order("<f4"),
    "channel order f64": lambda: in_order("<f8"),
    "histogram f32": lambda: counted("<f4", magnitudes=False),
    "histogram f64": lambda: counted("<f8", magnitudes=False),
    "histogram of magnitudes f32": lambda: counted("<f4", magnitudes=True),
    "histogram of magnitudes f64": lambda: counted("<f8", magnitudes=True),
    "percentile": lambda: percentiles(magnitudes=False),
    "percentile of magnitudes": lambda: percentiles(magnitudes=True),
    "entropy": entropy,
    "entropy_model_optimizer": entropy_model_optimizer,
    "squared error f32": lambda: squared_errors("<f4", cycle=False),
    "squared error f32 in a cycle": lambda: squared_errors("<f4", cycle=True),
    "squared error f64": lambda: squared_errors("<f8", cycle=False),
    "squared error f64 in a cycle": lambda: squared_errors("<f8", cycle=True),
    "torch_histogram": torch_histogram,
    "f16 to f32 and back": halves,
    "i32 by a reciprocal": integers_of_32_bits,
}


def digest(arrays: Iterable[Array]) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


@pytest.mark.sample(1)
@pytest.mark.parametrize("call", sample(KNOWN_CALLS, 23), ids=lambda call: call.name)
def test_the_oracle_gives_each_known_answer(call: KnownCall) -> None:
    assert digest(ANSWERS[call.name]()) == call.digest
