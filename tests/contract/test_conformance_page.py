"""docs/conformance.md and the `conformance` of catalog entries: generated from one file, with a count or a reason
for every row."""

from __future__ import annotations

import copy
from typing import Any

import httpx
import pytest

from requant.operators.registry import OPERATORS
from requant.profiles import PROFILES
from requant.schemes import SCHEMES
from requant_service import profile_pages
from requant_service.json_api.catalog.conformance import facts
from tests.conftest import ROOT
from tests.interop.conformance import subject
from tests.interop.conformance.divergences import DIVERGENCES
from tests.interop.conformance.merged import changes, gaps, merge
from tests.interop.conformance.not_compared import NOT_COMPARED
from tests.interop.conformance.page import page
from tests.interop.conformance.rows import expected_rows
from tests.interop.conformance.systems import FBGEMM, TORCH

NAMES = [("profiles", name) for name in PROFILES] + [("schemes", name) for name in SCHEMES]


def test_the_page_is_generated_from_the_facts() -> None:
    assert (ROOT / "docs/conformance.md").read_text(encoding="utf-8") == page(facts()), (
        "`python -m tests.interop.conformance page` writes it"
    )


def test_the_pages_of_the_profiles_are_generated_too() -> None:
    found = {path: (ROOT / "docs" / path).read_text(encoding="utf-8") for path in profile_pages.pages()}
    assert found == profile_pages.pages(), "`python -m requant_service.profile_pages` writes them"
    assert {path.stem for path in (ROOT / "docs/profiles").iterdir()} == set(PROFILES)


def test_every_row_has_a_count_or_a_reason() -> None:
    rows = [(row["kind"], row["name"], row["operation"]) for row in facts()["rows"]]
    assert rows == [(row.kind, row.name, row.operation) for row in expected_rows()]
    assert not gaps(facts())


def test_published_comparisons_have_no_differences() -> None:
    for row in facts()["rows"]:
        for each in row["compared"]:
            assert each["elements"] > 0
            assert each["differences"] == 0, row
            assert each["version"].split()[1][0].isdigit()
            assert each["divergences"].keys() <= facts()["divergences"].keys()


def test_reasons_and_divergences_are_those_of_the_tables() -> None:
    """A change of their words shows without a run."""
    assert facts()["divergences"] == {name: DIVERGENCES[name] for name in facts()["divergences"]}
    assert not NOT_COMPARED.keys() - set(expected_rows())
    for row in facts()["rows"]:
        key = subject.Subject(subject.Kind(row["kind"]), row["name"], row["operation"])
        assert row.get("not_compared") == (None if row["compared"] else NOT_COMPARED.get(key))


@pytest.mark.parametrize(
    ("path", "name"), [*NAMES[:3], NAMES[-1], *[("operators", name) for name in list(OPERATORS)[:2]]]
)
def test_catalog_entries_have_the_facts(client: httpx.Client, path: str, name: str) -> None:
    found = client.get(f"/v1/{path}/{name}").json()["conformance"]
    rows = {row["operation"]: row for row in facts()["rows"] if (row["kind"], row["name"]) == (path[:-1], name)}
    assert found.keys() == rows.keys()
    for operation, row in rows.items():
        assert found[operation].get("not_compared") == row.get("not_compared")
        for shown, each in zip(found[operation]["compared"], row["compared"], strict=True):
            reasons = {divergence["name"]: divergence["reason"] for divergence in shown["divergences"]}
            assert reasons == {divergence: DIVERGENCES[divergence] for divergence in each["divergences"]}
            plain = {"divergences": {one["name"]: one["elements"] for one in shown["divergences"]}}
            assert {**shown, **plain} == each


def test_a_profile_lists_the_versions_that_it_equals(client: httpx.Client) -> None:
    def equal(name: str) -> dict[str, list[str]]:
        return {each["system"]: each["versions"] for each in client.get(f"/v1/profiles/{name}").json()["equals"]}

    assert equal("onnx") == {"onnxruntime": ["1.31.1"]}
    assert equal("onnx_1_32") == {"onnxruntime": ["1.32.0"]}
    assert equal("torch_decomposed") == {"PyTorch": ["2.13.0", "2.14.1"]}
    assert equal("quantile") == {}


def record(**changed: Any) -> dict[str, Any]:
    row = {"kind": "profile", "name": "litert", "operation": "quantize", "system": "LiteRT", "version": "litert 1.0"}
    numbers = {"elements": 10, "differences": 0, "divergences": {"nan_bits": 2}}
    test = {"test": "test_a", "seed": None, "round": "", "environment": ".venv", "instruction_set": "x86-64"}
    return {**row, **numbers, **test, **changed}


def compared(*records: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = merge(records, "2026-01-01")["rows"][
        expected_rows().index(subject.profile("litert", "quantize"))
    ]["compared"]
    return found


def test_counts_are_added_up() -> None:
    """A seed that was drawn again counts again, and the same data do not."""
    (one,) = compared(record(), record(test="test_b"), record(round="2"), record(seed=1), record(seed=2, round="2"))
    assert (one["elements"], one["divergences"]) == (40, {"nan_bits": 8})
    both = compared(record(), record(environment=".venv-other", version="litert 2.0"))
    assert [each["version"] for each in both] == ["litert 1.0", "litert 2.0"]
    assert merge([record(seed=7), record(seed=9)], "2026-01-01")["seeds"] == [7, 9]
    with pytest.raises(ValueError, match="no catalogue"):
        compared(record(name="nothing"))


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cpu", "2.13.0+cu130"])
def test_builds_of_one_release_are_one_version(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Which build of torch pip installs depends on the machine, and the page must not."""
    monkeypatch.setattr("importlib.metadata.version", lambda distribution: version)
    assert TORCH.version() == FBGEMM.version() == "torch 2.13.0"


def test_a_run_that_compares_other_rows_is_seen() -> None:
    committed = merge([record()], "2026-01-01")
    assert not changes(committed, merge([record(elements=7, seed=1, instruction_set="other")], "2026-01-02"))
    (gone, new) = changes(committed, merge([record(version="litert 1.1")], "2026-01-01"))
    assert gone.startswith("no longer compared: profile litert quantize with LiteRT (litert 1.0)")
    assert new.startswith("not on the page: profile litert quantize with LiteRT (litert 1.1)")
    assert changes(committed, merge([record(version="litert 1.1")], "2026-01-01"), whole=False) == [new]
    found = copy.deepcopy(committed)
    (row,) = [each for each in found["rows"] if each["compared"]]
    row["compared"][0]["differences"] = 1
    assert changes(committed, found)
