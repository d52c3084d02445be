"""A module: MLIR text read within limits, checked and written, with every refusal at its line and column.

xDSL parses, with limits, positions, and MLIR's reading of floats written as bits; what it may cost is bounded by
`ModuleLimits`. Values are defined before they are used and a region has one block: no dialect here has branches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, ClassVar

from xdsl.dialects.builtin import AnyFloat, ComplexType, IndexType, IntegerType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, AttributeInvT, Operation, SSAValue
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException
from xdsl.utils.lexer import Span
from xdsl.utils.mlir_lexer import MLIRTokenKind

from requant.description import ModuleLimits
from requant.errors import (
    EXCERPT_LIMIT,
    LimitError,
    LoweringError,
    ModuleTextError,
    RequantError,
    TypeTextError,
    UnsupportedError,
    excerpt,
    shortened,
)
from requant.errors.cancellation import check_cancelled
from requant.formats.elements import FLOATS
from requant.lowering.dialects import context
from requant.mlir.diagnostics import caret
from requant.mlir.printer import decimal_text

# A string as xDSL reads it, but without going back: on one that does not end its own pattern takes exponential time.
_STRING = r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"'
_MARK = re.compile(_STRING + r'|//[^\n]*+|"|[\[({<]|->|>=|[\])}>]')

# How many times as long as the longest module one may be with its aliases written out. Where modules have any length,
# as long as itself, or as a short one.
_WRITTEN_OUT = 8
_SHORT = 1 << 20


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
        number: int | float | bool | tuple[int, int] | tuple[float, float] = super().to_type(parser, type)
        return number


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
        self._aliases = self.attribute_aliases = _Aliases(_WRITTEN_OUT * min(limits.characters, max(len(text), _SHORT)))

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
        """Return the module that the whole text is; operations without a module around them get one."""
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
        op_type = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if op_type is None:
            self.raise_error(f"unknown operation {excerpt(name)}", self._start)
        return op_type

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
        token = match[0]
        if token == '"':
            return match.start(), "an unterminated string, or one with an invalid escape"
        if token in ("(", "[", "{", "<"):
            depth += 1
            if depth > limit:
                return match.start(), f"brackets nested more than {limit} deep"
        elif token in (")", "]", "}", ">"):
            depth = max(0, depth - 1)
    return None


_DETAIL = 400


class Writer(Printer):
    """xDSL's printer, but for floats: `requant.mlir` knows them to the letter for every type."""

    def print_float(self, value: float, type: AnyFloat) -> None:
        text = decimal_text(value, FLOATS[type.name])
        self.print_string(text or f"0x{type.pack((value,))[::-1].hex().upper()}")


@dataclass
class Module:
    """A module, the text that it came from, and where in it each operation was."""

    operation: ModuleOp
    text: str
    limits: ModuleLimits
    positions: dict[Operation, int] = field(default_factory=dict)

    def write(self) -> str:
        """Return the module as text. Raises LoweringError where that cannot be: a number of too many digits."""
        stream = StringIO()
        try:
            Writer(stream=stream).print_op(self.operation)
        except (ValueError, RecursionError, OverflowError) as error:
            raise LoweringError(f"the module cannot be printed ({type(error).__name__})") from None
        return stream.getvalue() + "\n"

    def failure(self, op: Operation, detail: str) -> LoweringError:
        """Return the error about `op`: at its place, or where it stands inside of an operation with one."""
        inner: Operation | None = op
        while inner is not None and inner not in self.positions:
            inner = inner.parent_op()
        offset = None if inner is None else self.positions[inner]
        line, column = (None, None) if offset is None else line_and_column(self.text, offset)
        place = "" if line is None else f", at line {line}, column {column}"
        return LoweringError(f"{op.name}: {detail}{place}", line=line, column=column)

    def check_size(self) -> None:
        """Raise LimitError if a pass made more operations than a module may have."""
        limit = self.limits.operations
        if sum(1 for _ in self.operation.walk()) > 8 * limit:
            raise LimitError(f"the lowered module has more than {8 * limit} operations", limit=8 * limit)
        check_cancelled()


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of a character, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def text_fault(text: str, offset: int, detail: str) -> ModuleTextError:
    """Return the error for the character at `offset`."""
    line, column = line_and_column(text, offset)
    start = offset - column + 1
    end = text.find("\n", offset)
    shown = caret(text[start : len(text) if end < 0 else end], offset - start)
    bounded = detail if len(detail) <= _DETAIL else f"{detail[:_DETAIL]}..."
    place = f"{bounded}, at line {line}, column {column}"
    return ModuleTextError(place, offset=offset, line=line, column=column, caret=shown)


