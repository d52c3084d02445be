"""Modules in tests: passes run on a text, and two modules compared but for the names of their values."""

from __future__ import annotations

from requant.lowering.module import Module, read_module
from requant.lowering.passes import apply, parse_pass


def lowered(text: str, *passes: str) -> Module:
    """Return the module that `text` is, after the passes. What is printed of it has to be a module again."""
    module = read_module(text)
    apply(module, [parse_pass(each) for each in passes])
    printed = module.write()
    assert read_module(printed).write() == printed
    return module


def unnamed(module: Module) -> str:
    """Return the text of a module whose values have numbers for names, as MLIR gives them."""
    for op in module.operation.walk():
        blocks = [block for region in op.regions for block in region.blocks]
        for value in (*op.results, *(argument for block in blocks for argument in block.args)):
            value.name_hint = None
    return module.write()


def operations(module: Module) -> list[str]:
    """Return the names of a module's operations in order, without modules and functions."""
    walked = (op.name for op in module.operation.walk())
    return [name for name in walked if name not in ("builtin.module", "func.func")]
