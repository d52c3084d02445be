"""The views of operations: what they show is what the API answers, for the arguments in their fields."""

from __future__ import annotations

import io
import json
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest

pytestmark = pytest.mark.browser

VIEWS = ("integer", "blocks", "calibration", "vectors")


def _ready(page: Any) -> None:
    page.get_by_role("tab", name="JSON").wait_for()
    page.locator(".results:not([aria-busy]) #summary").wait_for()


def _call(page: Any) -> tuple[str, Any]:
    """The call that the page shows, its path and body."""
    page.get_by_role("tab", name="JSON").click()
    path = page.locator(".call-path").text_content().removeprefix("POST ")
    return path, json.loads(page.get_by_role("tabpanel").locator("code").text_content())


def _reply(client: httpx.Client, page: Any) -> Any:
    path, body = _call(page)
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def _rows(page: Any, region: str) -> list[list[str]]:
    rows: list[list[str]] = page.get_by_role("region", name=region, exact=True).evaluate(
        """region => [...region.querySelectorAll("tbody tr")].map(
          row => [...row.cells].map(cell => cell.innerText.trim()))"""
    )
    return rows


@pytest.mark.parametrize("view", VIEWS)
def test_examples_are_answered(page: Any, client: httpx.Client, view: str) -> None:
    page.goto(f"/#{view}")
    _ready(page)
    titles = page.get_by_role("list", name="Examples").get_by_role("link").all_inner_texts()
    assert len(titles) >= 4
    for title in titles:
        page.get_by_role("link", name=title, exact=True).click()
        _ready(page)
        assert page.locator("main .error:not(:empty)").count() == 0, title
        assert _reply(client, page), title


def test_stages_are_those_of_the_api(page: Any, client: httpx.Client) -> None:
    page.goto("/#integer")
    _ready(page)
    reply = _reply(client, page)
    assert [row[2] for row in _rows(page, "Elements of the output")] == [str(q) for q in reply["output"]["values"]]
    for index, positions in enumerate(("0, 0", "0, 1", "1, 0", "1, 1")):
        page.get_by_role("button", name=f"Element {index}: its stages").click()
        page.get_by_role("heading", name=f"Stages of element {index}").wait_for()
        assert _rows(page, "Elements of the output")[index][1] == positions
        stages = {name: stage["values"][index] for name, stage in reply["trace"].items() if name != "multipliers"}
        shown = [(row[0].replace(" ", "_"), int(row[1])) for row in _rows(page, "Stages of the element")]
        assert shown == list(stages.items())
        # The right matrix has a scale for each column.
        pair = reply["trace"]["multipliers"][index % 2]
        assert page.get_by_text(f"multiplier {pair['multiplier']}, shift {pair['shift']}").count() == 1


