"""MX blocks against the oracle, the OCP formula, and the TOSA reference model's blocks."""

from __future__ import annotations

import numpy as np
import pytest

from requant.convert.blocks.mx import BLOCK, MX_ELEMENTS, MxRule, MxTensor, dequantize_mx, mx_element, quantize_mx
from requant.errors import TensorDataError, TypeFitError, UnknownNameError, UnsupportedError
from tests.oracles import blocks as oracle
from tests.oracles.quantization import from_bits
from tests.oracles.small_floats import FORMATS, decode
from tests.support import cases
from tests.vector_cases.conversion import floats, load

VECTOR_NAMES = {"mxint8": "mxint8"} | {name.split("_")[1]: name for name in MX_ELEMENTS if "_" in name}


def sample() -> np.ndarray:
    """Blocks of every magnitude, of ties, of values about the largest element, of subnormals, zeros, NaN, infinity."""
    rng = np.random.default_rng(6)
    blocks = [rng.standard_normal((150, BLOCK)) * 2.0 ** rng.integers(-149, 127, (150, 1))]
    blocks.append(rng.integers(-64, 65, (60, BLOCK)) / 8 * 2.0 ** rng.integers(-130, 120, (60, 1)))
    largest = np.array([448.0, 57344.0, 7.5, 28.0, 6.0, 127 / 64])
    bounds = np.array([464.0, 61440.0, 7.75, 30.0, 7.0, 127.5 / 64])
    for edge in (*largest, *bounds):
        for factor in (1 - 2.0**-24, 1, 1 + 2.0**-23):
            row = rng.uniform(-edge, edge, BLOCK)
            row[int(rng.integers(BLOCK))] = edge * factor * rng.choice([-1, 1])
            blocks.append(row[None] * 2.0 ** float(rng.integers(-8, 8)))
    powers = 2.0 ** np.arange(-149, 128)[:, None]
    blocks.append(powers * np.linspace(-1, 1, BLOCK))
    with np.errstate(over="ignore", under="ignore"):
        found = np.concatenate(blocks).astype("<f4")
        hair_below = np.nextafter(powers.astype("<f4"), np.float32(0)) * np.ones(BLOCK, "<f4")
    special = np.zeros((9, BLOCK), "<f4")
    special[1] = -0.0
    special[2, 7], special[3, 0], special[4, 31], special[5, 5] = np.nan, np.inf, -np.inf, -np.nan
    special[6], special[7], special[8, 3] = np.finfo("<f4").max, -np.finfo("<f4").max, np.float32(2.0**-149)
    patterns = rng.integers(0, 1 << 32, (60, BLOCK), dtype=np.uint32).view("<f4")
    return np.concatenate([found[np.isfinite(found).all(1)], hair_below, special, patterns])


RULES = [(name, rule) for name, element in MX_ELEMENTS.items() for rule in MxRule if element or rule in ("ocp", "tosa")]


def beside_thresholds(name: str) -> np.ndarray:
    """Blocks whose largest magnitude is where a rule's exponent steps, and one and two ulps beside it."""
    if name == "mxint8":
        return np.zeros((0, BLOCK), "<f4")
    largest, mantissa_bits = float(oracle.LARGEST[name]), oracle.MANTISSA_BITS[name]
    steps = np.array([1.0, largest, 2 - 2.0 ** -(mantissa_bits + 1), largest * 2.0**-127])
    edges = (steps[:, None] * 2.0 ** np.array([-130, -126, -125, -119, -1, 0, 3, 90, 100])).ravel().astype("<f4")
    edges = np.concatenate([edges, [np.float32(2.0**-126), np.float32(np.inf)]])
    bits = np.maximum(edges.view("<i4")[:, None] + np.arange(-2, 3), 0)
    top = np.minimum(bits, 0x7F800000).astype("<i4").view("<f4").ravel()
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        blocks = top[:, None] * np.linspace(-1, 1, BLOCK, dtype="<f4")
    blocks[:, 0] = 0
    blocks[:, -1] = top
    return np.where(np.isnan(blocks), np.float32(0), blocks)


def test_mxint8_has_no_rule_of_torchao() -> None:
    with pytest.raises(UnsupportedError, match="torchao has no mxint8"):
        quantize_mx(np.zeros(BLOCK, "<f4"), "mxint8", MxRule.EVEN)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("name", "rule"), RULES)
def test_exponents_beside_their_steps(name: str, rule: MxRule) -> None:
    x = beside_thresholds(name)
    tensor = quantize_mx(x, name, rule) if len(x) else None
    for index, block in enumerate(x.tolist()):
        assert tensor is not None
        expected = oracle.quantize_mx(name, str(rule), block)
        got = (int(tensor.scales[index]), tensor.elements[index * BLOCK : (index + 1) * BLOCK].tolist())
        assert got == expected, f"{block[-1]!r}"


