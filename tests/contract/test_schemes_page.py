"""The page of the schemes says what the schemes say of themselves."""

from __future__ import annotations

from requant.schemes import SCHEMES
from tests.support.page_table import page_table


def test_every_scheme_is_described() -> None:
    assert page_table("schemes.md") == [
        [f"`{scheme.name}`", scheme.derivation, scheme.convention, scheme.formula, str(scheme.factor)]
        for scheme in SCHEMES.values()
    ]
