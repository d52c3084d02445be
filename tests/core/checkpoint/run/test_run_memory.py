"""A run takes no more memory for a larger file, a larger tensor or more threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from requant.checkpoint.gguf.header import Key, TensorInfo, header_bytes, string_value
from requant.checkpoint.gguf.tensor_types import TENSOR_TYPES
from requant.checkpoint.safetensors.writer import head_bytes, layout
from tests.support.cases import EXHAUSTIVE

_MOST = 256
"""MiB, Python and the compiler of the kernels included."""

_PROGRAM = """
import sys
from pathlib import Path
from requant.checkpoint.plan.model import Direction, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.store import FileWriter

class Nowhere(FileWriter):
    def write(self, offset, data): ...
    def commit(self):
        return "0" * 64
    def discard(self): ...

class Discarding(LocalStore):
    def create(self, name, size):
        return Nowhere()

source, out, scheme, threads = sys.argv[1:]
request = Request(Direction.QUANTIZE, (SchemeFor(scheme),), scheme_named(scheme).profiles[0])
store = LocalStore(source)
run_plan(plan_conversion(store, request), store, Discarding(out), threads=int(threads))
# Not ru_maxrss: a process begins with that of the one that started it.
(kibibytes,) = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
print(int(kibibytes) >> 10)
"""


SCHEMES = [("NVFP4A16", 2), ("W8A8", 32), ("GPTQ_W4A16", 32)]


@pytest.mark.parametrize(("scheme", "threads"), SCHEMES if EXHAUSTIVE else SCHEMES[:1])
def test_memory(tmp_path: Path, scheme: str, threads: int) -> None:
    """One file of 600 MB of zeros that take no room on the disk: a weight, and a tensor that is copied."""
    header = layout([("a.weight", "BF16", (25_600, 8192)), ("norm", "BF16", (100_000_000,))])
    source = tmp_path / "source"
    source.mkdir()
    with (source / "model.safetensors").open("wb") as file:
        file.write(head_bytes(header))
        file.truncate(header.size)
    (source / "config.json").write_text(json.dumps({"model_type": "llama"}))
    command = [sys.executable, "-c", _PROGRAM, str(source), str(tmp_path / "out"), scheme, str(threads)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(run.stdout) < _MOST, f"{int(run.stdout)} MiB"


_REPACKING = """
import sys
from pathlib import Path
from requant.checkpoints import repack_checkpoint

source, out, scheme, like = sys.argv[1:]
repack_checkpoint(source, out, scheme, like=like, threads=2)
(kibibytes,) = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
print(int(kibibytes) >> 10)
"""


@pytest.mark.exhaustive
def test_memory_of_gguf_files(tmp_path: Path) -> None:
    """A weight of 223 MB in Q8_0, whose rows are turned in each head, to safetensors and back."""
    keys = [Key("general.architecture", string_value(b"llama"))]
    for type_ in ("Q8_0", "BF16"):
        info = TensorInfo("blk.0.attn_q.weight", (25_600, 8192), TENSOR_TYPES[type_], 0)
        head = header_bytes(keys, [info], 32)
        with (tmp_path / f"{type_}.gguf").open("wb") as file:
            file.write(head)
            file.truncate(len(head) + info.size)
    (tmp_path / "like").mkdir()
    config = {"model_type": "llama", "num_attention_heads": 64}
    (tmp_path / "like" / "config.json").write_text(json.dumps(config))
    for arguments in (
        [tmp_path / "Q8_0.gguf", tmp_path / "out", "W8A16:group=32", tmp_path / "like"],
        [tmp_path / "out", tmp_path / "back.gguf", "Q8_0", tmp_path / "BF16.gguf"],
    ):
        command = [sys.executable, "-c", _REPACKING, *map(str, arguments)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        assert int(run.stdout) < _MOST, f"{int(run.stdout)} MiB"
    assert (tmp_path / "back.gguf").stat().st_size > (tmp_path / "Q8_0.gguf").stat().st_size