@pytest.mark.sample(5)
@pytest.mark.parametrize(("name", "rule"), RULES)
def test_blocks_against_the_oracle(name: str, rule: MxRule) -> None:
    x = sample()
    tensor = quantize_mx(x, name, rule)
    # Before the last 60 are NaNs, infinities, and the smallest and largest numbers.
    for index in sorted({*cases.sample(range(len(x)), 200), *range(len(x) - 69, len(x) - 60)}):
        block = x[index].tolist()
        expected = oracle.quantize_mx(name, str(rule), block)
        got = (int(tensor.scales[index]), tensor.elements[index * BLOCK : (index + 1) * BLOCK].tolist())
        assert got == expected, f"block {index}: {block}"


@pytest.mark.parametrize("result", load("mx_blocks")["results"], ids=lambda result: result["format"])
def test_vectors(result: dict[str, list[str]]) -> None:
    """tosa_reference to the bit but for a NaN's payload; ocp_floor_model in value, on the blocks that are finite.

    The model gives -0 for an mxint8 element of 0 from a negative value; an integer has no such zero, TOSA gives +0.
    """
    data = load("mx_blocks")
    x = floats(data["x"]).reshape(data["shape"])
    name = VECTOR_NAMES[str(result["format"])]
    for column, rule in (("tosa_reference", MxRule.TOSA), ("ocp_floor_model", MxRule.OCP)):
        expected = floats(result[column]).reshape(data["shape"])
        got = dequantize_mx(quantize_mx(x, name, rule))
        same = (got.view("<u4") == expected.view("<u4")) | (np.isnan(got) & np.isnan(expected))
        if rule is MxRule.OCP:
            same = (same | ((name == "mxint8") & (got == expected)))[np.isfinite(x).all(1)]
        assert same.all(), f"{column}: {np.count_nonzero(~same)} of {same.size} differ"


@pytest.mark.parametrize("result", load("mx_codes")["results"], ids=lambda result: result["format"])
def test_codes_of_the_tosa_reference(result: dict[str, str]) -> None:
    """Scales and elements as the reference model stores them, of blocks that are NaN too."""
    data = load("mx_codes")
    got = quantize_mx(floats(data["x"]).reshape(data["shape"]), result["format"], MxRule.TOSA)
    assert got.scales.tobytes().hex() == result["scales"]
    assert got.elements.tobytes().hex() == result["elements"]


@pytest.mark.parametrize("name", MX_ELEMENTS)
def test_every_scale_and_element_is_dequantized(name: str) -> None:
    element = mx_element(name)
    count = 256 if element is None else FORMATS[element].codes
    codes = np.arange(256) % count
    elements = np.tile(codes.astype("|u1"), 256)
    scales = np.repeat(np.arange(256, dtype="|u1"), 256 // BLOCK)
    got = dequantize_mx(MxTensor(name, (256, 256), scales, elements)).astype("<f8")
    real = np.array([float(code - 256 * (code > 127)) / 64 if element is None else np.nan for code in range(256)])
    if element is not None:
        real[:count] = [as_float(element, code) for code in range(count)]
    factor = np.array([2.0 ** (code - 127) for code in range(255)] + [np.nan])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = (real[elements].reshape(256, 256) * factor[:, None]).astype("<f4")
    assert np.array_equal(got.astype("<f4"), expected, equal_nan=True)
    # One NaN, also where the element is one of either sign: CPUs differ in which of two they take.
    assert (got[255].astype("<f4").view("<u4") == 0x7FC00000).all()


def as_float(element: str | None, code: int) -> float:
    if element is None:
        return (code - 256 * (code > 127)) / 64
    return from_bits(decode(element, code))


def test_any_rank_and_nothing_at_all() -> None:
    x = sample()[:24].reshape(2, 3, 4 * BLOCK)
    tensor = quantize_mx(x, "mxfp8_e4m3")
    assert (tensor.shape, tensor.scales.size, tensor.elements.size) == ((2, 3, 128), 24, 768)
    assert dequantize_mx(tensor).shape == x.shape
    turned = np.asfortranarray(x)
    assert quantize_mx(turned, "mxfp8_e4m3").elements.tobytes() == tensor.elements.tobytes()
    assert dequantize_mx(quantize_mx(np.empty((4, 0), "<f4"), "mxint8")).shape == (4, 0)


def test_what_is_refused() -> None:
    with pytest.raises(TypeFitError, match="48 is not a multiple of 32"):
        quantize_mx(np.zeros((2, 48), "<f4"), "mxint8")
    with pytest.raises(TypeFitError, match="scalar"):
        quantize_mx(np.zeros((), "<f4"), "mxint8")
    with pytest.raises(UnsupportedError, match="float64"):
        quantize_mx(np.zeros(32), "mxint8")
    with pytest.raises(UnknownNameError, match="mxfp4_e2m1"):
        quantize_mx(np.zeros(32, "<f4"), "mxfp4")
    one, block = np.zeros(1, "|u1"), np.zeros(32, "|u1")
    with pytest.raises(TensorDataError, match="scales"):
        dequantize_mx(MxTensor("mxfp4_e2m1", (64,), one, np.zeros(64, "|u1")))
    with pytest.raises(TensorDataError, match="elements"):
        dequantize_mx(MxTensor("mxfp4_e2m1", (32,), one, one))
    with pytest.raises(TensorDataError, match="index 0"):
        dequantize_mx(MxTensor("mxfp4_e2m1", (32,), one, block + np.uint8(16)))
