"""The quantization schemes for weights, under their established names.

A name may be followed by options, separated by commas, for what shares a scale and for codes with zero points:
`W4A16:group=32`, `W4A16:channel`, `W8A16:tensor`, `W8A8:asymmetric`.
"""

from __future__ import annotations

from collections.abc import Mapping

from requant.checkpoint.quantization_config import compressed_tensors, methods, model_optimizer
from requant.checkpoint.scheme import Preset, Scheme
from requant.errors.names import entry_named

__all__ = ["SCHEMES", "Scheme", "scheme_named"]

_PRESETS: Mapping[str, Preset] = {
    **compressed_tensors.PRESETS,
    **methods.PRESETS,
    **model_optimizer.PRESETS,
}

SCHEMES = tuple(_PRESETS)
"""The names, without options."""


def scheme_named(name: str) -> Scheme:
    """Return the scheme of that name. Raises UnknownNameError, or ParameterError for an invalid option."""
    base, _, options = name.partition(":")
    return entry_named(_PRESETS, base, "scheme")(name, options.split(",") if options else [])
