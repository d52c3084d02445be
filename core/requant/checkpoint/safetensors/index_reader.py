"""Reading `model.safetensors.index.json` from anyone's hands: which file holds which tensor."""

from __future__ import annotations

from requant.checkpoint.safetensors.scanner import Scanner

INDEX = "model.safetensors.index.json"
MAX_INDEX_BYTES = 64 << 20
"""That of a checkpoint with 90,000 tensors (DeepSeek-V3) has 9 MB."""

_WEIGHT_MAP = "weight_map"


def parse_index(text: bytes) -> dict[str, str]:
    """Return the file of each tensor from the member `weight_map`; other members are ignored.

    Raises SafetensorsError, which says where, for what is not JSON, a member or a tensor that occurs twice, and a value
    that is not a string.
    """
    scanner = Scanner(text, INDEX)
    scanner.expect(b"{", "at the start")
    weight_map: dict[str, str] | None = None
    ended = scanner.take(b"}")
    while not ended:
        start = scanner.at
        member = scanner.string("the name of a member")
        scanner.expect(b":", "after the name of a member")
        if member != _WEIGHT_MAP:
            scanner.skip_value()
        elif weight_map is not None:
            scanner.refuse(start, f"a second '{_WEIGHT_MAP}'")
        else:
            weight_map = scanner.strings(_WEIGHT_MAP)
        ended = scanner.take(b"}")
        if not ended:
            scanner.expect(b",", "or '}' after a member")
    scanner.end()
    if weight_map is None:
        scanner.refuse(scanner.at, f"expected a member '{_WEIGHT_MAP}', the files of the tensors")
    return weight_map
