"""MLIR text to xDSL's modules: xDSL's parser with limits, positions, and MLIR's reading of floats written as bits."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from xdsl.dialects.builtin import AnyFloat, ComplexType, IndexType, IntegerType, ModuleOp
from xdsl.ir import Attribute, AttributeInvT, Operation, SSAValue
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from requant.errors import LimitError, excerpt
from requant.errors.cancellation import check_cancelled
from requant.lowering.dialects import context
from requant.lowering.limits import ModuleLimits

# A string as xDSL reads it, but without going back: on one that does not end its own pattern takes exponential time.
_STRING = r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"'
_MARK = re.compile(_STRING + r'|//[^\n]*+|"|[\[({<]|->|>=|[\])}>]')

# How many times as long a module may be with its aliases written out.
_WRITTEN_OUT = 8


class _LiteralElement(AttrParser._TensorLiteralElement):
    """A number in `dense<...>`. A float may be written as its bits; an integer is not a float."""

    def to_type(
        self, parser: AttrParser, type: AnyFloat | IntegerType | IndexType | ComplexType[Any]
    ) -> int | float | bool | tuple[int, int] | tuple[float, float]:
        if isinstance(type, AnyFloat) and isinstance(self.value, int):
            if not self.span.text.startswith("0x") or self.value >> (8 * type.compile_time_size):
                parser.raise_error(f"expected a {type.name}: a number with a point, or its bits as 0x", self.span)
            bits: Any = type.unpack(self.value.to_bytes(type.compile_time_size, "little"), 1)
            value: float = bits[0]
            return value
        if isinstance(type, IntegerType) and not isinstance(self.value, int):
            parser.raise_error(f"expected an integer for {type}", self.span)
        found: int | float | bool | tuple[int, int] | tuple[float, float] = super().to_type(parser, type)
        return found


class _Aliases(dict[str, Attribute]):
    """The aliases of a module, which count the characters that they stand for each time that one is used.

    An alias of two of another, of two of another, doubles each time; whoever looks at the last one would never end.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.lengths: dict[str, int] = {}
        self.written = 0
        self._limit = limit

    def __getitem__(self, name: str) -> Attribute:
        self.written += self.lengths.get(name, 0)
        if self.written > self._limit:
            detail = f"the module has more than {self._limit} characters with its aliases written out"
            raise LimitError(detail, limit=self._limit)
        return super().__getitem__(name)


class Reader(Parser):
    """xDSL's parser, which counts what it reads and remembers where each operation began."""

    _TensorLiteralElement: ClassVar[Any] = _LiteralElement

    def __init__(self, text: str, limits: ModuleLimits) -> None:
        super().__init__(context(), text)
        self.positions: dict[Operation, int] = {}
        self._limits = limits
        self._operations = 0
        self._constant_elements = 0
        self._start = 0
        self._first_uses: dict[str, int] = {}
        self._aliases = self.attribute_aliases = _Aliases(_WRITTEN_OUT * limits.characters)

    def _parse_alias_def(self) -> None:
        start, written, known = self.pos, self._aliases.written, len(self._aliases)
        super()._parse_alias_def()  # type: ignore[no-untyped-call]
        assert len(self._aliases) == known + 1
        length = self.pos - start + self._aliases.written - written
        self._aliases.lengths[next(reversed(self._aliases))] = length

    def parse_operation(self) -> Operation:
        start = self._start = self.pos
        self._operations += 1
        if self._operations > self._limits.operations:
            limit = self._limits.operations
            raise LimitError(f"the module has more than {limit} operations", limit=limit)
        if not self._operations % 64:
            check_cancelled()
        op = super().parse_operation()
        if op.dialect_name() in ("stablehlo", "chlo"):
            # StableHLO's attributes are all attributes here, however they were written.
            op.attributes.update(op.properties)
            op.properties.clear()
        self.positions[op] = start
        return op

    def parse_whole(self) -> ModuleOp:
        """Return the module that the whole text is; operations without a module around them are given one."""
        try:
            return self.parse_module()
        except ParseError as error:
            if self._current_token.kind is not MLIRTokenKind.EOF or not self.forward_ssa_references:
                raise
            name = next(iter(self.forward_ssa_references))
            start = self._first_uses[name]
            span = Span(start, start, self.lexer.input)
            raise ParseError(span, f"%{name} is used but not defined") from error

    def resolve_operand(self, operand: UnresolvedOperand, type: AttributeInvT) -> SSAValue[AttributeInvT]:
        if operand.operand_name not in self.ssa_values:
            self._first_uses.setdefault(operand.operand_name, operand.span.start)
        return super().resolve_operand(operand, type)

    def _get_op_by_name(self, name: str) -> type[Operation]:
        found = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if found is None:
            self.raise_error(f"unknown operation {excerpt(name)}", self._start)
        return found

    def _parse_dense_literal_type(self) -> Any:
        type_ = super()._parse_dense_literal_type()
        elements = 1
        for size in type_.get_shape():
            elements *= size
        self._constant_elements += elements
        limit = self._limits.constant_elements
        if self._constant_elements > limit:
            raise LimitError(f"the module's constants have more than {limit} elements", limit=limit)
        return type_


def fault_before_parsing(text: str, limit: int) -> tuple[int, str] | None:
    """Return where and why a text is not handed to xDSL's parser: a string that is none, or brackets too deep.

    That parser recurses, and its strings may take exponential time; both are bounded here, before it starts.
    """
    depth = 0
    for match in _MARK.finditer(text):
        found = match[0]
        if found == '"':
            return match.start(), "an unterminated string, or one with an invalid escape"
        if found in ("(", "[", "{", "<"):
            depth += 1
            if depth > limit:
                return match.start(), f"brackets nested more than {limit} deep"
        elif found in (")", "]", "}", ">"):
            depth = max(0, depth - 1)
    return None
