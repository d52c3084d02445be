"""One operator of LiteRT with its tensors, run by LiteRT's resolvers and by us."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import OpResolverType

from requant.errors import RequantError
from requant.mlir import parse_type
from tests.interop.conformance import systems
from tests.interop.litert_models import Array, Operand, model_of, run_inputs
from tests.interop.operators.counting import Tally
from tests.support.cases import EXHAUSTIVE
from tests.support.operator_calls import run, tensor

RESOLVERS = {
    "reference": OpResolverType.BUILTIN_REF,
    "optimized": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    "xnnpack": OpResolverType.AUTO,
}
DTYPES = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "i64": np.int64}


@dataclass(frozen=True)
class Quant:
    """Storage, scales along an axis or one, zero points."""

    storage: str
    scale: Any
    zero_point: Any = 0
    axis: int = 0

    @property
    def element(self) -> str:
        if np.ndim(self.scale):
            pairs = (f"{float(np.float32(s))!r}" for s in self.scale)
            return f"!quant.uniform<{self.storage}:f32:{self.axis}, {{{', '.join(pairs)}}}>"
        return f"!quant.uniform<{self.storage}:f32, {float(np.float32(self.scale))!r}:{self.zero_point}>"

    @property
    def operand(self) -> Operand:
        scales = np.atleast_1d(np.asarray(self.scale, np.float32))
        zeros = np.broadcast_to(np.asarray(self.zero_point, np.int64), scales.shape)
        return Operand(self.storage, scales, zeros, self.axis)

    @property
    def dtype(self) -> Any:
        return DTYPES[self.storage]

    @property
    def low(self) -> int:
        return int(np.iinfo(self.dtype).min)

    def draw(self, rng: np.random.Generator, *shape: int) -> Array:
        """Numbers of the whole storage, its ends more often."""
        limits = np.iinfo(self.dtype)
        found = rng.integers(limits.min, limits.max + 1, shape)
        ends = rng.random(shape)
        found = np.where(ends < 0.03, limits.min, np.where(ends > 0.97, limits.max, found))
        return np.asarray(found).astype(self.dtype)


@dataclass(frozen=True)
class Node:
    """`inputs` by our names, in LiteRT's order: numbers with their type, or plain integers, which are constants, as
    are those in `constants`. `options`: the kind of the builtin options, and their fields."""

    operator: str
    inputs: dict[str, tuple[Array, Quant | None]]
    output: Quant
    shape: tuple[int, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, dict[str, Any]] | None = None
    constants: tuple[str, ...] = ()
    retyped: bool = True
    version: int = 2

    def model(self) -> bytes:
        inputs: list[Any] = []
        for name, (array, quant) in self.inputs.items():
            storage = next(key for key, dtype in DTYPES.items() if array.dtype == dtype)
            operand = Operand(storage) if quant is None else quant.operand
            constant = [array] if quant is None or name in self.constants else []
            inputs.append((array.shape, operand, *constant))
        options = None
        if self.options is not None:
            kind, fields = self.options
            filled = getattr(schema, f"{kind}T")()
            for name, value in fields.items():
                setattr(filled, name, value)
            options = int(getattr(schema.BuiltinOptions, kind)), filled
        code = int(getattr(schema.BuiltinOperator, self.operator))
        return model_of(code, inputs, (self.shape, self.output.operand), options, self.version)

    def theirs(self, kernel: str) -> Array | None:
        """What a resolver gives, None where it refuses the model."""
        given = [
            array for name, (array, quant) in self.inputs.items() if quant is not None and name not in self.constants
        ]
        try:
            return run_inputs(self.model(), given, RESOLVERS[kernel])
        except (RuntimeError, ValueError):
            return None

    def ours(self, kernel: str) -> Array | None:
        attributes = {**self.attributes, "kernel": kernel}
        if self.retyped:
            attributes["output_type"] = parse_type(self.output.element)
        operands = {
            name: tensor("i32" if quant is None or quant.storage == "i32" else quant.element, array)
            for name, (array, quant) in self.inputs.items()
        }
        try:
            (found,) = run(f"litert.{self.operator}", operands, attributes).values()
        except RequantError:
            return None
        return found


def check(nodes: Iterable[Node], elements: int, *, refused: bool = False, at_most: int = 8) -> None:
    """Compare with every resolver. `refused`: what one refuses, the other does too; by default ours may refuse more,
    which is not run: LiteRT ends the process for some."""
    tally = Tally(systems.LITERT)
    for node in nodes:
        for kernel in RESOLVERS:
            ours = node.ours(kernel)
            if ours is None and not refused:
                continue
            theirs = node.theirs(kernel)
            of = {name: (each[1], each[0].shape) for name, each in node.inputs.items()}
            what = f"{kernel} {node.operator} {node.output} {node.attributes} {of}"
            if ours is None or theirs is None:
                both = ours is None and theirs is None
                tally.add(f"litert.{node.operator}", 1, both, f"{what}: refused by {'us' if ours is None else 'it'}", 0)
                continue
            equal = ours.dtype == theirs.dtype and ours.shape == theirs.shape and np.array_equal(ours, theirs)
            if not equal and ours.shape == theirs.shape:
                wrong = np.flatnonzero(ours.ravel() != theirs.ravel())
                shown = [(int(i), ours.ravel()[i], theirs.ravel()[i]) for i in wrong[:at_most]]
                what = f"{what}: {wrong.size} of {ours.size}, (index, ours, theirs) {shown}"
            tally.add(f"litert.{node.operator}", 1, equal, what, ours.size)
    compared = sum(tally.elements.values())
    tally.finish(1)
    assert compared >= (elements if EXHAUSTIVE else 1), compared
