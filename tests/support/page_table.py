"""The tables of a page of documentation."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def page_table(page: str, title: str = "") -> list[list[str]]:
    """Return the cells of the table under a title of docs/`page`, or of its only table, without the head.

    A bar inside of a cell is written with a backslash.
    """
    text = (DOCS / page).read_text(encoding="utf-8")
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0] if title else text
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return _cells(lines)


def tables(text: str) -> list[list[list[str]]]:
    """Return the cells of each table of a text, as `page_table` does."""
    return [_cells(found.splitlines()) for found in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)]


def _cells(lines: list[str]) -> list[list[str]]:
    return [[_text(cell) for cell in line.replace("\\|", "\0").split("|")[1:-1]] for line in lines[2:]]


def _text(cell: str) -> str:
    return cell.replace("\0", "|").strip()
