"""Memories stored at the same time share a transaction, with no visible difference but the duration."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import EngineUnavailable, RookeryError, ValidationFailed
from rookery.memory.concurrency import Batcher
from rookery.memory.errors import AlreadySuperseded
from rookery.memory.events import MemoryStored
from rookery.memory.indexing import EMBED_JOB
from rookery.memory.models import Draft, RememberResult
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.memory.makers import MemoryRig, make_caller, make_draft


async def _remember_concurrently(rig: MemoryRig, *drafts: Draft) -> list[RememberResult | BaseException]:
    """Remember *drafts* as concurrent callers."""
    return await asyncio.gather(*(rig.services.remember.store(make_caller(), draft) for draft in drafts), return_exceptions=True)


async def test_concurrent_duplicates_list_those_stored_before(rig: MemoryRig, database: Database) -> None:
    """Each response lists its duplicates, oldest first and at most ten."""
    results = await _remember_concurrently(rig, *[make_draft(tags=("roof", f"t{number}")) for number in range(13)])

    stored = [result for result in results if isinstance(result, RememberResult)]
    ids = {result.memory.id for result in stored}
    assert len(ids) == 13
    assert all(set(result.duplicates) <= ids - {result.memory.id} for result in stored)
    if database.dialect == "sqlite":  # on PostgreSQL concurrent transactions may not see each other
        assert sorted(len(result.duplicates) for result in stored) == [*range(11), 10, 10]
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 13
    assert {event.memory_id for event in rig.events if isinstance(event, MemoryStored)} == ids
    assert [(await rig.reload(result.memory)).tags for result in stored] == [("roof", f"t{number}") for number in range(13)]


async def test_dedupe_finds_a_memory_of_the_same_transaction(rig: MemoryRig, database: Database) -> None:
    """`dedupe` also compares with memories stored in the same transaction."""
    old = await rig.remember("We deploy on Fridays.")

    *stored, duplicate, new, late = await _remember_concurrently(
        rig,
        make_draft("One."),
        make_draft("Two."),
        make_draft("Two.", dedupe=True),
        make_draft("We deploy on Tuesdays.", supersedes_id=old.id),
        make_draft("We deploy on Sundays.", supersedes_id=old.id),
    )

    assert isinstance(duplicate, RememberResult)
    assert isinstance(new, RememberResult | AlreadySuperseded)
    assert {isinstance(new, AlreadySuperseded), isinstance(late, AlreadySuperseded)} == {False, True}
    if database.dialect == "sqlite":  # on PostgreSQL the duplicate may have been first
        assert len({result.memory.id for result in [*stored, duplicate] if isinstance(result, RememberResult)}) == 2


async def test_a_rejected_memory_does_not_stop_the_others(rig: MemoryRig) -> None:
    """Each caller's write succeeds or fails alone."""

    def refuse(_: Tx, event: MemoryStored) -> None:
        if event.workspace_id == 2:
            raise LookupError

    rig.bus.add_recorder(MemoryStored, refuse)
    foreign = rig.services.remember.store(make_caller(workspace_id=2), make_draft())
    missing = make_draft(supersedes_id="nothing")

    failed, *results = await asyncio.gather(
        foreign,
        *(rig.services.remember.store(make_caller(), draft) for draft in (make_draft("One."), missing, make_draft("Two."))),
        return_exceptions=True,
    )

    assert isinstance(failed, LookupError)
    assert isinstance(results.pop(1), ValidationFailed)
    assert [result.memory.content for result in results if isinstance(result, RememberResult)] == ["One.", "Two."]
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 2


