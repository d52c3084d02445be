"""The type as text and in its parts, and in each system."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest

pytestmark = pytest.mark.browser

PER_AXIS = "tensor<2x3x!quant.uniform<u8:f32:1, {0.5:3, 0.1, 0.25:255}>>"


def _text(page: Any) -> Any:
    return page.get_by_label("Type in MLIR syntax")


def test_the_caret_is_under_the_error(page: Any, client: httpx.Client) -> None:
    page.goto("/")
    page.get_by_role("heading", name="Why element 0 differs").wait_for()
    wrong = "!quant.uniform<i8:f32, 1:3>"
    _text(page).fill(wrong)
    page.locator("pre.caret").wait_for()
    problem = client.post("/v1/types/parse", json={"text": wrong}).json()
    assert page.locator("pre.caret").text_content() == problem["caret"]
    assert page.locator(".type-message").inner_text().count(problem["hint"]) == 1
    assert _text(page).get_attribute("aria-invalid") == "true"
    # What is shown is of the type before.
    assert "stale" in page.locator(".results").get_attribute("class")
    _text(page).fill("!quant.uniform<i8:f32, 1.0:3>")
    page.locator("pre.caret").wait_for(state="detached")
    assert _text(page).get_attribute("aria-invalid") is None


def test_text_and_parts_follow_each_other(page: Any) -> None:
    from playwright.sync_api import expect

    page.goto("/#type")
    expect(page.get_by_label("Scale", exact=True)).to_have_value("0.5")
    page.get_by_label("Storage").select_option("u4")
    expect(_text(page)).to_have_value("!quant.uniform<u4:f32, 0.5:3>")
    page.get_by_label("Scale", exact=True).fill("1e-2")
    page.get_by_label("Highest").fill("14")
    page.get_by_label("Lowest").fill("1")
    page.get_by_label("Zero point", exact=True).fill("0")
    expect(_text(page)).to_have_value("!quant.uniform<u4<1:14>:f32, 1.0e-2>")
    page.get_by_label("Granularity").select_option("axis")
    page.get_by_label("Scales").fill("0.5, 0.25")
    page.get_by_label("Zero points").fill("0 7")
    page.get_by_label("Axis").fill("1")
    expect(_text(page)).to_have_value("!quant.uniform<u4<1:14>:f32:1, {0.5, 0.25:7}>")
    page.get_by_label("Granularity").select_option("blocks")
    page.get_by_label("Blocks").fill("0:1, 1:32")
    page.get_by_label("Scales").fill("0.5 0.25\n0.125 2")
    page.get_by_label("Zero points").fill("")
    expect(_text(page)).to_have_value("!quant.uniform<u4<1:14>:f32:{0:1, 1:32}, {{0.5, 0.25}, {0.125, 2.0}}>")
    expect(page.locator(".facts").first).to_contain_text("u4, 4 bits, 1 to 14")
    _text(page).fill(PER_AXIS)
    expect(page.get_by_label("Scales")).to_have_value("0.5 0.1 0.25")
    expect(page.get_by_label("Zero points")).to_have_value("3 0 255")
    expect(page.get_by_label("Granularity")).to_have_value("axis")
    # What stands around the type stays.
    page.get_by_label("Storage").select_option("u16")
    expect(_text(page)).to_have_value(PER_AXIS.replace("u8", "u16"))


def test_the_type_in_each_system(page: Any, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    page.goto(f"/#type?type={quote(PER_AXIS)}")
    cards = page.locator(".system")
    expect(cards).to_have_count(7)
    translations = client.post("/v1/types/translate", json={"type": PER_AXIS}).json()["translations"]
    titles = {"onnx": "ONNX", "onednn": "oneDNN", "litert": "LiteRT", "torch": "PyTorch", "tosa": "TOSA"}
    for translation in translations:
        system = translation["system"]
        if system not in titles:
            continue
        text = cards.filter(has_text=titles[system]).first.inner_text()
        assert ("not expressible" in text) is not translation["expressible"]
        for name, value in translation.get(system, {}).items():
            shown = f"[{', '.join(str(each) for each in value)}]" if isinstance(value, list) else str(value)
            assert name in text, (system, name)
            assert shown in text, (system, name)


def test_a_type_goes_along_to_another_view(page: Any) -> None:
    from playwright.sync_api import expect

    page.goto("/#type")
    _text(page).fill("!quant.uniform<u8:f32, 0.25:7>")
    page.wait_for_url("**u8**")
    page.get_by_role("navigation").get_by_role("link", name="Compare profiles").click()
    expect(_text(page)).to_have_value("!quant.uniform<u8:f32, 0.25:7>")
    expect(page.get_by_role("link", name="Compare profiles")).to_have_attribute("aria-current", "page")
