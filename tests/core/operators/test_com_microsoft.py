"""onnxruntime's operators of com.microsoft beside fractions, and what follows from their descriptions.

Scales make many results ties, or lie one ulp beside those that do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import requant
from requant.description import TensorValue
from requant.errors import ParameterError, RequantError, TypeFitError, UnsupportedError
from requant.operators.onnxruntime.arithmetic import fma32
from requant.operators.registry import OPERATORS, operator_named
from tests.oracles import com_microsoft as oracle
from tests.support.cases import EXHAUSTIVE
from tests.support.operator_calls import run, tensor

Array = NDArray[Any]
SYSTEM = "com.microsoft"
BOUNDS = {"ui8": (0, 255), "i8": (-128, 127)}
ROUNDS = 40 if EXHAUSTIVE else 6
Parameters = tuple[float, int]


def draw(rng: np.random.Generator, name: str, *shape: int) -> Array:
    low, high = BOUNDS[name]
    return rng.integers(low, high + 1, shape)


def scale(rng: np.random.Generator, value: float) -> float:
    """The scale, or one ulp beside it."""
    toward = np.float32([-np.inf, value, np.inf][rng.integers(3)])
    return float(np.nextafter(np.float32(value), toward))


def of(rng: np.random.Generator, name: str, value: float) -> Parameters:
    return scale(rng, value), int(draw(rng, name))


def stated(prefix: str, name: str, parameters: Parameters) -> dict[str, TensorValue]:
    return {f"{prefix}_scale": tensor("f32", parameters[0]), f"{prefix}_zero_point": tensor(name, parameters[1])}


def of_softmax(name: str, codes: Any, x: Parameters, y: Parameters) -> dict[str, TensorValue]:
    of_x = {"X_scale": tensor("f32", x[0]), "x_zero_point": tensor(name, x[1])}
    return {"X": tensor(name, codes), **of_x, **stated("y", name, y)}


def three(rng: np.random.Generator, name: str) -> list[Parameters]:
    c = float(np.exp(rng.uniform(-8, 3)))
    ratios = [rng.integers(1, 6, 2) / 2, rng.integers(1, 512, 2) / 256, np.exp(rng.uniform(-4, 1, 2))][rng.integers(3)]
    return [of(rng, name, c * ratios[0]), of(rng, name, c * ratios[1]), (float(np.float32(c)), int(draw(rng, name)))]


def pair_inputs(name: str, a: Array, b: Array, parameters: list[Parameters]) -> dict[str, TensorValue]:
    found = {"A": tensor(name, a), "B": tensor(name, b)}
    for prefix, each in zip("ABC", parameters, strict=True):
        found |= stated(prefix, name, each)
    return found


def cases() -> Iterator[tuple[np.random.Generator, str]]:
    rng = np.random.default_rng(31)
    for _ in range(ROUNDS):
        yield from ((rng, name) for name in BOUNDS)


SHAPES = [((40,), (40,), False), ((1,), (40,), True), ((40,), (1,), False), ((1,), (1,), True), ((3, 1), (1, 9), True),
          ((5, 1), (1,), True), ((5, 1), (1, 1), False), ((5, 1), (), True), ((2, 1), (2, 1), False)]  # fmt: skip


def test_add() -> None:
    for rng, name in cases():
        for shape_a, shape_b, one in SHAPES:
            a, b, parameters = draw(rng, name, *shape_a), draw(rng, name, *shape_b), three(rng, name)
            found = run(f"{SYSTEM}.QLinearAdd", pair_inputs(name, a, b, parameters))["C"]
            pairs = zip(*(each.ravel().tolist() for each in np.broadcast_arrays(a, b)), strict=True)
            expected = [oracle.add(x, y, parameters, BOUNDS[name], one=one) for x, y in pairs]
            assert found.ravel().tolist() == expected, (shape_a, shape_b, parameters)


def test_add_as_neon() -> None:
    refused = 0
    for rng, name in cases():
        a, b, parameters = draw(rng, name, 40), draw(rng, name, 40), three(rng, name)
        if rng.random() < 0.3:
            ratio = float(rng.choice([2.0**-14, 2.0**-15, 255.99998, 256.0, np.nextafter(np.float32(2), 0), 2.0**-10]))
            parameters = [(ratio, 3), (float(rng.choice([ratio, 2.0**-14])), -1 if name == "i8" else 1), (1.0, 0)]
        pairs = zip(a.tolist(), b.tolist(), strict=True)
        expected = [oracle.add_neon(*pair, parameters, BOUNDS[name]) for pair in pairs]
        try:
            found = run(f"{SYSTEM}.QLinearAdd", pair_inputs(name, a, b, parameters), {"kernel": "neon"})["C"].tolist()
        except UnsupportedError:
            refused += 1
            found = [None] * 40
        assert found == expected, parameters
    assert refused
    one = np.ones(1, np.int8)
    for scale in (np.nan, np.inf, 0.0, -1.0):
        parameters = [(1.0, 0), (scale, 0), (1.0, 0)]
        with pytest.raises(UnsupportedError, match="neon adds integers only"):
            run(f"{SYSTEM}.QLinearAdd", pair_inputs("i8", one, one, parameters), {"kernel": "neon"})


def test_a_fused_product_is_rounded_once() -> None:
    """Products halfway between two numbers of f32, and addends that are lost in f64, above and below zero."""
    rng = np.random.default_rng(7)
    a = (2**23 + 1 + 2 * rng.integers(0, 1 << 20, 200)).astype(np.float32)
    b = np.where(rng.random(200) < 0.5, 1.5, -1.5).astype(np.float32)
    c = (2.0 ** rng.integers(-90, -40, 200) * rng.choice([-1, 0, 1], 200)).astype(np.float32)
    shift = (2.0 ** rng.integers(-140, 20, 200)).astype(np.float32)
    for scaled in (b, b * shift):
        found = fma32(a, scaled, c)
        terms = zip(*(map(float, each) for each in (a, scaled, c)), strict=True)
        exact = [Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in terms]
        assert [Fraction(float(each)) for each in found] == [oracle.rounded(each) for each in exact]


def test_multiply() -> None:
    for rng, name in cases():
        a, b, parameters = draw(rng, name, 100), draw(rng, name, 100), three(rng, name)
        parameters[2] = (parameters[2][0] * 2.0 ** float(rng.integers(-6, 8)), parameters[2][1])
        if rng.random() < 0.7:
            # A factor with few bits, so that many products are ties.
            factors = rng.integers(1, 8) / 4, rng.integers(1, 8) / 8, 2.0 ** rng.integers(-1, 7)
            parameters = [(float(each), int(draw(rng, name))) for each in factors]
        found = run(f"{SYSTEM}.QLinearMul", pair_inputs(name, a, b, parameters))["C"]
        pairs = zip(a.tolist(), b.tolist(), strict=True)
        assert found.tolist() == [oracle.multiply(*pair, parameters, BOUNDS[name]) for pair in pairs], parameters


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_a_table_gives_what_single_elements_give(operator: str) -> None:
    """From 65,536 elements on a table of all pairs is used, which blocks of elements do not know."""
    for rng, name in itertools.islice(cases(), 4):
        a, b, parameters = draw(rng, name, 70_000), draw(rng, name, 70_000), three(rng, name)
        whole = run(f"{SYSTEM}.{operator}", pair_inputs(name, a, b, parameters))["C"]
        parts = [
            run(f"{SYSTEM}.{operator}", pair_inputs(name, a[part], b[part], parameters))["C"]
            for part in (slice(0, 3), slice(3, 5000), slice(5000, 60_000), slice(60_000, None))
        ]
        assert np.array_equal(whole, np.concatenate(parts))


def test_what_i32_does_not_hold_is_the_lowest() -> None:
    for operator in ("QLinearAdd", "QLinearMul"):
        odd = ((1e9, 1.0, 1.0), (1.0, 1.0, 1e-9), (np.nan, 1.0, 1.0), (0, 0, 0))
        for name, scales in itertools.product(BOUNDS, odd):
            inputs = pair_inputs(name, np.array([100, 101]), np.array([90, 91]), [(each, 3) for each in scales])
            assert run(f"{SYSTEM}.{operator}", inputs)["C"].tolist() == [BOUNDS[name][0]] * 2


TABLES = {"QLinearSigmoid": (None, oracle.logistic), "QLinearLeakyRelu": (0.1, oracle.leaky(0.1))}


@pytest.mark.sample(1)
@pytest.mark.parametrize("operator", TABLES)
def test_tables(operator: str) -> None:
    alpha, function = TABLES[operator]
    for rng, name in itertools.islice(cases(), 20):
        codes = np.arange(BOUNDS[name][0], BOUNDS[name][1] + 1)
        x = of(rng, name, np.exp(rng.uniform(-7, 1)))
        y = of(rng, name, rng.choice([x[0] / 2, x[0] / 3, 1 / 256, x[0] * 2]))
        inputs = {"X": tensor(name, codes), **stated("X", name, x), **stated("Y", name, y)}
        found = run(f"{SYSTEM}.{operator}", inputs, {} if alpha is None else {"alpha": alpha})["Y"]
        assert found.tolist() == [oracle.entry(each, x, y, BOUNDS[name], function) for each in codes.tolist()]
        traced = run(f"{SYSTEM}.{operator}", inputs, {"trace": True} | ({} if alpha is None else {"alpha": alpha}))
        real = [oracle.rounded(Fraction(x[0]) * (each - x[1])) for each in codes.tolist()]
        expected = {each % 256: function(value) for each, value in zip(codes.tolist(), real, strict=True)}
        assert [Fraction(float(each)) for each in traced["activated"]] == [expected[each] for each in range(256)]


def test_concat_and_where() -> None:
    for rng, name in cases():
        parameters = three(rng, name)
        x, y, z = parameters
        a, b = draw(rng, name, 3, 4), draw(rng, name, 3, 4)
        of_a, of_b = (
            np.array([oracle.entry(each, own, z, BOUNDS[name], lambda value: value) for each in codes.ravel().tolist()])
            for codes, own in ((a, x), (b, y))
        )
        inputs = {"X_0": tensor(name, a), **stated("X_0", name, x), "X_1": tensor(name, b), **stated("X_1", name, y)}
        joined = run(f"{SYSTEM}.QLinearConcat", {**stated("Y", name, z), **inputs}, {"axis": -1})["Y"]
        assert np.array_equal(joined, np.concatenate([of_a.reshape(3, 4), of_b.reshape(3, 4)], -1))
        chosen = rng.random((3, 4)) < 0.5
        inputs = {"condition": tensor("ui1", chosen), "X": tensor(name, a), **stated("x", name, x),
                  "Y": tensor(name, b), **stated("y", name, y), **stated("z", name, z)}  # fmt: skip
        found = run(f"{SYSTEM}.QLinearWhere", inputs)["Z"]
        assert np.array_equal(found, np.where(chosen, of_a.reshape(3, 4), of_b.reshape(3, 4)))


def pooled(name: str, codes: Array, x: Parameters, y: Parameters) -> dict[str, TensorValue]:
    return {"X": tensor(name, codes), **stated("x", name, x), **stated("y", name, y)}


def test_global_average_pool() -> None:
    for rng, name in cases():
        codes = draw(rng, name, 2, 3, 4, 5)
        x = of(rng, name, np.exp(rng.uniform(-7, 1)))
        y = of(rng, name, x[0] * rng.choice([1.0, 0.1, 1 / 3, 0.5]))
        expected = [oracle.global_pool(each.tolist(), x, y, BOUNDS[name]) for each in codes.reshape(6, 20)]
        inputs = pooled(name, codes, x, y)
        # A window that is all of X is pooled in the same way.
        found = run(f"{SYSTEM}.QLinearGlobalAveragePool", inputs)["Y"]
        assert found.ravel().tolist() == expected
        assert run(f"{SYSTEM}.QLinearAveragePool", inputs, {"kernel_shape": [4, 5]})["Y"].ravel().tolist() == expected
        last = pooled(name, np.moveaxis(codes, 1, -1), x, y)
        found = run(f"{SYSTEM}.QLinearGlobalAveragePool", last, {"channels_last": 1})["Y"]
        assert found.ravel().tolist() == expected


def window(codes: Array, start: tuple[int, int], kernel: tuple[int, int]) -> list[int]:
    rows, columns = (range(max(at, 0), max(at, 0) + size + min(at, 0)) for at, size in zip(start, kernel, strict=True))
    return [int(codes[i, j]) for i in rows for j in columns if i < codes.shape[0] and j < codes.shape[1]]


def test_average_pool() -> None:
    for rng, name in cases():
        codes, kernel = draw(rng, name, 6, 7), (3, 2)
        x = of(rng, name, np.exp(rng.uniform(-7, 1)))
        y = of(rng, name, x[0] * rng.choice([1.0, 2.0, 1 / 3, 0.5]))
        pads, strides = (1, 0, 2, 1), (2, 3)
        for include in (0, 1):
            given = {"kernel_shape": kernel, "pads": pads, "strides": strides, "count_include_pad": include}
            found = run(f"{SYSTEM}.QLinearAveragePool", pooled(name, codes[None, None], x, y), given)["Y"][0, 0]
            assert found.shape == (4, 3)
            for i, j in np.ndindex(found.shape):
                seen = window(codes, (2 * i - 1, 3 * j), kernel)
                count = 6 if include else len(seen)
                assert found[i, j] == oracle.pool(seen, count, x, y, BOUNDS[name])


def test_softmax() -> None:
    for rng, name in cases():
        codes = draw(rng, name, 2, int(rng.integers(3, 12)))
        codes = codes // int(rng.choice([1, 16, 64, 256]))
        x, y = of(rng, name, np.exp(rng.uniform(-9, 2))), of(rng, name, rng.choice([1 / 256, 1 / 255, 1 / 3, 0.3]))
        if rng.random() < 0.5:
            y = (float(np.float32(1 / (codes.shape[1] * (int(rng.integers(90)) + 0.5)))), y[1])
        inputs = of_softmax(name, codes, x, y)
        for implementation, of_f32 in (("onnxruntime", True), ("onnxruntime_1_32", False)):
            found = run(f"{SYSTEM}.QLinearSoftmax", inputs, {"opset": 13}, implementation=implementation)["Y"]
            expected = [oracle.softmax(row.tolist(), x[0], y, BOUNDS[name], in_f32=of_f32) for row in codes]
            assert found.tolist() == expected


def columns(rng: np.random.Generator, name: str, count: int) -> tuple[Array, Array]:
    return np.exp(rng.uniform(-7, 1, count)).astype(np.float32), draw(rng, name, count)


def test_products() -> None:
    for rng, name in cases():
        a, b = draw(rng, name, 3, 5), draw(rng, "i8", 5, 4)
        (sa, za), (sb, zb) = of(rng, name, np.exp(rng.uniform(-7, 1))), columns(rng, "i8", 4)
        c, bias = rng.integers(-9000, 9000, 4), rng.normal(size=4).astype(np.float32)
        y = of(rng, name, sa * float(sb[0]) * 64)
        inputs = {"A": tensor(name, a), **stated("a", name, (sa, za)), "B": tensor("i8", b.T),
                  "b_scale": tensor("f32", sb), "b_zero_point": tensor("i8", zb), "C": tensor("i32", c)}  # fmt: skip
        attributes = {"alpha": 0.3, "transB": 1}
        real = run(f"{SYSTEM}.QGemm", inputs, attributes)["Y"]
        traced = run(f"{SYSTEM}.QGemm", {**inputs, **stated("y", name, y)}, {**attributes, "trace": True})
        stored = traced["Y"]
        factors = [oracle.rounded(Fraction(float(each)) / Fraction(y[0])) for each in traced["scale"].ravel()]
        for (m, n), each in np.ndenumerate(traced["scaled"]):
            real_sum = oracle.rounded(Fraction(int(traced["accumulator"][m, n])))
            assert Fraction(float(each)) == oracle.rounded(real_sum * factors[n])
        inputs = {**inputs, "B": tensor("i8", b), "bias": tensor("f32", bias)}
        del inputs["C"]
        to_float = run(f"{SYSTEM}.MatMulIntegerToFloat", inputs)["Y"]
        as_neon = run(f"{SYSTEM}.MatMulIntegerToFloat", inputs, {"kernel": "neon"})["Y"]
        for m, n in np.ndindex(3, 4):
            scale_b, zero = float(sb[n]), int(zb[n])
            total = oracle.product(a[m].tolist(), b[:, n].tolist(), za, zero, int(c[n]))
            assert real[m, n] == oracle.gemm(total, 0.3, sa, scale_b, None, BOUNDS[name])
            assert stored[m, n] == oracle.gemm(total, 0.3, sa, scale_b, y, BOUNDS[name])
            total = oracle.product(a[m].tolist(), b[:, n].tolist(), za, zero)
            assert to_float[m, n] == oracle.to_float(total, sa, scale_b, float(bias[n]))
            assert as_neon[m, n] == oracle.to_float(total, sa, scale_b, float(bias[n]), fused=True)


def test_dynamic_quantize_matmul_is_two_operators() -> None:
    rng = np.random.default_rng(5)
    for count in (1, 7, 40):
        real, b = rng.normal(size=(3, count)).astype(np.float32), draw(rng, "i8", count, 4)
        quantized = run("onnx.DynamicQuantizeLinear", {"x": tensor("f32", real)}, opset=11)
        shared = {"B": tensor("i8", b), "b_scale": tensor("f32", 0.37), "b_zero_point": tensor("i8", -3)}
        inputs = {"A": tensor("ui8", quantized["y"]), "a_scale": tensor("f32", quantized["y_scale"]),
                  "a_zero_point": tensor("ui8", quantized["y_zero_point"]), **shared}  # fmt: skip
        expected = run(f"{SYSTEM}.MatMulIntegerToFloat", inputs)["Y"]
        found = run(f"{SYSTEM}.DynamicQuantizeMatMul", {"A": tensor("f32", real), **shared})["Y"]
        assert np.array_equal(found, expected)


def test_weights_of_bits() -> None:
    rng = np.random.default_rng(6)
    for bits, block, form in itertools.product((2, 4, 8), (16, 32), ("", "ui8", "f32")):
        if form == "f32" and bits != 4:
            continue
        k, n = 40, 3
        blocks = -(-k // block)
        codes, zeros = rng.integers(0, 1 << bits, (n, blocks * block)), rng.integers(0, 1 << bits, (n, blocks))
        scales = rng.normal(size=(n, blocks)).astype(np.float32)

        def packed(rows: Array, bits: int = bits) -> Array:
            """Low bits first, each row on its own."""
            values = [sum(int(code) << (bits * at) for at, code in enumerate(row)) for row in rows]
            size = -(-rows.shape[1] * bits // 8)
            return np.frombuffer(b"".join(each.to_bytes(size, "little") for each in values), np.uint8)

        inputs = {"B": tensor("ui8", packed(codes).reshape(n, blocks, -1)), "scales": tensor("f32", scales)}
        real_zeros = zeros + (0.375 if form == "f32" else 0.0)
        if form:
            inputs["zero_points"] = tensor(form, real_zeros if form == "f32" else packed(zeros))
        else:
            real_zeros = np.full((n, blocks), float(1 << (bits - 1)))
        given = {"K": k, "N": n, "bits": bits, "block_size": block}
        found = run(f"{SYSTEM}.MatMulNBits", inputs, given)["weights"]
        for row, column in np.ndindex(n, k):
            at = row, column // block
            zero_point, of_block = float(real_zeros[at]), float(scales[at])
            expected = oracle.weight(int(codes[row, column]), zero_point, of_block, real_zero_point=form == "f32")
            assert Fraction(float(found[row, column])) == expected


TRACED = [name for name, operator in OPERATORS.items() if operator.system == SYSTEM and operator.stages]


@pytest.mark.parametrize("name", TRACED)
def test_a_trace_has_the_stages_and_the_same_output(name: str) -> None:
    operator = operator_named(name)
    inputs = {}
    for key, given in operator.example["inputs"].items():
        element = given["type"].removeprefix("tensor<").removesuffix(">").rpartition("x")[2]
        shape = [int(each) for each in given["type"].removeprefix("tensor<").split("x")[:-1]]
        inputs[key] = tensor(element, np.array(given["values"]).reshape(shape))
    attributes = {key: each for key, each in operator.example.get("attributes", {}).items() if key != "trace"}
    opset = operator.example.get("opset")
    (plain,) = run(name, inputs, attributes, opset=opset).items()
    traced = run(name, inputs, {**attributes, "trace": True}, opset=opset)
    assert [*traced][-1] == plain[0]
    assert np.array_equal(traced[plain[0]], plain[1])
    assert set(traced) - {plain[0]} <= {each.name for each in operator.stages}
    assert len(traced) > 1


def test_what_is_refused() -> None:
    one = pair_inputs("i8", np.array([1, 2]), np.array([3, 4]), [(0.5, 0)] * 3)
    for inputs, error, pointer in (
        ({**one, "B": tensor("ui8", [1, 2])}, UnsupportedError, "/inputs/B"),
        ({**one, "B": tensor("i8", [1, 2, 3])}, TypeFitError, "/inputs/B"),
        ({**one, "A_scale": tensor("f32", [0.5, 0.5])}, TypeFitError, "/inputs/A_scale"),
        ({**one, "C_zero_point": tensor("ui8", 0)}, UnsupportedError, "/inputs/C_zero_point"),
    ):
        with pytest.raises(error) as raised:
            run(f"{SYSTEM}.QLinearAdd", inputs)
        assert raised.value.pointer == pointer
    image = pooled("ui8", np.zeros((1, 1, 3, 3)), (1.0, 0), (1e-9, 0))
    with pytest.raises(ParameterError) as raised:
        run(f"{SYSTEM}.QLinearGlobalAveragePool", image)
    assert raised.value.pointer == "/inputs/y_scale"
    with pytest.raises(RequantError) as raised:
        run(f"{SYSTEM}.QLinearAveragePool", image, {"kernel_shape": [4, 4]})
    assert raised.value.pointer == "/inputs/X"
    joined = {**stated("Y", "i8", (1.0, 0)), "X_0": tensor("i8", [1]), **stated("X_0", "i8", (1.0, 0))}
    for name, needed in (("X_1", "X_1_scale"), ("X_2", "X_1")):
        with pytest.raises(TypeFitError, match=f"{name} needs {needed}") as raised:
            run(f"{SYSTEM}.QLinearConcat", {**joined, name: tensor("i8", [1])}, {"axis": 0})
        assert raised.value.pointer == f"/inputs/{name}"


def test_an_example_of_onnxruntime_25512() -> None:
    """One element is -112, two or more -113."""
    given: dict[str, Any] = {
        "A_scale": np.float32(0.025346905),
        "B_scale": np.float32(0.03580992),
        "C_scale": np.float32(0.036585972),
    }
    zeros: dict[str, Any] = {
        "A_zero_point": np.int8(-106),
        "B_zero_point": np.int8(-120),
        "C_zero_point": np.int8(-105),
    }
    for count, expected in ((1, -112), (2, -113), (70_000, -113)):
        a, b = np.full(count, -114, np.int8), np.full(count, -122, np.int8)
        found = requant.com.microsoft.QLinearAdd(A=a, B=b, **given, **zeros)
        assert np.unique(found).tolist() == [expected]


def test_softmax_overflows_until_1_31() -> None:
    for name, zero_point, expected in (("ui8", 78, (78, 255)), ("i8", 78, (-128, 127)), ("i8", -3, (127, 127))):
        inputs = of_softmax(name, [[3]], (2.37, 0), (1 / 256, zero_point))
        for implementation, value in zip(("onnxruntime", "onnxruntime_1_32"), expected, strict=True):
            found = run(f"{SYSTEM}.QLinearSoftmax", inputs, {"opset": 13}, implementation=implementation)["Y"]
            assert found.tolist() == [[value]]
