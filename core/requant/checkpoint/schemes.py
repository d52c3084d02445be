"""The quantization schemes for weights, under their established names.

Names are known in any case. One may be followed by options, separated by commas, for what shares a scale and for codes
with zero points:
`W4A16:group=32`, `W4A16:channel`, `W8A16:tensor`, `W8A8:asymmetric`.
"""

from __future__ import annotations

from collections.abc import Mapping

from requant.checkpoint.quantization_config import compressed_tensors, methods
from requant.checkpoint.scheme import Preset, Scheme
from requant.errors.names import entry_named, in_any_case

__all__ = ["SCHEMES", "Scheme", "scheme_named"]

_PRESETS: Mapping[str, Preset] = {**compressed_tensors.PRESETS, **methods.PRESETS}

SCHEMES = tuple(_PRESETS)
"""The names, without options."""


def scheme_named(name: str) -> Scheme:
    """Return the scheme of that name, in any case. Raises UnknownNameError, or ParameterError for an invalid option."""
    base, _, options = name.partition(":")
    known = in_any_case(_PRESETS, base)
    listed = options.split(",") if options else []
    return entry_named(_PRESETS, known, "scheme")(":".join([known, *([options] if options else [])]), listed)
