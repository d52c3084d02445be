"""Certificates: what was decided, in a form that others check in exact integers without us.

`docs/certificates.md` has the format, and a checker that imports nothing of Requant; `fault` does the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from requant.convert.explain.explanation import ContradictionError
from requant.equality.decision import Common, Equivalence
from requant.equality.rules import Rule
from requant.equality.steps import WAYS, Steps, outcome
from requant.errors import UnsupportedError
from requant.errors.cancellation import checked

FORMAT = "requant equivalence 1"
_COUNTS = ("inputs", "differing", "only_first", "only_second", "neither")
# The numbers that follow the name of a step.
_NUMBERS: Mapping[str, int] = {
    "decode": 4,
    "add": 2,
    "multiply": 2,
    "float": 3,
    "integer": 1,
    "clamp": 2,
    "nudge": 1,
    "flush": 2,
    "wrap": 1,
    "within": 3,
    "encode": 7,
    "nan": 6,
}
_OTHER = 3
"""What may follow the numbers of `encode`: a way to round, and the codes of an overflow and an infinity below zero."""
_POSITIVE_LAST = ("add", "multiply", "flush")
# No format and no rule has larger ones: a certificate that is read may come from anybody.
_LARGEST_NUMBER = 1 << 2200
_LARGEST_EXPONENT = 2200
_MAX_STEPS = 64


def certificate(decided: Equivalence) -> dict[str, Any]:
    """Return the certificate of what was decided by thresholds: a document to be written as JSON.

    It is checked before it is returned, which takes some 0.1 ms for each interval. Raise UnsupportedError where
    thresholds did not decide, and ContradictionError if it does not hold.
    """
    if not decided.is_certifiable:
        raise UnsupportedError(
            "these rules were not compared by thresholds, and only that has a certificate: of a computation of every "
            "input nobody could check a short record"
        )
    document = {
        "certificate": FORMAT,
        "rules": [decided.first.text, decided.second.text],
        "claim": {name: getattr(decided, name) for name in _COUNTS},
        "parts": [_part(each.common, (decided.first, decided.second)) for each in decided.parts if each.common],
    }
    document["sha256"] = digest(document)
    if (wrong := fault(document)) is not None:
        raise ContradictionError(f"{decided.first.text} and {decided.second.text}: {wrong}")
    return document


def _part(common: Common, rules: tuple[Rule, Rule]) -> dict[str, Any]:
    one, other = (each.part for each in common.staircases)
    columns = [
        [None if lacks else rule.published(code) for code, lacks in zip(codes.tolist(), lacking.tolist(), strict=True)]
        for rule, codes, lacking in zip(rules, common.outcomes, common.undefined, strict=True)
    ]
    return {
        "name": one.name,
        "sign": one.sign,
        "lowest": one.lowest,
        "highest": one.highest,
        "steps": [[list(step) for step in part.steps or ()] for part in (one, other)],
        "rows": [list(row) for row in zip(common.ends.tolist(), *columns, strict=True)],
    }


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a certificate with an empty digest, written with sorted keys and no spaces."""
    text = json.dumps({**document, "sha256": ""}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def fault(document: Any) -> str | None:
    """Return what is wrong with a certificate, None if what it claims is proven.

    The document may be anything that was read from JSON.
    """
    try:
        return _fault(document)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        return f"this is no certificate: {type(error).__name__}: {error}"


def _fault(document: Mapping[str, Any]) -> str | None:
    if document["certificate"] != FORMAT:
        return f"this is no certificate of the format {FORMAT!r}"
    if document["sha256"] != digest(document):
        return "the digest is not that of the document"
    counted = dict.fromkeys(_COUNTS, 0)
    for part in document["parts"]:
        first, second = (_read_steps(steps) for steps in part["steps"])
        begin = _integer(part["lowest"])
        for row in checked(part["rows"], 16):
            end, *claimed = row
            if _integer(end) < begin:
                return f"{part['name']}: the interval from {begin} to {end} is empty"
            for steps, expected in zip((first, second), claimed, strict=True):
                at_begin = outcome(steps, begin)
                if end > begin and outcome(steps, end) != at_begin:
                    return f"{part['name']}: the outcomes or branches at {begin} and {end} are not the same"
                if at_begin[0] != expected:
                    return f"{part['name']}: the outcome at {begin} is {at_begin[0]}, not {expected}"
            counted["inputs"] += end + 1 - begin
            if (kind := _kind(*claimed)) is not None:
                counted[kind] += end + 1 - begin
            begin = end + 1
        if begin != _integer(part["highest"]) + 1:
            return f"{part['name']}: the intervals end before {part['highest']}, or after it"
    if document["claim"] != counted:
        return f"the claim is {document['claim']}, and the intervals make {counted}"
    return None


def _kind(first: int | None, second: int | None) -> str | None:
    """Return what inputs with these two outcomes are counted as, if they are not equal."""
    if first is None:
        return "neither" if second is None else "only_second"
    if second is None:
        return "only_first"
    return "differing" if first != second else None


def _integer(value: Any, largest: int = _LARGEST_NUMBER) -> int:
    if type(value) is not int or abs(value) > largest:
        raise ValueError(f"{str(value)[:40]} is not an integer that a certificate has")
    return value


def _check_way(way: Any) -> None:
    if way not in WAYS:
        raise ValueError(f"{str(way)[:40]} is no way to round")


def _read_steps(steps: Any) -> Steps:
    """Return the steps of a formula. Raise ValueError for what is none."""
    if len(steps) > _MAX_STEPS:
        raise ValueError(f"a formula has at most {_MAX_STEPS} steps")
    read = []
    for name, *numbers in steps:
        integers = numbers
        if name == "encode" and len(numbers) == _NUMBERS[name] + _OTHER:
            _check_way(numbers[_NUMBERS[name]])
            integers = numbers[: _NUMBERS[name]] + numbers[_NUMBERS[name] + 1 :]
        elif len(numbers) != _NUMBERS[name]:
            raise ValueError(f"the step {name} has {_NUMBERS[name]} numbers")
        if name == "integer":
            _check_way(numbers[0])
        else:
            exponents = name in ("float", "wrap", "decode", "encode", "nan")
            for place, number in enumerate(integers):
                # The widths and exponents stand first; codes follow them.
                small = exponents and place < (3 if name == "float" else 2)
                if not (name == "within" and place == 2 and number is None):
                    _integer(number, _LARGEST_EXPONENT if small else _LARGEST_NUMBER)
            if name in _POSITIVE_LAST and numbers[1] <= 0:
                raise ValueError(f"the denominator of {name} is {numbers[1]}")
        read.append((name, *numbers))
    return tuple(read)
