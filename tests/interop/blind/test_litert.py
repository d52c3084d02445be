"""LiteRT's dumps: each label gives the bits of its resolver."""

from __future__ import annotations

import platform

import pytest

from tests.interop.blind.dump import check
from tests.interop.seed_of_the_day import generator

pytest.importorskip("flatbuffers")
pytest.importorskip("ai_edge_litert")

from tests.interop.blind import litert

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the labels are those of x86-64"),
]


@pytest.mark.parametrize("resolver", [litert.REFERENCE, litert.OPTIMIZED, litert.DEFAULT], ids=lambda each: each.name)
def test_labels(resolver: litert.OpResolverType) -> None:
    check(f"LiteRT {resolver.name}", litert.dumps(generator(601), 180, resolver), at_least=180)
