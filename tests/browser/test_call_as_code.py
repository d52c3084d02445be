"""The calls that the page offers to copy: each runs as it stands, and its reply has the numbers of the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Server

pytestmark = pytest.mark.browser

# Signs that a shell and Python have uses for; the service has to refuse a factor that is such a text.
_QUOTED = 'it\'s "$HOME" `id` \\n \\\\ ! %s é'


def _text(page: Any, form: str) -> str:
    page.get_by_role("tab", name=form, exact=True).click()
    text: str = page.get_by_role("tabpanel").locator("code").text_content()
    return text


def _output(*command: str, given: str) -> str:
    return subprocess.run([*command], input=given, capture_output=True, text=True, check=True, timeout=60).stdout


def _shown(page: Any, scheme: str) -> tuple[int, int]:
    row = page.locator("tr", has=page.get_by_role("rowheader", name=scheme)).first
    multiplier, shift, *_ = row.get_by_role("cell").all_text_contents()
    return int(multiplier), int(shift)


def test_curl_python_and_json(page: Any, server: Server) -> None:
    page.goto("/#multiplier?factor=0.0123&scheme=ethos_u")
    page.get_by_role("rowheader", name="ethos_u_reduced").wait_for()
    expected = _shown(page, "ethos_u")
    replies = [_output("bash", given=_text(page, "curl")), _output(sys.executable, "-", given=_text(page, "Python"))]
    for reply in replies:
        found = json.loads(reply)["results"][0]
        assert (found["multiplier"], found["shift"]) == expected
    assert json.loads(_text(page, "JSON")) == {"factors": ["0.0123"], "scheme": "ethos_u"}
    assert server.url in _text(page, "curl")


def test_quotes(page: Any) -> None:
    page.goto("/#multiplier")
    page.get_by_label("Real factor").fill(_QUOTED)
    page.get_by_role("alert").filter(has_text="is not a number").wait_for()
    assert json.loads(_text(page, "JSON"))["factors"] == [_QUOTED]
    # The command prints what arrived, in the place of sending it.
    command = _text(page, "curl").replace("curl ", "printf '%s\\n' ", 1)
    assert json.loads(_output("bash", given=command).partition("-d\n")[2])["factors"] == [_QUOTED]
    program = _text(page, "Python").partition("request =")[0] + "print(json.dumps(body))"
    assert json.loads(_output(sys.executable, "-", given=program))["factors"] == [_QUOTED]


def test_tritonclient(page: Any) -> None:
    python = os.environ.get("CLIENTS_PYTHON")
    assert python, "CLIENTS_PYTHON is the interpreter that has tritonclient (make browser)"
    page.goto("/#multiplier?factor=0x1.8p-5&scheme=tosa")
    page.get_by_role("rowheader", name="tosa_double_round").wait_for()
    printed = _output(str(Path(python).absolute()), "-", given=_text(page, "tritonclient"))
    multiplier, shift = _shown(page, "tosa")
    assert f"multiplier [{multiplier}]" in printed
    assert f"shift [{shift}]" in printed


def test_keyboard_and_copy(page: Any) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/#multiplier")
    page.get_by_role("tab", name="curl").focus()
    page.keyboard.press("ArrowRight")
    selected = page.get_by_role("tab", selected=True)
    assert selected.text_content() == "Python"
    assert page.evaluate("document.activeElement.textContent") == "Python"
    page.get_by_role("button", name="Copy the call").click()
    page.get_by_role("status").filter(has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == _text(page, "Python")
