"""Our own operations, each described once. To add one, describe it in a file here and list it below."""

from __future__ import annotations

from collections.abc import Mapping

from requant.description import Operation
from requant.operations.add import ADD
from requant.operations.products import CONV2D, MATMUL

OPERATIONS: Mapping[str, Operation] = {each.name: each for each in (MATMUL, CONV2D, ADD)}
"""All of them by name."""
