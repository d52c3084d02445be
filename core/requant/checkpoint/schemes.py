"""The quantization schemes for weights, under their established names.

Names are known in any case. One may be followed by options, separated by commas, for what shares a scale and for codes
with zero points:
`W4A16:group=32`, `W4A16:channel`, `W8A16:tensor`, `W8A8:asymmetric`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from requant.checkpoint.quantization_config import compressed_tensors, methods, model_optimizer
from requant.checkpoint.scheme import Preset, Scheme
from requant.errors import UnknownNameError
from requant.errors.names import entry_named, in_any_case

__all__ = ["GIVEN_SCHEMES", "SCHEMES", "Scheme", "scheme_named"]

_WITHOUT_DATA: Mapping[str, Preset] = {
    **compressed_tensors.PRESETS,
    **methods.PRESETS,
    **model_optimizer.PRESETS,
}
_PRESETS: Mapping[str, Preset] = {**_WITHOUT_DATA, **compressed_tensors.GIVEN_PRESETS}

_OF_GGUF = re.compile(r"(?:Q[1-8]_(?:[01]|K(?:_[SML])?)|I?Q[1-4]_(?:XXS|XS|NL|S|M|XXL)|TQ[12]_0)", re.IGNORECASE)

SCHEMES = tuple(_WITHOUT_DATA)
"""The names of those that need no data, without options."""
GIVEN_SCHEMES = tuple(compressed_tensors.GIVEN_PRESETS)
"""The names of those with scales of activations that are given."""


def scheme_named(name: str) -> Scheme:
    """Return the scheme of that name, in any case. Raises UnknownNameError, or ParameterError for an invalid option."""
    base, _, options = name.partition(":")
    known = in_any_case(_PRESETS, base)
    if known not in _PRESETS and _OF_GGUF.fullmatch(base):
        raise UnknownNameError(
            f"'{base}' is a type of GGUF files: convert the model with llama.cpp's convert_hf_to_gguf.py "
            f"(--outtype bf16 --outfile MODEL.gguf), and quantize MODEL.gguf with {_with_gguf(base)}; for safetensors, "
            f"choose one of {', '.join(SCHEMES)}"
        )
    listed = options.split(",") if options else []
    return entry_named(_PRESETS, known, "scheme")(":".join([known, *([options] if options else [])]), listed)


def _with_gguf(name: str) -> str:
    """Return how a GGUF file is quantized to a type: by its name, or those of its mixtures (Q4_K: Q4_K_S, Q4_K_M)."""
    from requant.checkpoint.gguf.mixtures import TARGETS

    upper = name.upper()
    names = [upper] if upper in TARGETS else [each for each in TARGETS if each.startswith(f"{upper}_")]
    return f"--scheme {' or '.join(names)}" if names else "llama-quantize"
