"""The calls that the page offers to copy: each runs as it stands, and answers what the page shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.browser

# Outputs of the model by name, as they stand in the reply of the JSON API.
CALLS: dict[str, Callable[[Any], dict[str, list[int]]]] = {
    "/#multiplier?factor=0x1.8p-5&scheme=tosa": lambda reply: {
        name: [reply["results"][0][name]] for name in ("multiplier", "shift")
    },
    "/#requantize?call=litert_single_rounding": lambda reply: {"y": reply["output"]["values"]},
    "/#requantize?input=i32&output=i8&multiplier=1073741824&shift=0&accumulators=5+7": lambda reply: {
        "y": reply["output"]["values"],
        "multiplier": [1 << 30],
    },
    "/#quantize?type=!quant.uniform<i4:f32,0.5>&numbers=-0+0.25+NaN+inf&profiles=stablehlo": lambda reply: {
        "y": reply["output"]["values"]
    },
    "/#quantize?type=!quant.uniform<f8E4M3FN:f32,0.5>&numbers=-1+0.3&profiles=onnx": lambda reply: {
        "y": reply["output"]["values"]
    },
    "/#quantize?type=!quant.uniform<u8:bf16,0.5:9>&numbers=-1+0.3+2+3&shape=2x2&profiles=mlir": lambda reply: {
        "y": reply["output"]["values"]
    },
    "/#type?type=!quant.uniform<i8:f32,0.5:3>": lambda reply: {},
}
# Signs that a shell and Python have uses for.
QUOTED = 'it\'s "$HOME" `id` \\n \\\\ ! %s é'


def _printed(text: str, name: str) -> list[int]:
    """Return an array of integers that numpy printed after its name."""
    found = re.search(rf"^{name} (\[[-\d\s\[\]]+\])", text, re.MULTILINE)
    assert found, text
    return [int(number) for number in re.findall(r"-?\d+", found[1])]


def _text(page: Any, form: str) -> str:
    page.get_by_role("tab", name=form, exact=True).click()
    text: str = page.get_by_role("tabpanel").locator("code").text_content()
    return text


def _output(*command: str, given: str) -> str:
    done = subprocess.run([*command], input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{given}\n{done.stderr}"
    return done.stdout


def _reply(client: httpx.Client, page: Any) -> Any:
    """Return what the API answers to the call that the page shows as JSON."""
    path = page.locator(".call-path").text_content().removeprefix("POST ")
    reply = client.post(path, content=_text(page, "JSON"), headers={"content-type": "application/json"})
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize("address", CALLS)
def test_each_form_runs(page: Any, client: httpx.Client, address: str) -> None:
    python = os.environ.get("CLIENTS_PYTHON")
    assert python, "CLIENTS_PYTHON names the interpreter that has tritonclient (make browser)"
    page.goto(address)
    page.get_by_role("tab", name="curl").wait_for()
    page.wait_for_load_state("networkidle")
    expected = _reply(client, page)
    assert json.loads(_output("bash", given=_text(page, "curl"))) == expected
    assert json.loads(_output(sys.executable, "-", given=_text(page, "Python"))) == expected
    printed = _output(str(Path(python).absolute()), "-", given=_text(page, "tritonclient"))
    outputs = CALLS[address](expected)
    assert {name: _printed(printed, name) for name in outputs} == outputs
    # A type's translations are parameters of the reply.
    assert outputs or '"system":"onnx"' in printed


def test_quotes(page: Any) -> None:
    page.goto("/#multiplier")
    page.get_by_label("Real factor").fill(QUOTED)
    page.get_by_role("alert").filter(has_text="is not a number").wait_for()
    assert json.loads(_text(page, "JSON"))["factors"] == [QUOTED]
    # The command prints what arrived, in the place of sending it.
    command = _text(page, "curl").replace("curl ", "printf '%s\\n' ", 1)
    assert json.loads(_output("bash", given=command).partition("-d\n")[2])["factors"] == [QUOTED]
    program = _text(page, "Python").partition("request =")[0] + "print(json.dumps(body))"
    assert json.loads(_output(sys.executable, "-", given=program))["factors"] == [QUOTED]


@pytest.mark.parametrize(
    ("view", "label", "member", "name"),
    [
        ("quantize", "Profile", "profile", "mlir"),
        ("requantize", "Profile or scheme", "profile", "litert_single_rounding"),
        ("multiplier", "Scheme", "scheme", "ethos_u"),
    ],
)
def test_choice_of_the_call(page: Any, view: str, label: str, member: str, name: str) -> None:
    page.goto(f"/#{view}")
    choice = page.get_by_role("region", name="The same call as code").get_by_label(label, exact=True)
    choice.select_option(name)
    assert json.loads(_text(page, "JSON"))[member] == name
    assert f"={name}" in page.url


def test_keyboard_and_copy(page: Any) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/#multiplier")
    page.get_by_role("tab", name="curl").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", selected=True).text_content() == "Python"
    assert page.evaluate("document.activeElement.textContent") == "Python"
    page.get_by_role("button", name="Copy the call").click()
    page.get_by_role("status").filter(has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == _text(page, "Python")


def test_body_beyond_an_argument(page: Any) -> None:
    page.goto("/#multiplier")
    command = page.evaluate(
        """async (body) => {
          const { curlText } = await import("/playground/call_as_code/curl.js");
          return curlText({ path: "/v1/parameters/multiplier", body }, { base: document.baseURI });
        }""",
        {"factors": ["0.0123".ljust(40, "0")] * 4000, "scheme": "litert"},
    )
    assert len(command) > 128 * 1024
    assert len(json.loads(_output("bash", given=command))["results"]) == 4000
