"""Numbers that are typed, pasted, read from .npy files, and generated."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.browser

VALUES = [[0.1, -2.5, 65504.0], [np.nan, -np.inf, -0.0]]


def _npy(array: Any) -> dict[str, Any]:
    np.save(file := io.BytesIO(), array)
    return {"name": "x.npy", "mimeType": "application/octet-stream", "buffer": file.getvalue()}


def _opened(page: Any) -> Any:
    page.goto("/")
    page.get_by_role("heading", name="Why element 0 differs").wait_for()
    return page.get_by_role("textbox", name="Numbers")


def _read(text: str) -> list[float]:
    return [float(item) for item in text.split()]


def test_pasted(page: Any) -> None:
    from playwright.sync_api import expect

    numbers = _opened(page)
    numbers.fill("[[0.5, .25],\n [ -1e-3; NaN], (inf  -Infinity)]")
    expect(page.locator("#summary")).to_contain_text("of 6 elements")
    cells = page.get_by_role("region", name="Stored values by profile").locator("tbody td:nth-child(2)")
    assert cells.all_inner_texts() == ["0.5", "0.25", "-0.001", "NaN", "inf", "-inf"]
    for wrong, said in {
        "1 2 x": "Item 3 is not a number",
        " ": "Enter at least one number",
        "1 " * 4097: "at most 4096",
    }.items():
        numbers.fill(wrong)
        expect(page.locator(".numbers-editor .error")).to_contain_text(said)
        assert numbers.get_attribute("aria-invalid") == "true"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_npy(page: Any, dtype: str) -> None:
    numbers = _opened(page)
    array = np.array(VALUES, dtype)
    page.get_by_label("Numbers from an .npy file").set_input_files(_npy(array))
    page.wait_for_url("**shape=2x3**")
    found = np.array(_read(numbers.input_value())).astype(dtype)
    assert found.tobytes() == array.tobytes()


def test_npy_that_is_not_read(page: Any) -> None:
    from playwright.sync_api import expect

    _opened(page)
    wrong = {
        "Save array.astype(numpy.float32)": np.arange(4),
        "big-endian": np.zeros(4, ">f4"),
        "Fortran order": np.asfortranarray(np.zeros((2, 3), "f4")),
        "at most 4096": np.zeros(4097, "f4"),
        "empty": np.zeros(0, "f4"),
    }
    files = {said: _npy(array) for said, array in wrong.items()}
    files["not an .npy file"] = {**_npy(np.zeros(2)), "buffer": b"PK\x03\x04 and so on"}
    files["does not match its header"] = {**_npy(np.zeros(2)), "buffer": _npy(np.zeros(2))["buffer"][:-1]}
    for said, file in files.items():
        page.get_by_label("Numbers from an .npy file").set_input_files(file)
        expect(page.locator(".numbers-editor .error")).to_contain_text(said)


def test_a_dropped_file(page: Any) -> None:
    numbers = _opened(page)
    array = np.array([1.5, 2.5], np.float32)
    transfer = page.evaluate_handle(
        """bytes => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(bytes)], "x.npy"));
            return transfer;
        }""",
        list(_npy(array)["buffer"]),
    )
    page.locator(".numbers-editor").dispatch_event("drop", {"dataTransfer": transfer})
    page.wait_for_url("**numbers=1.5+2.5**")
    assert np.array(_read(numbers.input_value()), np.float32).tobytes() == array.tobytes()


def test_generated(page: Any) -> None:
    from playwright.sync_api import expect

    numbers = _opened(page)
    found = {}
    for kind in ("normal", "ties", "ramp", "odd"):
        page.get_by_label("Generate").select_option(kind)
        page.wait_for_url(f"**generate={kind}**")
        expect(page.locator("#summary")).to_contain_text("13 elements" if kind == "odd" else "64 elements")
        found[kind] = _read(numbers.input_value())
    # Type: steps of 0.5, from -65.5 to 62.
    assert all((x / 0.5) % 1 == 0.5 for x in found["ties"])
    assert (found["ramp"][0], found["ramp"][-1]) == (-71.875, 68.375)
    assert abs(np.mean(found["normal"])) < 10
    assert 15 < np.std(found["normal"]) < 28
    limits = np.finfo("f4")
    assert {limits.max, limits.tiny, limits.smallest_subnormal} <= {np.float32(x) for x in found["odd"]}
    assert sum(np.isnan(found["odd"])) == 1
    # A seed makes the same numbers again, and another one others.
    page.get_by_label("Generate").select_option("normal")
    expect(numbers).to_have_value(" ".join(_shown(x) for x in found["normal"]))
    page.get_by_label("Seed").fill("2")
    expect(numbers).not_to_have_value(" ".join(_shown(x) for x in found["normal"]))


def _shown(x: float) -> str:
    return str(int(x)) if x == int(x) else repr(x)
