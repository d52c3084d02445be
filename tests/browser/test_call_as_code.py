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
from urllib.parse import quote

import httpx
import pytest

pytestmark = pytest.mark.browser

# Outputs of the model by name, as they stand in the reply of the JSON API.
CALLS: dict[str, Callable[[Any], dict[str, list[int]]]] = {
    "/#multiplier?factor=0x1.8p-5&scheme=tosa": lambda reply: {
        name: [reply["results"][0][name]] for name in ("multiplier", "shift")
    },
    "/#multiplier?from=scales&input=0.05&weight=0.1&output=0.25&scheme=cmsis_nn": lambda reply: {
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
CONV2D = {
    "profile": "onnx",
    "input": "1 2 3 4",
    "input.type": "!quant.uniform<u8:f32, 0.5:1>",
    "input.shape": "1x2x2x1",
    "weights": "1 -2",
    "weights.type": "!quant.uniform<i8:f32, 0.25>",
    "weights.shape": "1x1x2x1",
    "output_type": "!quant.uniform<u8:f32, 0.25:7>",
    "strides": "1 1",
    "padding": "same_upper",
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
    # With the library nothing is asked.
    printed = _output(_library_python(), "-", given=_text(page, "Python in process"))
    # The stored floats are printed as numbers there, and multipliers that were given are not.
    told = outputs.get("y", outputs.get("multiplier", [])) if "f8E4M3FN" not in address else []
    assert set(told) <= set(_numbers(printed))
    assert printed


# What the reply has, of calls whose models this page does not write.
OTHERS: dict[str, Callable[[Any], list[int]]] = {
    "/#integer": lambda reply: [*reply["output"]["values"], *reply["trace"]["biased"]["values"]],
    f"/#integer?operation=conv2d&arguments={quote(json.dumps(CONV2D))}": lambda reply: reply["output"]["values"],
    "/#blocks": lambda reply: reply["scales"]["values"],
    "/#calibration?call=mse": lambda reply: reply["zero_points"],
    "/#vectors": lambda reply: [int(vector["expected"]) for vector in reply["vectors"]],
    "/#identify": lambda reply: [reply["elements"], reply["excluded_count"]],
}


@pytest.mark.parametrize("address", OTHERS)
def test_the_library_gives_what_the_api_does(page: Any, client: httpx.Client, address: str) -> None:
    page.goto(address)
    page.get_by_role("tab", name="JSON").wait_for()
    page.wait_for_load_state("networkidle")
    expected = OTHERS[address](_reply(client, page))
    printed = _output(_library_python(), "-", given=_text(page, "Python in process"))
    if address == "/#blocks":
        # A code is the number that it stands for there.
        expected = [2 ** (code - 127) for code in expected]
    assert set(expected) <= set(_numbers(printed))


def _library_python() -> str:
    """The interpreter that has what the library needs."""
    return str(Path(os.environ.get("SERVER_PYTHON", sys.executable)).absolute())


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


ACCUMULATORS = [-30000, -1000, -382, -1, 0, 1, 127, 382, 500, 892, 30000]
SCHEMES_IN_C = {
    *["litert", "gemmlowp", "cmsis_nn", "arm_vector", "litert_single_rounding", "cmsis_nn_single_rounding", "tosa"],
    *["ethos_u", "xnnpack_rndnu", "fbgemm_fixed_point", "vnclip_rnu", "vnclip_rdn", "tosa_double_round"],
    *["xnnpack_rndna", "xnnpack_fp32", "onnxruntime", "fbgemm"],
}


def _compiled(text: str, folder: Path) -> Path:
    source, program = folder / "scale.c", folder / "scale"
    source.write_text(text)
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-o", program, source, "-lm"], check=True, timeout=60
    )
    return program


def test_c_gives_the_bits_of_the_api(page: Any, client: httpx.Client, tmp_path: Path) -> None:
    """Each scheme that there is in C, per tensor and per channel; those that there are not have no tab."""
    from playwright.sync_api import expect

    schemes = [scheme["name"] for scheme in client.get("/v1/schemes").json()["schemes"]]
    typed = " ".join(map(str, ACCUMULATORS))
    in_c = set()
    for scheme in schemes:
        page.goto(f"/#requantize?profiles=scheme+{scheme}&accumulators={typed}")
        page.get_by_role("region", name="Multiplier, shift and saturation").get_by_text(f"scheme {scheme}").wait_for()
        expect(page.locator(".results")).not_to_have_attribute("aria-busy", "true")
        if page.get_by_role("tab", name="C", exact=True).count():
            in_c.add(scheme)
            program = _compiled(_text(page, "C"), tmp_path)
            assert _numbers(_output(str(program), given="")) == _reply(client, page)["output"]["values"], scheme
    assert in_c == SCHEMES_IN_C
    page.goto(
        "/#requantize?profiles=litert,onnx&call=litert&accumulators=-900+-900+127+127+30+892"
        "&input=!quant.uniform<i32:f32:1,{0.00098,0.002}>"
    )
    page.get_by_role("region", name="Multiplier, shift and saturation").wait_for()
    expect(page.locator(".results")).not_to_have_attribute("aria-busy", "true")
    program = _compiled(_text(page, "C"), tmp_path)
    assert _numbers(_output(str(program), given="")) == _reply(client, page)["output"]["values"]


def test_c_of_a_factor(page: Any, client: httpx.Client, tmp_path: Path) -> None:
    page.goto("/#multiplier?factor=0.0123&scheme=tosa")
    page.get_by_role("tab", name="C", exact=True).wait_for()
    main = 'int main(void) { printf("%d\\n", (int)scaled(-12345)); return 0; }'
    program = _compiled(f"{_text(page, 'C')}\n#include <stdio.h>\n{main}\n", tmp_path)
    derived = _reply(client, page)["results"][0]
    pair = {name: derived[name] for name in ("multiplier", "shift")}
    body = {"input": {"type": "tensor<1xi32>", "values": [-12345]}, "output_type": "i32", "scheme": "tosa"}
    reply = client.post("/v1/requantize", json={**body, "multipliers": [pair]})
    assert _numbers(_output(str(program), given="")) == reply.json()["output"]["values"]
    # The form stays chosen, and another stands in where there is none.
    page.get_by_role("tab", name="C", exact=True).click()
    page.get_by_role("region", name="The same call as code").get_by_label("Scheme").select_option("litert_int64")
    assert page.get_by_role("tab", name="C", exact=True).count() == 0
    assert page.get_by_role("tab", selected=True).text_content() == "curl"


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
