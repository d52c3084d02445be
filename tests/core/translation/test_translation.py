"""Types as other systems hold them: who holds what against an oracle, round trips, golden operands, bad operands."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requant.errors import RequantError, TypeFitError, UnsupportedError
from requant.mlir import parse_type, print_type
from requant.translation import TRANSLATIONS, Subject, TranslationResult, translate
from requant.translation.translation import subject_of
from tests.oracles import translation as oracle
from tests.oracles.translation import WIDTHS, Case
from tests.support.cases import EXHAUSTIVE, sample

STORAGES = (*WIDTHS, *oracle.FLOATS)
READABLE = ("onnx", "onednn", "litert", "torch")
SCALES = (0.5, 0.1, 0.0078125, 3.0, 0.3333333333333333)


def subject(text: str, to: str | None = None) -> Subject:
    """A type as it is translated."""
    found = subject_of(parse_type(text))
    return found if to is None else Subject(found.element, found.shape, subject_of(parse_type(to)))


def operands(answer: TranslationResult) -> dict[str, Any]:
    assert answer.written is not None, answer.reason
    return answer.written.operands


def layouts(scales: tuple[float, ...], zeros: tuple[int, ...]) -> list[dict[str, Any]]:
    """Every granularity of a 4 x 64 tensor, with scales and zero points taken in turn."""

    def many(count: int) -> dict[str, Any]:
        return {
            "scales": tuple(scales[i % len(scales)] for i in range(count)),
            "zero_points": tuple(zeros[i % len(zeros)] for i in range(count)),
        }

    return [
        many(1),
        {**many(4), "axis": 0},
        {**many(64), "axis": 1},
        {**many(8), "blocks": (1, 32)},
        {**many(4), "blocks": (2, 32)},
        {**many(2), "blocks": (4, 32)},
        {**many(2), "blocks": (2, 64)},
        {**many(8), "blocks": (1, 40)},
        {**many(256), "blocks": (1, 1)},
    ]


def grid() -> list[Case]:
    """Storages, expressed types, granularities, zero points and bounds."""
    found = []
    for storage, expressed in product(STORAGES, ("f32", "f16", "bf16", "f64")):
        low, high = Case(storage, expressed, (1.0,), (0,)).range
        zeros = [(0,), (1,), (low,), (high, 0)] + ([] if storage in oracle.FLOATS else [(high + 1,)])
        for zero, bounds in product(zeros, (None, (low, high), (low + 1, high))):
            for layout in layouts((0.5, 0.25), zero):
                outside = zero[0] > high
                if "blocks" in layout and (storage in oracle.FLOATS or outside):
                    continue  # MLIR has no such type
                if bounds and "blocks" in layout and bounds != (low, high):
                    continue
                found.append(Case(storage, expressed, bounds=bounds, **layout))
    return found


def holders(case: Case) -> dict[str, Any]:
    """What the oracle says of each system."""
    return {
        "onnx": oracle.onnx_opset(case),
        "onednn": oracle.onednn_operators(case),
        "litert": oracle.litert_operators(case),
        "torch": oracle.torch_dtype(case),
        "tosa": oracle.tosa_zero_point(case),
        "stablehlo": oracle.stablehlo_takes(case),
    }


def ours(case: Case) -> dict[str, Any]:
    """What the translations say, in the oracle's terms."""
    found = {system: translate(subject(case.text), system).written for system in TRANSLATIONS}
    assert found["mlir"] is not None
    assert found["mlir"].operands["type"] == print_type(parse_type(case.text))
    onednn, litert, torch = found["onednn"], found["litert"], found["torch"]
    return {
        "onnx": found["onnx"] and found["onnx"].opset,
        "onednn": set() if onednn is None else set(onednn.operators),
        "litert": None if litert is None else set(litert.operators),
        "torch": torch and torch.operands["dtype"],
        "tosa": found["tosa"] is not None,
        "stablehlo": found["stablehlo"] is not None,
    }


def test_the_text_of_a_type_is_made_once() -> None:
    found = subject("tensor<2x!quant.uniform<i8:f32:0, {0.5, 0.25}>>")
    texts = [operands(translate(found, system))["type"] for system in ("mlir", "stablehlo")]
    assert texts[0] == print_type(found.type)
    assert all(text is found.text for text in texts)


