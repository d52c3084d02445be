"""Whatever a plan refuses, the message says what to do instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from requant.checkpoint.plan import refusals
from requant.checkpoint.plan.refusals import Refusals
from requant.errors import CheckpointError

PLAN = Path(refusals.__file__).parent
ADVICE = re.compile(
    r"\b(?:download|remove|rename|choose|start from|restore|store|convert|name|correct|leave|use|give|split)\b",
    re.IGNORECASE,
)
# To what these raise, the advice is added where they are called.
NOTED = {
    "matrices", "_parts_of_gpt_oss", "_of_expert", "_quantized_source", "_matching", "_stored", "raise_any",
    "stored_formats", "_compressed_tensors",
}  # fmt: skip


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def text_of(node: ast.AST, constants: dict[str, str]) -> str:
    """Return the texts that an expression is made of."""
    parts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return " ".join([*parts, *(constants.get(each.id, "") for each in ast.walk(node) if isinstance(each, ast.Name))])


def texts(tree: ast.AST) -> dict[str, str]:
    """Return what names are given in a module, its functions included, as texts."""
    return {
        target.id: text_of(node.value, {})
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def advice_in(function: ast.FunctionDef) -> str:
    """Return the texts that a function adds to `refusals.advice`."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return " ".join(text_of(call, {}) for call in calls if ast.unparse(call.func) == "refusals.advice.append")


def said() -> list[tuple[str, str]]:
    """Return where a plan refuses, and the text in the code that has to say what to do."""
    found = []
    shared = texts(ast.parse((PLAN / "refusals.py").read_text()))
    for path in sorted(PLAN.glob("*.py")):
        tree = ast.parse(path.read_text())
        constants = shared | texts(tree)
        for function in functions(tree):
            for node in ast.walk(function):
                place = f"{path.name}, line {getattr(node, 'lineno', 0)}"
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    of_refusals = isinstance(node.func.value, ast.Name) and node.func.value.id == "refusals"
                    if of_refusals and node.func.attr in ("add", "add_error"):
                        instead = node.args[1]
                        if isinstance(instead, ast.Name) and instead.id == "BELOW":
                            # Once for all of its kind, in the same function.
                            found.append((place, advice_in(function)))
                        else:
                            found.append((place, text_of(instead, constants)))
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and function.name not in NOTED:
                    raised = node.exc.func
                    if isinstance(raised, ast.Name) and raised.id == "CheckpointError":
                        found.append((place, text_of(node.exc.args[0], constants)))
    return found


SAID = said()


def test_the_code_refuses_in_many_places() -> None:
    assert len(SAID) > 25


@pytest.mark.parametrize(("place", "text"), SAID, ids=[place for place, _ in SAID])
def test_each_says_what_to_do(place: str, text: str) -> None:
    assert ADVICE.search(text), text


def test_the_advice_is_in_the_message() -> None:
    noted = Refusals()
    noted.add("is I8", "choose another scheme", file="a", tensor="b.0.weight")
    noted.add("is I8", "choose another scheme", file="a", tensor="b.1.weight")
    noted.add_error(CheckpointError("has shape [3]"), "leave it as it is", file="a", tensor="c")
    with pytest.raises(CheckpointError) as refused:
        noted.raise_any()
    assert "a, b.0.weight (and 1 like it): is I8: choose another scheme" in refused.value.detail
    assert "a, c: has shape [3]: leave it as it is" in refused.value.detail