def read_module(text: str, limits: ModuleLimits | None = None) -> Module:
    """Return the module that `text` is.

    Raises ModuleTextError where it does not parse or verify, LimitError where it is larger than `limits`.
    """
    limits = limits or ModuleLimits()
    if len(text) > limits.characters:
        limit = limits.characters
        raise LimitError(f"the module has {len(text)} characters, and may have {limit}", limit=limit)
    if (fault := fault_before_parsing(text, limits.nesting)) is not None:
        raise text_fault(text, *fault)
    operation, positions = _parse(text, limits)
    module = Module(operation, text, limits, positions)
    _check_order(module)
    _verify(module)
    return module


def _parse(text: str, limits: ModuleLimits) -> tuple[ModuleOp, dict[Operation, int]]:
    reader: Reader | None = None
    try:
        reader = Reader(text, limits)
        return reader.parse_whole(), reader.positions
    except ParseError as error:
        raise text_fault(text, error.span.start, _sentence(error.msg)) from None
    except TypeTextError as error:
        detail = error.detail.removesuffix(f", at offset {error.offset}")
        raise text_fault(text, error.offset, f"{detail}{f' ({error.hint})' if error.hint else ''}") from None
    except RequantError:
        raise
    # xDSL's parser answers some wrong texts with an error of Python's own: a number of too many digits, a missing
    # attribute, an empty list. Each is a text that is not taken; where it stopped reading is where it is wrong.
    except (Exception, RecursionError) as error:
        offset = 0 if reader is None else min(reader.pos, len(text))
        raise text_fault(text, offset, f"this cannot be read ({type(error).__name__})") from None


def _sentence(message: str) -> str:
    """Return what xDSL says, in one line. It may quote types and attributes of the text, which have any length."""
    message = " ".join(message.split())
    return shortened(message[:1].lower() + message[1:], 2 * EXCERPT_LIMIT)


def _check_order(module: Module) -> None:
    """Check that each region has one block and that every value is defined before it is used."""
    defined: set[SSAValue] = set()
    for op in module.operation.walk():
        if op.parent is not None and op.parent.first_op is op:
            defined.update(op.parent.args)
        for operand in op.operands:
            if operand not in defined:
                raise text_fault(
                    module.text, module.positions.get(op, 0), f"{op.name} uses a value before its definition"
                )
        if any(len(region.blocks) > 1 for region in op.regions) or op.successors:
            raise text_fault(
                module.text, module.positions.get(op, 0), f"{op.name} has branches; a region has one block here"
            )
        defined.update(op.results)


def _verify(module: Module) -> None:
    """Check every operation by itself, innermost place first, so that an error has the place of its operation."""
    for count, op in enumerate(module.operation.walk()):
        if not count % 64:
            check_cancelled()
        try:
            op.verify(verify_nested_ops=False)
            if isinstance(op, FuncOp) and op.is_declaration and op.sym_visibility != StringAttr("private"):
                raise VerifyException("a function without a body must be private")
            for region in op.regions:
                if region.blocks and not op.has_trait(NoTerminator) and region.block.last_op is None:
                    raise VerifyException("its region is empty; it must end with a return")
        except UnsupportedError as error:
            raise text_fault(module.text, module.positions.get(op, 0), f"{op.name}: {error.detail}") from None
        except (DiagnosticException, ValueError, AssertionError, AttributeError, TypeError) as error:
            raise text_fault(module.text, module.positions.get(op, 0), f"{op.name}: {_reason(error)}") from None
        # A verifier that computes with what is written: a division by zero in a map, or one that is too deep.
        except (ArithmeticError, LookupError, RecursionError, NotImplementedError) as error:
            detail = f"{op.name}: this cannot be checked ({type(error).__name__})"
            raise text_fault(module.text, module.positions.get(op, 0), detail) from None


def _reason(error: Exception) -> str:
    """Return a verifier's message, without the printed operation around it."""
    cause = error.__cause__ if isinstance(error.__cause__, DiagnosticException) else error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return shortened(lines[-1].removeprefix("Operation does not verify: "), 2 * EXCERPT_LIMIT)
