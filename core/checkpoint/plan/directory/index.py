"""`model.safetensors.index.json`: which file holds which tensor.

Source: compressed-tensors 0.20.0, `update_safetensors_index` (`utils/safetensors_load.py`), which writes an index for a
checkpoint of one file as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import BytesIO

from core.checkpoint.plan.model import Task
from core.checkpoint.safetensors.scanner import Scanner

INDEX = "model.safetensors.index.json"
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


def index_of(tasks: Iterable[Task]) -> bytes:
    """Return the index of the outputs. `total_size` is the sum of the tensors' bytes, without headers.

    The text is that of `json.dumps` with an indent of 2 and sorted keys, of one tensor at a time.
    """
    places: list[tuple[str, str]] = []
    total = 0
    for task in tasks:
        output = json.dumps(task.output)
        for entry in task.header.tensors:
            places.append((entry.name, output))
            total += entry.end - entry.begin
    places.sort()
    text = BytesIO()
    text.write(f'{{\n  "metadata": {{\n    "total_size": {total}\n  }},\n  "weight_map": {{'.encode())
    for number, (name, output) in enumerate(places):
        text.write(f"{',' if number else ''}\n    {json.dumps(name)}: {output}".encode())
    text.write(b"\n  }\n}")
    return text.getvalue()
