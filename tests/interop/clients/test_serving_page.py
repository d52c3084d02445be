"""The programs of docs/serving.md that use the clients of Triton and KServe, as installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.serving_page import Reader, sections

pytestmark = pytest.mark.clients

# With what they need: services, files, and commands that prepare something.
SECTIONS = {
    title: [block for block in blocks if block.needs_clients or block.output is None]
    for title, blocks in sections().items()
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
    assert sum(block.needs_clients for blocks in SECTIONS.values() for block in blocks) >= 5
