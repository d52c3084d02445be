"""Attacks on the plans of checkpoint jobs: each makes what its requests name below a root, and yields requests' bodies.

They go on until the process is killed (`tests.hostile.under_attack`).
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Body = dict[str, Any]


def _safetensors(header: Mapping[str, object]) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def _tensors(count: int) -> dict[str, object]:
    return {
        f"model.layers.{index}.mlp.down_proj.weight": {"dtype": "BF16", "shape": [0, 16], "data_offsets": [0, 0]}
        for index in range(count)
    }


def _checkpoint(folder: Path, file: bytes) -> Path:
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(file)
    (folder / "config.json").write_bytes(b'{"architectures": ["LlamaForCausalLM"]}')
    return folder


def _again(source: object, folder: Path, **members: object) -> Iterator[Body]:
    body = {"source": str(source), "destination": str(folder / "out"), "scheme": "W8A8", "dry_run": True, **members}
    while True:
        yield body


def _patterns(folder: Path, _: int) -> Iterator[Body]:
    source = _checkpoint(folder / "patterns", _safetensors(_tensors(500)))
    return _again(source, folder, ignore=[f"re:.*(a|b|c)*d{index}.*" for index in range(300)])


def _large_headers(folder: Path, _: int) -> Iterator[Body]:
    source = _checkpoint(folder / "headers", _safetensors(_tensors(50_000)))
    shard = (source / "model.safetensors").rename(source / "shard.bin")
    for index in range(12):
        (source / f"model-{index:05d}-of-00012.safetensors").symlink_to(shard)
    return _again(source, folder)


def _long_string(folder: Path, _: int) -> Iterator[Body]:
    text = b'{"__metadata__": {"a": "' + b"x" * (98 << 20) + b'"}}'
    return _again(_checkpoint(folder / "string", struct.pack("<Q", len(text)) + text), folder)


def _manifest(folder: Path, _: int) -> Iterator[Body]:
    source = _checkpoint(folder / "manifest", _safetensors(_tensors(3)))
    out = folder / "out"
    out.mkdir()
    lists = b"[" + b"[]," * 10_000_000 + b"[]]"
    for path in (out / "requant_manifest.json", source / "config.json", source / "model.safetensors.index.json"):
        path.write_bytes(lists)
    return _again(source, folder, dry_run=False)


def _sparse_refs(folder: Path, _: int) -> Iterator[Body]:
    cache = folder / "models--a--b"
    (cache / "refs").mkdir(parents=True)
    (cache / "snapshots").mkdir()
    with (cache / "refs" / "main").open("wb") as file:
        file.truncate(1_500_000_000)
    return _again(cache, folder)


def _fifos(folder: Path, _: int) -> Iterator[Body]:
    source = _checkpoint(folder / "fifo", _safetensors(_tensors(3)))
    (source / "config.json").unlink()
    for name in ("config.json", "model.safetensors.index.json"):
        os.mkfifo(source / name)
    return _again(source, folder)


def _silent(folder: Path, port: int) -> Iterator[Body]:
    listening = socket.create_server(("127.0.0.1", port), backlog=128)
    accepted: list[socket.socket] = []

    def accept() -> None:
        while True:
            accepted.append(listening.accept()[0])

    threading.Thread(target=accept, daemon=True).start()
    return _again(f"http://127.0.0.1:{port}/model", folder)


PLANS: Mapping[str, Callable[[Path, int], Iterator[Body]]] = {
    "500 tensors and 300 patterns": _patterns,
    "12 links to a header of 6 MB": _large_headers,
    "a header with one string of 98 MB": _long_string,
    "manifest, config and index of 30 MB of `[],`": _manifest,
    "1.5 GB where the name of a commit is expected": _sparse_refs,
    "FIFOs where files are expected": _fifos,
    "an HTTP root that accepts and says nothing": _silent,
}
"""By what they do, each with the root to write below and the port of the HTTP root."""
