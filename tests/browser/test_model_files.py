"""A type taken from a model file: read in the browser, whatever the file says of itself, and sent nowhere."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.browser

FOLDER = Path(__file__).parent / "model_files"


def _safetensors(entries: dict[str, tuple[str, list[int], bytes]]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape, stored) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


WEIGHTS = _safetensors(
    {
        "l.weight": ("I8", [2, 3], bytes(6)),
        "l.weight_scale": ("F32", [2, 1], np.array([0.5, 0.1], np.float32).tobytes()),
        "l.weight_zero_point": ("I8", [2, 1], b"\x00\xff"),
        "m.weight": ("F8_E4M3", [4], bytes(4)),
        "m.weight_scale": ("BF16", [1], b"\x80\x3e"),
        "blocks.weight": ("I8", [4, 4], bytes(16)),
        "blocks.weight_scale": ("F32", [4, 2], bytes(32)),
        "plain": ("F32", [1], bytes(4)),
    }
)
FILES = {
    "quantized.tflite": (FOLDER / "quantized.tflite").read_bytes(),
    "quantized.onnx": (FOLDER / "quantized.onnx").read_bytes(),
    "blocks.gguf": (FOLDER / "blocks.gguf").read_bytes(),
    "weights.safetensors": WEIGHTS,
}
# All digits of the f32 that the file holds.
TENTH = float(np.float32(0.1))
TYPES = [
    ("quantized.tflite", "input", f"!quant.uniform<i8:f32, {TENTH}:-3>"),
    ("quantized.tflite", "conv/weights", "!quant.uniform<i8:f32:0, {0.5, 0.0625}>"),
    ("quantized.tflite", "acc", f"!quant.uniform<i16:f32, {float(np.float32(0.001))}>"),
    ("quantized.tflite", "four", "!quant.uniform<i4:f32:1, {0.25, 0.5}>"),
    ("quantized.onnx", "xq", f"!quant.uniform<u8:f32, {TENTH}:3>"),
    ("quantized.onnx", "w", "!quant.uniform<i8:f32:0, {0.5, 0.25:1, 0.125:-1}>"),
    ("quantized.onnx", "y", f"!quant.uniform<i8:f32, {float(np.float32(0.3))}:-7>"),
    ("weights.safetensors", "l.weight", f"!quant.uniform<i8:f32:0, {{0.5, {TENTH}:-1}}>"),
    ("weights.safetensors", "m.weight", "!quant.uniform<f8E4M3FN:f32, 0.25>"),
]


def _pane(page: Any) -> Any:
    return page.locator(".model-file")


def _choose(page: Any, name: str, content: bytes) -> None:
    file = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    page.get_by_label("A model file").set_input_files(file)


def test_types_of_tensors(page: Any) -> None:
    from playwright.sync_api import expect

    page.goto("/#type")
    asked: list[Any] = []
    page.on("request", lambda request: asked.append(request))
    for name, tensor, text in TYPES:
        _choose(page, name, FILES[name])
        _pane(page).get_by_role("button", name=f"Take the type of {tensor}", exact=True).click()
        expect(page.get_by_label("Type in MLIR syntax")).to_have_value(text)
        # The service takes it, and the fields follow.
        page.locator(".facts dd code", has_text="!quant.uniform").first.wait_for()
        assert page.locator(".type-message .error").count() == 0
        expect(page.get_by_label("Storage", exact=True)).to_have_value(text.partition("<")[2].partition(":")[0])
    # Nothing of a file is sent: only the type.
    bodies = [request.post_data or "" for request in asked]
    assert {request.url.rpartition("/")[2] for request in asked} <= {"parse", "translate", "icon.svg"}
    assert max(map(len, bodies)) < 200


def test_lists(page: Any) -> None:
    from playwright.sync_api import expect

    page.goto("/#quantize")
    _choose(page, "model", FILES["blocks.gguf"])
    expect(_pane(page)).to_contain_text("model: GGUF, 2 tensors, 0 with scales.")
    rows = _pane(page).locator("tbody tr")
    expect(rows).to_have_count(2)
    assert rows.all_inner_texts() == ["norm\tf32\t32\t–", "blk.0.attn_q.weight\tQ8_0\t2×64\t–"]
    _choose(page, "weights.safetensors", WEIGHTS)
    expect(rows).to_have_count(8)
    page.get_by_label("Tensor", exact=True).fill("BLOCKS")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Take the type of blocks.weight").click()
    expect(_pane(page)).to_contain_text("blocks.weight: Its scales are of shape 4×2")


def test_a_file_is_dropped(page: Any) -> None:
    from playwright.sync_api import expect

    page.goto("/#type")
    transfer = page.evaluate_handle(
        """bytes => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([new Uint8Array(bytes)], "dropped.onnx"));
          return transfer;
        }""",
        list(FILES["quantized.onnx"]),
    )
    _pane(page).dispatch_event("drop", {"dataTransfer": transfer})
    expect(_pane(page)).to_contain_text("dropped.onnx: ONNX, 3 tensors, 3 with scales.")


_READ = """async (files) => {
  const { readModelFile } = await import("/playground/model_files/formats.js");
  const said = [];
  for (const file of files) {
    const blob = new Blob([Uint8Array.from(atob(file), (each) => each.charCodeAt(0))]);
    try {
      const { tensors } = await readModelFile(blob);
      for (const { read } of tensors) if (read) await read();
    } catch (error) {
      if (error.constructor !== Error) said.push(`${error.stack} ${file}`);
    }
  }
  return said;
}"""


def test_broken_files_are_refused_in_words(page: Any) -> None:
    """Cut off at any place, or with bytes changed: never more than an error that was meant."""
    from base64 import b64encode

    rng = random.Random(7)
    broken: list[bytes] = [b"", b"\x00", b"TFL3" * 4, b"GGUF" * 8, b"\x08" * 40]
    for whole in FILES.values():
        broken += [whole[: rng.randrange(len(whole))] for _ in range(40)]
        for _ in range(120):
            changed = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] = rng.choice((0, 255, 127, 128, rng.randrange(256)))
            broken.append(bytes(changed))
    page.goto("/#type")
    page.get_by_label("Type in MLIR syntax").wait_for()
    assert page.evaluate(_READ, [b64encode(each).decode() for each in broken]) == []
    # Lengths that no file has.
    huge = struct.pack("<Q", 2**62) + b"{}"
    _choose(page, "huge.safetensors", huge)
    _pane(page).locator(".error").wait_for()
    _choose(page, "huge.gguf", b"GGUF" + struct.pack("<IQQ", 3, 2**40, 1))
    _pane(page).get_by_text("at most 20000 are read").wait_for()
