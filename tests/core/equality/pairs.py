"""Pairs of rules that the tests compare."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from requant.equality.rules import Rule, dequantization, quantization, requantization
from requant.errors import ParameterError, RequantError
from requant.mlir import parse_type
from requant.profiles import PROFILES
from requant.schemes import SCHEMES, Multiplier


def requantized(scheme: str, multiplier: Multiplier, source: str = "i32", target: str = "i8") -> Rule:
    return requantization(parse_type(source), parse_type(target), scheme=scheme, multiplier=multiplier)


def quantized(profile: str, source: str, target: str, *, saturate: bool | None = None) -> Rule:
    return quantization(parse_type(source), parse_type(target), profile, saturate=saturate)


def rules_of(operation: str, source: str, target: str) -> dict[str, Rule]:
    """The rules of all profiles that convert between two types."""
    found = {}
    for profile in PROFILES:
        try:
            convert = quantization if operation == "quantize" else dequantization
            found[profile] = convert(parse_type(source), parse_type(target), profile)
        except RequantError:
            continue
    return found


def multipliers_of(scheme: str, seed: int, count: int) -> Iterator[tuple[Rule, Multiplier]]:
    """Rules of a scheme from 16 bits to 8 by multipliers anywhere in its range: extremes, few bits, and random ones."""
    rule, drawn = SCHEMES[scheme], random.Random(f"{scheme} {seed}")
    lowest, highest = rule.multipliers
    made = 0
    while made < count:
        m = drawn.choice([highest, lowest, 1 << 30, 1, 3 << 22, drawn.randint(lowest, highest)])
        kept = drawn.choice([24, 64])
        m = m >> max(m.bit_length() - kept, 0) << max(m.bit_length() - kept, 0)
        shift = drawn.randint(*rule.shifts) if drawn.random() < 0.3 else near_one(rule.right_shift, m, drawn)
        zeros = drawn.choice([(0, 0), (3, -1), (-129, 127), (70000, 5), (0, (1 << 31) - 60), (-5, -(1 << 31))])
        types = [f"!quant.uniform<{each}:f32, 1.0:{zero}>" for each, zero in zip(("i16", "i8"), zeros, strict=True)]
        multiplier = Multiplier(m, shift)
        try:
            yield requantized(scheme, multiplier, *types), multiplier
        except ParameterError:
            continue
        made += 1


def near_one(right_shift: Callable[[int], int], m: int, drawn: random.Random) -> int:
    """A shift with which a few thousand inputs do not saturate."""
    right = m.bit_length() + drawn.randint(-2, 9)
    origin = right_shift(0)
    return (right - origin) * (right_shift(1) - origin)
