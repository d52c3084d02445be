"""A small model in several files, and the command that converts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.support.hand_made_plan import weights, write_safetensors


def make_model(folder: Path, *, files: int, side: int) -> None:
    """Write `files` shards with two matrices of side x side each."""
    folder.mkdir(parents=True)
    weight_map: dict[str, str] = {}
    for index in range(files):
        name = f"model-{index + 1:05}-of-{files:05}.safetensors"
        names = (f"model.layers.{index}.mlp.{which}_proj.weight" for which in ("up", "down"))
        tensors = weights(index, dict.fromkeys(names, (side, side)))
        write_safetensors(folder / name, tensors)
        weight_map |= dict.fromkeys(tensors, name)
    index_text = json.dumps({"metadata": {}, "weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(index_text)
    (folder / "config.json").write_text('{"model_type": "llama", "torch_dtype": "bfloat16"}')
    (folder / "tokenizer.json").write_text("{}")


def command(*arguments: str | Path) -> list[str]:
    """The command line of a process."""
    return [sys.executable, "-m", "requant", "checkpoint", *map(str, arguments)]


def requant(*arguments: str | Path) -> str:
    """Run the command and return what it says."""
    run = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a directory but its lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
