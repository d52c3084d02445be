"""URLs of strangers."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote, urlsplit

from requant.errors import StorageError, excerpt


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
