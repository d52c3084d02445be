"""Certificates: docs/certificates.md and its checker, which imports nothing of ours and refuses what was changed."""

from __future__ import annotations

import ast
import copy
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from requant.equality import certificates
from requant.equality.certificates import certificate, digest, fault
from requant.equality.decision import compare
from requant.equality.rules import Rule, dequantization, requantization
from requant.equality.steps import outcome
from requant.errors import UnsupportedError
from requant.mlir import parse_type
from requant.schemes import Multiplier
from tests.conftest import ROOT
from tests.core.equality.pairs import quantized, requantized
from tests.oracles import schemes as oracle
from tests.support.cases import EXHAUSTIVE

PAGE = ROOT / "docs" / "certificates.md"
EXAMPLE, CHECKER = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
(PRINTED,) = re.findall(r"```\n\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)
BYTES = (-128, 127)


def remembered(outcome: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    """Compute what becomes of an input once: a certificate and its forgeries have nearly all of them in common."""
    known: dict[tuple[str, int], Any] = {}

    def found(steps: Any, x: int) -> Any:
        key = repr(steps), x
        if key not in known:
            known[key] = outcome(steps, x)
        return known[key]

    return found


@pytest.fixture(autouse=True, scope="module")
def _remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "outcome", remembered(outcome))
        yield


@cache
def checker() -> Callable[[Any], bool]:
    names: dict[str, Any] = {"__name__": "check_certificate"}
    exec(CHECKER, names)
    names["outcome"] = remembered(names["outcome"])
    check = names["check"]
    assert callable(check)

    def holds(document: Any) -> bool:
        try:
            return bool(check(document))
        except (ArithmeticError, KeyError, TypeError, ValueError, AssertionError):
            return False

    return holds


def test_the_example_prints_what_stands_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(EXAMPLE, {})
    assert capsys.readouterr().out == PRINTED
    assert checker()(json.loads(Path("certificate.json").read_text()))


def document(first: Rule, second: Rule) -> dict[str, Any]:
    # As it is read from a file.
    read: dict[str, Any] = json.loads(json.dumps(certificate(compare(first, second))))
    return read


@cache
def documents() -> dict[str, dict[str, Any]]:
    accumulator = parse_type("!quant.uniform<i32:f32, 0.05>")
    activation = parse_type("!quant.uniform<i8:f32, 0.25:-1>")
    in_f32, narrow = "!quant.uniform<i8:f32, 0.1:3>", "!quant.uniform<i4:f32, 0.1:3>"
    rules = {
        each: requantization(accumulator, activation, each) for each in ("litert", "litert_single_rounding", "onnx")
    }
    falling = (requantized(each, Multiplier(-1234567891, -7)) for each in ("litert", "arm_vector"))
    wrapping = (requantized("litert", Multiplier(1 << 30, 3)), requantized("cmsis_nn", Multiplier(1 << 30, 3)))
    decoders = (dequantization(parse_type("f4E2M1FN"), parse_type("f32"), each) for each in ("onnx", "ml_dtypes"))
    tosa = (requantized(each, Multiplier(1234567891, 40), "i32", "i4") for each in ("tosa", "tosa_double_round"))
    return {
        "equal": document(rules["litert"], rules["litert"]),
        "different": document(rules["litert"], rules["onnx"]),
        "rounding": document(rules["litert"], rules["litert_single_rounding"]),
        "falling": document(*falling),
        "undefined": document(*wrapping),
        "nudged": document(*tosa),
        "quantized": document(quantized("litert", "f32", in_f32), quantized("torch", "f32", in_f32)),
        "narrow": document(quantized("mlir", "f32", narrow), quantized("litert_xnnpack", "f32", in_f32)),
        "cast": document(quantized("onnx", "f32", "f8E5M2"), quantized("onednn", "f32", "f8E5M2")),
        "wide": document(quantized("stablehlo", "f64", "f4E2M1FN"), quantized("ml_dtypes", "f64", "f4E2M1FN")),
        "decoded": document(*decoders),
    }


def test_the_checker_is_short_and_imports_nothing_of_ours() -> None:
    assert len(CHECKER.splitlines()) <= 60
    imported = set()
    for node in ast.walk(ast.parse(CHECKER)):
        if isinstance(node, ast.Import):
            imported |= {each.name for each in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert imported == {"fractions", "hashlib", "json", "math", "sys"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", documents())
def test_certificates_hold(name: str) -> None:
    assert checker()(documents()[name])
    assert fault(documents()[name]) is None


def test_the_checker_runs_as_a_program(tmp_path: Path) -> None:
    program, file = tmp_path / "check_certificate.py", tmp_path / "certificate.json"
    program.write_text(CHECKER)
    for changes, said in ((0, "proven"), (1, "refused")):
        written = copy.deepcopy(documents()["different"])
        written["claim"]["differing"] += changes
        file.write_text(json.dumps(written))
        ran = subprocess.run(
            [sys.executable, "-I", program, file], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert (ran.stdout + ran.stderr).strip() == said
        assert ran.returncode == changes


Place = tuple[Any, ...]


def numbers(value: Any, place: Place = ()) -> Iterator[Place]:
    """Where the numbers of a document are, and the nulls."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from numbers(each, (*place, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from numbers(each, (*place, index))
    elif value is None or isinstance(value, int):
        yield place


def changed(document: dict[str, Any], place: Place, by: int) -> dict[str, Any]:
    copied = copy.deepcopy(document)
    inner: Any = copied
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = 0 if inner[place[-1]] is None else inner[place[-1]] + by
    return copied


def chosen(places: list[Place], most: int) -> list[Place]:
    """All that are not in rows, and about as many of those as asked for."""
    rows = [place for place in places if "rows" in place]
    most *= 10 if EXHAUSTIVE else 1
    few = rows if len(rows) <= most else random.Random(1).sample(rows, most)
    return [place for place in places if "rows" not in place] + few


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", documents())
def test_a_changed_number_is_refused(name: str) -> None:
    whole = documents()[name]
    for place, by in zip(chosen(list(numbers(whole)), 40), cycle((1, -1, 1 << 20))):
        forged = changed(whole, place, by)
        assert not checker()(forged), place
        assert fault(forged) is not None, place


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", documents())
def test_a_changed_claim_is_refused_with_a_digest_that_fits(name: str) -> None:
    whole = documents()[name]
    places = [
        place for place in numbers(whole) if place[-2:] != ("sign",) and "sign" not in place and "steps" not in place
    ]
    for place in chosen(places, 12):
        forged = changed(whole, place, 1 if len(str(place)) % 2 else -1)
        forged["sha256"] = digest(forged)
        assert not checker()(forged), place
        assert fault(forged) is not None, place


def test_another_rule_with_a_digest_that_fits_is_accepted_only_where_the_claim_is_true_of_it() -> None:
    whole = documents()["nudged"]
    accepted = 0
    for place in (place for place in numbers(whole) if "steps" in place):
        for by in (1, -1, 1 << 12):
            forged = changed(whole, place, by)
            forged["sha256"] = digest(forged)
            held = checker()(forged)
            assert held == (fault(forged) is None)
            accepted += held
            if held:
                check_rows(forged)
    # A larger bound of int32 that nothing reaches, a multiplier that moves no threshold of sixteen.
    assert accepted > 0


def check_rows(forged: dict[str, Any]) -> None:
    """Compute inputs near the ends of the rows and between by a formula that is written anew."""
    drawn = random.Random(2)
    (part,) = forged["parts"]
    begin = part["lowest"]
    for end, *claimed in part["rows"]:
        for q in {begin, end, (begin + end) // 2, drawn.randint(begin, end), min(begin + 1, end), max(end - 1, begin)}:
            for steps, expected in zip(part["steps"], claimed, strict=True):
                assert plainly(steps, q) == expected
        begin = end + 1


def plainly(steps: list[list[Any]], q: int) -> int | None:
    """TOSA's steps in floor divisions."""
    numerator, denominator = q, 1
    for name, *n in steps:
        match name:
            case "multiply":
                numerator, denominator = numerator * n[0], denominator * n[1]
            case "nudge":
                numerator += n[0] * denominator * (1 if numerator >= 0 else -1)
            case "integer":
                numerator, denominator = (2 * numerator + denominator) // (2 * denominator), 1
            case "within":
                if not n[0] <= numerator <= n[1]:
                    return None
            case "clamp":
                numerator = min(max(numerator, n[0]), n[1])
            case _:
                raise ValueError(name)
    return numerator


def test_a_certificate_of_a_tie_says_what_the_oracle_says() -> None:
    part = documents()["different"]["parts"][0]
    differing = [row for row in part["rows"] if row[1] != row[2]]
    assert differing
    for end, first, second in differing:
        results = [
            oracle.requantized("litert", end, 0, *litert_multiplier(), -1, BYTES),
            oracle.requantized("onnxruntime", end, 0, *f32_multiplier(), -1, BYTES),
        ]
        assert results == [first, second]


def litert_multiplier() -> tuple[int, int]:
    derived = oracle.derive("litert", oracle.factor("litert", 0.05, None, 0.25))
    assert derived is not None
    return derived.multiplier, derived.shift


def f32_multiplier() -> tuple[int, int]:
    derived = oracle.derive("onnxruntime", oracle.factor("onnxruntime", 0.05, None, 0.25))
    assert derived is not None
    return derived.multiplier, derived.shift


@pytest.mark.parametrize(
    "hostile",
    [
        None,
        [],
        {},
        {"certificate": "requant equivalence 1"},
        {"steps": [[["multiply", 1 << 3000, 1]], []]},
        {"steps": [[["float", 24, 10**9, 128]], []]},
        {"steps": [[["multiply", 1, 0]], []]},
        {"steps": [[["wrap", 10**12]], []]},
        {"steps": [[["decode", 10**9, 0, 5, 1]], []]},
        {"steps": [[["decode", 0, 0, 1 << 62, 1], ["clamp", 0, 1]], []], "lowest": 1 << 40, "rows": [[1 << 61, 1, 1]]},
        {"steps": [[["run", "rm"]], []]},
        {"steps": [[["add", 1, 1]] * 10**5, []]},
        {"steps": [[["integer", "sideways"]], []]},
        {"steps": [[["clamp", True, 1.5]], []]},
        {"rows": [[5, 1, 1], [4, 1, 1]]},
        {"rows": "many"},
    ],
)
def test_what_is_no_certificate_is_refused_without_effort(hostile: Any) -> None:
    if isinstance(hostile, dict) and not {"steps", "rows"}.isdisjoint(hostile):
        whole = copy.deepcopy(documents()["equal"])
        whole["parts"][0] |= hostile
        whole["sha256"] = digest(whole)
        hostile = whole
    assert fault(hostile) is not None


def test_a_computation_of_every_input_has_no_certificate() -> None:
    rule = requantized("litert", Multiplier(1234567891, -7), "i16")
    decided = compare(rule, rule, thresholds=False)
    with pytest.raises(UnsupportedError, match="only that has a certificate"):
        certificate(decided)
