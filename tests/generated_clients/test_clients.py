"""Six generators make clients of the committed document, and two of the clients call the running service."""

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
        env={**os.environ, "REQUANT_DOCUMENT": str(DOCUMENT)},
    )
    assert "warn" not in hey_api.lower().replace("npm warn", ""), hey_api
    run(work, "npx", "tsc", "--project", "tsconfig.json")
    return work


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


@pytest.mark.parametrize(("name", "pattern"), [("go", "api_*.go"), ("java", "src/main/java/**/api/*Api.java")])
def test_go_and_java_have_every_operation(work: Path, name: str, pattern: str) -> None:
    generate(work, name)
    found = methods_of("".join(path.read_text() for path in (work / name).glob(pattern)))
    assert {call.operation.lower() for call in CALLS} <= found


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
    reply = httpx.request(
        call.method,
        server.url + call.url,
        params=call.query,
        headers=headers,
        **({"content": call.data} if call.data is not None else {"json": call.json} if call.json else {}),
    )
    assert reply.status_code == 200, reply.text
    return reply


def python_module(call: Call) -> Any:
    """The module of an operation: which words its name has, the generator decides."""
    package = importlib.import_module(f"requant_client.api.{call.tag}")
    found = {entry.name.replace("_", ""): entry.name for entry in pkgutil.iter_modules(package.__path__)}
    return importlib.import_module(f"{package.__name__}.{found[call.operation.lower()]}")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.operation)
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
    elif call.json is not None:
        given["body"] = parameters["body"].annotation.from_dict(call.json)
    with Client(base_url=server.url) as client:
        reply = module.sync_detailed(client=client, **given)
    expected = raw(server, call)
    assert reply.status_code == 200
    if call.data is not None:
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


def test_a_typescript_client_gets_every_reply(server: Server, compiled_typescript: Path) -> None:
    described = [
        {
            "operation": call.operation,
            "path": call.path,
            "query": call.query,
            **({"json": call.json} if call.json is not None else {}),
            **({"bytes": base64.b64encode(call.data).decode()} if call.data is not None else {}),
        }
        for call in CALLS
    ]
    # The sources name each other without a suffix, which node does not follow; a bundler does.
    bundled = compiled_typescript / "bundled.mjs"
    run(
        compiled_typescript,
        *("npx", "esbuild", "call_every_operation.ts", "--bundle", "--platform=node", "--format=esm"),
        f"--outfile={bundled}",
    )
    told = json.dumps({"url": server.url, "calls": described})
    printed = run(compiled_typescript, "node", str(bundled), input=told)
    replies = [json.loads(line) for line in printed.splitlines()]
    assert [reply["operation"] for reply in replies] == [call.operation for call in CALLS]
    for call, reply in zip(CALLS, replies, strict=True):
        expected = raw(server, call)
        assert reply["status"] == 200, reply
        if call.data is not None:
            assert base64.b64decode(reply["data"]) == expected.content
        else:
            assert _without_ids(reply["data"]) == _without_ids(expected.json())
