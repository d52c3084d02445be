"""Which files a directory of an HTTP server has: HTTP knows no listing, so they are asked for by name."""

from __future__ import annotations

from collections.abc import Callable

from requant.checkpoint.safetensors.index_reader import INDEX, parse_index
from requant.errors import SafetensorsError, StorageError

MAX_SHARDS = 10_000
# What the repositories of models on Hugging Face consist of, beside the files that the index names.
NAMES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "LICENSE",
    "merges.txt",
    "model.safetensors",
    INDEX,
    "preprocessor_config.json",
    "processor_config.json",
    "README.md",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


def names_in_http_directory(get: Callable[[str], bytes | None]) -> set[str]:
    """Return the names to ask for: `NAMES`, and the files of the index, which `get` reads. Raises StorageError."""
    index = get(INDEX)
    if index is None:
        return set(NAMES)
    try:
        shards = set(parse_index(index).values())
    except SafetensorsError as error:
        raise StorageError(f"{INDEX} has no weight_map that names the shards: {error.detail}", file=INDEX) from error
    if len(shards) > MAX_SHARDS:
        raise StorageError(f"{INDEX} names {len(shards)} shards; expected at most {MAX_SHARDS}", file=INDEX)
    # What is printable has no halves of surrogate pairs, which are not in URLs.
    if not all(name and name.isprintable() and "/" not in name and name not in (".", "..") for name in shards):
        raise StorageError(f"{INDEX} names shards that are not files of this directory", file=INDEX)
    return {*NAMES, *shards}
