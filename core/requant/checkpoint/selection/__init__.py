"""Which modules and tensors a list of names and regular expressions means."""

from __future__ import annotations

from requant.checkpoint.selection.default_ignore import DEFAULT_ENTRY, DEFAULT_IGNORE, Role, default_entries, role_of
from requant.checkpoint.selection.name_patterns import NamePatterns, check_linear

__all__ = ["DEFAULT_ENTRY", "DEFAULT_IGNORE", "NamePatterns", "Role", "check_linear", "default_entries", "role_of"]
