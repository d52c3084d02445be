"""docs/cases.md, identify.md, vectors.md: calls print what stands under them. Systems: interop/test_cookbook.py."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from tests.support.page_programs import DOCS, blocks, sections
from tests.support.page_table import page_table

PAGE = DOCS / "cases.md"


@pytest.mark.sample(1)
@pytest.mark.parametrize("page", [PAGE, DOCS / "identify.md", DOCS / "vectors.md"], ids=lambda page: page.stem)
def test_every_call_prints_what_stands_under_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    # In this process: to import everything anew for each block takes longer than all of them.
    monkeypatch.syspath_prepend(tmp_path)
    programs = [block for block in blocks(page.read_text()) if block.language == "python"]
    for block in programs:
        assert block.file or block.output, block.text
        if block.file:
            (tmp_path / block.file).write_text(block.text)
            monkeypatch.delitem(sys.modules, Path(block.file).stem, raising=False)
        elif not block.needs:
            with redirect_stdout(StringIO()) as printed:
                exec(compile(block.text, page.name, "exec"), {})
            assert printed.getvalue().strip() == (block.output or "").strip(), block.text


def test_every_thread_has_a_call() -> None:
    cases = [title for title in sections(PAGE) if re.search(r" \d+$", title)]
    assert all(sections(PAGE)[title] for title in cases)
    links = [re.fullmatch(r"\[(\S+)#(\d+)\]\(#(\S+)\)", row[0]) for row in page_table("cases.md")]
    listed = [link.groups() for link in links if link]  # the page has other tables
    assert listed == [(*title.split(), title.lower().replace(" ", "-")) for title in cases]
    for title in cases:
        repository, number = title.split()
        text = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        assert re.match(rf"\n\*\*\[[^\]]+\]\(https://github\.com/[\w-]+/{repository}/issues/{number}\)\*\*\n", text), (
            title
        )
