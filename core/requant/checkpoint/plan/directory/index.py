"""`model.safetensors.index.json`: which file holds which tensor.

Source: compressed-tensors 0.20.0, `update_safetensors_index` (`utils/safetensors_load.py`), which writes an index for a
checkpoint of one file as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import BytesIO

from requant.checkpoint.ordering import sorted_in_pieces
from requant.checkpoint.plan.model import Task
from requant.errors.cancellation import checked


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
    places = sorted_in_pieces(places, lambda place: place)
    text = BytesIO()
    text.write(f'{{\n  "metadata": {{\n    "total_size": {total}\n  }},\n  "weight_map": {{'.encode())
    for number, (name, output) in enumerate(checked(places)):
        text.write(f"{',' if number else ''}\n    {json.dumps(name)}: {output}".encode())
    text.write(b"\n  }\n}")
    return text.getvalue()
