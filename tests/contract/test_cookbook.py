"""docs/cookbook and docs/tutorial.md: every block of every page prints what stands under it.

What needs another system is in tests/interop/test_cookbook.py and test_torch_cookbook.py.
"""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import requant
from tests.conftest import Server
from tests.support.cases import sample
from tests.support.page_programs import DOCS, Reader, blocks
from tests.support.page_table import page_table

PAGES = sorted(path.name for path in (DOCS / "cookbook").glob("*.md") if path.name != "README.md")


@pytest.mark.sample(1)
@pytest.mark.parametrize("page", ["../tutorial.md", *sample(PAGES, 2)])
def test_every_block_prints_what_stands_under_it(server: Server, tmp_path: Path, page: str) -> None:
    if page == "multiplier_in_c.md" and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    with Reader(tmp_path, server) as reader:
        for block in blocks((DOCS / "cookbook" / page).read_text()):
            if not block.needs:
                reader.follow(block)


def test_the_remedies_for_arrays_that_are_refused(client: httpx.Client) -> None:
    """The table of npy_from_numpy.md."""

    def status(x: NDArray[Any], expressed: str = "f32", **query: str) -> int:
        np.save(file := io.BytesIO(), x)
        output_type = f"!quant.uniform<i8:{expressed}, 0.5:3>"
        headers = {"Content-Type": "application/octet-stream"}
        params = {"output_type": output_type, "profile": "onnx", **query}
        return client.post("/v1/npy/quantize", params=params, content=file.getvalue(), headers=headers).status_code

    x = np.array([[0.25, 0.75], [1.0, 2.0]], np.float32)
    double, big, bfloat = x.astype(np.float64), x.astype(">f4"), x.astype(ml_dtypes.bfloat16)
    assert [status(x.T), status(double), status(big), status(bfloat)] == [400, 422, 400, 400]
    assert status(np.ascontiguousarray(x.T)) == 200
    assert status(double.astype(np.float32)) == 200
    assert {status(double, "f64", profile=profile) for profile in ("stablehlo", "mlir")} == {200}
    assert status(big.astype(big.dtype.newbyteorder("="))) == 200
    assert status(bfloat.view(np.uint16), "bf16", input_type="bf16") == 200


def test_a_layer_tells_litert_s_rules_apart() -> None:
    """The outputs in which_litert.md are those of the layer in fully_connected.md."""
    page = (DOCS / "cookbook" / "fully_connected.md").read_text()
    (shown,) = (block.output for block in blocks(page) if "litert_single_rounding" in block.text and block.output)
    expected = {}
    for line in shown.splitlines():
        numbers, _, options = line.partition("{")
        rule = re.findall(r"'(\w+)'", options)[-1]
        first = numbers.split()
        expected[f"scheme `{rule}`" if "scheme" in options else f"`{rule}`"] = f"{first[0]}, {first[2]}, {first[3]}"
    table = page_table("cookbook/which_litert.md", "Ask your own")
    assert {rule.partition(":")[0]: output for output, rule in table} == expected
    assert len(set(expected.values())) == len(expected) == 5


def test_the_ties_tell_the_roundings_apart() -> None:
    """The table of off_by_one.md."""
    sums = np.array([-112, -80, -79, 79, 80, 112], np.int32)
    rows = page_table("cookbook/off_by_one.md", "What the ties say")
    for _, *shown, schemes in rows[1:]:
        for scheme in re.findall(r"`(\w+)`", schemes):
            scaled = requant.requantize(
                sums, "!quant.uniform<i32:f32, 0.03125>", "!quant.uniform<i8:f32, 1.0>", scheme=scheme
            )
            assert scaled.tolist() == [int(each) for each in shown], scheme


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "cookbook" / "README.md").read_text()
    assert [page for page in PAGES if f"]({page})" not in index] == []


def test_every_page_shows_what_its_blocks_print() -> None:
    for page in ["../tutorial.md", *PAGES]:
        found = list(blocks((DOCS / "cookbook" / page).read_text()))
        assert {block.language for block in found} <= {"sh", "python", "c"}, page
        assert any(block.output is not None for block in found), page
        assert all(block.output is not None or block.file for block in found if block.language == "python"), page
