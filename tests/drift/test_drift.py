"""The watch finds the first release of a change, and the step that it is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.records import read_records
from tests.interop.conformance.subject import profile
from tests.interop.drift.comparison import failures, first_of
from tests.interop.drift.explanation import explained
from tests.interop.drift.watched import ENVIRONMENTS, pinned_releases, release_key
from tests.interop.quantized_case import Case
from tests.support.installed_release import expected_release


def test_releases_are_ordered_by_their_numbers() -> None:
    ordered = ["0.9", "0.10", "0.14.0", "0.14.0.1", "2.13.0+cpu", "2.14.1"]
    assert sorted(sorted(ordered), key=release_key) == ordered


def test_the_pins_of_all_watched_packages_are_in_the_locks() -> None:
    pinned = pinned_releases("2.14.1")
    watched = {name for environment in ENVIRONMENTS for name in environment.packages}
    assert watched <= pinned.keys()
    assert (pinned["torch"], pinned["onnxruntime"]) == ("2.14.1", "1.32.0")


@pytest.mark.parametrize("first", range(9))
def test_the_first_release_of_a_change_is_found_in_few_runs(first: int) -> None:
    releases = [f"1.{minor}" for minor in range(9)]
    tried = []

    def changed(release: str) -> bool:
        tried.append(release)
        return releases.index(release) >= first

    assert first_of(releases, changed) == first
    assert len(tried) <= 4


def test_a_release_is_expected_to_be_itself_or_what_the_watch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert expected_release("no_such_package") is None
    major, minor, *_ = np.__version__.split(".")
    assert expected_release("numpy") == (int(major), int(minor))
    monkeypatch.setenv("EXPECTED_RELEASES", "onnxruntime==1.31.1 numpy==1.2.3")
    assert expected_release("numpy") == (1, 2)


def test_failed_tests_are_read_with_their_reasons(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.interop.test_a" name="test_b">'
        '<failure message="ImportError: gone&#10;more"/></testcase><testcase classname="c" name="d"/>'
        "</testsuite></testsuites>",
        encoding="utf-8",
    )
    assert failures(report) == [("tests/interop/test_a.py::test_b", "ImportError: gone")]
    assert failures(tmp_path / "none.xml") == [("pytest", "it ended without a report")]


def lines_about(
    ours: str, theirs: str, source: Any, case: Case, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> list[str]:
    """What the report says where a system goes over from one profile's arithmetic to another's."""
    monkeypatch.setenv("CONFORMANCE_RECORDS", str(folder))
    comparison = Comparison("a system", systems.ML_DTYPES, profile(ours, "quantize"))
    comparison.add(case, source, case.quantized(source, ours), case.quantized(source, theirs))
    with pytest.raises(AssertionError, match="1 conversions differ"):
        comparison.finish(0)
    (record,) = read_records(folder)
    assert record["differences"]
    return list(explained(ours, record["witness"]))


def test_onnxruntime_1_32_saturates_where_1_31_did_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = np.arange(-8, 8, 0.25).astype(np.float16)
    source[::7] = np.nan
    case = Case(source.shape, "i8", "f16", np.array(0.25), np.array(-5))
    lines = lines_about("onnx", "onnx_1_32", source, case, monkeypatch, tmp_path)
    assert "Rules that give the new bits of 64 elements: profile onnx_1_32." in lines
    (step,) = (line for line in lines if line.startswith("Step: `onnx`"))
    assert "NaN" in step


def test_torch_2_14_adds_the_zero_point_after_rounding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = np.arange(-20, 20, 0.25).astype(np.float32)
    case = Case(source.shape, "i8", "f32", np.array(0.5), np.array(3))
    lines = lines_about("torch", "torch_2_14", source, case, monkeypatch, tmp_path)
    assert any("torch_2_14" in line for line in lines)
    (step,) = (line for line in lines if line.startswith("Step: `torch`"))
    assert "multiply_add" in step
