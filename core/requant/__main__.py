"""`python -m requant`: the command."""

from __future__ import annotations

import sys

from requant.command.main import main

if __name__ == "__main__":
    sys.exit(main())
