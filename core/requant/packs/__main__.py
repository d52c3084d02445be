"""Writes packs of all profiles and schemes, or of those named: `python -m requant.packs FOLDER [NAME ...]`."""

from __future__ import annotations

import argparse
import sys
from hashlib import sha256
from pathlib import Path

from requant.packs.cases import NAMES
from requant.packs.pack import pack_archive, pack_name


def main() -> None:
    """Write the archives, and print the digest and size of each."""
    parser = argparse.ArgumentParser(prog="python -m requant.packs", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="profiles and schemes; all without")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or NAMES:
        content = pack_archive(name)
        (arguments.folder / f"{pack_name(name)}.tar.zst").write_bytes(content)
        sys.stdout.write(f"{sha256(content).hexdigest()}  {pack_name(name)}.tar.zst\n")


if __name__ == "__main__":
    main()
