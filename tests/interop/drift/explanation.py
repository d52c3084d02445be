"""Which step of the arithmetic a difference is in: what `identify` says of the elements that were recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import requant
from requant.profiles import PROFILES, Operation

_CANDIDATES = 8


def explained(profile: str, witness: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines: the first difference, the rules that give the new bits, and where the profile leaves them."""
    yield f"First witness: {witness['what']}, element {witness['index']}: input {witness['input']}, "
    yield f"the profile gives {witness['ours']}, the system {witness['theirs']}."
    call = witness.get("call")
    if call is None:
        return
    arguments = {name: _array(value) if name == "input" else value for name, value in call["arguments"].items()}
    observed = {"output": _array(call["observed"]["output"])}
    asked = [{**call, "arguments": arguments, "observed": observed}]
    answer = requant.identify(asked, suspects=_profiles(call["operation"]))
    if not answer["consistent"]:
        answer = requant.identify(asked)
    named = [each for group in answer["consistent"] for each in group["candidates"]]
    if not named:
        yield "No rule that Requant knows gives the new bits of these elements."
        yield from (f"Pattern: {each}." for each in answer.get("patterns", ()))
    else:
        listed = "; ".join(_shown(each) for each in named[:_CANDIDATES])
        more = f"; and {len(named) - _CANDIDATES} more" if len(named) > _CANDIDATES else ""
        yield f"Rules that give the new bits of {observed['output'].size} elements: {listed}{more}."
        nearest = max(named, key=lambda each: _same_system(profile, each.get("profile", "")))
        # Beside one rule, the step is where the profile leaves that one.
        answer = requant.identify(asked, suspects=sorted({profile, *map(str, nearest.values())}))
    for excluded in answer["excluded"]:
        if {"profile": profile} in excluded["candidates"] and "step" in excluded:
            yield f"Step: `{profile}` has {_step(excluded['step'])}"
            if "consistent_step" in excluded:
                yield f"where those have {_step(excluded['consistent_step'])}."


def _same_system(profile: str, other: str) -> bool:
    return profile.partition("_")[0] == other.partition("_")[0]


def _profiles(operation: str) -> list[str]:
    return [name for name, each in PROFILES.items() if Operation(operation) in each.operations]


def _array(stored: Mapping[str, Any]) -> Any:
    return np.frombuffer(bytes.fromhex(stored["bytes"]), stored["dtype"]).reshape(stored["shape"])


def _shown(candidate: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in candidate.items())


def _step(step: Mapping[str, Any]) -> str:
    return f"{step['step']}: {step.get('formula', '')} = {step.get('inserted', '')} = {step.get('value', '')}"
