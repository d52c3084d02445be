"""`config.json`: its quantization_config before and after the conversion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from requant.checkpoint.weights.floats import TORCH_NAMES
from requant.errors import CheckpointError, excerpt

QUANTIZATION = "quantization_config"
_OLD_NAME = "compression_config"
_LANGUAGE_MODEL = "text_config"
_DTYPE_MEMBERS = ("dtype", "torch_dtype")


def quantization_of(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the quantization_config of config.json, None if there is none.

    Looks where vLLM and compressed-tensors look: `quantization_config`, that of `text_config`, `compression_config`.
    Raises CheckpointError for one that is no object.
    """
    nested = config.get(_LANGUAGE_MODEL)
    for found in (
        config.get(QUANTIZATION),
        nested.get(QUANTIZATION) if isinstance(nested, dict) else None,
        config.get(_OLD_NAME),
    ):
        if isinstance(found, dict):
            return found
        if found is not None:
            detail = f"quantization_config is {excerpt(str(found))}; expected an object"
            raise CheckpointError(detail, file="config.json")
    return None


def with_quantization(config: Mapping[str, Any], members: Mapping[str, Any]) -> bytes:
    """Return the text of a config.json with the quantization_config of its weights."""
    return _text({**config, QUANTIZATION: members})


def without_quantization(config: Mapping[str, Any], dtype: str) -> bytes:
    """Return the text of a config.json of plain weights, with their dtype wherever it states one."""
    plain = _plain(config, dtype)
    nested = plain.get(_LANGUAGE_MODEL)
    if isinstance(nested, dict):
        plain[_LANGUAGE_MODEL] = _plain(nested, dtype)
    return _text(plain)


def _plain(part: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    kept = {name: value for name, value in part.items() if name not in (QUANTIZATION, _OLD_NAME)}
    return kept | {name: TORCH_NAMES[dtype] for name in _DTYPE_MEMBERS if name in kept}


def stated_dtype(config: Mapping[str, Any]) -> str | None:
    """Return the dtype of the model's weights by its name in safetensors, None where config.json does not say it."""
    for part in (config, config.get(_LANGUAGE_MODEL)):
        if isinstance(part, dict):
            for name in _DTYPE_MEMBERS:
                for dtype, stated in TORCH_NAMES.items():
                    if part.get(name) == stated:
                        return dtype
    return None


def _text(config: Mapping[str, Any]) -> bytes:
    """Return JSON as transformers writes it: indented by 2, keys sorted."""
    return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()
