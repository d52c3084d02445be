"""For which multipliers two schemes differ: against the oracle, and across conventions."""

from __future__ import annotations

import random

import pytest

from requant.equality.multipliers import compare_schemes, in_convention
from requant.errors import UnknownNameError
from requant.mlir import parse_type
from requant.schemes import Multiplier, scheme_named
from tests.oracles import schemes as oracle

BYTES = (-128, 127)


def test_schemes_differ_for_the_multipliers_that_the_oracle_says() -> None:
    drawn = random.Random(4)
    multipliers = [Multiplier(drawn.randrange(1 << 30, 1 << 31), drawn.randrange(-9, -3)) for _ in range(4)]
    multipliers += [Multiplier(1 << 30, -5), Multiplier(3 << 29, 0)]
    decided = list(
        compare_schemes("litert", "litert_single_rounding", parse_type("i12"), parse_type("i8"), multipliers)
    )
    assert [each.first for each in decided] == multipliers
    for each in decided:
        results = [
            [
                oracle.requantized(scheme, q, 0, each.first.multiplier, each.first.shift, 0, BYTES)
                for q in range(-2048, 2048)
            ]
            for scheme in ("litert", "litert_single_rounding")
        ]
        differing = sum(a != b for a, b in zip(*results, strict=True))
        assert each.equivalence is not None
        assert [each.equivalence.differing, each.differs] == [differing, differing > 0]
    assert {each.differs for each in decided} == {True, False}


def test_multipliers_are_taken_to_the_convention_of_the_other_scheme() -> None:
    litert, tosa = scheme_named("litert"), scheme_named("tosa")
    assert in_convention(Multiplier(1 << 30, -7), litert, tosa) == Multiplier(1 << 30, 38)
    assert in_convention(Multiplier(1 << 30, 38), tosa, litert) == Multiplier(1 << 30, -7)
    first, second = compare_schemes(
        "litert",
        "tosa_double_round",
        parse_type("i16"),
        parse_type("i8"),
        [Multiplier(1 << 30, each) for each in (-7, 30)],
    )
    assert first.second == Multiplier(1 << 30, 38)
    assert first.equivalence is not None
    assert second.equivalence is None
    assert "shift 1 is outside 2 to 62" in second.refusal
    assert not second.differs


def test_unknown_schemes() -> None:
    with pytest.raises(UnknownNameError):
        next(compare_schemes("litert", "lite", parse_type("i16"), parse_type("i8"), []))
