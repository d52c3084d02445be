"""Where the cases come from."""

from __future__ import annotations

from tests.digests import conversions, examples, formats, modules, parameters, requantization

MODULES = (conversions, requantization, formats, parameters, modules, examples)
