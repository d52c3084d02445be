"""The budget of memory: who comes in, who waits, who is refused, and that nothing of it is ever lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from requant.errors import LimitError, OverloadedError
from requant_service.runtime.memory_budget import MemoryBudget, Reservation
from tests.support.cases import sample


@asynccontextmanager
async def reserve(budget: MemoryBudget, byte_count: int) -> AsyncIterator[Reservation]:
    with Reservation(budget) as reservation:
        await reservation.grow(byte_count)
        yield reservation


def test_what_fits_comes_in_at_once_and_gives_back_what_it_held() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(100, 4, 1.0)
        async with reserve(budget, 60), reserve(budget, 40):
            assert budget.reserved == 100
        assert budget.reserved == 0

    asyncio.run(scenario())


def test_more_than_all_is_a_limit_and_not_a_wait() -> None:
    async def scenario() -> None:
        with pytest.raises(LimitError) as caught:
            async with reserve(MemoryBudget(100, 4, 1.0), 101):
                pass
        assert caught.value.limit == 100

    asyncio.run(scenario())


def test_the_line_is_served_in_order_even_if_a_later_one_would_fit() -> None:
    async def scenario() -> list[str]:
        budget = MemoryBudget(100, 4, 5.0)
        order: list[str] = []

        async def enter(name: str, size: int) -> None:
            async with reserve(budget, size):
                order.append(name)

        async with reserve(budget, 60):
            first = asyncio.create_task(enter("large", 80))
            await asyncio.sleep(0)
            second = asyncio.create_task(enter("small", 10))
            await asyncio.sleep(0)
            assert budget.waiting == 2
            assert order == []
        await asyncio.gather(first, second)
        assert budget.reserved == 0
        return order

    assert asyncio.run(scenario()) == ["large", "small"]


def test_a_full_line_and_a_long_wait_are_refused() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(100, 1, 0.05)

        async def enter() -> None:
            async with reserve(budget, 50):
                pass

        async with reserve(budget, 100):
            waiting = asyncio.create_task(enter())
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError, match="1 requests wait"):
                await enter()
            with pytest.raises(OverloadedError, match=r"within 0\.05 s; 100 bytes"):
                await waiting
            assert budget.waiting == 0
        assert budget.reserved == 0

    asyncio.run(scenario())


def test_an_error_inside_gives_back_too() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(100, 1, 0.05)
        with pytest.raises(ValueError, match="inside"):
            async with reserve(budget, 70):
                raise ValueError("inside")
        assert budget.reserved == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", sample(range(20), 6))
def test_nothing_is_lost_when_clients_leave_at_any_moment(seed: int) -> None:
    """Requests of random sizes are cancelled at random moments; the budget is never passed and whole at the end."""

    async def scenario() -> None:
        rng = random.Random(seed)
        budget = MemoryBudget(100, 50, 0.02)

        async def request(size: int, pause: float) -> None:
            async with reserve(budget, size):
                assert budget.reserved <= 100
                await asyncio.sleep(pause)

        tasks = []
        for _ in range(60):
            tasks.append(asyncio.create_task(request(rng.randint(1, 100), rng.random() * 0.005)))
            if rng.random() < 0.3:
                rng.choice(tasks).cancel()
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.002)
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, OverloadedError | asyncio.CancelledError)
        assert (budget.reserved, budget.waiting) == (0, 0)

    asyncio.run(scenario())


def test_a_reservation_grows_shrinks_and_ends() -> None:
    async def scenario() -> list[str]:
        reasons: list[str] = []
        budget = MemoryBudget(100, 0, 0.01, reasons.append)
        async with reserve(budget, 30) as reservation:
            await reservation.grow(50)
            assert (reservation.held, budget.reserved) == (80, 80)
            with pytest.raises(LimitError):
                await reservation.grow(21)
            async with reserve(budget, 20):
                with pytest.raises(OverloadedError):
                    await reservation.grow(20)
            reservation.shrink(60)
            assert budget.reserved == 20
        assert budget.reserved == 0
        return reasons

    assert asyncio.run(scenario()) == ["too_large", "line_full"]
