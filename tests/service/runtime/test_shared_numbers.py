"""What worker processes share: numbers, one memory budget, one limit of queued requests, reports, and jobs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from requant.checkpoint.jobs import JobState
from requant.errors import OverloadedError
from requant.errors.cancellation import check_cancelled
from requant_service.runtime.comparison_jobs import ComparisonJobs
from requant_service.runtime.executor import Executor
from requant_service.runtime.memory_budget import MemoryBudget, Reservation
from requant_service.runtime.metrics import Metrics
from requant_service.runtime.reports import Report, Reports
from requant_service.runtime.shared_numbers import CountedConnections, Shared, SharedNumbers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes need Linux")


def in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked process, which it ends. Return the process's exit code."""
    process = os.fork()
    if process == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_each_worker_has_a_number_of_each_kind(workers: int) -> None:
    numbers = SharedNumbers(workers)
    for which in Shared:
        for index in range(workers):
            numbers.of_worker(index).put(which, 100 * which + index)
        numbers.add_to_service(which, 7)
    for which in Shared:
        assert numbers.all_of(which) == [100 * which + index for index in range(workers)]
        assert numbers.total(which) == sum(numbers.all_of(which))
        assert numbers.of_service(which) == 7
    numbers.clear(workers - 1)
    assert [numbers.of(workers - 1, which) for which in Shared if which is not Shared.REPORTS] == [0] * (
        len(Shared) - 1
    )
    assert numbers.of(workers - 1, Shared.REPORTS) == 100 * Shared.REPORTS + workers - 1
    assert numbers.of_service(Shared.GENERATION) == 7


def test_a_forked_process_changes_the_same_numbers() -> None:
    numbers = SharedNumbers(2)
    assert in_child(lambda: numbers.of_worker(1).add(Shared.RESERVED_BYTES, -(1 << 40))) == 0
    assert numbers.all_of(Shared.RESERVED_BYTES) == [0, -(1 << 40)]


