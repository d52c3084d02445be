"""Untrusted URLs, and those of object stores and servers."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote, urlsplit

from requant.errors import StorageError, excerpt

HTTP_SCHEMES = ("https", "http")
SCHEMES = ("s3", "gs", "az", *HTTP_SCHEMES)
"""Of object stores and servers."""


def parts_of_url(url: str) -> SplitResult:
    """Return the parts of a URL. Raises StorageError for what cannot be one, half of an IPv6 address for example."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        # A password may stand before the host.
        raise StorageError(f"'{excerpt(url.rpartition('@')[2])}' is not a URL: {excerpt(str(error))}") from None
    return parts


def lies_below(url: str, root: str) -> bool:
    """Return whether a URL is below another one, dotted segments included, escaped or not. Raises StorageError."""
    parts = parts_of_url(url)
    segments = unquote(parts.path).replace("\\", "/").split("/")
    return url.isprintable() and url.startswith(f"{root}/") and not {".", ".."} & set(segments)


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
