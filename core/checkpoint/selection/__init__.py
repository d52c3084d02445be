"""Which modules and tensors a list of names and regular expressions means."""

from __future__ import annotations

from core.checkpoint.selection.name_patterns import NamePatterns, check_linear

__all__ = ["NamePatterns", "check_linear"]
