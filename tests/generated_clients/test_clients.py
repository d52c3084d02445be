"""Six generators make clients of the committed document. All are compiled and call the running service."""

from __future__ import annotations

import base64
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Server
from tests.generated_clients.calls import DOCUMENT, ROOT, Call, calls

pytestmark = pytest.mark.generators

GENERATORS = ROOT / "openapi" / "generators"
CALLS = list(calls())
# Shared memory is off by default, and those of its routes are refused then.
SERVED = [call for call in CALLS if "sharedmemory" not in call.path_template]

# What openapi-generator says of every document of this version, and of Java's documentation comments.
_HARMLESS = (
    "OpenAPI 3.1 support is still in beta",
    "Ignoring complex example on request body",
    # Once a document has about a hundred schemas, whatever they are. No operation and no model is missing.
    "Failed to get the schema name: null",
)


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the configurations and the node packages that they ask for."""
    directory = tmp_path_factory.mktemp("clients")
    shutil.copytree(GENERATORS, directory, dirs_exist_ok=True)
    run(directory, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
    return directory


def run(directory: Path, *command: str, **options: Any) -> str:
    """Run a command that has to succeed, and return all that it printed."""
    found: subprocess.CompletedProcess[str] = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
    )
    assert found.returncode == 0, found.stdout
    return found.stdout


def tool(name: str) -> str:
    """A command of this environment."""
    return str(Path(sys.executable).with_name(name))


@pytest.fixture(scope="session")
def python_client(work: Path) -> Iterator[Path]:
    """The Python client, importable."""
    printed = run(
        work,
        tool("openapi-python-client"),
        "generate",
        *("--path", str(DOCUMENT), "--config", "python.yaml", "--meta", "none", "--output-path", "requant_client"),
        *("--fail-on-warning",),
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert "WARNING" not in printed.upper().replace("FAIL-ON-WARNING", ""), printed
    sys.path.insert(0, str(work))
    yield work / "requant_client"
    sys.path.remove(str(work))


@pytest.fixture(scope="session")
def compiled_typescript(work: Path) -> Path:
    """All TypeScript, generated and compiled together with the program that calls every operation."""
    generate(work, "typescript-fetch")
    run(work, "npx", "openapi-typescript", str(DOCUMENT), "-o", "openapi-typescript/schema.d.ts")
    hey_api = run(
        work,
        *("npx", "openapi-ts", "--file", "hey-api.config.mjs"),
        env={**os.environ, "OPENAPI_DOCUMENT": str(DOCUMENT)},
    )
    assert "warn" not in hey_api.lower().replace("npm warn", ""), hey_api
    (work / "literals.ts").write_text(literals())
    run(work, "npx", "tsc", "--project", "tsconfig.json")
    return work


def readme_body() -> str:
    """The body of the first call in README.md, as it stands there."""
    found = re.search(r"/v1/quantize .*? -d '(\{.*?\})'", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def literals() -> str:
    """A module of TypeScript with the body of each operation's example, as a person writes it: a literal of its type.

    JSON that is parsed has the type `any`, which hides members that a generator made required.
    """
    lines = [
        'import type { operations } from "./openapi-typescript/schema";',
        'import type * as heyApi from "./hey-api/types.gen";',
        'import type * as typescriptFetch from "./typescript-fetch/models/index";',
    ]
    described = json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"]
    for call in CALLS:
        if call.json is None and not call.form:
            continue
        kind = "multipart/form-data" if call.form else "application/json"
        # A file in a form is a string for openapi-typescript.
        form = {name: "" if isinstance(value, bytes) else value for name, value in call.form.items()}
        types = [f'operations["{call.operation}"]["requestBody"]["content"]["{kind}"]']
        if not call.form:
            schema = described[call.path_template][call.method]["requestBody"]["content"][kind]["schema"]["$ref"]
            types.append(f'heyApi.{call.operation[0].upper()}{call.operation[1:]}Data["body"]')
            types.append(f"typescriptFetch.{schema.rpartition('/')[2]}")
        bodies = [json.dumps(form or call.json), *([readme_body()] if call.operation == "quantize" else [])]
        lines += [f"{{ const body: {type_} = {body}; void body; }}" for type_ in types for body in bodies]
    return "\n".join(lines)


def generate(work: Path, name: str) -> None:
    """Run openapi-generator. What it warns of has to be harmless."""
    printed = run(
        ROOT, tool("openapi-generator-cli"), "generate", "-c", str(GENERATORS / f"{name}.yaml"), "-o", str(work / name)
    )
    warnings = [line for line in printed.splitlines() if re.search(r"\b(WARN|ERROR)\b", line)]
    assert [line for line in warnings if not any(known in line for known in _HARMLESS)] == []


def methods_of(text: str) -> set[str]:
    """The identifiers in a source text, in lower case: generators have their own ideas of capitals."""
    return set(re.findall(r"\w+", text.lower()))


@pytest.fixture(scope="session")
def go_client(work: Path) -> Path:
    """The Go client, with the program that calls it, compiled of the standard library alone."""
    generate(work, "go")
    # Without a proxy, a module beyond the standard library would be an error.
    run(
        work,
        "go",
        "build",
        "-o",
        "quantize",
        "quantize.go",
        env={**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=mod"},
    )
    return work / "go"


# Jackson, with its module for times that Debian has no package of, comes with the generator itself.
_JARS = (
    str(Path(sysconfig.get_path("purelib")) / "openapi_generator_cli" / "openapi-generator.jar"),
    *(f"/usr/share/java/{name}.jar" for name in ("jakarta-annotation-api", "httpmime", "httpcore", "httpclient")),
)


@pytest.fixture(scope="session")
def java_client(work: Path) -> Path:
    """The Java client, compiled together with the program that calls it."""
    generate(work, "java")
    sources = work / "java" / "sources.txt"
    sources.write_text("\n".join(map(str, (work / "java" / "src" / "main").rglob("*.java"))))
    run(work, "javac", "-nowarn", "-d", "java/compiled", "-cp", ":".join(_JARS), f"@{sources}", "Quantize.java")
    return work / "java"


def test_go_and_java_have_every_operation(go_client: Path, java_client: Path) -> None:
    operations = {call.operation.lower() for call in CALLS}
    assert operations <= methods_of("".join(path.read_text() for path in go_client.glob("api_*.go")))
    assert operations <= methods_of(
        "".join(path.read_text() for path in java_client.glob("src/main/java/**/api/*Api.java"))
    )


def test_typescript_has_every_operation_and_compiles(compiled_typescript: Path) -> None:
    fetch = methods_of(
        "".join(path.read_text() for path in (compiled_typescript / "typescript-fetch").rglob("*Api.ts"))
    )
    hey_api = methods_of((compiled_typescript / "hey-api" / "sdk.gen.ts").read_text())
    types = methods_of((compiled_typescript / "openapi-typescript" / "schema.d.ts").read_text())
    operations = {call.operation.lower() for call in CALLS}
    assert operations <= fetch
    assert operations <= hey_api
    assert operations <= types


def raw(server: Server, call: Call) -> httpx.Response:
    """The same call without a generated client."""
    headers = {"content-type": "application/octet-stream"} if call.data is not None else {}
    body: dict[str, Any] = {"json": call.json} if call.json else {}
    if call.data is not None:
        body = {"content": call.data}
    elif call.form:
        body = {"files": {name: (None, v if isinstance(v, bytes) else str(v)) for name, v in call.form.items()}}
    reply = httpx.request(call.method, server.url + call.url, params=call.query, headers=headers, **body)
    assert reply.status_code == 200, reply.text
    return reply


def python_module(call: Call) -> Any:
    """The module of an operation: which words its name has, the generator decides."""
    package = importlib.import_module(f"requant_client.api.{call.tag.replace('.', '_')}")
    found = {entry.name.replace("_", ""): entry.name for entry in pkgutil.iter_modules(package.__path__)}
    return importlib.import_module(f"{package.__name__}.{found[call.operation.lower()]}")


@pytest.mark.parametrize("call", SERVED, ids=lambda call: call.operation)
def test_the_python_client_gets_every_reply(server: Server, python_client: Path, call: Call) -> None:
    from requant_client import Client  # type: ignore[import-not-found]
    from requant_client.types import File  # type: ignore[import-not-found]

    module = python_module(call)
    parameters = inspect.signature(module.sync_detailed, eval_str=True).parameters
    given: dict[str, Any] = {**call.path, **call.query}
    for name, value in given.items():
        if hasattr(kind := _enum_of(parameters[name].annotation), "__members__"):
            given[name] = kind(value)
    if call.data is not None:
        given["body"] = File(payload=io.BytesIO(call.data))
    elif call.form:
        model = parameters["body"].annotation
        fields_of = inspect.signature(model, eval_str=True).parameters
        kinds = {name: _enum_of(fields_of[name].annotation) for name in call.form}
        fields = {
            name: File(payload=io.BytesIO(value), file_name=f"{name}.npy") if isinstance(value, bytes) else value
            for name, value in call.form.items()
        }
        enums = {name: kinds[name](value) for name, value in fields.items() if hasattr(kinds[name], "__members__")}
        given["body"] = model(**fields | enums)
    elif call.json is not None:
        given["body"] = parameters["body"].annotation.from_dict(call.json)
    with Client(base_url=server.url) as client:
        reply = module.sync_detailed(client=client, **given)
    expected = raw(server, call)
    assert reply.status_code == 200
    if call.answers_bytes:
        assert reply.parsed.payload.read() == expected.content
    elif isinstance(reply.parsed, list):
        assert [entry.to_dict() for entry in reply.parsed] == expected.json()
    else:
        assert _without_ids(reply.parsed.to_dict()) == _without_ids(expected.json())


def _enum_of(annotation: Any) -> Any:
    """The enum in `ProfileName | Unset`, or the annotation itself."""
    options = getattr(annotation, "__args__", (annotation,))
    return next((option for option in options if hasattr(option, "__members__")), annotation)


def _without_ids(reply: Any) -> Any:
    return {name: value for name, value in reply.items() if name != "request_id"} if isinstance(reply, dict) else reply


VALID = next(call.json for call in CALLS if call.operation == "quantize") | {"profile": "onnx"}
INVALID = {**VALID, "output_type": "!quant.uniform<i8:f32, 0.5"}


def check_quantized(server: Server, quantized: Any, failed: Any) -> None:
    """The reply to VALID and the problem that INVALID is, as a client has them: every field under its own name."""
    expected, refused = (httpx.post(f"{server.url}/v1/quantize", json=body) for body in (VALID, INVALID))
    assert (expected.status_code, refused.status_code) == (200, 422)
    assert _without_ids(_there(quantized)) == _without_ids(expected.json())
    assert _without_ids(_there(failed)) == _without_ids(refused.json())
    assert failed["code"] == "type_invalid"


def _there(value: Any) -> Any:
    """Java writes null for a field that is absent."""
    if isinstance(value, dict):
        return {name: _there(member) for name, member in value.items() if member is not None}
    return [_there(member) for member in value] if isinstance(value, list) else value


def quantized_by(server: Server, work: Path, *command: str) -> None:
    """Run the program of a client, and check what it got."""
    told = json.dumps({"url": server.url, "valid": VALID, "invalid": INVALID})
    check_quantized(server, **json.loads(run(work, *command, input=told)))


def test_the_python_client_quantizes_and_is_refused(server: Server, python_client: Path) -> None:
    from requant_client import Client
    from requant_client.api.ops import quantize  # type: ignore[import-not-found]
    from requant_client.models import QuantizeRequest  # type: ignore[import-not-found]

    with Client(base_url=server.url) as client:
        quantized, failed = (
            quantize.sync(client=client, body=QuantizeRequest.from_dict(body)).to_dict() for body in (VALID, INVALID)
        )
    check_quantized(server, quantized, failed)


def test_the_go_client_quantizes_and_is_refused(server: Server, go_client: Path) -> None:
    quantized_by(server, go_client.parent, "./quantize")


def test_the_java_client_quantizes_and_is_refused(server: Server, java_client: Path) -> None:
    quantized_by(server, java_client.parent, "java", "-cp", ":".join(("java/compiled", *_JARS)), "Quantize")


@pytest.mark.parametrize("client", ["typescript_fetch", "openapi_fetch"])
def test_a_typescript_client_quantizes_and_is_refused(server: Server, compiled_typescript: Path, client: str) -> None:
    quantized_by(server, compiled_typescript, "node", str(bundled(compiled_typescript, f"quantize_{client}.ts")))


def bundled(work: Path, program: str) -> Path:
    """A program in one file. The sources name each other without a suffix, which node does not follow."""
    target = work / Path(program).with_suffix(".mjs")
    run(work, "npx", "esbuild", program, "--bundle", "--platform=node", "--format=esm", f"--outfile={target}")
    return target


def _in_json(form: dict[str, str | int | bytes]) -> dict[str, Any]:
    """The fields of a form, files as objects with their bytes as base64."""
    return {
        name: {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
        for name, value in form.items()
    }


def test_a_typescript_client_gets_every_reply(server: Server, compiled_typescript: Path) -> None:
    described = [
        {
            "operation": call.operation,
            "path": call.path,
            "query": call.query,
            **({"json": call.json} if call.json is not None else {}),
            **({"bytes": base64.b64encode(call.data).decode()} if call.data is not None else {}),
            **({"form": _in_json(call.form)} if call.form else {}),
        }
        for call in SERVED
    ]
    described.append({"operation": "quantize", "path": {}, "query": {}, "json": INVALID})
    program = bundled(compiled_typescript, "call_every_operation.ts")
    told = json.dumps({"url": server.url, "calls": described})
    *replies, refused = map(json.loads, run(compiled_typescript, "node", str(program), input=told).splitlines())
    assert refused["status"] == 422
    expected = httpx.post(f"{server.url}/v1/quantize", json=INVALID)
    assert _without_ids(refused["error"]) == _without_ids(expected.json())
    assert [reply["operation"] for reply in replies] == [call.operation for call in SERVED]
    for call, reply in zip(SERVED, replies, strict=True):
        expected = raw(server, call)
        assert reply["status"] == 200, reply
        if call.answers_bytes:
            assert base64.b64decode(reply["data"]) == expected.content
        else:
            assert _without_ids(reply["data"]) == _without_ids(expected.json())