def test_who_holds_what() -> None:
    """Every system agrees with the oracle over the grid, and both answers occur for each."""
    seen: dict[str, set[bool]] = {}
    for case in sample(grid(), 700):
        expected = holders(case)
        assert ours(case) == expected, case.text
        for system, answer in expected.items():
            seen.setdefault(system, set()).add(bool(answer))
    assert all(answers == {True, False} for answers in seen.values()), seen


def expanded(found: Subject) -> list[tuple[float, int]]:
    """The scale and zero point of each element, in plain Python."""
    assert found.shape is not None
    element, parameters = found.element, list(zip(found.scales, found.zero_points, strict=True))
    axis = getattr(element, "axis", None)
    blocks, counts = dict(getattr(element, "blocks", ())), getattr(element, "scale_shape", None)
    result = []
    for index in product(*map(range, found.shape)):
        if counts is not None:
            place = 0
            for d, i in enumerate(index):
                place = place * counts[d] + i // blocks.get(d, found.shape[d])
        else:
            place = 0 if axis is None else index[axis]
        result.append(parameters[place])
    return result


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Types of small tensors, of any granularity."""
    storage, expressed = draw(st.sampled_from(STORAGES)), draw(st.sampled_from(("f32", "f16", "bf16")))
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    kinds = ("tensor", "axis") if storage in oracle.FLOATS else ("tensor", "axis", "blocks", "blocks along one")
    kind = draw(st.sampled_from(kinds))
    along = draw(st.integers(0, len(shape) - 1))
    axis = along if kind == "axis" else None
    blocks = None
    if kind == "blocks":
        blocks = tuple(draw(st.integers(1, size)) for size in shape)
    elif kind == "blocks along one":
        blocks = tuple(draw(st.integers(1, size)) if d == along else 1 for d, size in enumerate(shape))
    count = 1
    if axis is not None:
        count = shape[axis]
    for size, block in zip(shape, blocks or shape, strict=True):
        count *= -(-size // block)
    low, high = Case(storage, expressed, (1.0,), (0,)).range
    zero = st.integers(low, high) if draw(st.booleans()) else st.just(0)
    # Numbers of few bits, which all formats hold, and those that some do not.
    scale = st.builds(lambda m, e: m * 2.0**e, st.integers(1, 127), st.integers(-12, 4))
    if draw(st.booleans()):
        scale = st.floats(1e-4, 100, allow_subnormal=False)
    scales = tuple(draw(st.lists(scale, min_size=count, max_size=count)))
    zeros = tuple(draw(st.lists(zero, min_size=count, max_size=count)))
    narrow = blocks is None and storage not in oracle.FLOATS and draw(st.booleans())
    bounds = (low + 1, high) if narrow and high - low > 1 else None
    return Case(storage, expressed, scales, zeros, bounds, axis, blocks, shape)


@given(cases())
def test_there_and_back(case: Case) -> None:
    """What no loss is reported of comes back as it was; scales that are reported come back as what was reported."""
    before = subject(case.text)
    for system in READABLE:
        answer = translate(before, system)
        if answer.written is None:
            continue
        after, rounded = TRANSLATIONS[system].read(answer.written.operands, before.shape)
        assert not rounded
        changed = {each.index: each.becomes for each in answer.written.rounded}
        scales = tuple(changed.get(i, scale) for i, scale in enumerate(before.scales))
        assert (after.scales, after.zero_points) == (scales, before.zero_points)
        if not answer.written.losses:
            assert after.storage == before.storage
            assert after.element.expressed == before.element.expressed
            assert type(after.element) is type(before.element)
        if answer.exact:
            assert expanded(after) == expanded(before)
            assert print_type(after.type) == print_type(before.type)


@given(cases())
def test_what_is_rounded_is_said(case: Case) -> None:
    before = subject(case.text)
    for system in ("onnx", "onednn", "litert"):
        answer = translate(before, system)
        if answer.written is None:
            continue
        expected = [(i, s, oracle.in_format(s, case.expressed)) for i, s in enumerate(before.scales)]
        found = [(each.index, each.scale, each.becomes) for each in answer.written.rounded]
        assert found == [each for each in expected if each[1] != each[2]]
    torch = translate(before, "torch").written
    assert torch is None or not torch.rounded


def test_the_grid_comes_back() -> None:
    """Scales of the grid are exact everywhere: what has no loss comes back as the same text."""
    counted = dict.fromkeys(READABLE, 0)
    for case in sample(grid(), 700):
        before = subject(case.text)
        for system in READABLE:
            answer = translate(before, system)
            if answer.written is not None and not answer.written.losses:
                assert answer.exact
                after, rounded = TRANSLATIONS[system].read(answer.written.operands, before.shape)
                assert (print_type(after.type), rounded) == (print_type(before.type), ()), system
                counted[system] += 1
    assert min(counted.values()) >= (150 if EXHAUSTIVE else 15), counted


PER_AXIS = "tensor<2x3x!quant.uniform<u8:f32:1, {0.5:3, 0.1, 0.25:255}>>"


@pytest.mark.parametrize(
    ("text", "system", "expected"),
    [
        (
            PER_AXIS,
            "onnx",
            {
                "x_type": "ui8",
                "scale_type": "f32",
                "scale_shape": [3],
                "x_scale": [0.5, 0.10000000149011612, 0.25],
                "x_zero_point": [3, 0, 255],
                "axis": 1,
            },
        ),
        (
            "!quant.uniform<i4:f16:{0:1, 1:32}, {{0.5:1, 0.25}, {1.0, 2.0:-8}}>",
            "onnx",
            {
                "x_type": "i4",
                "scale_type": "f16",
                "scale_shape": [2, 2],
                "x_scale": [0.5, 0.25, 1.0, 2.0],
                "x_zero_point": [1, 0, 0, -8],
                "axis": 1,
                "block_size": 32,
            },
        ),
        (
            PER_AXIS,
            "onednn",
            {
                "data_type": "ui8",
                "scales_type": "f32",
                "qtype": "per_channel",
                "axis": 1,
                "scales": [0.5, 0.10000000149011612, 0.25],
                "zps": [3, 0, 255],
            },
        ),
        (
            "tensor<4x64x!quant.uniform<u4:f32:{1:32}, {{0.5:3, 0.25}}>>",
            "onednn",
            {
                "data_type": "ui4",
                "scales_type": "f32",
                "qtype": "per_group",
                "group_shape": [4, 32],
                "scales_shape": [1, 2],
                "scales": [0.5, 0.25],
                "zps": [3, 0],
            },
        ),
        (
            PER_AXIS,
            "litert",
            {
                "type": "UINT8",
                "scale": [0.5, 0.10000000149011612, 0.25],
                "zero_point": [3, 0, 255],
                "quantized_dimension": 1,
            },
        ),
        (
            "!quant.uniform<i8<-127:127>:f32, 0.1:5>",
            "torch",
            {
                "qscheme": "per_tensor_affine",
                "dtype": "int8",
                "quant_min": -127,
                "quant_max": 127,
                "scale": [0.1],
                "zero_point": [5],
            },
        ),
        (
            "!quant.uniform<u8:f32, 0.1:5>",
            "torch",
            {
                "qscheme": "per_tensor_affine",
                "dtype": "uint8",
                "quant_min": 0,
                "quant_max": 255,
                "scale": [0.1],
                "zero_point": [5],
                "quantized_dtype": "quint8",
            },
        ),
        ("!quant.uniform<u8:f32, 0.1:5>", "tosa", {"input_type": "i8", "input_unsigned": True, "input_zp": 5}),
        (PER_AXIS, "stablehlo", {"type": print_type(parse_type(PER_AXIS))}),
    ],
)
def test_golden_operands(text: str, system: str, expected: dict[str, Any]) -> None:
    assert operands(translate(subject(text), system)) == expected


def test_multipliers_of_a_rescale() -> None:
    """0.75 / 0.5 = 1.5 is exact; 0.1 / 0.3 is not, and what it becomes is said exactly."""
    exact = translate(subject("!quant.uniform<i8:f32, 0.75:3>", "!quant.uniform<i16:f32, 0.5>"), "tosa")
    assert operands(exact) == {
        "input_type": "i8",
        "input_unsigned": False,
        "input_zp": 3,
        "output_type": "i16",
        "output_unsigned": False,
        "output_zp": 0,
        "multiplier": [1610612736],
        "shift": [30],
        "scale32": True,
        "per_channel": False,
    }
    assert exact.written is not None
    assert not exact.written.rounded
    channels = translate(
        subject("tensor<4x2x!quant.uniform<i32:f32:1, {0.1, 0.75}>>", "!quant.uniform<i8:f32, 0.3:-7>"), "tosa"
    )
    found = operands(channels)
    assert (found["per_channel"], found["output_zp"]) == (True, -7)
    assert channels.written is not None
    first, second = channels.written.rounded
    for index, each in enumerate((first, second)):
        assert each.scale == Fraction((0.1, 0.75)[index]) / Fraction(0.3)
        assert each.becomes == Fraction(found["multiplier"][index], 2 ** found["shift"][index])
        assert abs(Fraction(each.becomes) / Fraction(each.scale) - 1) < Fraction(1, 2**30)


def test_a_rescale_back() -> None:
    source = subject("!quant.uniform<i8:f32, 0.75:3>")
    written = operands(translate(Subject(source.element, None, subject("!quant.uniform<i16:f32, 0.5>")), "tosa"))
    after, rounded = TRANSLATIONS["tosa"].read({**written, "input": source}, None)
    assert (print_type(after.type), rounded) == ("!quant.uniform<i16:f32, 5.000000e-01>", ())
    odd, rounded = TRANSLATIONS["tosa"].read({**written, "input": source, "multiplier": [3 << 28]}, None)
    assert (odd.scales, len(rounded)) == ((1.0,), 0)
    third, rounded = TRANSLATIONS["tosa"].read({**written, "input": source, "multiplier": [7 << 27]}, None)
    assert [each.scale for each in rounded] == [Fraction(6, 7)]
    assert [each.becomes for each in rounded] == list(third.scales) == [6 / 7]


@pytest.mark.parametrize(
    ("text", "system", "part"),
    [
        ("!quant.uniform<i8<-127:127>:f32, 0.5>", "onnx", "no storage bounds"),
        ("!quant.uniform<i8:f32, 0.5:300>", "onnx", "number 0 is 300"),
        ("!quant.uniform<i3:f32, 0.5>", "onnx", "not i3"),
        ("!quant.uniform<i8:f64, 0.5>", "onnx", "not as f64"),
        ("!quant.uniform<f8E5M2:f32, 0.5:1>", "onnx", "are 0"),
        ("tensor<4x4x!quant.uniform<i8:f32:{0:2, 1:2}, {{0.5, 0.5}, {0.5, 0.5}}>>", "onnx", "dimensions 0 and 1"),
        ("!quant.uniform<i8:f32:{1:2}, {{0.5, 0.5}}>", "onnx", "unknown without a shape"),
        ("tensor<2x6x!quant.uniform<i8:f32:{0:1, 1:4}, {{0.5, 0.5}, {0.5, 0.5}}>>", "onednn", "divide"),
        ("tensor<8x!quant.uniform<i8:f32:{0:4}, {0.5, 0.5}>>", "onednn", "rank 2 and more"),
        ("!quant.uniform<f4E2M1FN:f32, 0.5>", "onednn", "not f4E2M1FN"),
        ("!quant.uniform<i16:f32:{0:1}, {0.5}>", "litert", "not of blocks"),
        ("!quant.uniform<i32:f32, 0.5:1>", "litert", "are 0"),
        ("!quant.uniform<u32:f32, 0.5>", "torch", "stores int8"),
        ("!quant.uniform<i8<-100:100>:f32, 0.5:101>", "torch", "-100 to 100"),
        ("!quant.uniform<i8:f32:0, {0.5:1, 0.5:2}>", "tosa", "one zero point"),
        ("!quant.uniform<i16:f32, 0.5:1>", "tosa", "zero point 0"),
        ("!quant.uniform<i8:f32, 0.5:300>", "stablehlo", "C7"),
    ],
)  # fmt: skip
def test_reasons(text: str, system: str, part: str) -> None:
    answer = translate(subject(text), system)
    assert answer.written is None
    assert part in answer.reason


@pytest.mark.parametrize(
    ("source", "target", "part"),
    [
        ("!quant.uniform<u8:f32, 0.5>", "!quant.uniform<u8:f32, 0.5>", "at most one unsigned"),
        ("!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i4:f32, 0.5>", "not i4"),
        ("!quant.uniform<i8:f32:0, {0.5, 0.5}>", "!quant.uniform<i8:f32, 0.5>", "depends on the shape"),
        ("tensor<2x3x!quant.uniform<i8:f32:0, {0.5, 0.5}>>", "!quant.uniform<i8:f32, 0.5>", "last dimension only"),
        ("!quant.uniform<i8:f32, 1.0e30>", "!quant.uniform<i8:f32, 1.0e-30>", "needs shift"),
    ],
)
def test_rescales_that_are_not(source: str, target: str, part: str) -> None:
    answer = translate(subject(source, target), "tosa")
    assert answer.written is None
    assert part in answer.reason


@pytest.mark.parametrize("text", ["f32", "tensor<4xi8>", "!quant.any<i8>", "!quant.calibrated<f32<-1.0:1.0>>"])
def test_types_without_a_scale(text: str) -> None:
    with pytest.raises(UnsupportedError, match="has no scale"):
        subject(text)


@pytest.mark.parametrize(
    "text",
    [
        "!quant.uniform<i8:f32:64, {0.5}>",
        "!quant.uniform<i8:f32:{1:2}, {0.5}>",
        "tensor<4x!quant.uniform<i8:f32:1, {0.5}>>",
    ],
)
def test_axes_that_no_tensor_has(text: str) -> None:
    with pytest.raises(TypeFitError, match="is not below"):
        subject(text)


def test_spellings_are_the_same_numbers() -> None:
    for text, storage in (("!quant.uniform<ui8:f32, 0.5>", "u8"), ("!quant<uniform<si8:f32, 0.5>>", "i8")):
        answer = translate(subject(text), "onnx")
        assert answer.written is not None
        assert not answer.exact
        assert f"read back as {storage}" in answer.written.losses[0]
        assert translate(subject(text), "mlir").exact


ONNX: dict[str, Any] = {"x_type": "i8", "x_scale": [0.5]}
ONEDNN: dict[str, Any] = {"data_type": "i8", "scales": [0.5]}
GROUPS: dict[str, Any] = {**ONEDNN, "qtype": "per_group", "group_shape": [1, 2]}
LITERT: dict[str, Any] = {"type": "INT8", "scale": [0.5]}
TORCH: dict[str, Any] = {"dtype": "int8", "scale": [0.5]}
TOSA: dict[str, Any] = {
    "input": subject("!quant.uniform<i8:f32, 0.75:3>"),
    "output_type": "i8",
    "multiplier": [1 << 30],
    "shift": [30],
}


@pytest.mark.parametrize(
    ("system", "given", "shape", "pointer"),
    [
        ("onnx", {**ONNX, "x_type": "i3"}, None, "/x_type"),
        ("onnx", {**ONNX, "x_type": "f8E4M3FNUZ"}, None, "/x_type"),
        ("onnx", {**ONNX, "scale_type": "f64"}, None, "/scale_type"),
        ("onnx", {**ONNX, "x_scale": []}, None, "/x_scale"),
        ("onnx", {**ONNX, "x_scale": [0.0]}, None, "/x_scale/0"),
        ("onnx", {**ONNX, "x_scale": [1e39]}, None, "/x_scale/0"),
        ("onnx", {**ONNX, "x_zero_point": [0, 0]}, None, "/x_zero_point"),
        ("onnx", {**ONNX, "x_zero_point": [128]}, None, "/x_zero_point/0"),
        ("onnx", {**ONNX, "x_scale": [0.5, 0.5]}, None, "/scale_shape"),
        ("onnx", {**ONNX, "x_scale": [0.5] * 4, "scale_shape": [2, 2]}, None, "/scale_shape"),
        ("onnx", {**ONNX, "x_scale": [0.5] * 2, "scale_shape": [2], "axis": -1}, None, "/axis"),
        ("onnx", {**ONNX, "x_scale": [0.5] * 2, "scale_shape": [2], "axis": 2}, (2, 2), "/axis"),
        ("onnx", {**ONNX, "x_scale": [0.5] * 2, "scale_shape": [2], "axis": 1}, (2, 3), ""),
        ("onnx", {**ONNX, "x_scale": [0.5] * 2, "scale_shape": [2], "opset": 10}, None, "/scale_shape"),
        ("onnx", {**ONNX, "opset": 9}, None, "/opset"),
        ("onnx", {**ONNX, "x_type": "i4", "opset": 20}, None, "/x_type"),
        ("onnx", {**ONNX, "scale_type": "f16", "opset": 18}, None, "/scale_type"),
        ("onnx", {**ONNX, "output_dtype": 2}, None, "/output_dtype"),
        ("onnx", {**ONNX, "output_dtype": 1, "opset": 21}, None, "/output_dtype"),
        ("onnx", {**ONNX, "block_size": 2}, None, "/scale_shape"),
        ("onnx", {**ONNX, "block_size": 2, "scale_shape": [1, 1], "opset": 19}, None, "/block_size"),
        ("onnx", {**ONNX, "block_size": 2, "scale_shape": [1, 1]}, (1, 4), "/scale_shape"),
        ("onednn", {**ONEDNN, "data_type": "i16"}, None, "/data_type"),
        ("onednn", {**ONEDNN, "data_type": "f8E5M2", "zps": [0]}, None, "/zps"),
        ("onednn", {**ONEDNN, "data_type": "f8E5M2", "scales_type": "f16"}, None, "/data_type"),
        ("onednn", {**ONEDNN, "scales_type": "f64"}, None, "/scales_type"),
        ("onednn", {**ONEDNN, "qtype": "per_row"}, None, "/qtype"),
        ("onednn", {**ONEDNN, "scales": [0.5, 0.5]}, None, "/scales"),
        ("onednn", {**ONEDNN, "zps": [2**31]}, None, "/zps/0"),
        ("onednn", {**ONEDNN, "qtype": "per_channel", "axis": 2}, (1, 1), "/axis"),
        ("onednn", {**ONEDNN, "qtype": "per_group"}, None, "/group_shape"),
        ("onednn", GROUPS, None, "/scales_shape"),
        ("onednn", GROUPS, (1, 3), "/group_shape"),
        ("onednn", {**GROUPS, "scales_shape": [2, 1]}, (1, 2), "/scales_shape"),
        ("litert", {**LITERT, "type": "FLOAT32"}, None, "/type"),
        ("litert", {**LITERT, "scale": [-0.5]}, None, "/scale/0"),
        ("litert", {**LITERT, "scale": [0.5, 0.5], "zero_point": [0]}, None, "/zero_point"),
        ("litert", {**LITERT, "zero_point": [128]}, None, "/zero_point/0"),
        ("litert", {**LITERT, "type": "INT32", "zero_point": [1]}, None, "/zero_point/0"),
        ("litert", {**LITERT, "scale": [0.5, 0.5], "quantized_dimension": -1}, None, "/quantized_dimension"),
        ("torch", {"scale": [0.5]}, None, "/dtype"),
        ("torch", {**TORCH, "dtype": "qint8"}, None, "/dtype"),
        ("torch", {**TORCH, "quantized_dtype": "int8"}, None, "/quantized_dtype"),
        ("torch", {**TORCH, "quantized_dtype": "quint8"}, None, "/quantized_dtype"),
        ("torch", {**TORCH, "quantized_dtype": "qint8", "quant_min": 0}, None, "/quant_min"),
        ("torch", {**TORCH, "quant_max": 128}, None, "/quant_max"),
        ("torch", {**TORCH, "quant_min": 5, "quant_max": 5}, None, "/quant_min"),
        ("torch", {**TORCH, "quant_min": 0, "zero_point": [-1]}, None, "/zero_point/0"),
        ("torch", {**TORCH, "scale": [0.5, 0.5]}, None, "/scale"),
        ("torch", {**TORCH, "qscheme": "per_channel_symmetric"}, None, "/qscheme"),
        ("tosa", {}, None, ""),
        ("tosa", {**TOSA, "output_type": "i4"}, None, "/output_type"),
        ("tosa", {**TOSA, "output_type": "i16", "output_zp": 1}, None, "/output_zp"),
        ("tosa", {**TOSA, "output_zp": 128}, None, "/output_zp"),
        ("tosa", {**TOSA, "multiplier": [0]}, None, "/multiplier/0"),
        ("tosa", {**TOSA, "scale32": False}, None, "/multiplier/0"),
        ("tosa", {**TOSA, "shift": [63]}, None, "/shift/0"),
        ("tosa", {**TOSA, "shift": []}, None, "/multiplier"),
        ("tosa", {**TOSA, "multiplier": [1, 1], "shift": [2, 2]}, None, "/multiplier"),
        ("tosa", {**TOSA, "per_channel": True}, None, "/input"),
    ],
)  # fmt: skip
def test_operands_that_are_none(
    system: str, given: dict[str, Any], shape: tuple[int, ...] | None, pointer: str
) -> None:
    with pytest.raises(RequantError) as caught:
        TRANSLATIONS[system].read(given, shape)
    assert caught.value.pointer == pointer


def test_operands_that_are_rounded() -> None:
    after, rounded = TRANSLATIONS["onnx"].read({**ONNX, "x_scale": [0.1]}, None)
    assert [(each.index, each.scale, each.becomes) for each in rounded] == [(0, 0.1, oracle.in_f32(0.1))]
    assert after.scales == (oracle.in_f32(0.1),)
