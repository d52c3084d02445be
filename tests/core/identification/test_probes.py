"""Calls that are proposed tell rules apart: sent through the true rule, they leave one group, or what is proven."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from requant.arrays.calls import ArrayCall, read_calls
from requant.description import CallsInput
from requant.errors import RequantError
from requant.formats.elements import IntegerElement
from requant.identification.candidates import Candidate, Candidates, options_for
from requant.identification.identification import identify
from requant.identification.outcomes import computed_outputs
from requant.identification.probes import probes_of
from requant.identification.separation import MAX_INPUTS, separate
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS
from tests.support.cases import EXHAUSTIVE

_SUSPECTS = ("litert", "onnx", "onednn", "tosa", "torch_decomposed")
_SEEDS = range(3 if EXHAUSTIVE else 1)
_OPERATIONS = {**OPERATIONS, **{each.name: each for each in CONVERSIONS.values()}}
_CALLS = CallsInput(name="calls", description="", operations=_OPERATIONS, observed=False)


def _scale(rng: np.random.Generator) -> float:
    return float(np.float32(2.0 ** rng.uniform(-9, -3)))


def _type(
    rng: np.random.Generator, storage: str, zero_point: int = 0, factor: float = 1, axis: int | None = None
) -> str:
    """Return a type with a random scale, or with four along an axis."""
    scales = [_scale(rng) * factor for _ in range(1 if axis is None else 4)]
    each = ", ".join(f"{scale!r}:{zero_point}" for scale in scales)
    return (
        f"!quant.uniform<{storage}:f32, {each}>"
        if axis is None
        else f"!quant.uniform<{storage}:f32:{axis}, {{{each}}}>"
    )


def _zero(rng: np.random.Generator) -> int:
    return int(rng.integers(-20, 21))


def _bytes(rng: np.random.Generator, *shape: int) -> Any:
    return rng.integers(-127, 128, shape).astype(np.int8)


def _requantize(rng: np.random.Generator) -> dict[str, Any]:
    source = _type(rng, "i32", factor=1 / 64)
    return {
        "input": rng.integers(-3000, 3000, 5).astype(np.int32),
        "input_type": source,
        "output_type": _type(rng, "i8", _zero(rng)),
    }


def _requantize_channels(rng: np.random.Generator) -> dict[str, Any]:
    target = _type(rng, "i8", _zero(rng))
    source = _type(rng, "i32", factor=1 / 64, axis=1)
    return {"input": rng.integers(-3000, 3000, (1, 4)).astype(np.int32), "input_type": source, "output_type": target}


def _quantize(rng: np.random.Generator) -> dict[str, Any]:
    return {"input": rng.normal(0, 1, 4).astype(np.float32), "output_type": _type(rng, "i8", _zero(rng))}


def _matmul(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "lhs": _bytes(rng, 1, 6),
        "rhs": _bytes(rng, 6, 4),
        "lhs_type": _type(rng, "i8", _zero(rng)),
        "rhs_type": _type(rng, "i8<-127:127>", axis=1),
        "output_type": _type(rng, "i8", _zero(rng), factor=4),
    }


def _convolution(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "input": _bytes(rng, 1, 3, 3, 2),
        "weights": _bytes(rng, 4, 2, 2, 2),
        "bias": rng.integers(-500, 500, 4).astype(np.int32),
        "input_type": _type(rng, "i8", _zero(rng)),
        "weights_type": _type(rng, "i8<-127:127>", axis=0),
        "output_type": _type(rng, "i8", _zero(rng), factor=4),
    }


def _depthwise(rng: np.random.Generator) -> dict[str, Any]:
    changed = {"input": _bytes(rng, 1, 3, 3, 4), "weights": _bytes(rng, 4, 2, 2, 1), "groups": 4, "strides": [2, 2]}
    return {**_convolution(rng), **changed}


def _addition(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "lhs": _bytes(rng, 6),
        "rhs": _bytes(rng, 6),
        "lhs_type": _type(rng, "i8", _zero(rng)),
        "rhs_type": _type(rng, "i8", _zero(rng)),
        "output_type": _type(rng, "i8", _zero(rng), factor=2),
    }


_KINDS = {
    "requantize": ("requantize", _requantize),
    "requantize channels": ("requantize", _requantize_channels),
    "quantize": ("quantize", _quantize),
    "matmul": ("matmul", _matmul),
    "convolution": ("conv2d", _convolution),
    "depthwise": ("conv2d", _depthwise),
    "addition": ("add", _addition),
}
_PRODUCTS = ("matmul", "convolution", "depthwise")


def _call(kind: str, seed: int) -> ArrayCall:
    operation, arguments = _KINDS[kind]
    said = {"operation": operation, "arguments": arguments(np.random.default_rng(seed))}
    return read_calls(_CALLS, [said])[0]


def _seen(call: ArrayCall, candidate: Candidate) -> ArrayCall:
    """Return the call with what a candidate gives as what was observed."""
    result = call.result(call.planned(options_for(candidate, call)))
    return call.with_observed({"output": computed_outputs(result, ("output",))[0]})


def _candidates(call: ArrayCall) -> list[Candidate]:
    """Return suspects that the call takes."""
    taken = []
    for each in Candidates([call], [name for name in _SUSPECTS if name in _names(call)]).named():
        try:
            _seen(call, each)
        except RequantError:
            continue
        taken.append(each)
    return taken


def _names(call: ArrayCall) -> set[str]:
    return {str(value) for each in Candidates([call]).named() for _, value in each}


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("kind", _KINDS)
def test_the_true_rule_is_left(kind: str, seed: int) -> None:
    call = _call(kind, seed)
    suspects = [name for name in _SUSPECTS if name in _names(call)]
    candidates = _candidates(call)
    truth = candidates[(seed * 5 + len(kind)) % len(candidates)]
    calls = [_seen(call, truth)]
    # At most two rounds.
    for _ in range(2):
        found = identify(calls, suspects)
        assert any(truth in each.candidates for each in found.consistent)
        if not found.probes:
            break
        calls += [_seen(each.asked, truth) for each in found.probes]
    assert len(identify(calls, suspects).consistent) == 1


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("kind", _PRODUCTS)
def test_weights_and_inputs_have_the_sums(kind: str, seed: int) -> None:
    call = _call(kind, seed)
    candidates = _candidates(call)
    call = _seen(call, candidates[0])
    found = separate([call], candidates)
    firsts = [candidates[each.candidates[0]] for each in found.classes]
    probes = probes_of([call], firsts, found.inputs)
    assert probes
    assert len(found.inputs) <= MAX_INPUTS
    for each in probes:
        wanted = [int(one.value) for one in found.inputs if one.channel == each.channel]
        plain = replace(each.asked, options={**each.asked.options, "output_type": IntegerElement(32)})
        sums = plain.result(plain.planned()).outputs["output"].data.reshape(-1, 4)
        assert sums[: len(wanted), each.channel].tolist() == wanted
        assert not np.delete(sums, each.channel, axis=1).any()
