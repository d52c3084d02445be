"""Several workers on one plan: the bytes of one run, whoever makes them, stops or comes back."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from requant.checkpoint import workers
from requant.checkpoint.run.destination import RECORDS, read_manifest, record_name
from requant.checkpoint.run.run import finish, run_plan, run_task
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.object_store import ObjectStore
from requant.checkpoint.storage.store import Store
from requant.checkpoint.workers import Share, WorkReport, take_lease, work
from requant.errors import DestinationError, ParameterError
from tests.support.cases import sample
from tests.support.hand_made_plan import Example, example


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WAIT_SECONDS", 0.02)


@pytest.fixture
def made(tmp_path: Path) -> Example:
    return example(tmp_path / "source")


@pytest.fixture(params=["directory", "bucket"])
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "directory":
        return LocalStore(tmp_path / "out")
    return ObjectStore("memory://bucket", MemoryStore())


def contents(store: Store) -> dict[str, bytes | None]:
    return {file.name: store.get(file.name) for file in store.files() if not file.name.startswith(".")}


def of_one_run(made: Example, tmp_path: Path) -> dict[str, bytes | None]:
    alone = LocalStore(tmp_path / "alone")
    run_plan(made.plan, made.source, alone)
    return contents(alone)


def all_at_once(made: Example, destination: Store, shares: list[Share | None]) -> list[WorkReport]:
    with ThreadPoolExecutor(len(shares)) as threads:
        return list(
            threads.map(lambda share: work(made.plan, made.source, destination, share=share, threads=1), shares)
        )


@pytest.mark.parametrize("of", sample([1, 2, 3, 5], 2))
def test_shares_make_what_one_run_makes(made: Example, destination: Store, tmp_path: Path, of: int) -> None:
    reports = all_at_once(made, destination, [Share(index, of) for index in range(of)])
    assert sorted(output for report in reports for output in report.made) == [task.output for task in made.plan.tasks]
    assert any(report.finished for report in reports)
    assert contents(destination) == of_one_run(made, tmp_path)


def test_workers_without_shares_make_every_output_once(made: Example, destination: Store, tmp_path: Path) -> None:
    reports = all_at_once(made, destination, [None] * 4)
    assert sorted(output for report in reports for output in report.made) == [task.output for task in made.plan.tasks]
    assert all(report.finished for report in reports)
    assert contents(destination) == of_one_run(made, tmp_path)


def test_the_same_share_twice(made: Example, destination: Store, tmp_path: Path) -> None:
    """A worker that was taken for dead goes on beside the one in its place."""
    all_at_once(made, destination, [Share(0, 1), Share(0, 1), Share(0, 2), Share(1, 2)])
    assert contents(destination) == of_one_run(made, tmp_path)


def test_the_last_share_finishes(made: Example, destination: Store, tmp_path: Path) -> None:
    first = work(made.plan, made.source, destination, share=Share(0, 2))
    assert first == WorkReport(("model-0.safetensors", "model-2.safetensors"), ("model-1.safetensors",), False)
    assert "config.json" not in contents(destination)
    assert work(made.plan, made.source, destination, share=Share(0, 2)) == WorkReport(
        (), ("model-1.safetensors",), False
    )
    assert work(made.plan, made.source, destination, share=Share(1, 2)) == WorkReport(
        ("model-1.safetensors",), (), True
    )
    # It was killed before it finished, or nobody knows: any worker may be started again.
    assert work(made.plan, made.source, destination, share=Share(0, 2)) == WorkReport((), (), True)
    assert contents(destination) == of_one_run(made, tmp_path)


def test_a_worker_that_was_killed_before_it_finished(made: Example, destination: Store, tmp_path: Path) -> None:
    for index in range(3):
        run_task(made.plan, index, made.source, destination)
    assert work(made.plan, made.source, destination, share=Share(2, 3)).finished
    assert contents(destination) == of_one_run(made, tmp_path)


@pytest.mark.exhaustive
def test_many_finish_at_once(made: Example, destination: Store, tmp_path: Path) -> None:
    for index in range(3):
        run_task(made.plan, index, made.source, destination)
    assert all(report.finished for report in all_at_once(made, destination, [Share(0, 3)] * 8))
    assert contents(destination) == of_one_run(made, tmp_path)


def test_another_one_finishes_between_two_looks(
    made: Example, destination: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is read before the other one completes it, and the records after it removed them."""
    for index in range(3):
        run_task(made.plan, index, made.source, destination)
    get = destination.get

    def get_after_the_other(name: str, max_bytes: int) -> bytes | None:
        if name.startswith(RECORDS):
            monkeypatch.setattr(destination, "get", get)
            finish(made.plan, made.source, destination)
        return get(name, max_bytes)

    monkeypatch.setattr(destination, "get", get_after_the_other)
    manifest = read_manifest(destination)
    assert manifest is not None
    assert {task.output for task in made.plan.tasks} < manifest.files.keys()


