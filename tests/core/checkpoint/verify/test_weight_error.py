"""The report of a weight beside sums in fractions, and the page that shows it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from math import log10
from pathlib import Path

import numpy as np
import pytest

from requant.checkpoint.plan.model import Direction, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run import stored_weight
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.verify.html_report import report_page
from requant.checkpoint.verify.report import CheckpointReport, checkpoint_report
from requant.checkpoint.verify.structure import Fault
from requant.errors import ParameterError
from tests.support.model_directory import make_model
from tests.support.safetensors_files import read_safetensors

MODULE = "model.layers.0.mlp.up_proj"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("weights")
    source = make_model(folder / "source", shards=1)
    store = open_store(source)
    plan = plan_conversion(store, Request(Direction.QUANTIZE, (SchemeFor("W8A8"),), "compressed-tensors-cpu"))
    run_plan(plan, store, open_store(folder / "destination"))
    return source, folder / "destination"


def _report(model: tuple[Path, Path]) -> CheckpointReport:
    return checkpoint_report(open_store(model[1]), open_store(model[0]), weights=True, hashes=False)


def test_at_least_one_thread(model: tuple[Path, Path]) -> None:
    with pytest.raises(ParameterError, match="threads is -1; expected 1 or more"):
        checkpoint_report(open_store(model[1]), threads=-1)


def _reals(bits: np.ndarray) -> list[list[Fraction]]:
    numbers = (bits.astype(np.uint32) << 16).view(np.float32)
    return [[Fraction(float(number)) for number in row] for row in numbers]


def _rounded_to_bf16(number: Fraction) -> Fraction:
    if number == 0:
        return number
    exponent = 0
    while abs(number) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(number) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - 7)
    return round(number / unit) * unit


@pytest.mark.exhaustive
def test_sums(model: tuple[Path, Path]) -> None:
    source = _reals(read_safetensors(model[0] / "model-00001-of-00001.safetensors")[f"{MODULE}.weight"][1])
    stored = read_safetensors(model[1] / "model-00001-of-00001.safetensors")
    codes = stored[f"{MODULE}.weight"][1].tolist()
    scales = [row[0] for row in _reals(stored[f"{MODULE}.weight_scale"][1])]
    pairs = [
        (a, _rounded_to_bf16(code * scale))
        for row, code_row, scale in zip(source, codes, scales, strict=True)
        for a, code in zip(row, code_row, strict=True)
    ]
    errors = [abs(b - a) for a, b in pairs]
    ratio = sum(a * a for a, _ in pairs) / sum(error * error for error in errors)
    found = next(each for each in _report(model).weights if each.module == MODULE)
    assert found.shape == (256, 128)
    assert found.error.max_absolute_error == float(max(errors))
    assert found.error.mean_absolute_error == pytest.approx(float(sum(errors) / len(errors)), rel=1e-12)
    assert found.error.sqnr_db == pytest.approx(10 * log10(ratio), rel=1e-12)
    assert (found.scale_minimum, found.scale_maximum) == (float(min(scales)), float(max(scales)))
    assert found.saturated == sum(code in (-128, 127) for row in codes for code in row) > 0
    assert found.bits == 8 + 16 / 128


def test_pieces_do_not_matter(model: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _report(model)
    monkeypatch.setattr(stored_weight, "ELEMENTS", 3 * 128)
    assert _report(model).weights == whole.weights


class _Page(HTMLParser):
    """Collects what a page would load, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [str(value) for name, value in attributes if name in ("src", "href", "onerror", "onload")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page(model: tuple[Path, Path]) -> None:
    report = _report(model)
    hostile = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
    weights = (*report.weights, replace(report.weights[0], module=hostile))
    faults = (Fault(hostile, hostile, hostile),)
    page = _Page()
    page.feed(report_page(replace(report, weights=weights, verification=replace(report.verification, faults=faults))))
    assert not page.loaded
    assert "script" not in page.tags
    assert page.tags.count("circle") == len(weights)
    assert MODULE in page.text
    assert page.text.count(hostile) >= 4
    assert f"{report.weights[0].error.sqnr_db:.2f}" in page.text


def test_members_are_json(model: tuple[Path, Path]) -> None:
    members = _report(model).members()
    assert members["faults"] == []
    assert members["request"]["scheme"] == "W8A8"
    assert {each["module"] for each in members["weights"]} == {MODULE, "model.layers.0.self_attn.q_proj"}