def test_tensors_are_edited_as_json(page: Any, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    page.goto("/#integer")
    _ready(page)
    page.get_by_role("group", name="Left matrix").get_by_label("Values", exact=True).fill("[[4, 5, 6]]")
    page.get_by_role("alert").locator(".error").wait_for()
    page.get_by_role("group", name="Left matrix").get_by_label("Shape").fill("1x3")
    page.get_by_role("heading", name="2 elements").wait_for()
    page.get_by_label("Profile", exact=True).select_option("onnx")
    page.get_by_text("Scheme onnxruntime").wait_for()
    path, body = _call(page)
    assert (path, body["lhs"]["values"], body["profile"]) == ("/v1/matmul", [4, 5, 6], "onnx")
    # A colleague sees the same.
    with page.context.new_page() as other:
        other.goto(page.url)
        _ready(other)
        assert _rows(other, "Elements of the output") == _rows(page, "Elements of the output")
    page.get_by_label("Operation", exact=True).select_option("conv2d")
    page.get_by_role("heading", name="9 elements").wait_for()
    page.get_by_role("group", name="Weights").get_by_label("Type", exact=True).fill("!quant.uniform<")
    expect(page.get_by_role("alert").locator(".error")).not_to_be_empty()
    assert "stale" in page.locator(".results").get_attribute("class")


@pytest.mark.parametrize("format_", ["mxfp4_e2m1", "mxfp8_e5m2", "mxint8", "nvfp4", "Q8_0", "Q4_1"])
def test_blocks_are_those_of_the_api(page: Any, client: httpx.Client, format_: str) -> None:
    page.goto("/#blocks")
    _ready(page)
    page.get_by_label("Format").select_option(format_)
    _, body = _call(page)
    while body["format"] != format_:
        page.wait_for_timeout(50)
        _, body = _call(page)
    page.locator(".results:not([aria-busy])").wait_for()
    stored = client.post("/v1/blocks/quantize", json=body).json()
    back = {name: stored[name] for name in ("elements", "scales", "blocks", "global_scale") if name in stored}
    reply = client.post(
        "/v1/blocks/dequantize", json={"format": format_, "output_type": "tensor<1x32xf32>", **back}
    ).json()
    regions = page.locator("[aria-label^='Elements of block']").count()
    assert regions == (2 if format_ == "nvfp4" else 1)
    rows = [row for index in range(regions) for row in _rows(page, f"Elements of block {index}")]
    assert [float(row[-1]) for row in rows] == pytest.approx([float(x) for x in reply["output"]["values"]], rel=1e-8)
    if "elements" in stored:
        assert [int(row[2]) for row in rows] == stored["elements"]["values"]
    else:
        assert page.locator(".bytes").inner_text().split() == [f"{byte:02x}" for byte in stored["blocks"]["values"]]


def test_each_method_of_calibration(page: Any, client: httpx.Client) -> None:
    page.goto("/#calibration")
    page.get_by_role("heading", name="All 7 methods give a range.").wait_for()
    _, body = _call(page)
    for row in _rows(page, "What each method derives"):
        name, rule = row[0].split("\n")
        found = client.post("/v1/parameters/tensor", json={**body, "method": name}).json()
        assert rule == f"rule {found['scheme']}"
        low, high = (float(text) for text in row[1].split(" to "))
        assert (low, high) == pytest.approx((found["minimums"][0], found["maximums"][0]), rel=1e-5)
        assert float(row[2]) == pytest.approx(found["scales"][0], rel=1e-5)
        assert int(row[3]) == found["zero_points"][0]
        quantized = {"input": body["input"], "output_type": found["type"], "error": True}
        report = client.post("/v1/quantize", json=quantized).json()["report"]
        assert int(row[4]) == report["saturated_low"] + report["saturated_high"]
        assert float(row[5].removesuffix(" dB")) == pytest.approx(report["error"]["sqnr_db"], rel=5e-3)
    page.get_by_role("link", name="Compare profiles with the type of mse").click()
    page.get_by_role("heading", name="Same numbers, different systems").wait_for()
    assert page.get_by_label("Type in MLIR syntax").input_value().startswith("!quant.uniform<i8:f32, 0.0137")
    assert page.get_by_role("textbox", name="Numbers").input_value().split()[0] == "-1.5"


def test_a_method_that_refuses_says_why(page: Any) -> None:
    given = {"input": "1 nan 2", "input.type": "f32", "storage": "i8"}
    page.goto(f"/#calibration?arguments={quote(json.dumps(given))}")
    page.get_by_role("heading", name="of 7 methods give a range.").wait_for()
    rows = {row[0].split("\n")[0]: row[1] for row in _rows(page, "What each method derives")}
    assert rows["min_max"].startswith("Refused: ")
    assert " to " in rows["percentile"]


def test_vectors_and_their_files(page: Any, client: httpx.Client) -> None:
    page.goto("/#vectors")
    page.get_by_role("heading", name="64 vectors for requantize").wait_for()
    path, body = _call(page)
    reply = client.post(path, json=body).json()
    for row, vector in zip(_rows(page, "Vectors"), reply["vectors"], strict=True):
        told = [str(vector[name]) for name in ("parameter_set", "input", "expected", "expected_bits")]
        assert row[1:5] == told
        assert row[5] == ", ".join(vector["why"]).replace("_", " ")
    page.get_by_role("button", name="Vector 3: its steps").click()
    page.locator(".reason .x", has_text=f"Input {reply['vectors'][3]['input']}").wait_for()
    files = {"JSON": "json", ".npz": "npz", "C header": "c_header", "$readmemh": "readmemh"}
    for title, format_ in files.items():
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Download {title}").click()
        found = download.value.path().read_bytes()
        assert found == client.post(path, json={**body, "format": format_}).content
        if format_ == "npz":
            assert len(np.load(io.BytesIO(found))["input"]) == 64
    # As many as are asked for, in rows that come when they are wanted.
    page.get_by_label("Count").fill("100")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("button", name="Show").wait_for(state="detached")
    assert 64 < len(_rows(page, "Vectors")) <= 100
