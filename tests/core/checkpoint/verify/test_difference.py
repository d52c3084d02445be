"""Where two checkpoints differ: each kind of difference, made by hand."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from requant.checkpoint.plan.model import DequantizeStep, Direction, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion, plan_of
from requant.checkpoint.plan.source import read_source
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.run.stored_weight import Files, QuantizedWeight
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.storage.store import Store
from requant.checkpoint.verify.difference import TensorDifference, Unit, decibels, diff
from requant.errors import ParameterError
from tests.support.hand_made_plan import Tensors, write_safetensors
from tests.support.model_directory import make_model
from tests.support.safetensors_files import read_safetensors

FILE = "model-00001-of-00001.safetensors"
UP = "model.layers.0.mlp.up_proj.weight"
Q = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.layers.0.input_layernorm.weight"


def _quantize(source: Path, destination: Path, scheme: str, profile: str = "compressed-tensors-cpu") -> Path:
    store = open_store(source)
    run_plan(
        plan_conversion(store, Request(Direction.QUANTIZE, (SchemeFor(scheme),), profile)),
        store,
        open_store(destination),
    )
    return destination


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("difference") / "source", shards=1)


def _changed(model: Path, tmp_path: Path, change: Tensors | None = None, without: str | None = None) -> Path:
    """Copy a model with other tensors."""
    copy = tmp_path / "changed"
    shutil.copytree(model, copy)
    tensors = {**read_safetensors(copy / FILE), **(change or {})}
    if without is not None:
        del tensors[without]
    write_safetensors(copy / FILE, tensors)
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, FILE)}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    return copy


def _differences(a: Path, b: Path) -> dict[str, TensorDifference]:
    return {each.tensor: each for each in diff(open_store(a), open_store(b)).differences}


@pytest.mark.parametrize(
    ("scheme", "profile", "part"),
    [
        ("W4A16_ASYM", "compressed-tensors-cpu", "weight_zero_point"),
        ("AWQ", "autoawq", "qzeros"),
        ("GPTQ_W4A16:asymmetric", "auto-round", "qzeros"),
    ],
)
def test_zero_points_differ(source: Path, tmp_path: Path, scheme: str, profile: str, part: str) -> None:
    """Where codes and scales are the same."""
    quantized = _quantize(source, tmp_path / "quantized", scheme, profile)
    name = f"{UP.removesuffix('.weight')}.{part}"
    dtype, zeros = read_safetensors(quantized / FILE)[name]
    other = zeros.copy()
    other.view(np.uint8).reshape(-1)[0] ^= 1
    found = _differences(quantized, _changed(quantized, tmp_path, {name: (dtype, other)}))
    (difference,) = found.values()
    assert difference.tensor == UP
    assert difference.detail.startswith("zero points")
    assert difference.differing > 0


def test_equal(source: Path) -> None:
    assert diff(open_store(source), open_store(source)).compared == 3
    assert not _differences(source, source)


def test_at_least_one_thread(source: Path) -> None:
    with pytest.raises(ParameterError, match="threads is -1; expected 1 or more"):
        diff(open_store(source), open_store(source), threads=-1)


def test_plain_tensors(source: Path, tmp_path: Path) -> None:
    dtype, norm = read_safetensors(source / FILE)[NORM]
    other = norm.copy()
    other[[5, 9]] = [norm[5] + 3, norm[9] | 0x8000]
    found = _differences(source, _changed(source, tmp_path, {NORM: (dtype, other)}))
    # 1 and -1 are as far apart as twice the bits of 1.
    assert found == {NORM: TensorDifference(NORM, "values differ", 128, 2, Unit.ULPS, 2.0 * 0x3F80, 5)}


@pytest.mark.parametrize(
    ("dtype", "before", "after", "elements", "differing", "first"),
    [
        ("I64", np.array([1, 2, -1]), np.array([1, 2, 0]), 3, 1, 2),
        ("U64", np.array([1, 2, 3], np.uint64), np.array([256, 2, 4], np.uint64), 3, 2, 0),
        ("F8_E4M3", np.array([1, 2, 3], np.uint8), np.array([1, 9, 9], np.uint8), 3, 2, 1),
        ("F4", np.array([0x21, 0x43], np.uint8), np.array([0x21, 0x53], np.uint8), 4, 1, 3),
    ],
)
def test_dtypes_without_steps_are_counted_in_elements(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    before: np.ndarray,
    after: np.ndarray,
    elements: int,
    differing: int,
    first: int,
) -> None:
    models = [tmp_path / name for name in ("a", "b")]
    for model, values in zip(models, (before, after), strict=True):
        model.mkdir()
        (model / "config.json").write_text("{}")
        header = json.dumps({"x": {"dtype": dtype, "shape": [elements], "data_offsets": [0, values.nbytes]}}).encode()
        (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
    for at_once in (1 << 18, 2):
        monkeypatch.setattr("requant.checkpoint.verify.difference.ELEMENTS", at_once)
        assert _differences(*models) == {
            "x": TensorDifference("x", "values differ", elements, differing, Unit.BYTES, None, first)
        }


@pytest.mark.parametrize("scheme", ["W8A8", "FP8_DYNAMIC"])
def test_an_infinite_difference_is_no_number(source: Path, tmp_path: Path, scheme: str) -> None:
    dtype, weight = read_safetensors(source / FILE)[UP]
    infinite = weight.copy()
    infinite[3, 5] = 0x7F80
    found = _differences(_changed(source, tmp_path, {UP: (dtype, infinite)}), _quantize(source, tmp_path / "q", scheme))
    assert (found[UP].differing > 0, found[UP].largest) == (True, None)
    assert found[Q].largest is not None


def test_missing_tensors_and_shapes(source: Path, tmp_path: Path) -> None:
    changed = _changed(source, tmp_path, {UP: ("BF16", np.zeros((4, 4), np.uint16))}, without=NORM)
    found = _differences(source, changed)
    assert found[NORM].detail == "only in a"
    assert found[UP].detail == "shape [256, 128] in a, [4, 4] in b"
    assert _differences(changed, source)[NORM].detail == "only in b"


def test_codes_and_scales(source: Path, tmp_path: Path) -> None:
    model = _quantize(source, tmp_path / "quantized", "W8A8")
    tensors = read_safetensors(model / FILE)
    codes, scales = tensors[UP][1].copy(), tensors[f"{UP}_scale"][1].copy()
    codes[7, 11] -= 5 if codes[7, 11] > 0 else -5
    scales[3] += 1
    changed = _changed(model, tmp_path, {UP: ("I8", codes), f"{UP}_scale": ("BF16", scales)})
    found = _differences(model, changed)
    assert found == {UP: TensorDifference(UP, "codes differ", 256 * 128, 1, Unit.STEPS, 5.0, 7 * 128 + 11, 1)}


@pytest.mark.parametrize("scheme", ["W8A8", "W4A16", "FP8_DYNAMIC"])
def test_the_two_profiles(source: Path, tmp_path: Path, scheme: str) -> None:
    cpu = _quantize(source, tmp_path / "cpu", scheme)
    cuda = _quantize(source, tmp_path / "cuda", scheme, "compressed-tensors-cuda")
    found = _differences(cpu, cuda)
    # Rounding twice moves codes to a neighbour, and scales not at all.
    assert found
    assert {(each.unit, each.largest, each.scales_differing) for each in found.values()} == {(Unit.STEPS, 1.0, 0)}


def test_beside_what_it_was_converted_from(source: Path, tmp_path: Path) -> None:
    found = _differences(source, _quantize(source, tmp_path / "quantized", "W8A8"))
    assert set(found) == {UP, Q}
    up = found[UP]
    assert up.unit is Unit.STEPS
    assert 0.4 < (up.largest or 0) <= 1
    # A step is about 1 / 127 of the largest weight of a row.
    assert up.signal is not None
    assert up.noise is not None
    assert 30 < (decibels(up.signal, up.noise) or 0) < 50


def test_decibels() -> None:
    assert decibels(100.0, 1.0) == 20.0
    assert decibels(1.0, 0.0) is None
    assert decibels(float("nan"), 1.0) is None


def test_two_schemes(source: Path, tmp_path: Path) -> None:
    a, b = _quantize(source, tmp_path / "a", "W8A8"), _quantize(source, tmp_path / "b", "FP8_DYNAMIC")
    found = _differences(a, b)
    assert set(found) == {UP, Q}
    assert found[UP].detail == "int-quantized in a, float-quantized in b"
    # No steps: those of floats are not equal.
    assert _differences(b, source)[UP].unit is Unit.VALUE


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("scheme", "other"),
    [("W4A16:group=32", "W4A16:group=64"), ("FP8_DYNAMIC", "FP8_BLOCK"), ("MXFP4A16", "NVFP4A16"), ("NF4", "AWQ")],
)
def test_numbers_of_two_formats(source: Path, tmp_path: Path, scheme: str, other: str) -> None:
    """Against the products of codes and scales, as fractions."""
    a = _quantize(source, tmp_path / "a", scheme, scheme_named(scheme).profiles[0])
    b = _quantize(source, tmp_path / "b", other, scheme_named(other).profiles[0])
    stores = open_store(a), open_store(b)
    found = {each.tensor: each for each in diff(*stores, numbers=True).differences}
    for name in (UP, Q):
        x, y = ([Fraction(float(each)) for each in numbers_of(store, name)] for store in stores)
        unlike = [index for index, (one, another) in enumerate(zip(x, y, strict=True)) if one != another]
        difference = found[name]
        assert (difference.differing, difference.first) == (len(unlike), unlike[0])
        assert difference.numbers == (float(x[unlike[0]]), float(y[unlike[0]]))


def numbers_of(store: Store, name: str) -> list[float]:
    """The numbers of a weight: of each element the value of its code, less a zero point, times the scale."""
    source = read_source(store)
    steps = plan_of(source, Request(Direction.DEQUANTIZE, (), "")).steps
    step = next(each for each in steps if isinstance(each, DequantizeStep) and each.output == name)
    weight = QuantizedWeight(Files.of(store, source.files), step.source)
    scaled = weight.format.scaled_codes(weight.rows(0, weight.shape[0]))
    codes, found = scaled.codes.view(np.uint8), []
    for row, column in product(range(codes.shape[0]), range(scaled.columns)):
        at = row // scaled.block.height * scaled.block.columns(scaled.columns) + column // scaled.block.width
        zero = 0.0 if scaled.zero_points is None else float(scaled.zero_points.reshape(-1)[at])
        value = Fraction(float(scaled.table[codes[row, column]])) - Fraction(zero)
        found.append(float(value * Fraction(float(scaled.scales.reshape(-1)[at]))))
    return found


def test_numbers_of_the_same_values_in_other_scales(source: Path, tmp_path: Path) -> None:
    """Codes of half the magnitude with scales of twice that: the same numbers, but for the codes that are odd."""
    a = _quantize(source, tmp_path / "a", "W8A8")
    stored = read_safetensors(a / FILE)
    dtype, codes = stored[f"{UP}"]
    even = codes & ~np.int8(1)
    first = _changed(a, tmp_path / "first", {UP: (dtype, even)})
    scale = stored[f"{UP}_scale"]
    twice = (scale[1] + np.uint16(0x80)).astype(scale[1].dtype)
    second = _changed(a, tmp_path / "second", {UP: (dtype, even >> 1), f"{UP}_scale": (scale[0], twice)})
    assert diff(open_store(first), open_store(second), numbers=True).differences == ()
    assert diff(open_store(first), open_store(second)).differences != ()
    assert {each.tensor for each in diff(open_store(a), open_store(second), numbers=True).differences} == {UP}
