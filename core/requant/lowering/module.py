"""A module: its text read, checked and written, with every refusal at its line and column.

xDSL parses; what it may cost is bounded by `ModuleLimits`. Values are defined before they are used and a region has one
block: no dialect here has branches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO

from xdsl.dialects.builtin import AnyFloat, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException

from requant.errors import (
    EXCERPT_LIMIT,
    LimitError,
    LoweringError,
    ModuleTextError,
    RequantError,
    TypeTextError,
    UnsupportedError,
    shortened,
)
from requant.errors.cancellation import check_cancelled
from requant.formats.elements import FLOATS
from requant.lowering.limits import ModuleLimits
from requant.lowering.reader import Reader, fault_before_parsing
from requant.mlir.diagnostics import caret
from requant.mlir.printer import decimal_text

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
    """Return what a verifier said, without the printed operation around it."""
    cause = error.__cause__ if isinstance(error.__cause__, DiagnosticException) else error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return shortened(lines[-1].removeprefix("Operation does not verify: "), 2 * EXCERPT_LIMIT)
