"""Texts that name a store, of the command and of plan files: what is none is a StorageError."""

from __future__ import annotations

from itertools import product

import pytest

from requant.checkpoint.storage.location import open_store
from requant.errors import StorageError
from tests.checkpoint_jobs.requests import HOSTS, SCHEMES, TAILS
from tests.support.cases import sample


def test_every_text_is_a_store_or_refused() -> None:
    refused = 0
    for parts in sample(list(product(SCHEMES, HOSTS, TAILS)), 1500):
        try:
            open_store("".join(parts))
        except StorageError:
            refused += 1
    assert refused


@pytest.mark.parametrize("text", ["http://[", "s3://]x[/", "https://a\u2100b/x", "file://[", "http://h:99999/x"])
def test_half_a_url(text: str) -> None:
    with pytest.raises(StorageError, match="is not a URL"):
        open_store(text)


@pytest.mark.parametrize("text", ["/a\0b", "file:///a%00b"])
def test_a_path_with_a_nul(text: str) -> None:
    with pytest.raises(StorageError, match="is not a path"):
        open_store(text)
