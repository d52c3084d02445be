"""Modules run on tensors: `evaluate` interprets a function, operation by operation, with numpy and our own plans."""

from __future__ import annotations

from requant.lowering.evaluate.evaluator import Tensor, evaluate, function_named

__all__ = ["Tensor", "evaluate", "function_named"]
