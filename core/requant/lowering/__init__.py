"""MLIR modules in, MLIR modules out, on xDSL: text, passes, and an evaluator.

xDSL is imported by these files only, and nothing imports them at start-up: the first module that arrives does.
"""
