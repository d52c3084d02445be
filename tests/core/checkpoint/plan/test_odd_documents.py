"""Documents that nobody would write: whatever they hold, a plan is made or refused with an error of the tree."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.gguf.plan import plan_gguf
from requant.checkpoint.jobs import RECORD, JobRecord, JobState, read_record, write_record
from requant.checkpoint.onnx.block_quantization import form_named
from requant.checkpoint.onnx.plan import plan_onnx
from requant.checkpoint.plan.dry_run import plan_document, plan_text
from requant.checkpoint.plan.source import MANIFEST
from requant.checkpoint.run.destination import read_manifest
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.weights.nf4 import state_of
from requant.checkpoint.workers import parse_plan_file
from requant.errors import RequantError
from tests.support.cases import EXHAUSTIVE
from tests.support.gguf_files import string, strings, text, u32
from tests.support.onnx_models import model, node, tensor, value
from tests.support.planned_checkpoint import INDEX, HeadersOnly, Tensors, checkpoint, outputs_of, planned

ROUNDS = 2000 if EXHAUSTIVE else 250
SCHEMES = {
    "W4A16_ASYM": "compressed-tensors-cpu",
    "FP8_BLOCK": "compressed-tensors-cpu",
    "NVFP4A16": "compressed-tensors-cpu",
    "MXFP4A16": "compressed-tensors-cpu",
    "GPTQ_W4A16:asymmetric": "auto-round",
    "AWQ": "autoawq",
    "FINE_GRAINED_FP8": "transformers",
    "NF4": "bitsandbytes",
}

FILE = "model.safetensors"
_RAW = "raw text "
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 4, 2**31, 2**63, 2**64, 10**400, 10**999, -(10**999), 1.5, -0.0, float("nan"),
    float("inf"), 1e308, "", " ", "a", "é", "\U0001f600", "\ud800", "\udfff\ud800", "\0", "\n", "re:(", "re:(a|b)+c",
    "re:", "Linear", "int", "float", "pack-quantized", "group", "block", "x" * 5000, [], {}, [[]], [None], [1, "a"],
    [0, 0], [-1, 2], [10**999, 10**999], [2.5, 2], {"": None}, {"bits": "4"}, {"weights": []}, {"a": {"b": {"c": []}}},
    f"{_RAW}{'[' * 90}{']' * 90}", f"{_RAW}{'[' * 3000}{']' * 3000}", f"{_RAW}{'9' * 5000}", f"{_RAW}1e99999",
    f"{_RAW}" + '{"a":1,"a":2}', f"{_RAW}" + '"\\ud83d"', f"{_RAW}nul", f"{_RAW}" + '{"weight_block_size":[1,' * 60,
]  # fmt: skip


def _written(value: Any) -> bytes:
    """JSON, with raw texts as they are."""
    written = json.dumps(value)
    while f'"{_RAW}' in written:
        begin = written.index(f'"{_RAW}')
        raw, end = json.JSONDecoder().raw_decode(written, begin)
        written = written[:begin] + raw.removeprefix(_RAW) + written[end:]
    return written.encode("utf-8", "surrogatepass")


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found += _places(below, (*path, key))
    return found


def _changed(document: Any, drawn: random.Random) -> bytes:
    """Return a document with one to three odd values, names or gaps, or odd bytes."""
    made = copy.deepcopy(document)
    for _ in range(drawn.choice((1, 1, 2, 3))):
        path = drawn.choice(_places(made))
        if not path:
            if drawn.random() < 0.05:
                made = drawn.choice(ODD)
            continue
        parent = made
        for key in path[:-1]:
            parent = parent[key]
        kind = drawn.random()
        if kind < 0.1:
            del parent[path[-1]]
        elif kind < 0.2 and isinstance(parent, dict):
            parent[drawn.choice(["", "é", "\ud800", "a.weight", "x" * 300, "weight_scale", "a" * 5000])] = parent.pop(
                path[-1]
            )
        else:
            parent[path[-1]] = copy.deepcopy(drawn.choice(ODD))
    data = _written(made)
    if drawn.random() < 0.1:
        at = drawn.randrange(len(data) + 1)
        data = data[:at] + drawn.choice([b"\xff", b"\xc3", b"\0", b'"', b"}", b"\\", b"\xed\xa0\x80"]) + data[at:]
    return data


def _survives(work: Callable[[], object], case: bytes, failed: list[str]) -> bool:
    """Do the work, and note an error that is none of ours. Return whether there was no error."""
    try:
        work()
    except RequantError as error:
        # What is told is text that can be sent.
        error.detail.encode()
        return False
    except Exception as error:
        failed.append(f"{type(error).__name__}: {error} for {case[:400]!r}")
        return False
    return True


def _quantized(scheme: str) -> HeadersOnly:
    tensors = [("m.0.q_proj.weight", "BF16", (128, 256)), ("m.0.k_proj.weight", "BF16", (128, 256)),
               ("m.0.norm.weight", "BF16", (256,)), ("lm_head.weight", "BF16", (128, 256))]  # fmt: skip
    plain = checkpoint({FILE: tensors}, {"torch_dtype": "bfloat16", "architectures": ["XForCausalLM"]})
    store = outputs_of(planned(plain, scheme, profile=SCHEMES[scheme], ignore=["lm_head"]))
    if scheme == "NF4":
        header = json.loads(store.start[FILE][8:])
        begins = [entry["data_offsets"][0] for name, entry in header.items() if "quant_state" in name]
        state = state_of("BF16", (128, 256))
        store.pieces[FILE] = {len(store.start[FILE]) + begin: state for begin in begins}
    return store


def _plan(store: HeadersOnly, scheme: str | None) -> None:
    plan = planned(store, scheme)
    plan_text(plan)
    json.dumps(plan_document(plan, "source"))


def _check(failed: list[str], read: int, rounds: int) -> None:
    assert not failed, "\n".join(failed[:5])
    # Neither all is refused nor nothing.
    assert 0 < read < rounds, read


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_configs(scheme: str) -> None:
    drawn, failed, read = random.Random(scheme), list[str](), 0
    store = _quantized(scheme)
    config = json.loads(store.start["config.json"])
    for _ in range(ROUNDS):
        odd = _changed(config, drawn)
        store.add("config.json", odd)
        read += _survives(lambda: _plan(store, None), odd, failed)
        _survives(lambda: _plan(store, "W4A16"), odd, failed)
    _check(failed, read, ROUNDS)


def test_indexes() -> None:
    drawn, failed, read = random.Random(1), list[str](), 0
    two: dict[str, Tensors] = {
        "1.safetensors": [("a.weight", "BF16", (8, 128)), ("b.weight", "BF16", (8, 128))],
        "2.safetensors": [("c.weight", "BF16", (8, 128)), ("d", "F32", ())],
    }
    store = checkpoint(two)
    index = json.loads(store.start[INDEX])
    for _ in range(ROUNDS):
        odd = _changed(index, drawn)
        store.add(INDEX, odd)
        read += _survives(lambda: _plan(store, "W4A16"), odd, failed)
    _check(failed, read, ROUNDS)


@pytest.mark.parametrize("scheme", [None, *SCHEMES])
def test_headers(scheme: str | None) -> None:
    drawn, failed, read = random.Random(2), list[str](), 0
    if scheme is None:
        experts = [("e.gate_up_proj", "BF16", (2, 256, 128)), ("e.down_proj", "BF16", (2, 128, 128))]
        store = checkpoint({FILE: [("a.weight", "BF16", (8, 128)), *experts]}, {"hidden_size": 128})
    else:
        store = _quantized(scheme)
        del store.start[INDEX], store.sizes[INDEX]
    file = store.start[FILE]
    header, data = json.loads(file[8:]), store.sizes[FILE] - len(file)
    pieces = {at - len(file): piece for at, piece in store.pieces.get(FILE, {}).items()}
    for _ in range(ROUNDS):
        odd = _changed(header, drawn)
        store.add(FILE, len(odd).to_bytes(8, "little") + odd, 8 + len(odd) + data)
        store.pieces[FILE] = {8 + len(odd) + at: piece for at, piece in pieces.items()}
        read += _survives(lambda: _plan(store, "W4A16" if scheme is None else None), odd, failed)
    _check(failed, read, ROUNDS)


PUBLISHED: dict[str, tuple[dict[str, Any], Tensors]] = {
    "deepseek": (
        {"expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
        [("a.weight", "F8_E4M3", (200, 128)), ("a.scale", "F8_E8M0", (2, 1)), ("hc.scale", "F32", (3,)),
         ("e.0.w1.weight", "I8", (64, 64)), ("e.0.w1.scale", "F8_E8M0", (64, 4))],
    ),
    "gpt-oss": (
        {"model_type": "gpt_oss", "hidden_size": 128, "quantization_config": {"quant_method": "mxfp4"}},
        [("e.gate_up_proj_blocks", "U8", (2, 64, 4, 16)), ("e.gate_up_proj_scales", "U8", (2, 64, 4)),
         ("e.gate_up_proj_bias", "BF16", (2, 64)), ("e.down_proj_blocks", "U8", (2, 128, 1, 16)),
         ("e.down_proj_scales", "U8", (2, 128, 1)), ("e.down_proj_bias", "BF16", (2, 128)),
         ("a.weight", "BF16", (8, 128))],
    ),
    "gpt-oss of BF16": (
        {"model_type": "gpt_oss", "text_config": {"hidden_size": 128}},
        [("e.gate_up_proj", "BF16", (2, 128, 64)), ("e.gate_up_proj_bias", "BF16", (2, 64)),
         ("e.down_proj", "BF16", (2, 32, 128)), ("e.down_proj_bias", "BF16", (2, 128))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_is_quantized_when_it_is_published(name: str) -> None:
    """Headers and configs."""
    drawn, failed, read = random.Random(4), list[str](), 0
    config, tensors = PUBLISHED[name]
    store = checkpoint({FILE: tensors}, config)
    file = store.start[FILE]
    header, data = json.loads(file[8:]), store.sizes[FILE] - len(file)
    for number in range(ROUNDS):
        store = checkpoint({FILE: tensors}, config)
        odd = _changed(config if number % 2 else header, drawn)
        if number % 2:
            store.add("config.json", odd)
        else:
            store.add(FILE, len(odd).to_bytes(8, "little") + odd, 8 + len(odd) + data)
        for scheme in (None, "W8A8") if "BF16" not in name else ("W8A8",):
            read += _survives(partial(_plan, store, scheme), odd, failed)
    _check(failed, read, ROUNDS)


def test_shapes_and_states_in_tensors() -> None:
    failed: list[str] = []
    for scheme in ("W4A16_ASYM", "NF4"):
        drawn, store = random.Random(3), _quantized(scheme)
        places = list(store.pieces[FILE])
        for _ in range(ROUNDS):
            at = drawn.choice(places)
            odd = drawn.randbytes(drawn.choice((16, 60)))
            if scheme == "NF4":
                odd = _changed({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [128, 256]}, drawn)
            pieces = {FILE: {**store.pieces[FILE], at: odd}}
            changed = HeadersOnly(store.start, store.sizes, pieces)
            _survives(partial(_plan, changed, None), odd, failed)
    assert not failed, "\n".join(failed[:5])


def test_manifests_and_records(tmp_path: Path) -> None:
    drawn, failed, read = random.Random(4), list[str](), 0
    store = LocalStore(tmp_path)
    write_record(store, JobRecord("p", {"scheme": "W4A16"}, JobState.RUNNING, "s", 1.0, 2.0, warnings=("w",)))
    record = json.loads((tmp_path / RECORD).read_bytes())
    manifest = {"version": 1, "plan": "p", "request": {"scheme": "x"}, "files": {"a": {"size": 1, "sha256": "0"}}}
    progress = tmp_path / "requant-progress" / "a.json"
    finished = {"plan": "p", "name": "b", "size": 1, "sha256": "0"}
    plan_file = {"version": 1, "source": "a", "destination": "b", "request": {}, "digest": "x", "tasks": 1}
    for _ in range(ROUNDS):
        odd = _changed(manifest, drawn) if drawn.random() < 0.7 else _written(manifest)
        (tmp_path / MANIFEST).write_bytes(odd)
        (tmp_path / RECORD).write_bytes(_changed(record, drawn))
        progress.parent.mkdir(exist_ok=True)
        progress.write_bytes(_changed(finished, drawn))
        read += _survives(lambda: read_manifest(store), odd, failed)
        _survives(lambda: read_record(store), (tmp_path / RECORD).read_bytes(), failed)
        odd_plan = _changed(plan_file, drawn)
        _survives(partial(parse_plan_file, odd_plan), odd_plan, failed)
    _check(failed, read, ROUNDS)


def _changed_bytes(data: bytes, drawn: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(drawn.choice((1, 1, 2, 4))):
        at = drawn.randrange(len(changed))
        kind = drawn.random()
        if kind < 0.6:
            changed[at] = drawn.choice((0, 1, 0x7F, 0x80, 0xC3, 0xED, 0xFF, drawn.randrange(256)))
        elif kind < 0.8:
            del changed[at : at + drawn.choice((1, 2, 8))]
        else:
            changed[at:at] = drawn.choice((b"\xff", b"\0", b"\xc3\x28", bytes(changed[at : at + 8])))
    return bytes(changed)


def test_onnx_models(tmp_path: Path) -> None:
    drawn, failed, read = random.Random(5), list[str](), 0
    weight = np.ones((32, 4), "<f4")
    inner = model(
        [node("MatMul", ["x", "w"], ["inner"], "in")],
        [tensor("v", weight)],
        [value("x", 1, 32)],
        [value("inner", 1, 4)],
    )
    made = model(
        [
            node("MatMul", ["x", "w"], ["y"], "a"),
            node("Gemm", ["x", "w", "b"], ["z"], "g", transB=0, alpha=1.0),
            node("If", ["c"], ["q"], "if", then_branch=inner.graph),
        ],
        [tensor("w", weight), tensor("b", np.ones(4, "<f4"))],
        [value("x", 1, 32)],
        [value("y", 1, 4), value("z", 1, 4)],
    )
    data = made.SerializeToString()
    for _ in range(2 * ROUNDS):
        odd = _changed_bytes(data, drawn)
        (tmp_path / "m.onnx").write_bytes(odd)
        for form in ("MatMulNBits4", "DequantizeLinear4"):

            def plan(form: str = form) -> None:
                made = plan_onnx(LocalStore(tmp_path), "m.onnx", "o.onnx", form_named(form, block_size=16))
                json.dumps(made.as_json())
                "\n".join(made.lines()).encode()

            read += _survives(plan, odd, failed)
    _check(failed, read, 4 * ROUNDS)


def test_every_text_of_an_onnx_model_has_to_be_one(tmp_path: Path) -> None:
    """Each byte of each name in turn is none of UTF-8."""
    weight = np.ones((32, 4), "<f4")
    names = {"op_type": "MatMul", "input": "INPUT", "output": "OUTPUT", "name": "NODE", "weight": "WEIGHT"}
    made = model(
        [node("MatMul", ["INPUT", "WEIGHT"], ["OUTPUT"], "NODE"), node("Other", ["OUTPUT"], ["z"], "SECOND", ATTR=1.0)],
        [tensor("WEIGHT", weight), tensor("UNUSED", np.ones(2, "<f4"))],
        [value("INPUT", 1, 32)],
        [value("OUTPUT", 1, 4)],
    )
    data = made.SerializeToString()
    for name in (*names.values(), "SECOND", "ATTR", "UNUSED", "Other"):
        at = data.find(name.encode())
        while at >= 0:
            (tmp_path / "m.onnx").write_bytes(data[:at] + b"\xff" + data[at + 1 :])
            with pytest.raises(RequantError, match="UTF-8"):
                plan_onnx(LocalStore(tmp_path), "m.onnx", "o.onnx", form_named("MatMulNBits4", block_size=16))
            at = data.find(name.encode(), at + 1)


def test_gguf_files(tmp_path: Path) -> None:
    drawn, failed, read = random.Random(6), list[str](), 0
    keys = (
        text("general.architecture")
        + string("llama")
        + text("general.alignment")
        + u32(32)
        + text("t")
        + strings(["a"])
    )
    infos = text("blk.0.q.weight") + (2).to_bytes(4, "little") + (256).to_bytes(8, "little") + (2).to_bytes(8, "little")
    infos += bytes(4) + bytes(8)
    head = b"GGUF" + (3).to_bytes(4, "little") + (1).to_bytes(8, "little") + (3).to_bytes(8, "little") + keys + infos
    head += bytes(-len(head) % 32)
    for _ in range(4 * ROUNDS):
        odd = _changed_bytes(head, drawn) + bytes(256 * 2 * 4 + 64)
        (tmp_path / "m.gguf").write_bytes(odd)
        store = LocalStore(tmp_path)

        def plan(store: LocalStore = store) -> None:
            made = plan_gguf(store, "m.gguf", "o.gguf", "Q8_0")
            json.dumps(made.as_json())
            "\n".join(made.lines()).encode()

        read += _survives(plan, odd, failed)
    _check(failed, read, 4 * ROUNDS)
