"""The view that requantizes by several profiles and schemes side by side."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.browser

INPUT, OUTPUT = "!quant.uniform<i32:f32, 0.00098>", "!quant.uniform<i8:f32, 0.25:-1>"
ARITHMETICS = {
    "litert": {"profile": "litert"},
    "tosa": {"profile": "tosa"},
    "scheme arm_vector": {"scheme": "arm_vector"},
    "scheme xnnpack_rndnu": {"scheme": "xnnpack_rndnu"},
}


def _requantized(client: httpx.Client, values: list[int], **body: Any) -> dict[str, Any]:
    typed = {"type": f"tensor<{len(values)}x{body.pop('input_type', INPUT)}>", "values": values}
    reply = client.post("/v1/requantize", json={"input": typed, "output_type": OUTPUT, **body})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def _cells(page: Any, region: str) -> list[list[str]]:
    """Return the rows of a table, without what is there for the eye or for screen readers alone."""
    rows: list[list[str]] = page.get_by_role("region", name=region).evaluate(
        """region => [...region.querySelectorAll("tbody tr")].map(row => [...row.cells].map(cell => {
          const shown = cell.cloneNode(true);
          for (const other of shown.querySelectorAll(".unseen, .mark, .why, .hint")) other.remove();
          return shown.textContent.trim();
        }))"""
    )
    return rows


def test_default_shows_double_against_single_rounding(page: Any, client: httpx.Client) -> None:
    page.goto("/#requantize")
    page.get_by_role("heading", name="3 of 6 elements differ.").wait_for()
    values = [-1000, 127, 382, 500, 892, 30000]
    replies = [_requantized(client, values, profile=each) for each in ("litert", "litert_single_rounding")]
    stored = [reply["output"]["values"] for reply in replies]
    expected = [[str(index), *map(str, row)] for index, row in enumerate(zip(values, *stored, strict=True))]
    assert _cells(page, "Stored values by profile") == expected
    # Without a click: the first element that differs, the tie that double rounding makes, and the stage.
    page.get_by_role("heading", name="Why element 1 differs").wait_for()
    steps = page.get_by_role("region", name="The steps of each profile, side by side")
    # The last shift: by what it is given it rounds 0.5 in one of them, and less in the other.
    parting = steps.locator("td.parting")
    assert parting.count() == 1
    assert parting.locator("code b").text_content() == "0"
    row = steps.get_by_role("row", name="shift right")
    assert row.locator("code b").all_text_contents() == ["1", "0"]
    assert "the tie 0.5 away from zero" in page.get_by_role("listitem").filter(has_text="Stored: 0").text_content()


def test_schemes_beside_profiles(page: Any, client: httpx.Client) -> None:
    values = [-40000, -127, 0, 382, 1_000_000]
    page.goto("/#requantize?profiles=litert,tosa&accumulators=0")
    page.get_by_label("Integers").fill(" ".join(map(str, values)))
    page.get_by_role("heading", name="Schemes").click()
    for scheme in ("arm_vector", "xnnpack_rndnu"):
        page.get_by_role("group", name="Schemes").get_by_label(scheme, exact=True).check()
    page.get_by_role("columnheader", name="scheme xnnpack_rndnu").first.wait_for()
    replies = [_requantized(client, values, **arithmetic) for arithmetic in ARITHMETICS.values()]
    stored = [list(map(str, reply["output"]["values"])) for reply in replies]
    assert [row[2:] for row in _cells(page, "Stored values by profile")] == [
        list(row) for row in zip(*stored, strict=True)
    ]
    assert _cells(page, "Multiplier, shift and saturation") == [
        [
            label,
            *(str(reply["multipliers"][0][name]) for name in ("multiplier", "shift")),
            *(str(reply["report"][name]) for name in ("saturated_low", "saturated_high")),
        ]
        for label, reply in zip(ARITHMETICS, replies, strict=True)
    ]
    # A colleague sees the same.
    with page.context.new_page() as other:
        other.goto(page.url)
        other.get_by_role("columnheader", name="scheme xnnpack_rndnu").first.wait_for()
        assert _cells(other, "Stored values by profile") == _cells(page, "Stored values by profile")


def test_multiplier_and_shift_of_plain_integers(page: Any, client: httpx.Client) -> None:
    page.goto(
        "/#requantize?input=i32&output=i8&profiles=scheme+gemmlowp,scheme+cmsis_nn_single_rounding&accumulators=5+-1000+7"
    )
    page.get_by_text("has no result").first.wait_for()
    page.get_by_role("heading", name="Multiplier and shift", exact=True).click()
    page.get_by_label("Multiplier", exact=True).fill("1073741824")
    page.get_by_label("Shift", exact=True).fill("0")
    page.get_by_role("region", name="Multiplier, shift and saturation").wait_for()
    multipliers = [{"multiplier": 1 << 30, "shift": 0}]
    stored = [
        client.post(
            "/v1/requantize",
            json={
                "input": {"type": "tensor<3xi32>", "values": [5, -1000, 7]},
                "output_type": "i8",
                "scheme": scheme,
                "multipliers": multipliers,
            },
        ).json()["output"]["values"]
        for scheme in ("gemmlowp", "cmsis_nn_single_rounding")
    ]
    assert [row[2:] for row in _cells(page, "Stored values by profile")] == [
        [str(value) for value in row] for row in zip(*stored, strict=True)
    ]


def test_integers_that_no_double_holds(page: Any) -> None:
    page.goto(
        "/#requantize?input=i64&output=i32&multiplier=8388608&shift=50&profiles=scheme+xnnpack_fp32"
        "&accumulators=9007199254740993"
    )
    steps = page.get_by_role("region", name="The steps of each profile, side by side")
    steps.get_by_text("9007199254740993 - 0 = 9007199254740993").wait_for()
    page.get_by_role("tab", name="JSON").click()
    page.get_by_role("tabpanel").get_by_text("[9007199254740993]").wait_for()


def test_faults_are_said_where_they_are(page: Any) -> None:
    page.goto("/#requantize")
    page.get_by_role("heading", name="3 of 6").wait_for()
    page.get_by_label("Integers").fill("1 2 x")
    page.get_by_text("Item 3 is not an integer.").wait_for()
    page.get_by_label("Integers").fill("1 2 9999999999")
    page.get_by_text("has no result").first.wait_for()


def test_examples_differ(page: Any) -> None:
    page.goto("/#requantize")
    examples = page.get_by_role("list", name="Examples").get_by_role("link")
    assert examples.count() == 4
    for index in range(4):
        examples.nth(index).click()
        page.get_by_role("heading", name="elements differ.").wait_for()
        page.locator(".steps td.parting").first.wait_for()
        assert page.get_by_text("has no result").count() == 0
        page.goto("/#multiplier")
        page.get_by_role("rowheader").first.wait_for()
        page.goto("/#requantize?profiles=litert")
        page.get_by_role("heading", name="litert converted 6 elements").wait_for()


def test_an_accumulator_that_a_scheme_refuses_leaves_the_others(page: Any, client: httpx.Client) -> None:
    from playwright.sync_api import expect

    typed = "!quant.uniform<i32:f32, 0.00098:1>"
    page.goto(
        f"/#requantize?input={typed}&profiles=scheme+gemmlowp,scheme+onnxruntime&accumulators=-2147483648+127+892"
    )
    expect(page.locator(".note").first).to_contain_text("scheme gemmlowp refuses element 0: ")
    page.locator(".results:not([aria-busy])").wait_for()
    found = _requantized(client, [127, 892], scheme="gemmlowp", input_type=typed)["output"]["values"]
    assert [row[2] for row in _cells(page, "Stored values by profile")] == ["refused", *map(str, found)]
    page.get_by_role("button", name="Element 0, differs: why?").click()
    page.get_by_role("heading", name="Why element 0 differs").wait_for()
    expect(page.locator(".reason .note")).to_contain_text("must fit int32")
