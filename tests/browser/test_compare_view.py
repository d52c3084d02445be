"""The page's first view: what it shows is what the API answers, and why profiles differ is told."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.browser.watched_page import PHONE, watched_page
from tests.conftest import Server

pytestmark = pytest.mark.browser

TYPE = "!quant.uniform<i8:f32, 0.5:3>"
NUMBERS = [-0.25, 0.25, 0.75, 1.25]
PROFILES = ["onnx", "stablehlo", "litert", "mlir"]


def address(**state: str) -> str:
    return "/#quantize?" + "&".join(f"{name}={quote(text)}" for name, text in state.items())


def quantized(client: httpx.Client, profile: str, text: str, tensor: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """What the API stores for a tensor, and what that is dequantized to."""
    reply = client.post("/v1/quantize", json={"input": tensor, "output_type": text, "profile": profile})
    assert reply.status_code == 200, reply.text
    stored = reply.json()["output"]
    reply = client.post("/v1/dequantize", json={"input": stored, "profile": profile})
    assert reply.status_code == 200, reply.text
    return stored["values"], reply.json()["output"]["values"]


def column(page: Any, region: str, index: int) -> list[str]:
    """A column of a table, without what marks its cells."""
    cells = page.get_by_role("region", name=region).locator(f"tbody tr > :nth-child({index + 1})")
    return [text.removeprefix("≠ ").split()[0] for text in cells.all_inner_texts()]


def shown(page: Any, index: int) -> list[str]:
    return column(page, "Stored values by profile", index)


def summary(page: Any) -> Any:
    return page.locator("#summary")


def test_a_difference_and_its_reason_at_once(page: Any, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    page.goto("/")
    expect(summary(page)).to_have_text("All 4 elements differ.")
    assert shown(page, 1) == [str(x) for x in NUMBERS]
    tensor = {"type": "tensor<4xf32>", "values": NUMBERS}
    stored = {profile: quantized(client, profile, TYPE, tensor)[0] for profile in PROFILES}
    for place, profile in enumerate(PROFILES):
        assert shown(page, 2 + place) == [str(each) for each in stored[profile]], profile
    # Not by colour alone.
    unlike = sum(a != b for others in stored.values() for a, b in zip(others, stored["onnx"], strict=True))
    assert page.get_by_role("region", name="Stored values by profile").get_by_text("unlike onnx").count() == unlike
    page.get_by_role("heading", name="Why element 0 differs").wait_for()

    page.get_by_role("button", name="Element 1, differs: why?").click()
    page.get_by_role("heading", name="Why element 1 differs").wait_for()
    reasons = [text.replace("\u00a0", " ") for text in page.locator(".sentences li").all_inner_texts()]
    assert reasons == [
        "onnx rounds the tie 0.5 to even: 0, then adds the zero point: 0 + 3 = 3. Stored: 3",
        "stablehlo adds the zero point: 0.5 + 3 = 3.5, then rounds the tie 3.5 to even: 4. Stored: 4",
        "litert rounds the tie 0.5 away from zero: 1, then adds the zero point: 1 + 3 = 4. Stored: 4",
        "mlir adds the zero point: 0.5 + 3 = 3.5, then truncates 3.5 to 3. Stored: 3",
    ]
    parting = page.locator(".steps tr", has_text="first difference")
    assert parting.count() == 1
    assert parting.inner_text().split()[0] == "round"
    assert "element=1" in page.url


def test_examples(page: Any) -> None:
    """Each shows a difference, with its reason."""
    from playwright.sync_api import expect

    page.goto("/")
    titles = page.get_by_role("list", name="Examples").get_by_role("link").all_inner_texts()
    assert len(titles) == 7
    results = "document.querySelectorAll('.sentences .result')"
    for title in titles:
        page.goto("/#type")
        page.get_by_role("navigation").get_by_role("link", name="Compare profiles").click()
        page.get_by_role("link", name=title, exact=True).click()
        expect(page.locator(".reason h2")).to_contain_text("differs")
        # The view is drawn again when answers arrive.
        page.wait_for_function(f"new Set([...{results}].map(each => each.innerText)).size > 1")
        assert page.locator(".note").count() == 0, title


def test_the_staircase_around_an_element(page: Any) -> None:
    from playwright.sync_api import expect

    page.goto(address(generate="ramp", count="64", profiles="onnx,torch"))
    around = page.get_by_label("Only around the chosen element")
    expect(around).to_be_checked()
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request))
    around.uncheck()
    page.wait_for_url("**staircase=whole**")
    page.wait_for_load_state("networkidle")
    sent = [request.post_data_json["input"]["values"] for request in asked if request.url.endswith("/v1/quantize")]
    assert len(sent) == 2
    # From beyond the lowest to beyond the highest that the type holds.
    assert all((xs[0] < -65.5, xs[-1] > 62.0) == (True, True) for xs in sent)


def test_profiles_that_agree(page: Any) -> None:
    from playwright.sync_api import expect

    page.goto("/")
    for profile in ("stablehlo", "litert", "mlir", "onnx_reference"):
        page.get_by_role("checkbox", name=profile, exact=True).click()
    expect(summary(page)).to_have_text("onnx and onnx_reference agree on all 4 elements.")
    expect(page.get_by_role("heading", name="How element 0 is computed")).to_be_visible()


@pytest.mark.parametrize(
    ("text", "shape", "numbers", "profile"),
    [
        ("!quant.uniform<u8:f32:1, {0.5:3, 0.1, 0.25:255}>", "2x3", [0.25, 0.25, 0.25, -0.75, 0.35, 1.5], "litert"),
        ("!quant.uniform<i4:f32:{0:1, 1:2}, {{0.1, 0.2}, {0.3, 0.4}}>", "2x4", [0.25, -7, 0.75, 1, 2, 3, 9, 0], "onnx"),
        ("!quant.uniform<f8E4M3FN:f32, 0.5>", "6", [0.3, -0.0, 1e30, -240.1, "Infinity", "NaN"], "onednn"),
        ("!quant.uniform<i16<-32767:32767>:bf16, 0.1>", "3", [0.05, -5000.0, 3.3], "stablehlo"),
    ],
)  # fmt: skip
def test_values_are_those_of_the_api(
    page: Any, client: httpx.Client, text: str, shape: str, numbers: list[Any], profile: str
) -> None:
    typed = " ".join(str(x) for x in numbers)
    page.goto(address(type=text, numbers=typed, profiles=profile))
    page.get_by_role("heading", name="How element 0 is computed").wait_for()
    element = "bf16" if "bf16" in text else "f32"
    # Numbers in JSON have no other way to say -0.
    stored, reals = quantized(client, profile, text, {"type": f"tensor<{shape}x{element}>", "values": numbers})
    region = f"Values of {profile}"
    width = 4 if "i4" in text else 16 if "i16" in text else 8
    assert [int(bits.replace(" ", ""), 2) for bits in _bits(page, region)] == [each % (1 << width) for each in stored]
    if "f8" not in text:
        assert column(page, region, 2) == [str(each) for each in stored]
    found = [float(value) for value in column(page, region, 4)]
    assert found == pytest.approx([float(each) for each in reals], rel=1e-8, nan_ok=True)


def _bits(page: Any, region: str) -> list[str]:
    texts: list[str] = page.get_by_role("region", name=region).locator("tbody tr > :nth-child(4)").all_inner_texts()
    return texts


def test_counts_are_those_of_the_api(page: Any, client: httpx.Client) -> None:
    page.goto(address(numbers="nan 0.3 -1000 1000 70", profiles="torch"))
    page.get_by_role("heading", name="How element 0 is computed").wait_for()
    tensor = {"type": "tensor<5xf32>", "values": ["NaN", 0.3, -1000, 1000, 70]}
    body = {"input": tensor, "output_type": TYPE, "profile": "torch", "error": True}
    report = client.post("/v1/quantize", json=body).json()["report"]
    region = "Saturation, NaN and errors by profile"
    assert [int(column(page, region, place)[0]) for place in (1, 2, 3)] == [
        report[name] for name in ("saturated_low", "saturated_high", "nan")
    ]
    measures = [float(column(page, region, place)[0]) for place in (4, 5, 6)]
    expected = [report["error"][name] for name in ("max_absolute_error", "mean_absolute_error", "sqnr_db")]
    assert measures == pytest.approx(expected, rel=5e-3)


def test_a_link_holds_what_is_seen(page: Any, chromium: Any, server: Server) -> None:
    from playwright.sync_api import expect

    page.goto(address(generate="normal", count="200", seed="5", type="!quant.uniform<i8:f32, 0.1:-5>"))
    expect(summary(page)).to_contain_text("of 200 elements differ")
    page.get_by_role("spinbutton", name="Seed").fill("6")
    page.wait_for_url("**seed=6**")
    page.wait_for_load_state("networkidle")
    page.get_by_label("Only elements that differ").click()
    page.locator(".comparison tbody button").nth(3).click()
    page.wait_for_url("**element=**")
    page.get_by_role("main").get_by_label("Profile", exact=True).select_option("litert")
    page.get_by_role("region", name="Values of litert").wait_for()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("Link copied").first.wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    with watched_page(chromium, server.url) as colleague:
        colleague.goto(link)
        colleague.get_by_role("region", name="Values of litert").wait_for()
        colleague.locator(".reason h2").wait_for()
        for part in ("#summary", ".comparison", ".reason", "[aria-label='Values of litert']"):
            expect(colleague.locator(part)).to_have_text(page.locator(part).text_content())


def test_keyboard(page: Any) -> None:
    page.goto("/")
    page.get_by_role("heading", name="Why element 0 differs").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    button = page.get_by_role("button", name="Element 2, differs: why?")
    for _ in range(60):
        page.keyboard.press("Tab")
        if button.evaluate("each => each === document.activeElement"):
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Why element 2 differs").wait_for()
    assert button.get_attribute("aria-pressed") == "true"


def test_a_profile_that_does_not_take_the_type(page: Any) -> None:
    from playwright.sync_api import expect

    page.goto(address(type="!quant.uniform<f8E4M3FN:f32, 0.5>", profiles="onnx,litert,onednn", numbers="inf 1"))
    expect(page.locator(".note")).to_contain_text("litert has no result: the output has f8E4M3FN storage")
    expect(summary(page)).to_have_text("1 of 2 elements differs.")


def test_plots(page: Any) -> None:
    """There are pixels of each profile's colour, and the text for those who do not see them."""
    page.goto("/")
    page.get_by_role("heading", name="Why element 0 differs").wait_for()
    page.locator(".plot canvas").nth(4).wait_for()
    colours = """canvas => {
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const found = new Set();
        for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] === 255) found.add(data[at] * 65536 + data[at + 1] * 256 + data[at + 2]);
        return [...found].map(colour => `#${colour.toString(16).padStart(6, "0")}`);
    }"""
    series = page.evaluate(
        "[1, 2, 3, 4].map(i => getComputedStyle(document.documentElement).getPropertyValue(`--series-${i}`).trim())"
    )
    assert set(series) <= set(page.locator(".plot canvas").first.evaluate(colours))
    for place, colour in enumerate(series):
        assert colour in page.locator(".histogram canvas").nth(place).evaluate(colours)
    names = [each.get_attribute("aria-label") for each in page.locator(".histogram .plot").all()]
    assert names[0] == "Errors of onnx: 4 of 4 are within half a step, 0 are a step or more off."


def test_phone(chromium: Any, server: Server) -> None:
    """What is entered is folded, so that the difference stands on the first screen."""
    with watched_page(chromium, server.url, **PHONE) as page:
        page.goto("/")
        page.get_by_role("heading", name="Why element 0 differs").wait_for()
        assert page.get_by_label("Type in MLIR syntax").is_hidden()
        assert summary(page).bounding_box()["y"] < PHONE["viewport"]["height"]
        page.locator("summary", has_text="Numbers").click()
        assert page.get_by_role("textbox", name="Numbers").is_visible()
