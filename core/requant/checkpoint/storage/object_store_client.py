"""obstore's client for a URL."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from requant.checkpoint.storage.object_store_errors import storage_errors
from requant.checkpoint.storage.urls import parts_of_url
from requant.errors import StorageError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, MemoryStore, RetryConfig, S3Store

    Client = S3Store | GCSStore | AzureStore | MemoryStore

SCHEMES = ("s3", "gs", "az", "https", "http")

# Server errors, throttling (429, 503) and lost connections are tried again after 0.1 s, 0.2 s and so on to 15 s, with
# jitter, for at most three minutes: the signature of a request is valid for five.
RETRY: RetryConfig = {
    "max_retries": 10,
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=15), "base": 2},
    "retry_timeout": timedelta(minutes=3),
}


def client_of(url: str, retry: RetryConfig) -> Client:
    """Return a client. Raises StorageError."""
    parts = url_without_secrets(url)
    try:
        from obstore import store as clients
    except ModuleNotFoundError as error:
        raise StorageError(
            f"{url}: object stores need obstore: run pip install '.[stores]' in the repository"
        ) from error

    bucket, prefix = parts.netloc, parts.path.strip("/") or None
    with storage_errors(url, "cannot be opened"):
        if parts.scheme == "s3":
            return clients.S3Store(bucket, prefix=prefix, retry_config=retry)
        if parts.scheme == "gs":
            return clients.GCSStore(bucket, prefix=prefix, retry_config=retry)
        return clients.AzureStore(bucket, prefix=prefix, retry_config=retry)


def url_without_secrets(url: str) -> SplitResult:
    """Return the parts of a URL. Raises StorageError for what would be ignored, and for secrets, which would stand in
    plans, logs and messages.
    """
    parts = parts_of_url(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if parts.scheme not in SCHEMES:
        raise StorageError(f"{shown}: no object store; use one of {', '.join(f'{each}://' for each in SCHEMES)}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise StorageError(
            f"{shown}: the URL has a user, a query or a fragment; expected only scheme://bucket/prefix, with "
            "credentials in environment variables"
        )
    if not parts.netloc:
        raise StorageError(f"{shown}: the URL names no {'host' if parts.scheme.startswith('http') else 'bucket'}")
    return parts
