"""Attacks on the plans of checkpoint jobs: each writes what its request names below a root, and returns the body.

`tests.hostile.under_attack` sends them.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from requant.checkpoint.plan.source import MANIFEST
from tests.support.safetensors_headers import file_of

Body = dict[str, Any]


def _file(path: Path, tensors: int) -> None:
    """Write a safetensors file with tensors of 16 x 16, whose data is a hole."""
    size = 16 * 16 * 2
    header = {
        f"model.layers.{index}.mlp.down_proj.weight": {
            "dtype": "BF16", "shape": [16, 16], "data_offsets": [index * size, (index + 1) * size],
        }
        for index in range(tensors)
    }  # fmt: skip
    file = file_of(json.dumps(header))
    path.write_bytes(file)
    os.truncate(path, len(file) + tensors * size)


def _checkpoint(folder: Path, tensors: int = 3) -> Path:
    folder.mkdir()
    _file(folder / "model.safetensors", tensors)
    (folder / "config.json").write_bytes(b'{"architectures": ["LlamaForCausalLM"]}')
    return folder


def _body(source: object, folder: Path, **members: object) -> Body:
    return {"source": str(source), "destination": str(folder / "out"), "scheme": "W8A8", "dry_run": True, **members}


def _patterns(folder: Path, _: int) -> Body:
    source = _checkpoint(folder / "patterns", 500)
    return _body(source, folder, ignore=[f"re:.*(a|b|c)*d{index}.*" for index in range(300)])


def _large_header(folder: Path, _: int) -> Body:
    return _body(_checkpoint(folder / "header", 50_000), folder)


def _large_headers(folder: Path, _: int) -> Body:
    source = _checkpoint(folder / "headers", 50_000)
    shard = (source / "model.safetensors").rename(source / "shard.bin")
    for index in range(12):
        (source / f"model-{index:05d}-of-00012.safetensors").symlink_to(shard)
    return _body(source, folder)


def _long_string(folder: Path, _: int) -> Body:
    source = _checkpoint(folder / "string")
    text = b'{"__metadata__": {"a": "' + b"x" * 98_000_000 + b'"}}'
    (source / "model.safetensors").write_bytes(file_of(text))
    return _body(source, folder)


def _manifest(folder: Path, _: int) -> Body:
    source = _checkpoint(folder / "manifest")
    out = folder / "out"
    out.mkdir()
    (out / MANIFEST).write_bytes(b"[" + b"[]," * 10_000_000 + b"[]]")
    return _body(source, folder, dry_run=False)


def _sparse_refs(folder: Path, _: int) -> Body:
    cache = folder / "models--a--b"
    (cache / "refs").mkdir(parents=True)
    (cache / "snapshots" / "0123abc").mkdir(parents=True)
    with (cache / "refs" / "main").open("wb") as file:
        file.truncate(1_500_000_000)
    return _body(cache, folder)


def _fifos(folder: Path, _: int) -> Body:
    source = _checkpoint(folder / "fifo")
    (source / "config.json").unlink()
    for name in ("config.json", "model.safetensors.index.json"):
        os.mkfifo(source / name)
    return _body(source, folder)


def _silent(folder: Path, port: int) -> Body:
    listening = socket.create_server(("127.0.0.1", port), backlog=128)
    accepted: list[socket.socket] = []

    def accept() -> None:
        while True:
            accepted.append(listening.accept()[0])

    threading.Thread(target=accept, daemon=True).start()
    return _body(f"http://127.0.0.1:{port}/model", folder)


PLANS: Mapping[str, Callable[[Path, int], Body]] = {
    "500 tensors and 300 patterns": _patterns,
    "a header of 6 MB": _large_header,
    "12 links to a header of 6 MB": _large_headers,
    "a header with a string of 98 MB": _long_string,
    "a manifest of 30 MB of `[],`": _manifest,
    "1.5 GB where the name of a commit is expected": _sparse_refs,
    "FIFOs where files are expected": _fifos,
    "an HTTP root that accepts and says nothing": _silent,
}
"""By what they do, each with the root to write below and the port of the HTTP root."""
