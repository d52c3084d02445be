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
    # mlir stores what onnx does, by other steps.
    assert marked_steps(page) == {"stablehlo": "t = RNE(w)", "litert": "n = RNA(v)"}
    assert "element=1" in page.url


def marked_steps(page: Any) -> dict[str, str]:
    """By profile, the formula of the step at which it is said to part from the reference."""
    found: dict[str, str] = page.locator("table.steps").evaluate(
        """table => {
          const texts = cell => [...cell.childNodes].filter(each => each.nodeName !== "SPAN");
          const names = [...table.tHead.rows[0].cells].map(cell => texts(cell).map(each => each.textContent).join(""));
          const marked = [...table.querySelectorAll("td.parting")];
          const formula = cell => cell.querySelector("code").textContent;
          return Object.fromEntries(marked.map(cell => [names[cell.cellIndex], formula(cell)]));
        }"""
    )
    return found


def test_a_step_is_marked_only_where_it_differs_from_the_reference(page: Any) -> None:
    # -8.5 in all of them but in the one that multiplies by the reciprocal.
    page.goto(address(type="!quant.uniform<i8:f32, 0.1>", numbers="1.55", profiles="onnx,stablehlo,torch_decomposed"))
    page.locator(".results:not([aria-busy])").wait_for()
    page.locator("table.steps").wait_for()
    assert list(marked_steps(page)) == ["torch_decomposed"]
    assert marked_steps(page)["torch_decomposed"].startswith("v = ")


def test_columns_appear_as_they_are_ready(page: Any) -> None:
    from playwright.sync_api import expect

    held: dict[str, Any] = {}

    def hold(route: Any) -> None:
        profile = route.request.post_data_json["profile"]
        if profile in ("stablehlo", "mlir") and profile not in held:
            held[profile] = route
        else:
            route.continue_()

    page.route("**/v1/quantize", hold)
    page.goto("/")
    expect(summary(page)).to_have_text("onnx and litert have answered; stablehlo and mlir are being computed…")
    heads = page.get_by_role("region", name="Stored values by profile").locator("thead th")
    awaited = "being computed…"
    expect(heads).to_have_text(["Element", "x", "onnxreference", f"stablehlo{awaited}", "litert", f"mlir{awaited}"])
    assert shown(page, 2) == ["3", "3", "5", "5"]
    assert shown(page, 3) == ["…"] * 4
    # What there is is explained, and measured.
    expect(page.locator("table.steps thead th")).to_have_text(["Step", "onnxreference", "litert"])
    expect(page.locator(".histogram-name")).to_have_text(["onnx", "litert"])
    page.get_by_role("button", name="Element 2").focus()
    held["stablehlo"].continue_()
    expect(summary(page)).to_have_text("onnx, stablehlo and litert have answered; mlir is being computed…")
    assert page.evaluate("document.activeElement.textContent").startswith("2")
    held["mlir"].continue_()
    expect(summary(page)).to_have_text("All 4 elements differ.")
    expect(page.locator(".results")).not_to_have_attribute("aria-busy", "true")


def test_the_stored_numbers_do_not_wait_for_what_is_made_of_them(page: Any) -> None:
    from playwright.sync_api import expect

    held: list[Any] = []
    released: list[bool] = []
    page.route("**/v1/dequantize", lambda route: route.continue_() if released else held.append(route))
    page.goto(address(profiles="onnx"))
    page.get_by_role("heading", name="How element 0 is computed").wait_for()
    assert shown(page, 2) == ["3", "3", "5", "5"]
    assert column(page, "Saturation, NaN and errors by profile", 4) == ["…"]
    released.append(True)
    for route in held:
        route.continue_()
    page.get_by_role("region", name="Values of onnx").wait_for()
    expect(page.locator(".results")).not_to_have_attribute("aria-busy", "true")


def test_an_element_that_is_refused_leaves_the_others(page: Any, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    page.goto(address(numbers="0.25 100 nan 1.25", profiles="onnx,mlir"))
    expect(summary(page)).to_have_text("2 of 4 elements differ.")
    expect(page.locator(".note").first).to_contain_text("mlir refuses 2 elements, 1, 2: profile mlir is undefined")
    stored, _ = quantized(client, "mlir", TYPE, {"type": "tensor<2xf32>", "values": [0.25, 1.25]})
    assert shown(page, 3) == [str(stored[0]), "refused", "refused", str(stored[1])]
    page.locator(".results:not([aria-busy])").wait_for()
    # Errors are those of the other elements.
    body = {"input": {"type": "tensor<2xf32>", "values": [0.25, 1.25]}, "output_type": TYPE, "profile": "mlir"}
    error = client.post("/v1/quantize", json={**body, "error": True}).json()["report"]["error"]
    found = column(page, "Saturation, NaN and errors by profile", 5)[1]
    assert float(found) == pytest.approx(error["mean_absolute_error"], rel=5e-3)
    page.get_by_role("main").get_by_label("Profile", exact=True).select_option("mlir")
    assert column(page, "Values of mlir", 2) == shown(page, 3)
    # The element itself has steps in the profiles that define it; the others have all of theirs.
    page.get_by_role("button", name="Element 1, differs: why?").click()
    page.get_by_role("heading", name="Why element 1 differs").wait_for()
    expect(page.locator(".reason .note")).to_contain_text("No steps for mlir: profile mlir is undefined")
    page.get_by_role("button", name="Element 3").click()
    page.get_by_role("heading", name="How element 3 is computed").wait_for()
    assert page.locator("table.steps thead th").count() == 3


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
    page.wait_for_load_state("networkidle")
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


def test_the_staircase_of_a_profile_that_refuses_both_ends(page: Any) -> None:
    answered: list[int] = []

    def on_response(response: Any) -> None:
        if response.url.endswith("/v1/quantize") and len(response.request.post_data_json["input"]["values"]) == 901:
            answered.append(response.status)

    page.on("response", on_response)
    page.goto(address(numbers="-100 0 100", profiles="mlir", staircase="whole"))
    page.locator(".plot canvas").first.wait_for()
    page.locator(".results:not([aria-busy])").wait_for()
    page.wait_for_load_state("networkidle")
    assert answered[-1] == 200
    # Its line is drawn: more of its colour than the marker of the one number.
    drawn = """canvas => {
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const colour = getComputedStyle(document.documentElement).getPropertyValue("--series-1").trim();
        const columns = new Set();
        for (let at = 0; at < data.length; at += 4) {
            const found = data[at] * 65536 + data[at + 1] * 256 + data[at + 2];
            if (`#${found.toString(16).padStart(6, "0")}` === colour) columns.add((at / 4) % canvas.width);
        }
        return columns.size / canvas.width;
    }"""
    assert page.locator(".plot canvas").first.evaluate(drawn) > 0.3
    assert 3 <= len(answered) <= 14, "the bounds are searched for"


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
    page.locator(".results:not([aria-busy])").wait_for()
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
    page.locator(".results:not([aria-busy])").wait_for()
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
