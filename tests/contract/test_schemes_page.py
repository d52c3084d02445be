"""The page of the schemes says what the schemes say of themselves."""

from __future__ import annotations

from pathlib import Path

from core.parameters.schemes import SCHEMES

PAGE = Path(__file__).parents[2] / "docs" / "schemes.md"


def test_every_scheme_is_described() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip().replace("\0", "|") for cell in line.replace("\\|", "\0").split("|")[1:-1]] for line in lines]
    assert cells == [
        [f"`{scheme.name}`", scheme.derivation, scheme.convention, scheme.formula, str(scheme.factor)]
        for scheme in SCHEMES.values()
    ]
