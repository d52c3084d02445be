"""The file of bearer tokens, read at the start and again on SIGHUP.

One token to a line; blank lines and lines that begin with `#` are skipped. With several tokens one can be replaced
without a gap. A file that cannot be used when it is read again changes nothing.
"""

from __future__ import annotations

import logging
from pathlib import Path

_log = logging.getLogger("uvicorn.error")

SHORTEST_TOKEN = 16
_MAX_BYTES = 1 << 20


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """Return the tokens in a file. Raise OSError, or ValueError if there is none or one cannot be used.

    A token is 16 or more printable ASCII characters.
    """
    with path.open("rb") as file:
        text = file.read(_MAX_BYTES + 1)
    if len(text) > _MAX_BYTES:
        raise ValueError(f"the file of tokens has more than {_MAX_BYTES} bytes")
    lines = [line.strip() for line in text.splitlines()]
    tokens = tuple(line for line in lines if line and not line.startswith(b"#"))
    if not tokens:
        raise ValueError("the file of tokens holds none")
    for number, token in enumerate(tokens, 1):
        if len(token) < SHORTEST_TOKEN or not all(33 <= byte <= 126 for byte in token):
            raise ValueError(
                f"token {number} is not {SHORTEST_TOKEN} or more printable ASCII characters without blanks"
            )
    return tokens


class Tokens:
    """The tokens of a file, as it was when it was last read. Raises what `read_tokens` raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = read_tokens(path)

    def reread(self) -> None:
        """Read the file again. If it cannot be used, keep the tokens and log why."""
        try:
            if not self._path.is_file():
                # To open a pipe would wait for its other end.
                raise ValueError("the file is gone, or is not a regular file")
            self.known = read_tokens(self._path)
        except (OSError, ValueError) as error:
            _log.error("Tokens not reloaded, the old ones stay valid: %s.", error)
        else:
            _log.info("Tokens reloaded: %d.", len(self.known))
