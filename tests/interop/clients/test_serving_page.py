"""The programs of docs/serving.md that use the clients of Triton and KServe, as installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.page_programs import DOCS, Reader, sections

pytestmark = pytest.mark.clients

# With what they need: services, files, and commands that prepare something.
SECTIONS = {
    title: [block for block in blocks if block.needs or block.output is None]
    for title, blocks in sections(DOCS / "serving.md").items()
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with Reader(tmp_path_factory.mktemp("serving")) as reader:
        yield reader


@pytest.mark.parametrize("title", SECTIONS)
def test_the_programs_print_what_stands_under_them(reader: Reader, title: str) -> None:
    for block in SECTIONS[title]:
        reader.follow(block)


def test_there_are_programs() -> None:
    assert sum(bool(block.needs) for blocks in SECTIONS.values() for block in blocks) >= 5
