"""What a pass is, and what passes share: operations put before another, and values exchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from requant.lowering.module import Module

Options = Mapping[str, str]


@dataclass(frozen=True)
class Pass:
    """A rewriting of modules by name. `options` are what it takes, each with its values: the first is the default."""

    name: str
    summary: str
    run: Callable[[Module, Options], None]
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Emitter:
    """Puts operations one after the other: before `anchor`, or at the end of a block that has no anchor."""

    def __init__(self, anchor: Operation) -> None:
        block = anchor.parent
        assert block is not None
        self._block: Block = block
        self._anchor: Operation | None = anchor

    @classmethod
    def at_end(cls, block: Block) -> Emitter:
        """Return the emitter that appends to `block`."""
        made = cls.__new__(cls)
        made._block, made._anchor = block, None
        return made

    def add(self, op: Operation) -> SSAValue:
        """Insert `op` and return its first result."""
        if self._anchor is None:
            self._block.add_op(op)
        else:
            self._block.insert_op_before(op, self._anchor)
        return op.results[0]

    def replace_anchor(self, *values: SSAValue) -> None:
        """Let `values` take the place of the anchor's results, and erase it."""
        assert self._anchor is not None
        for result, value in zip(self._anchor.results, values, strict=True):
            if value.name_hint is None:
                value.name_hint = result.name_hint
            result.replace_all_uses_with(value)
        self._block.erase_op(self._anchor)


def retype(value: SSAValue, type_: Attribute) -> None:
    """Give a value another type."""
    value._type = type_


def functions(module: Module) -> Iterable[FuncOp]:
    """Return the functions of a module."""
    return [op for op in module.operation.walk() if isinstance(op, FuncOp)]


def convert_signature(function: FuncOp, converted: Callable[[Attribute], Attribute]) -> None:
    """Convert the types of a function's arguments and results. Its body has to follow."""
    inputs = [converted(type_) for type_ in function.function_type.inputs.data]
    outputs = [converted(type_) for type_ in function.function_type.outputs.data]
    function.properties["function_type"] = type(function.function_type).from_lists(inputs, outputs)
