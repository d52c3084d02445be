"""Converts obstore's errors to StorageError: the location, the server's reason, and never a credential."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from requant.errors import StorageError, excerpt

# obstore's texts have the request's whole URL, which may carry a signature, and Rust's view of the error. Of them are
# taken only the status, and the code and the message of S3's, Azure's and Google's XML.
STATUS = re.compile(r"status code: (\d{3}[A-Za-z ]*)")
CODE = re.compile(r"<Code>(\w{1,64})</Code>")
MESSAGE = re.compile(r"<Message>([^<]{1,400})")
ATTEMPTS = re.compile(r"after (\d+) retries")
MISSING_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
NO_CERTIFICATES = "No CA certificates were loaded"
# What the operating system says of a connection.
SYSTEM_REASON = re.compile(r'message: "([A-Z][\w ,-]{1,80})"')
# Reasons that obstore states without a status.
STATED = re.compile(
    r"Generic \w+ error: (?!Error performing)(?P<sentence>[^\n]+)"
    r"|Operation not supported: (?P<operation>[^\n]+)"
    r"|HTTP error: (?P<connection>[^\n]+)"
)
HINTS = {
    "401": "check the credentials in the environment",
    "403": "check the credentials in the environment and the permissions of their account",
    "429": "run fewer workers at a time",
    "503": "run fewer workers at a time",
}


@contextmanager
def storage_errors(
    url: str, action: str, name: str | None = None, *, expected: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise StorageError for what obstore raises: `url`, or the file `name` below it, and `action` ("cannot be read").

    Errors of the classes `expected` are left as they are, except for FileNotFoundError where it is the bucket that is
    missing.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        text = str(error)
        code = CODE.search(text)
        if isinstance(error, expected) and not (code and code.group(1) in MISSING_BUCKET):
            raise
        place = f"{url}/{name}" if name else url
        # The error itself, with all that is left out here, does not go along.
        raise StorageError(f"{place} {action}: {_reason(text)}", file=name) from None


def _reason(text: str) -> str:
    """Return the actionable part of the text of an obstore error."""
    status, code, message, attempts = (each.search(text) for each in (STATUS, CODE, MESSAGE, ATTEMPTS))
    tries = f" (tried {int(attempts.group(1)) + 1} times)" if attempts else ""
    if status:
        details = ": ".join(excerpt(found.group(1)) for found in (code, message) if found)
        hint = HINTS.get(status.group(1)[:3])
        return "".join(
            (
                f"the server answered {status.group(1).strip()}",
                f", {details}" if details else "",
                tries,
                f"; {hint}" if hint else "",
            )
        )
    if NO_CERTIFICATES in text:
        return "there are no CA certificates on this machine: install ca-certificates, or set SSL_CERT_FILE"
    stated = STATED.search(text)
    if stated is None:
        return f"the server gave no reason{tries}"
    if stated["connection"]:
        system = SYSTEM_REASON.search(text)
        return (
            f"the server cannot be reached{f': {system.group(1)}' if system else ', or did not answer in time'}{tries}"
        )
    return excerpt(stated["sentence"] or stated["operation"]) + tries