def test_the_lock_excludes_other_processes_and_ends_with_its_holder() -> None:
    numbers = SharedNumbers(2)
    rounds = 300

    def count() -> None:
        for _ in range(rounds):
            with numbers.lock():
                before = numbers.of_service(Shared.GENERATION)
                time.sleep(0)
                numbers.add_to_service(Shared.GENERATION, before + 1 - numbers.of_service(Shared.GENERATION))

    def hold() -> None:
        with numbers.lock():
            os.kill(os.getpid(), signal.SIGKILL)

    children = [threading.Thread(target=in_child, args=(count,)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert numbers.of_service(Shared.GENERATION) == 3 * rounds
    assert in_child(hold) == -signal.SIGKILL
    assert in_child(count) == 0


class TestMemoryBudget:
    """Two workers, one budget."""

    def budgets(self, line: int = 4) -> tuple[MemoryBudget, MemoryBudget]:
        numbers = SharedNumbers(2)
        return tuple(  # type: ignore[return-value]
            MemoryBudget(100 << 10, line, 0.5, numbers=numbers.of_worker(index)) for index in range(2)
        )

    def test_what_one_holds_the_other_cannot_have(self) -> None:
        one, other = self.budgets()
        assert one.try_take(90 << 10)
        assert not other.try_take(20 << 10)
        assert other.try_take(10 << 10)
        assert (one.reserved, one.own_reserved, other.own_reserved) == (100 << 10, 90 << 10, 10 << 10)
        one.give_back(90 << 10)
        assert other.try_take(90 << 10)

    def test_what_another_worker_gives_back_is_noticed(self) -> None:
        async def scenario() -> float:
            one, other = self.budgets()
            assert one.try_take(90 << 10)
            loop = asyncio.get_running_loop()
            loop.call_later(0.05, one.give_back, 90 << 10)
            began = loop.time()
            with Reservation(other) as reservation:
                await reservation.grow(80 << 10)
            assert one.reserved == 0
            return loop.time() - began

        assert 0.04 < asyncio.run(scenario()) < 0.4

    def test_nobody_passes_by_those_who_wait_at_another_worker(self) -> None:
        async def scenario() -> None:
            one, other = self.budgets(line=1)
            assert one.try_take(90 << 10)
            waiting = asyncio.create_task(other.take(80 << 10))
            await asyncio.sleep(0)
            assert not one.try_take(1 << 10)
            with pytest.raises(OverloadedError, match="1 requests wait for memory already"):
                await one.take(1 << 10)
            one.give_back(90 << 10)
            await waiting
            assert one.try_take(1 << 10)

        asyncio.run(scenario())

    def test_a_wait_ends_and_leaves_nothing(self) -> None:
        async def scenario() -> None:
            one, other = self.budgets()
            assert one.try_take(90 << 10)
            with pytest.raises(OverloadedError, match=f"within 0.5 s; {90 << 10} bytes are in use"):
                await other.take(80 << 10)
            one.give_back(90 << 10)
            assert (one.reserved, other.waiting) == (0, 0)
            assert one.try_take(100 << 10)

        asyncio.run(scenario())

    def test_what_a_killed_worker_held_is_free(self) -> None:
        one, other = self.budgets()

        def take_and_die() -> None:
            other.try_take(90 << 10)
            os.kill(os.getpid(), signal.SIGKILL)

        assert in_child(take_and_die) == -signal.SIGKILL
        assert not one.try_take(20 << 10)
        one._numbers.clear(1)
        assert one.try_take(100 << 10)


def test_queues_have_one_limit() -> None:
    async def scenario() -> None:
        numbers = SharedNumbers(2)
        one, other = (Executor(1, 0, longest_queue=2, numbers=numbers.of_worker(index)) for index in range(2))
        held: Future[None] = Future()
        # One thread of each worker, and two that wait.
        waiting = [asyncio.create_task(one.run_text(1, held.result)) for _ in range(4)]
        await asyncio.sleep(0.01)
        with pytest.raises(OverloadedError, match="4 requests wait for the threads of texts already"):
            await other.run_text(1, lambda: None)
        held.set_result(None)
        await asyncio.gather(*waiting)
        await asyncio.sleep(0.01)
        assert await other.run_text(1, lambda: 5) == 5
        assert numbers.total(Shared.QUEUED_TEXTS) == 0

    asyncio.run(scenario())


def shared_reports(workers: int = 2) -> list[Reports]:
    """The reports as each worker has them."""
    numbers = SharedNumbers(workers)
    first = Reports(numbers)
    made = [first]
    for index in range(1, workers):
        other = Reports.__new__(Reports)
        other.__dict__ |= first.__dict__
        other._numbers = numbers.of_worker(index)
        made.append(other)
    for each in made:
        each._numbers.put(Shared.STATUS, 1)
    return made


class TestReports:
    def test_others_are_asked(self) -> None:
        async def scenario() -> None:
            one, other = shared_reports()
            count = 0

            def report() -> Report:
                nonlocal count
                count += 1
                return Report({"count": count}, ["a" * 100_000])

            other.made = report
            other.start()
            assert [each.metrics for each in await one.of_others()] == [{"count": 1}]
            assert [each.metrics for each in await one.of_others()] == [{"count": 2}]
            other.stop()
            # It answers no more; its last report stays.
            assert [each.metrics for each in await one.of_others()] == [{"count": 3}]
            assert (await one.of_others())[0].comparisons == ["a" * 100_000]

        asyncio.run(scenario())

    def test_a_worker_that_never_reported_has_none(self) -> None:
        one, other = shared_reports()
        assert other.last() is None
        assert asyncio.run(one.of_others()) == []
        assert asyncio.run(Reports(SharedNumbers()).of_others()) == []

    def test_a_report_is_whole_or_the_one_before(self) -> None:
        """A process that is killed while it writes leaves the last report as it was."""
        _, other = shared_reports()
        other.made = lambda: Report({"written": True}, [])
        other.publish()
        memory = other._memory[1]
        begin = (other._numbers.own(Shared.REPORTS) + 1) % 2 * (len(memory) // 2)
        memory[begin : begin + 64] = b"\xff" * 64
        last = other.last()
        assert last is not None
        assert last.metrics == {"written": True}


def test_metrics_of_all_workers_are_one_set() -> None:
    def counted(requests: int) -> Metrics:
        metrics = Metrics()
        metrics.watch("ready", "Whether it is ready.", lambda: float(requests < 3), min)
        metrics.watch("held", "What is held.", lambda: requests)
        for _ in range(requests):
            metrics.begin()
            metrics.end("/v1/quantize", "POST", 200, 0.003, 10, 20)
        return metrics

    one, two, three = (counted(each) for each in (1, 2, 3))
    text = one.text([two.report(), three.report()]).decode()
    labels = 'code="200",method="POST",route="/v1/quantize"'
    assert f"requant_requests_total{{{labels}}} 6.0" in text
    assert 'requant_request_seconds_bucket{le="0.0025",route="/v1/quantize"} 0.0' in text
    assert 'requant_request_seconds_bucket{le="0.005",route="/v1/quantize"} 6.0' in text
    assert 'requant_request_seconds_count{route="/v1/quantize"} 6.0' in text
    assert "requant_ready 0.0" in text
    assert "requant_held 6.0" in text
    # Alone it has its own; and one that takes a place counts on.
    assert f"requant_requests_total{{{labels}}} 1.0" in one.text().decode()
    one.continue_from(three.report())
    one.begin()
    one.end("/v1/quantize", "POST", 200, 0.003, 10, 20)
    assert f"requant_requests_total{{{labels}}} 4.0" in one.text().decode()


def test_comparisons_are_known_to_all_workers() -> None:
    async def scenario() -> None:
        numbers = SharedNumbers(2)
        reports = shared_reports()
        jobs = [ComparisonJobs(1, 1, numbers.of_worker(index), reports[index]) for index in range(2)]
        for each, own in zip(reports, jobs, strict=True):
            each.made = lambda own=own: Report({}, own.comparisons())
            each.start()
        go_on = threading.Event()

        def work() -> dict[str, int]:
            while not go_on.wait(0.005):
                check_cancelled()
            return {"found": 5}

        name, other_name = "1" * 32, "2" * 32
        assert await jobs[1].find(name) is None
        assert (await jobs[0].start(name, work)).state is JobState.RUNNING
        found = await jobs[1].find(name)
        assert found is not None
        assert found.state is JobState.RUNNING
        # The same request at the other worker is the same job, and another has no place.
        assert (await jobs[1].start(name, work)).state is JobState.RUNNING
        with pytest.raises(OverloadedError, match="1 comparisons run here already"):
            await jobs[1].start(other_name, work)
        await jobs[1].cancel(name)
        while (now := await jobs[1].find(name)) is not None and now.state is JobState.RUNNING:
            await asyncio.sleep(0.005)
        assert now is not None
        assert now.state is JobState.CANCELLED
        # It can be started again, at any worker.
        go_on.set()
        await jobs[1].start(name, work)
        while (now := await jobs[1].find(name)) is not None and now.state is JobState.RUNNING:
            await asyncio.sleep(0.005)
        assert now is not None
        assert (now.state, now.report) == (JobState.FINISHED, {"found": 5})
        assert numbers.total(Shared.EQUIVALENCE_JOBS) == 0
        for each in reports:
            each.stop()

    asyncio.run(scenario())


def test_no_cancellation_replaces_another() -> None:
    async def scenario() -> None:
        numbers = SharedNumbers(2)
        reports = shared_reports()
        jobs = [ComparisonJobs(2, 1, numbers.of_worker(index), reports[index]) for index in range(2)]
        for each, own in zip(reports, jobs, strict=True):
            each.made = lambda own=own: Report({}, own.comparisons())
            each.start()

        def work() -> dict[str, int]:
            while True:
                time.sleep(0.05)
                check_cancelled()

        names = ["1" * 32, "2" * 32]
        for name in names:
            await jobs[0].start(name, work)
        for name in names:
            await jobs[1].cancel(name)
        end = time.monotonic() + 5
        while {each.state for each in jobs[0].comparisons()} != {JobState.CANCELLED}:
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
        for each in reports:
            each.stop()

    asyncio.run(scenario())


def test_what_large_comparisons_found_is_reported() -> None:
    # A certificate has up to 2^17 thresholds: some megabytes. The last job is known to all, older ones are forgotten.
    async def scenario() -> None:
        numbers = SharedNumbers(2)
        reports = shared_reports()
        jobs = [ComparisonJobs(2, 1, numbers.of_worker(index), reports[index]) for index in range(2)]
        for each, own in zip(reports, jobs, strict=True):
            each.made = lambda own=own: Report({}, own.comparisons())
            each.start()
        names = [f"{number}" * 32 for number in range(1, 7)]
        for name in names:
            await jobs[0].start(name, lambda: {"found": b"x" * (3 << 20)})
            while (now := await jobs[0].find(name)) is not None and now.state is JobState.RUNNING:
                await asyncio.sleep(0.005)
        known = [await jobs[1].find(name) for name in names]
        assert [each is None for each in known] == [True, True, True, True, False, False]
        assert known[-1] is not None
        assert known[-1].report == {"found": b"x" * (3 << 20)}
        # One that is larger than what is remembered is known as long as it is the last.
        await jobs[0].start("9" * 32, lambda: {"found": b"x" * (12 << 20)})
        while (now := await jobs[1].find("9" * 32)) is None or now.state is JobState.RUNNING:
            await asyncio.sleep(0.005)
        assert now.state is JobState.FINISHED
        assert await jobs[1].find(names[-1]) is None
        for each in reports:
            each.stop()

    asyncio.run(scenario())


def test_a_closed_connection_is_counted_once() -> None:
    numbers = SharedNumbers(2).of_worker(1)
    connections = CountedConnections(numbers)
    for each in ("a", "b"):
        connections.add(each)
    connections.discard("a")
    connections.discard("a")
    assert numbers.all_of(Shared.CLOSED_CONNECTIONS) == [0, 1]
