"""docs/errata.md: its calls to Requant print what stands under them; those to other systems are in tests/interop."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.conftest import ROOT, Server
from tests.support.cases import check_each
from tests.support.errata_page import PAGE, Entry, check_call, entries, saved_files, systems
from tests.support.page_programs import blocks
from tests.support.page_table import page_table

RUN = {
    *("onnxruntime", "ai-edge-litert", "jaxlib", "tosa-tools", "gguf", "ml_dtypes"),  # tests/interop/test_errata.py
    "torch",  # test_torch_errata.py
    "tensorflow-cpu",  # test_tensorflow_errata.py
    *("compressed-tensors", "auto-round"),  # checkpoint/test_errata.py
}


def test_calls_print_what_stands_under_them(server: Server, tmp_path: Path) -> None:
    def check(entry: Entry) -> None:
        for block in blocks(entry.text):
            if block.language == "python" and not systems(block):
                check_call(block)

    with saved_files(tmp_path, server):
        check_each(entries(), check)
        sys.modules["calls"].client.close()


def _with_its_section(entry: Entry) -> str:
    """An entry and what stands above the entries of its section."""
    before = PAGE.partition(f"### {entry.name}\n")[0]
    return before.rpartition("\n## ")[2].partition("\n### ")[0] + entry.text


def test_the_table_lists_all_entries() -> None:
    listed = [(cells[0], cells[3]) for cells in page_table("errata.md")]
    assert listed == [(f"[{each.name}](#{each.name})", each.title) for each in entries()]


def test_entries_are_complete() -> None:
    versions = {cells[0]: cells[2] for cells in page_table("errata.md")}

    def check(entry: Entry) -> None:
        # What heading and anchor have in common.
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", entry.name)
        assert re.findall(r"^- (\w+):", entry.text, re.MULTILINE) == [
            "Specification", "Implementation", "Consequence", "Reported",
        ]  # fmt: skip
        named = re.findall(r"\d[\w.]*", versions[f"[{entry.name}](#{entry.name})"])
        assert [version for version in named if version not in entry.text] == []
        shown = [block for block in blocks(entry.text) if block.language == "python"]
        assert all(block.output for block in shown)
        # Without a call to the system it says what ran it instead, or that nothing did.
        assert any(systems(block) for block in shown) or re.search(r"\b[Nn]ot run\b|tests/", _with_its_section(entry))

    check_each(entries(), check)


def test_every_system_is_run() -> None:
    """By tests/interop; of torch and onnxruntime, the versions that `make interop` installs."""
    named = [systems(block) for block in blocks(PAGE) if systems(block)]
    assert {next(iter(each)) for each in named} == RUN
    installed = re.search(r"^TORCH := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert installed
    assert {version for each in named for version in each.get("torch", ())} == set(installed[1].split())
    locks = [(ROOT / f"requirements/{name}.lock").read_text() for name in ("interop", "onnxruntime-1-32")]
    locked = {found[1] for lock in locks if (found := re.search(r"^onnxruntime==(\S+)", lock, re.MULTILINE))}
    assert {version for each in named for version in each.get("onnxruntime", ())} == locked
