"""The plan file of workers: what comes back out of it, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from requant.checkpoint.plan.model import Direction, NotFinite, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.workers import (
    PlanFile,
    parse_plan_file,
    plan_file_of,
    read_plan_file,
    write_plan_file,
)
from requant.errors import CheckpointError, SourceChangedError, StorageError
from tests.support.hand_made_plan import weights, write_safetensors

REQUEST = Request(
    Direction.QUANTIZE,
    (SchemeFor("W8A8"),),
    "compressed-tensors-cpu",
    ignore=("lm_head", "re:.*é"),
    not_finite=NotFinite.CONVERT,
)


@pytest.fixture
def written(tmp_path: Path) -> PlanFile:
    (tmp_path / "source").mkdir()
    write_safetensors(tmp_path / "source" / "model.safetensors", weights(1, {"a.weight": (16, 32)}))
    (tmp_path / "source" / "config.json").write_text('{"model_type": "llama", "torch_dtype": "bfloat16"}')
    source = LocalStore(tmp_path / "source")
    return plan_file_of(plan_conversion(source, REQUEST), source, LocalStore(tmp_path / "out"))


def test_a_plan_file_comes_back(written: PlanFile, tmp_path: Path) -> None:
    read = parse_plan_file(written.to_json())
    assert read == written
    assert read.request == REQUEST
    assert (read.source, read.destination) == (str(tmp_path / "source"), str(tmp_path / "out"))
    plan = read.plan(LocalStore(read.source))
    assert (plan.digest, len(plan.tasks)) == (written.digest, written.tasks)


def test_where_a_plan_file_lies(written: PlanFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for location in ("plan.json", str(tmp_path / "a" / "plan.json"), f"file://{tmp_path}/b/plan.json"):
        write_plan_file(location, written)
        assert read_plan_file(location) == written
    with pytest.raises(StorageError, match=r"missing\.json does not exist"):
        read_plan_file("missing.json")


def test_a_source_that_was_changed(written: PlanFile) -> None:
    os.utime(Path(written.source) / "model.safetensors", ns=(1, 1))
    with pytest.raises(SourceChangedError, match="Make a new plan file"):
        written.plan(LocalStore(written.source))


@pytest.mark.parametrize(
    "change",
    [
        {"request": None},
        {"request": {}},
        {"source": 1},
        {"digest": None},
        {"tasks": "many"},
        {"version": 2},
    ],
)
def test_what_is_no_plan_file(written: PlanFile, change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="plan file"):
        parse_plan_file(json.dumps(json.loads(written.to_json()) | change).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"direction": "sideways"},
        {"profile": None},
        {"ignore": [1]},
        {"ignore": 1},
        {"ignore": "re:.*"},
        {"targets": {"a": 1}},
        {"scheme": 3},
        {"unknown": 1},
    ],
)
def test_a_request_that_is_none(written: PlanFile, change: dict[str, Any]) -> None:
    document = json.loads(written.to_json())
    document["request"] |= change
    with pytest.raises(CheckpointError, match="not a plan file"):
        parse_plan_file(json.dumps(document).encode())


@pytest.mark.parametrize("change", [{"scheme": "W8B8"}, {"scheme": "W8A8:rows"}, {"ignore": ["re:("]}])
def test_a_request_that_cannot_be_planned(written: PlanFile, change: dict[str, Any]) -> None:
    document = json.loads(written.to_json())
    document["request"] |= change
    file = parse_plan_file(json.dumps(document).encode())
    with pytest.raises(CheckpointError, match="the request in the plan file cannot be planned"):
        file.plan(LocalStore(file.source))


@pytest.mark.parametrize("text", [b"", b"[]", b"1", b"\xff", b"{}", b"[" * 100_000])
def test_no_json(text: bytes) -> None:
    with pytest.raises(CheckpointError, match="not a plan file"):
        parse_plan_file(text)
