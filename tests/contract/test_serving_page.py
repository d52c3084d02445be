"""docs/serving.md, followed from its first line to its last. What needs other clients is in tests/interop/clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cases import EXHAUSTIVE
from tests.support.page_programs import DOCS, Reader, sections

SECTIONS = sections(DOCS / "serving.md")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with Reader(tmp_path_factory.mktemp("serving")) as reader:
        yield reader


@pytest.mark.sample(1)
@pytest.mark.parametrize("title", SECTIONS if EXHAUSTIVE else ["Start", "The model", "JSON", "gRPC"])
def test_every_block_prints_what_stands_under_it(reader: Reader, title: str) -> None:
    for block in SECTIONS[title]:
        if not block.needs:
            reader.follow(block)


def test_only_the_containers_are_not_started_here() -> None:
    blocks = [block for found in SECTIONS.values() for block in found]
    assert len(blocks) > 20
    console = [block.text for block in blocks if block.language == "console"]
    assert all(text.startswith("$ docker compose -f deploy/") and text.count("\n") == 1 for text in console)
    assert {block.language for block in blocks} == {"console", "ini", "sh", "python"}
