"""xDSL's modules to MLIR text, with floats as MLIR prints them."""

from __future__ import annotations

from io import StringIO

from xdsl.dialects.builtin import AnyFloat, ModuleOp
from xdsl.printer import Printer

from core.formats.elements import FLOATS
from core.mlir.float_text import decimal_text


class Writer(Printer):
    """xDSL's printer, but for floats: `core.mlir` knows them to the letter for every type."""

    def print_float(self, value: float, type: AnyFloat) -> None:
        text = decimal_text(value, FLOATS[type.name])
        self.print_string(text or f"0x{type.pack((value,))[::-1].hex().upper()}")


def write_module(module: ModuleOp) -> str:
    """Return the text of a module."""
    stream = StringIO()
    Writer(stream=stream).print_op(module)
    return stream.getvalue() + "\n"