async def test_a_cancelled_caller_does_not_cancel_the_others(rig: MemoryRig) -> None:
    """A cancelled caller does not stop the writes that other callers wait for."""
    tasks = [asyncio.create_task(rig.services.remember.store(make_caller(), make_draft(f"Number {number}."))) for number in range(6)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[3].cancel()

    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert [isinstance(result, RememberResult) for result in results] == [False, True, True, False, True, True]
    repeated = await rig.services.remember.store(make_caller(), make_draft("Number 1."))
    assert len(repeated.duplicates) == 1


@settings(max_examples=60, deadline=None)
@given(
    items=st.lists(st.integers(0, 9), min_size=1, max_size=200),
    bad=st.sets(st.integers(0, 9)),
    pauses=st.lists(st.booleans(), min_size=1, max_size=20),
    waits=st.lists(st.booleans(), min_size=1, max_size=20),
)
def test_each_caller_gets_the_result_of_its_own_item(items: list[int], bad: set[int], pauses: list[bool], waits: list[bool]) -> None:
    """A batch returns the same result for an item as a run of this item alone, and no two batches run at the same time."""

    async def run() -> None:
        working = 0

        async def work(items: list[int]) -> list[int]:
            nonlocal working
            working += 1
            assert working == 1
            await asyncio.sleep(0)
            working -= 1
            if bad & set(items):
                raise KeyError
            return [-item for item in items]

        batcher = Batcher[int, int](lambda items: work(list(items)))
        futures = list[asyncio.Future[int]]()
        for number, value in enumerate(items):
            futures.append(asyncio.ensure_future(batcher.run(value)) if waits[number % len(waits)] else batcher.submit(value))
            if pauses[number % len(pauses)]:
                await asyncio.sleep(0)
        results = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), HANG_S)
        for item, result in zip(items, results, strict=True):
            assert isinstance(result, KeyError) if item in bad else result == -item

    asyncio.run(run())


async def test_a_single_caller_needs_no_task_and_concurrent_callers_share_a_batch() -> None:
    """A single writer has no extra cost from batching (issue, Memory)."""
    batches = list[tuple[int, bool]]()

    async def work(items: list[int]) -> list[int]:
        batches.append((len(items), asyncio.current_task() is this_task))
        await asyncio.sleep(0)
        return items

    async def submit(number: int) -> int:
        return await batcher.run(number)

    batcher, this_task = Batcher[int, int](lambda items: work(list(items))), asyncio.current_task()
    assert [await batcher.run(1), await batcher.run(2)] == [1, 2]
    for _ in range(2):
        await asyncio.gather(*(submit(number) for number in range(5)))
    assert [await batcher.run(number) for number in range(10)] == list(range(10))

    assert batches == [(1, True), (1, True), (1, False), (4, False), (5, False), *[(1, False)] * 8, (1, True), (1, True)]


async def test_a_cancelled_first_caller_leaves_the_later_callers(rig: MemoryRig) -> None:
    """Callers that arrive during a cancelled write still get their results."""
    first = asyncio.create_task(rig.services.remember.store(make_caller(), make_draft("One.")))
    await asyncio.sleep(0)
    others = [asyncio.create_task(rig.services.remember.store(make_caller(), make_draft(f"Number {number}."))) for number in range(3)]
    await asyncio.sleep(0)
    first.cancel()

    results = await asyncio.gather(*others)

    assert [result.memory.content for result in results] == ["Number 0.", "Number 1.", "Number 2."]
    with contextlib.suppress(asyncio.CancelledError):
        await first


async def test_an_engine_that_is_down_is_called_once_for_a_batch() -> None:
    """Concurrent callers must not wait for the failing engine one after another."""
    batch_sizes = list[int]()

    async def work(items: list[int]) -> list[int]:
        batch_sizes.append(len(items))
        await asyncio.sleep(0)
        raise EngineUnavailable("database", "away")

    batcher = Batcher[int, int](lambda items: work(list(items)))

    results = await asyncio.gather(*(batcher.submit(number) for number in range(5)), return_exceptions=True)

    assert all(isinstance(result, RookeryError) for result in results)
    assert batch_sizes == [5]


async def test_a_cancelled_batch_releases_its_callers() -> None:
    """No caller waits forever when the process stops."""
    tasks = list[asyncio.Task[None] | None]()

    async def work(items: list[int]) -> list[int]:
        tasks.append(asyncio.current_task())
        if len(tasks) == 1:
            await asyncio.Event().wait()
        return items

    batcher = Batcher[int, int](lambda items: work(list(items)))
    first = batcher.submit(1)
    await eventually(lambda: bool(tasks))
    second = batcher.submit(2)
    task = tasks[0]
    assert task is not None
    task.cancel()

    assert await second == 2
    assert first.cancelled()
    with contextlib.suppress(asyncio.CancelledError), pytest.raises(asyncio.CancelledError):
        await task