@pytest.mark.exhaustive
def test_the_lease_of_a_worker_that_died_ends(made: Example, destination: Store) -> None:
    work(made.plan, made.source, destination, share=Share(0, 2))
    begin = time.monotonic()
    assert take_lease(destination, "model-1.safetensors", seconds=0.5) is not None
    report = work(made.plan, made.source, destination)
    assert time.monotonic() - begin > 0.4
    assert report == WorkReport(("model-1.safetensors",), (), True)


@pytest.mark.exhaustive
def test_a_lease(destination: Store) -> None:
    lease = take_lease(destination, "a", seconds=2)
    assert lease is not None
    with lease:
        # Renewed meanwhile.
        time.sleep(2.5)
        assert take_lease(destination, "a") is None
        assert take_lease(destination, "b") is not None
    with take_lease(destination, "a") or pytest.fail("it was given back"):
        assert take_lease(destination, "a") is None


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"holder": "x", "until": "soon"}'])
def test_a_lease_that_cannot_be_read_holds_nothing(destination: Store, text: bytes) -> None:
    destination.put(record_name("a", ".lease"), text)
    assert take_lease(destination, "a") is not None


def test_a_lost_answer_does_not_lock_a_worker_out(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore("memory://bucket", MemoryStore())
    put = store.put
    monkeypatch.setattr(store, "put", lambda name, data, **options: put(name, data) and not options)
    assert take_lease(store, "a") is not None


def test_one_lease_for_many(destination: Store) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert sum(lease is not None for lease in threads.map(lambda _: take_lease(destination, "a"), range(16))) == 1


def test_a_worker_waits_for_a_run_that_holds_the_directory(made: Example, tmp_path: Path) -> None:
    destination = LocalStore(tmp_path / "out")
    with ThreadPoolExecutor(1) as threads:
        with destination.lock():
            waiting = threads.submit(work, made.plan, made.source, LocalStore(tmp_path / "out"), share=Share(0, 1))
            time.sleep(0.2)
            assert not waiting.done()
        assert waiting.result(60).finished


def test_a_destination_of_something_else(made: Example, destination: Store) -> None:
    destination.put("notes.txt", b"mine")
    for share in (Share(0, 2), None):
        with pytest.raises(DestinationError, match=r"notes\.txt") as caught:
            work(made.plan, made.source, destination, share=share)
        assert not caught.value.busy


def test_of_two_plans_that_begin_together_one_is_refused(
    made: Example, destination: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = destination.get

    def get_before_the_other(name: str, max_bytes: int) -> bytes | None:
        monkeypatch.setattr(destination, "get", get)
        found = get(name, max_bytes)
        work(made.plan, made.source, destination, share=Share(0, 3))
        return found

    monkeypatch.setattr(destination, "get", get_before_the_other)
    with pytest.raises(DestinationError, match="the output of another plan"):
        work(replace(made.plan, digest="0" * 64), made.source, destination, share=Share(1, 3))
    work(made.plan, made.source, destination)
    assert contents(destination) == of_one_run(made, tmp_path)


def test_outputs_and_progress_are_told(made: Example, destination: Store) -> None:
    told: list[tuple[str, bool]] = []
    work(
        made.plan,
        made.source,
        destination,
        share=Share(1, 2),
        task_done=lambda output, report: told.append((output, output in report.kept)),
    )
    assert told == [("model-1.safetensors", False)]


@pytest.mark.parametrize(("index", "of"), [(-1, 2), (2, 2), (0, 0)])
def test_a_share_that_is_none(index: int, of: int) -> None:
    with pytest.raises(ParameterError, match=f"no worker {index} of {of}"):
        Share(index, of)


def test_no_thread_is_left(made: Example, destination: Store) -> None:
    work(made.plan, made.source, destination)
    assert not [thread for thread in threading.enumerate() if thread.name == "lease"]
    assert not [name for name in contents(destination) if name.startswith(RECORDS)]
    assert json.loads(contents(destination)["requant-manifest.json"] or b"")["plan"] == made.plan.digest
