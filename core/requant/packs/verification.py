"""A pack's vectors run through a program: `my_kernel IN OUT` for each case, whose results are compared.

IN has a line for each vector: the parameters and the input, as decimal integers, floats as their bits in hexadecimal.
Its first line, after a #, names the columns. The program writes a line for each vector to OUT: the result likewise.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from requant.errors import ParameterError, StorageError, excerpt

_SHOWN = 5
_SECONDS = 600


@dataclass(frozen=True, slots=True)
class WrongVector:
    """A vector for which the program gave another result, or none."""

    index: int
    input: str
    expected: str
    found: str | None
    why: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.index}: {self.input} gives {self.found}, expected {self.expected} ({', '.join(self.why)})"


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """How a program did in a case. `failure`: why there are no results, None where there are."""

    name: str
    vectors: int
    wrong: tuple[WrongVector, ...] = ()
    failure: str | None = None

    @property
    def passed(self) -> bool:
        """Whether all results are right."""
        return self.failure is None and not self.wrong

    @property
    def summary(self) -> str:
        """How it did."""
        return self.failure or (f"{len(self.wrong)} wrong" if self.wrong else "all right")

    def details(self) -> list[str]:
        """Return the first wrong vectors."""
        return [f"vector {each}" for each in self.wrong[:_SHOWN]]


@dataclass(frozen=True, slots=True)
class PackVerdict:
    """How a program did. `name` and `version` are those of the pack."""

    name: str
    version: str
    cases: tuple[CaseVerdict, ...]

    @property
    def passed(self) -> bool:
        """Whether all results of all cases are right."""
        return all(each.passed for each in self.cases)

    @property
    def badge(self) -> str:
        """What a badge says: the pack, and how many vectors of all are right."""
        total = sum(each.vectors for each in self.cases)
        right = sum(each.vectors - len(each.wrong) for each in self.cases if each.failure is None)
        return f"requant vectors {self.name} {self.version}: {right} of {total}"

    def members(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "name": self.name,
            "version": self.version,
            "passed": self.passed,
            "badge": self.badge,
            "cases": [
                {
                    "name": each.name,
                    "vectors": each.vectors,
                    "wrong": len(each.wrong),
                    "failure": each.failure,
                    "first": [
                        {"index": one.index, "input": one.input, "expected": one.expected, "found": one.found,
                         "why": list(one.why)}
                        for one in each.wrong[:_SHOWN]
                    ],
                }
                for each in self.cases
            ],
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield it for people."""
        for each in self.cases:
            yield f"{each.name}: {each.vectors} vectors, {each.summary}"
            yield from (f"  {line}" for line in each.details())
        yield self.badge


def verify_pack(files: Mapping[str, bytes], command: str, only: Sequence[str] = ()) -> PackVerdict:
    """Run a program on the cases of a pack. `command`: with {in} and {out} where it has the paths of the files, and
    perhaps {case}. `only`: the names of the cases; all without.

    Raise ParameterError for a command without the places of the files, or for a case that is none.
    """
    for place in ("{in}", "{out}"):
        if place not in command:
            raise ParameterError(
                f"the command does not contain {place}, which stands for the path of a file; for example: "
                "./my_kernel {in} {out}"
            )
    manifest = json.loads(files["manifest.json"])
    names = [each["name"] for each in manifest["cases"]]
    for each in only:
        if each not in names:
            raise ParameterError(f"the pack has no case {excerpt(each)}; there are {', '.join(names)}")
    verdicts = tuple(_verdict(files, each, command) for each in names if not only or each in only)
    return PackVerdict(manifest["name"], manifest["version"], verdicts)


def _verdict(files: Mapping[str, bytes], case: str, command: str) -> CaseVerdict:
    made = json.loads(files[f"{case}/vectors.json"])
    vectors = made["vectors"]
    columns = [each["name"] for each in made["parameter_sets"][0]["parameters"]]
    lines = [f"# {' '.join([*columns, 'input'])}"]
    for each in vectors:
        parameters = made["parameter_sets"][each["parameter_set"]]["parameters"]
        lines.append(" ".join([*(one.get("bits", one["value"]) for one in parameters), _number(each, made, "input")]))
    with TemporaryDirectory() as folder:
        given, found = Path(folder) / "in", Path(folder) / "out"
        given.write_text("\n".join([*lines, ""]))
        places = {"{in}": str(given), "{out}": str(found), "{case}": case}
        arguments = shlex.split(command)
        for place, value in places.items():
            arguments = [each.replace(place, value) for each in arguments]
        try:
            ended = subprocess.run(arguments, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except FileNotFoundError as error:
            raise StorageError(f"the command cannot be run: {error}") from None
        except subprocess.TimeoutExpired:
            return CaseVerdict(case, len(vectors), failure=f"the command did not end within {_SECONDS} s")
        if ended.returncode:
            said = excerpt(ended.stderr.strip().rpartition("\n")[2])
            return CaseVerdict(case, len(vectors), failure=f"the command ended with {ended.returncode}: {said}")
        results = found.read_text().split() if found.exists() else []
    if len(results) != len(vectors):
        return CaseVerdict(case, len(vectors), failure=f"there are {len(results)} results")
    wrong = tuple(
        WrongVector(index, each["input"], _number(each, made, "expected"), result, tuple(each["why"]))
        for index, (each, result) in enumerate(zip(vectors, results, strict=True))
        if _value(result) != _value(_number(each, made, "expected"))
    )
    return CaseVerdict(case, len(vectors), wrong)


def _number(vector: Mapping[str, Any], made: Mapping[str, Any], which: str) -> str:
    """Return an integer in decimal, a float as its bits."""
    element = made["input_element" if which == "input" else "expected_element"]
    return str(vector[which] if element.lstrip("u").startswith("i") else vector[f"{which}_bits"])


def _value(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None
