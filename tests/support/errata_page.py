"""docs/errata.md: its entries, and the systems that their calls run."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Server
from tests.support.installed_release import installed_release
from tests.support.page_programs import DOCS, Block, Reader, blocks

PAGE = (DOCS / "errata.md").read_text(encoding="utf-8")

_ENTRY = re.compile(r"^### ([^\n]+)\n\n\*\*([^\n]+)\*\*\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """`name`: its identifier, which is its heading and so its anchor."""

    name: str
    title: str
    text: str


def entries() -> list[Entry]:
    return [Entry(*found.groups()) for found in _ENTRY.finditer(PAGE)]


def systems(block: Block) -> dict[str, list[str]]:
    """The distributions whose versions the first line of a block names: none for a call to Requant."""
    first = block.text.partition("\n")[0]
    if not first.startswith("# ") or block.file is not None:
        return {}
    found = re.findall(r"([\w-]+) (\d[\w.]*(?: and \d[\w.]*)*)", first)
    return {name: versions.split(" and ") for name, versions in found}


@contextlib.contextmanager
def saved_files(folder: Path, server: Server | None = None) -> Iterator[None]:
    """Save the files of the page, so that its calls can import them."""
    names = []
    with Reader(folder, server) as reader:
        for block in blocks(PAGE):
            if block.file is not None:
                reader.follow(block)
                names.append(Path(block.file).stem)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)


def check_call(block: Block) -> None:
    """Run a call, and compare what it prints with what is shown.

    In this process: starting Python and importing the system takes longer than all calls to it.
    """
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as printed:
        warnings.simplefilter("ignore")
        exec(compile(block.text, "docs/errata.md", "exec"), {})
    assert printed.getvalue().strip() == (block.output or "").strip(), block.text


def check_calls_to(distribution: str, folder: Path) -> None:
    """Check all calls of the page to one system, as installed. They name the versions that they were checked with."""
    found = [block for block in blocks(PAGE) if distribution in systems(block)]
    if distribution in ("onnxruntime", "torch"):  # of which there are calls to two versions
        found = [block for block in found if installed_release(distribution) in systems(block)[distribution]]
    assert found
    with saved_files(folder):
        for block in found:
            for name, versions in systems(block).items():
                assert installed_release(name) in versions, block.text
            check_call(block)
