"""A page of docs/ as a program: its blocks in order, the services that they call, and what they print."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT, Server, free_port, started

DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# What the page calls the addresses and the folder of the service.
_FOLDER = "/run/requant"
_PORTS = {"REQUANT_PORT": "8080", "REQUANT_GRPC_PORT": "8081", "REQUANT_METRICS_PORT": "9090"}
_IMPORTS = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
_INSTALLED_APART = {"ai_edge_litert", "kserve", "onnxruntime", "torch", "tritonclient"}


@dataclass(frozen=True)
class Block:
    """One fenced block, and the output that is shown under it.

    `language`: of its fence. `needs`: the packages that are installed apart, of those that it and the page's files that
    it imports import.
    """

    language: str
    text: str
    output: str | None
    output_language: str
    needs: set[str]

    @property
    def file(self) -> str | None:
        """The name of the file that it is."""
        found = re.match(r"(?:#|//) (\w+\.(?:py|c))\n", self.text)
        return found and found[1]


def sections(page: Path) -> dict[str, list[Block]]:
    """The blocks under each heading."""
    parts = re.split(r"^## (.*)$", page.read_text(), flags=re.MULTILINE)
    return {title: list(blocks(text)) for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a text, each with its output."""
    found = list(_FENCE.finditer(text))
    needs: dict[str, set[str]] = {name: {name} for name in _INSTALLED_APART}
    at = 0
    while at < len(found):
        block, at = found[at], at + 1
        output, language = None, ""
        # A block of output follows what it is the output of, without a word between.
        if at < len(found) and found[at][1] in ("", "json") and not text[block.end() : found[at].start()].strip():
            output, language, at = found[at][2], found[at][1], at + 1
        needed = set[str]().union(*(needs.get(name, ()) for name in _IMPORTS.findall(block[2])))
        made = Block(block[1], block[2], output, language, needed)
        if made.file is not None:
            needs[made.file.removesuffix(".py")] = needed
        yield made


class Reader:
    """One who follows a page, in a folder: starts what it says, and runs what it shows. A context manager.

    `server`: the service for a page that starts none.
    """

    def __init__(self, folder: Path, server: Server | None = None) -> None:
        self._folder = folder
        self._run = folder / "run"
        self._run.mkdir()
        self._services = ExitStack()
        self._settings: dict[str, str] = {}
        self._ports = {} if server is None else {"REQUANT_PORT": str(server.port)}

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._services.close()

    def follow(self, block: Block) -> None:
        """Do what a block says, and compare what it prints with what is shown."""
        if block.language == "ini":
            self._serve(dict(line.split("=", 1) for line in block.text.splitlines()))
        elif block.file is not None:
            (self._folder / block.file).write_text(self._here(block.text))
        elif block.language in ("sh", "python"):
            self._check(block, self._printed(block))
        else:
            assert block.language == "console", block

    def _serve(self, settings: dict[str, str]) -> None:
        if settings == self._settings:
            return
        self._services.close()
        self._settings = settings
        self._ports = {name: str(free_port()) for name in _PORTS}
        given = {name: self._ports.get(name, self._here(value)) for name, value in settings.items()}
        given.pop("REQUANT_PORT", None)  # `started` finds one
        if "REQUANT_UDS" in settings:
            given.setdefault("REQUANT_METRICS_PORT", self._ports["REQUANT_METRICS_PORT"])
        flags = [
            f"--{name.removeprefix('REQUANT_').lower().replace('_', '-')}={value}" for name, value in given.items()
        ]
        probes = given.get("REQUANT_METRICS_PORT")
        log = self._folder / "log"
        service = started(log, "--drain-seconds=0", *flags, probes=probes and f"http://127.0.0.1:{probes}")
        server, _ = self._services.enter_context(service)
        self._ports["REQUANT_PORT"] = str(server.port)

    def _here(self, text: str) -> str:
        """A text with our addresses."""
        text = text.replace(_FOLDER, str(self._run))
        for name, port in _PORTS.items():
            text = re.sub(rf"(127\.0\.0\.1|localhost):{port}\b", rf"\g<1>:{self._ports.get(name, port)}", text)
        return text

    def _printed(self, block: Block) -> str:
        text = self._here(block.text)
        if block.language == "python":
            command = [sys.executable, "-W", "ignore", "-c", text]
        else:
            command = ["bash", "-euo", "pipefail", "-c", text]
        found = [str(self._folder), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, found))}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        ran = subprocess.run(
            command, cwd=self._folder, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert ran.returncode == 0, f"{text}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def _check(self, block: Block, printed: str) -> None:
        if block.output_language == "json":
            assert json.loads(printed) == json.loads(block.output or ""), block.text
        else:
            assert printed.strip() == (block.output or "").strip(), block.text
