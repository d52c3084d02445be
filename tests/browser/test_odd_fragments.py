"""The playground at odd addresses: what follows the # is anybody's text, and views are left while requests run."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser.watched_page import watched_page
from tests.conftest import Server

pytestmark = pytest.mark.browser

VIEWS = (
    *("quantize", "requantize", "identify", "multiplier", "type"),
    *("integer", "blocks", "calibration", "vectors"),
)
UNKNOWN_VIEWS = ("", "Quantize", "__proto__", "constructor", "quantize/", "%71uantize", "%", "../docs", "x" * 5000)
TYPES = (
    "!quant.uniform<i8:f32, 0.5:3>",
    "!quant.uniform<i8:f32:0, {0.5, 0.25:3}>",
    "!quant.uniform<u4:f32:{0:1, 1:2}, {{0.5, 0.25}, {1.0, 2.0}}>",
    "tensor<2x2x!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5}, {1.0}}>>",
    "tensor<0x!quant.uniform<i8:f32, 0.5>>",
    "tensor<*x!quant.uniform<i8:f32, 0.5>>",
    "tensor<?x99999999999999999999x!quant.uniform<i8:f32, 0.5>>",
    "!quant.uniform<i8<-1:1>:f64, 4.9e-324>",
    "!quant.uniform<f8E4M3FN:f32, 0.5>",
    "!quant.uniform<i32:f32, 1.0e38:2147483647>",
    "!quant.any<i8:f32>",
    "!quant.calibrated<f32<-1.0:1.0>>",
    "!quant.quantile<i2:f32, {-1.0, 0.0, 0.5, 1.0}, 0.5>",
    "f8E8M0FNU",
    "f32",
    "index",
    "tensor<",
    "!quant.uniform<i8:f32:2147483647, {0.5, 0.25:3}>",
    "!quant.uniform<i8:f32:{2147483647:1}, {0.5, 0.25:3}>",
    "!quant.uniform<" * 500,
)
CALLS = (
    "[{}]",
    "[null]",
    '{"operation": "requantize"}',
    '[{"operation": "constructor", "arguments": {}}]',
    '[{"operation": "conv2d", "arguments": [1, 2], "observed": "1"}]',
    '[{"operation": "requantize", "arguments": {"input": "1", "input.type": "i32"}, "observed": {"output": "1"}}]',
    '[{"operation": "add", "arguments": {"lhs": 3, "lhs.type": "tensor<", "lhs.shape": "9"}, "observed": {"x": "1"}}]',
)
ARGUMENTS = (
    "{}",
    "null",
    "[1]",
    '{"lhs": 5, "constructor": "x"}',
    '{"input": "1 2", "input.type": "f32", "storage": "i8"}',
    '{"input": "1", "input.type": "tensor<", "input.shape": "9x", "format": "__proto__"}',
    '{"operation": "quantize", "input_type": "f32", "output_type": "i8", "count": "8"}',
    '{"lhs": "1", "lhs.type": "i8", "lhs.shape": "1x1", "rhs": "2", "rhs.type": "i8", "output_type": "i32"}',
)
ODD = (
    "",
    " ",
    "-1",
    "1.5",
    "1e3",
    "0x10",
    "99999999999999999999",
    "NaN",
    "Infinity",
    "null",
    "[object Object]",
    "true",
    "only",
    "whole",
    "normal",
    "ties",
    "ramp",
    "odd",
    "__proto__",
    ",,,",
    "onnx,onnx,onnx",
    "onnx,nothing,litert",
    "scheme tosa",
    "scheme ",
    "<img src=x onerror=alert(1)>",
    "{}",
    "\u0000",
    "\ud83d\ude00" * 40,
    "9" * 3000,
    "1 " * 5000,
    "1,2;3[4](5){6}",
    "-0 nan inf -inf 1e999 4.9e-324",
    "2x2",
    "0",
    "4",
    "9223372036854775807 -9223372036854775808",
    *TYPES,
    *CALLS,
    *ARGUMENTS,
)
NAMES = (
    *[
        "type",
        "numbers",
        "generate",
        "count",
        "seed",
        "shape",
        "profiles",
        "element",
        "detail",
        "differing",
        "staircase",
    ],
    *["input", "output", "accumulators", "multiplier", "shift", "call", "factor", "scheme", "__proto__", "toString"],
    *["calls", "suspects", "operation", "arguments", "from"],
    "",
)
GARBAGE = ("%", "%%%", "%zz", "%C3", "%F0%9F", "%00", "+", "&", "=", "==&&==", "?", "#", "?a=b?c=d", "%2525")


def odd_fragments(rng: random.Random) -> Iterator[str]:
    """Fragments without the #, without end: of wrong, missing, huge and repeated states, cut short, and garbage."""
    while True:
        view = rng.choice(VIEWS if rng.random() < 0.85 else UNKNOWN_VIEWS)
        names = rng.choices(NAMES, k=rng.randrange(6))
        if rng.random() < 0.5:
            # Of a view at which something is computed.
            names.append({"requantize": "input", "identify": "calls", "multiplier": "factor"}.get(view, "type"))
        pairs = []
        for name in names:
            types = dict.fromkeys(("type", "input", "output"), TYPES)
            fitting = {"calls": CALLS, "arguments": ARGUMENTS, **types}.get(name, ODD)
            value = rng.choice(fitting if rng.random() < 0.7 else ODD)
            pairs.append(f"{name}={quote(value.encode('utf-8', 'surrogatepass'), safe=',:')}")
        fragment = f"{view}?{'&'.join(pairs)}" if pairs else view
        match rng.randrange(8):
            case 0:
                fragment = fragment[: rng.randrange(len(fragment) + 1)]
            case 1:
                place = rng.randrange(len(fragment) + 1)
                fragment = fragment[:place] + rng.choice(GARBAGE) + fragment[place:]
        yield fragment


