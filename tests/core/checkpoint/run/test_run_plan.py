"""What a run leaves at the destination: every byte, nothing else, and what it does the second time."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from threading import Lock

import numpy as np
import pytest

from requant.checkpoint.plan.model import NotFinite, QuantizeStep, SourceRange, Step
from requant.checkpoint.run import steps as steps_module
from requant.checkpoint.run import stored_weight
from requant.checkpoint.run.run import finish, run_plan, run_task
from requant.checkpoint.run.work import Progress
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.weights.floats import Array
from requant.errors import CheckpointError, DestinationError, ParameterError, SourceChangedError
from requant.errors.cancellation import cancellation_check
from tests.support.cases import sample
from tests.support.hand_made_plan import (
    ABOVE_LEAST,
    BYTES,
    Example,
    backwards,
    example,
    planned,
    read_safetensors,
    weights,
    write_safetensors,
)

FINISHED = {
    "config.json",
    "model.safetensors.index.json",
    "requant-manifest.json",
    "tokenizer.json",
    *(f"model-{number}.safetensors" for number in range(3)),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_finished(made: Example, folder: Path) -> None:
    found = contents(folder)
    assert found.keys() == FINISHED
    for name, tensors in made.expected.items():
        assert read_safetensors(folder / name) == tensors
    assert found["config.json"] == made.plan.config
    assert found["model.safetensors.index.json"] == made.plan.index
    assert found["tokenizer.json"] == (Path(made.source.url) / "tokenizer.json").read_bytes()
    manifest = json.loads(found["requant-manifest.json"])
    assert manifest["plan"] == made.plan.digest
    assert manifest["files"] == {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in found.items()
        if name != "requant-manifest.json"
    }


@pytest.mark.parametrize(("piece", "threads"), sample(list(product([1, 5000, 1 << 20], [1, 2, 7])), 2))
def test_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, piece: int) -> None:
    rows = 30 if piece == 1 else 300
    monkeypatch.setattr(LocalStore, "read_size", piece if piece > 1 else 64)
    monkeypatch.setattr(steps_module, "PIECE_OF_COLUMNS", 4 * piece)
    made = example(tmp_path / "source", rows=rows, columns=rows + 17)
    report = run_plan(made.plan, made.source, LocalStore(tmp_path / "out"), threads=threads)
    check_finished(made, tmp_path / "out")
    assert {file.name for file in report.files} == FINISHED - {"requant-manifest.json"}
    assert report.bytes_written == sum(file.size for file in report.files)
    assert not report.kept


def test_small_and_empty_tensors(tmp_path: Path) -> None:
    shapes = {
        "0.a.weight": (0, 5),
        "0.b.weight": (5, 0),
        "0.c.weight": (1, 1),
        "0.d.weight": (3, 2),
        "e.q.weight": (0, 4),
    }
    source = tmp_path / "source"
    source.mkdir()
    tensors = weights(1, shapes) | {"nothing": ("F32", np.zeros((0, 3), np.float32)), "one": ("I64", np.array(7))}
    header = write_safetensors(source / "model.safetensors", tensors)
    empty = write_safetensors(source / "empty.safetensors", {})
    made = planned(
        source,
        {"model.safetensors": header, "empty.safetensors": empty},
        {"model.safetensors": tensors, "empty.safetensors": {}},
        NotFinite.REFUSE,
    )
    run_plan(made.plan, made.source, LocalStore(tmp_path / "out"))
    for name, expected in made.expected.items():
        assert read_safetensors(tmp_path / "out" / name) == expected


@pytest.mark.parametrize("long_run", [1, 100, 1 << 20])
def test_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long_run: int) -> None:
    """Rows of the weight that are columns of a stored tensor: read run by run, or with what lies between."""
    monkeypatch.setattr(stored_weight, "_LONG_RUN", long_run)
    monkeypatch.setattr(LocalStore, "read_size", 10_000)
    monkeypatch.setattr(steps_module, "PIECE_OF_COLUMNS", 20_000)
    made = example(tmp_path / "source", rows=150, columns=170)
    run_plan(made.plan, made.source, LocalStore(tmp_path / "out"))
    plan = backwards(made, tmp_path / "out")
    run_plan(plan, LocalStore(tmp_path / "out"), LocalStore(tmp_path / "back"))
    for task in plan.tasks:
        before = read_safetensors(tmp_path / "source" / task.output)
        after = read_safetensors(tmp_path / "back" / task.output)
        assert after
        assert after == {name: before[name] for name in after}


def test_tasks_one_by_one_then_the_end(tmp_path: Path) -> None:
    made, out = example(tmp_path / "source"), tmp_path / "out"
    for index in (2, 0):
        run_task(made.plan, index, made.source, LocalStore(out))
        with pytest.raises(DestinationError, match="run their tasks first"):
            finish(made.plan, made.source, LocalStore(out))
        assert not (out / "config.json").exists()
    assert run_task(made.plan, 0, made.source, LocalStore(out)).kept == ("model-0.safetensors",)
    run_task(made.plan, 1, made.source, LocalStore(out))
    finish(made.plan, made.source, LocalStore(out))
    check_finished(made, out)


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    made, out = example(tmp_path / "source"), tmp_path / "out"
    run_plan(made.plan, made.source, LocalStore(out))
    times = {path: path.stat().st_mtime_ns for path in out.iterdir() if path.suffix == ".safetensors"}
    report = run_plan(made.plan, made.source, LocalStore(out))
    assert set(report.kept) == {file.name for file in report.files}
    assert report.bytes_read == report.bytes_written == 0
    assert times == {path: path.stat().st_mtime_ns for path in times}
    check_finished(made, out)


def test_a_finished_destination_that_lost_a_file_is_no_model_meanwhile(tmp_path: Path) -> None:
    made, out = example(tmp_path / "source"), tmp_path / "out"
    run_plan(made.plan, made.source, LocalStore(out))
    (out / "model-1.safetensors").unlink()
    seen = []

    def look(_: Progress) -> None:
        seen.append((out / "config.json").exists())

    run_plan(made.plan, made.source, LocalStore(out), progress=look)
    assert seen
    assert not any(seen[:-1])
    check_finished(made, out)


def test_config_is_there_only_with_everything_else(tmp_path: Path) -> None:
    made, out = example(tmp_path / "source"), tmp_path / "out"

    class Watched(LocalStore):
        def put(self, name: str, data: bytes, *, only_if_absent: bool = False) -> bool:
            if name == "config.json":
                assert contents(out).keys() - {".requant.lock"} == FINISHED - {"config.json"}
            assert not (out / "config.json").exists()
            return super().put(name, data, only_if_absent=only_if_absent)

    run_plan(made.plan, made.source, Watched(out))
    check_finished(made, out)


def test_progress_ends_at_its_totals(tmp_path: Path) -> None:
    made = example(tmp_path / "source")
    seen: list[Progress] = []
    run_plan(made.plan, made.source, LocalStore(tmp_path / "out"), progress=seen.append, threads=2)
    last = seen[-1]
    assert last.bytes_read == last.bytes_to_read
    assert last.bytes_written == last.bytes_to_write
    assert last.outputs_finished == last.outputs == 4
    assert [one.bytes_read for one in seen] == sorted(one.bytes_read for one in seen)


def test_observers_see_every_row_once(tmp_path: Path) -> None:
    made = example(tmp_path / "source")
    lock, seen = Lock(), dict[str, dict[int, bytes]]()

    def observe(step: Step, row: int, rows: Array, stored: object) -> None:
        assert isinstance(step, QuantizeStep)
        assert isinstance(stored, dict)
        assert stored.keys() <= {one.suffix for one in step.format.stored("BF16", rows.shape)}
        with lock:
            assert seen.setdefault(step.module, {}).setdefault(row, rows.tobytes()) == rows.tobytes()

    run_plan(made.plan, made.source, LocalStore(tmp_path / "out"), observe=observe)
    weights_read = {
        name.removesuffix(".weight"): data
        for task in made.plan.tasks
        for name, data in read_safetensors(tmp_path / "source" / task.output).items()
        if name.endswith(".weight")
    }
    assert {module: b"".join(rows[at] for at in sorted(rows)) for module, rows in seen.items()} == weights_read


@pytest.mark.sample(1)
@pytest.mark.parametrize(("bits", "module"), sample(list(product([0x7F80, 0xFF80, 0x7FC1], ["a", "q"])), 2))
def test_what_is_not_finite_is_refused_with_its_place(tmp_path: Path, bits: int, module: str) -> None:
    made = example(tmp_path / "source", rows=2000)
    step = next(s for s in made.plan.tasks[1].steps if isinstance(s, QuantizeStep) and s.module == f"1.{module}")
    columns, row, column = step.source.shape[1], 1711, 5
    assert isinstance(step.source, SourceRange)
    with open(tmp_path / "source" / step.source.file, "r+b") as file:
        file.seek(step.source.begin + 2 * (row * columns + column))
        file.write(bits.to_bytes(2, "little"))
    made = planned_again(made, tmp_path / "source")
    with pytest.raises(
        CheckpointError, match=f"flat index {row * columns + column} .row {row}, column {column}"
    ) as caught:
        run_plan(made.plan, made.source, LocalStore(tmp_path / "out"))
    assert (caught.value.file, caught.value.tensor) == (step.source.file, step.source.tensor)
    assert not (tmp_path / "out" / "config.json").exists()
    assert not list((tmp_path / "out").glob("*.part"))
    converted = replace(made.plan, request=replace(made.plan.request, not_finite=NotFinite.CONVERT))
    if module == "a":
        run_plan(converted, made.source, LocalStore(tmp_path / "converted"))


def planned_again(made: Example, source: Path) -> Example:
    """The source was changed on purpose, before a plan for it was made."""
    files = {file.name: file for file in LocalStore(source).files()}
    sources = tuple(files[file.name] for file in made.plan.sources)
    return replace(made, plan=replace(made.plan, sources=sources))


def test_cancellation_stops_it_and_it_can_go_on(tmp_path: Path) -> None:
    made, out = example(tmp_path / "source"), tmp_path / "out"
    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) > 8:
            raise InterruptedError("enough")

    token = cancellation_check.set(check)
    try:
        with pytest.raises(InterruptedError):
            run_plan(made.plan, made.source, LocalStore(out), threads=2)
    finally:
        cancellation_check.reset(token)
    assert not list(out.glob("*.part"))
    assert not (out / "config.json").exists()
    run_plan(made.plan, made.source, LocalStore(out))
    check_finished(made, out)


@pytest.mark.sample(1)
@pytest.mark.parametrize("change", ["touch", "truncate", "replace", "remove"])
def test_a_source_that_changes_meanwhile(tmp_path: Path, change: str) -> None:
    made, out = example(tmp_path / "source"), tmp_path / "out"
    victim = tmp_path / "source" / "model-2.safetensors"

    def meddle(state: Progress) -> None:
        if state.bytes_read > state.bytes_to_read // 2:
            with suppress(FileNotFoundError):
                data = victim.read_bytes()
                match change:
                    case "touch":
                        victim.touch()
                    case "truncate":
                        victim.write_bytes(data[:-1000])
                    case "replace":
                        other = victim.with_suffix(".other")
                        other.write_bytes(bytes(reversed(data)))
                        other.rename(victim)
                    case "remove":
                        victim.unlink()

    with pytest.raises(SourceChangedError) as caught:
        run_plan(made.plan, made.source, LocalStore(out), progress=meddle, threads=2)
    assert caught.value.file == "model-2.safetensors"
    assert not (out / "config.json").exists()
    for path in out.glob("*.safetensors"):
        assert read_safetensors(path) == made.expected[path.name]


def test_another_plan_or_other_files_are_refused(tmp_path: Path) -> None:
    made, out = example(tmp_path / "source"), tmp_path / "out"
    run_plan(made.plan, made.source, LocalStore(out))
    before = contents(out)
    with pytest.raises(DestinationError, match=r"another plan .direction quantize, scheme bytes"):
        run_plan(replace(made.plan, digest="0" * 64), made.source, LocalStore(out))
    (out / "notes.txt").write_text("mine")
    with pytest.raises(DestinationError, match=r"notes\.txt"):
        run_plan(made.plan, made.source, LocalStore(out))
    (out / "notes.txt").unlink()
    assert contents(out) == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.safetensors").write_text("mine")
    with pytest.raises(DestinationError, match=r"model\.safetensors"):
        run_plan(made.plan, made.source, LocalStore(other))
    assert contents(other) == {"model.safetensors": b"mine"}


def test_the_destination_is_not_in_the_source(tmp_path: Path) -> None:
    made = example(tmp_path / "source")
    (tmp_path / "link").symlink_to(tmp_path / "source")
    for place in ("source", "source/below", "link", "link/below/further", "elsewhere/../source/x"):
        with pytest.raises(DestinationError, match="choose another destination"):
            run_plan(made.plan, made.source, LocalStore(tmp_path / place))
    assert not (tmp_path / "source" / "below").exists()


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    made, out = example(tmp_path / "source"), tmp_path / "out"
    refused: list[int] = []

    def again(_: Progress) -> None:
        if not refused:
            for run in (run_plan, finish):
                with pytest.raises(DestinationError, match=r"another run writes to .* .process [0-9]+ on .*"):
                    run(made.plan, made.source, LocalStore(out))
            with pytest.raises(DestinationError, match="another run"):
                run_task(made.plan, 0, made.source, LocalStore(out))
            refused.append(1)

    run_plan(made.plan, made.source, LocalStore(out), progress=again)
    assert refused
    check_finished(made, out)


def test_a_task_runs_once_at_a_time_and_others_beside_it(tmp_path: Path) -> None:
    made, out = example(tmp_path / "source"), tmp_path / "out"
    tried: list[int] = []

    def others(_: Progress) -> None:
        if not tried:
            tried.append(1)
            with pytest.raises(DestinationError, match=r"another process writes .*model-0.safetensors.part"):
                run_task(made.plan, 0, made.source, LocalStore(out))
            run_task(made.plan, 1, made.source, LocalStore(out))
            with pytest.raises(DestinationError, match="another run"):
                finish(made.plan, made.source, LocalStore(out))

    run_task(made.plan, 0, made.source, LocalStore(out), progress=others)
    assert tried
    run_task(made.plan, 2, made.source, LocalStore(out))
    finish(made.plan, made.source, LocalStore(out))
    check_finished(made, out)


def test_formats_of_the_example_are_what_the_tests_think(tmp_path: Path) -> None:
    made = example(tmp_path / "source")
    formats = {step.format for step in made.plan.tasks[0].steps if isinstance(step, QuantizeStep)}
    assert formats == {BYTES, ABOVE_LEAST}


@pytest.mark.parametrize("threads", [0, -1])
def test_at_least_one_thread(tmp_path: Path, threads: int) -> None:
    made = example(tmp_path / "source", shards=1)
    with pytest.raises(ParameterError, match="expected 1 or more"):
        run_plan(made.plan, made.source, LocalStore(tmp_path / "out"), threads=threads)