# Profiles are undefined for some elements, in words.
_OF_AN_EXCEPTION = r"Cannot read|is not a function|is not iterable|(?<!is )undefined|Invalid array"

# Each view is left after some milliseconds, at any point of its requests.
_VISIT = """async ([fragments, pauses]) => {
  for (const [index, fragment] of fragments.entries()) {
    location.hash = fragment;
    await new Promise((resolve) => setTimeout(resolve, pauses[index]));
  }
}"""


def settle(page: Any, running: set[Any]) -> None:
    """Wait until no request has run for a while."""
    quiet = 0
    for _ in range(600):
        page.wait_for_timeout(50)
        quiet = 0 if running else quiet + 1
        if quiet == 6:
            return
    raise AssertionError("requests do not end")


def test_no_exception_and_no_unhandled_rejection(chromium: Any, server: Server) -> None:
    from playwright.sync_api import expect

    rng = random.Random(20)
    fragments = odd_fragments(rng)
    with watched_page(chromium, server.url) as page:
        running: set[Any] = set()
        page.on("request", lambda request: running.add(request))
        page.on("requestfinished", lambda request: running.discard(request))
        page.on("requestfailed", lambda request: running.discard(request))
        page.goto("/")
        for _ in range(8):
            # Many that are left at once, then one whose results are waited for.
            chosen = [next(fragments) for _ in range(20)]
            page.evaluate(_VISIT, [chosen, [rng.choice((0, 2, 5, 10, 20, 40)) for _ in chosen]])
            settle(page, running)
            # An exception that was caught is no message to a person.
            shown = page.locator("main").inner_text()
            assert not re.search(_OF_AN_EXCEPTION, shown), shown
        page.evaluate(_VISIT, [["quantize?type=!quant.uniform<i8:f32, 0.5:3>&numbers=-0.25 0.25 0.75 1.25"], [0]])
        expect(page.locator("#summary")).to_have_text("All 4 elements differ.")


@pytest.mark.parametrize("axis", [64, 2**31 - 1])
def test_an_axis_beyond_all_shapes_is_refused(page: Any, axis: int) -> None:
    from playwright.sync_api import expect

    for view, type_ in (
        ("quantize?type", f"!quant.uniform<i8:f32:{axis}, {{0.5, 0.25:3}}>"),
        ("requantize?input", f"!quant.uniform<i32:f32:{axis}, {{0.5, 0.25}}>"),
    ):
        page.goto(f"/#{view}={quote(type_)}")
        expect(page.get_by_text(f"This type is for tensors of {axis + 1} dimensions")).to_be_visible()
