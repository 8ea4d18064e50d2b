"""Memories stored at the same time share a transaction, with no visible difference but the duration."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import EngineUnavailable, RookeryError, ValidationFailed
from rookery.kernel.events import MemoryStored
from rookery.memory.batcher import Batcher
from rookery.memory.errors import AlreadySuperseded
from rookery.memory.indexing import EMBED_JOB
from rookery.memory.models import Draft, RememberResult
from tests.conftest import eventually
from tests.memory.makers import MemoryRig, make_caller, make_draft


async def _at_once(rig: MemoryRig, *drafts: Draft) -> list[RememberResult | BaseException]:
    """Remember *drafts* as concurrent callers."""
    return await asyncio.gather(*(rig.services.remember.store(make_caller(), each) for each in drafts), return_exceptions=True)


async def test_each_is_told_of_those_before_it(rig: MemoryRig, database: Database) -> None:
    """D-40: the answer lists duplicates, at most ten, the oldest first."""
    done = await _at_once(rig, *[make_draft(tags=("roof", f"t{number}")) for number in range(13)])

    told = [each for each in done if isinstance(each, RememberResult)]
    ids = {each.memory.id for each in told}
    assert len(ids) == 13
    assert all(set(each.duplicates) <= ids - {each.memory.id} for each in told)
    if database.dialect == "sqlite":  # else those of one moment may not see each other
        assert sorted(len(each.duplicates) for each in told) == [*range(11), 10, 10]
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 13
    assert {event.memory_id for event in rig.events if isinstance(event, MemoryStored)} == ids
    assert [(await rig.reload(each.memory)).tags for each in told] == [("roof", f"t{number}") for number in range(13)]


async def test_whoever_deduplicates_finds_what_came_with_it(rig: MemoryRig, database: Database) -> None:
    """D-40, dedupe; one that is stored in the same transaction is there."""
    old = await rig.remember("We deploy on Fridays.")

    *stored, twin, new, late = await _at_once(
        rig,
        make_draft("One."),
        make_draft("Two."),
        make_draft("Two.", dedupe=True),
        make_draft("We deploy on Tuesdays.", supersedes_id=old.id),
        make_draft("We deploy on Sundays.", supersedes_id=old.id),
    )

    assert isinstance(twin, RememberResult)
    assert isinstance(new, RememberResult | AlreadySuperseded)
    assert {isinstance(new, AlreadySuperseded), isinstance(late, AlreadySuperseded)} == {False, True}
    if database.dialect == "sqlite":  # else the twin may have been first
        assert len({each.memory.id for each in [*stored, twin] if isinstance(each, RememberResult)}) == 2


async def test_one_that_is_refused_keeps_no_other_from_being_stored(rig: MemoryRig) -> None:
    """House 5.2: each caller's write stands for itself."""

    def refuse(_: Tx, event: MemoryStored) -> None:
        if event.workspace_id == 2:
            raise LookupError

    rig.bus.add_recorder(MemoryStored, refuse)
    theirs = rig.services.remember.store(make_caller(workspace_id=2), make_draft())
    missing = make_draft(supersedes_id="nothing")

    failed, *rest = await asyncio.gather(
        theirs,
        *(rig.services.remember.store(make_caller(), each) for each in (make_draft("One."), missing, make_draft("Two."))),
        return_exceptions=True,
    )

    assert isinstance(failed, LookupError)
    assert isinstance(rest.pop(1), ValidationFailed)
    assert [each.memory.content for each in rest if isinstance(each, RememberResult)] == ["One.", "Two."]
    assert await rig.jobs.count_pending(EMBED_JOB, 1) == 2


async def test_who_gives_up_takes_nobody_along(rig: MemoryRig) -> None:
    """House 5.2: a caller that is cancelled does not stop what others wait for."""
    tasks = [asyncio.create_task(rig.services.remember.store(make_caller(), make_draft(f"Number {number}."))) for number in range(6)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[3].cancel()

    done = await asyncio.gather(*tasks, return_exceptions=True)

    assert [isinstance(each, RememberResult) for each in done] == [False, True, True, False, True, True]
    again = await rig.services.remember.store(make_caller(), make_draft("Number 1."))
    assert len(again.duplicates) == 1


@settings(max_examples=60, deadline=None)
@given(
    items=st.lists(st.integers(0, 9), min_size=1, max_size=200),
    bad=st.sets(st.integers(0, 9)),
    pauses=st.lists(st.booleans(), min_size=1, max_size=20),
    waits=st.lists(st.booleans(), min_size=1, max_size=20),
)
def test_each_hears_of_its_own(items: list[int], bad: set[int], pauses: list[bool], waits: list[bool]) -> None:
    """Whatever comes together: everybody gets what alone would have got, and nothing is done at once by two."""

    async def run() -> None:
        working = 0

        async def work(given: list[int]) -> list[int]:
            nonlocal working
            working += 1
            assert working == 1
            await asyncio.sleep(0)
            working -= 1
            if bad & set(given):
                raise KeyError
            return [-each for each in given]

        together = Batcher[int, int](lambda given: work(list(given)))
        asked = list[asyncio.Future[int]]()
        for number, each in enumerate(items):
            asked.append(asyncio.ensure_future(together.run(each)) if waits[number % len(waits)] else together.submit(each))
            if pauses[number % len(pauses)]:
                await asyncio.sleep(0)
        done = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20)
        for item, each in zip(items, done, strict=True):
            assert isinstance(each, KeyError) if item in bad else each == -item

    asyncio.run(run())


async def test_who_is_alone_is_served_without_a_task_and_who_is_not_with_the_others() -> None:
    """Issue, Memory: one writer pays nothing for what many save."""
    served = list[tuple[int, bool]]()

    async def work(given: list[int]) -> list[int]:
        served.append((len(given), asyncio.current_task() is me))
        await asyncio.sleep(0)
        return given

    async def come(number: int) -> int:
        return await together.run(number)

    together, me = Batcher[int, int](lambda given: work(list(given))), asyncio.current_task()
    assert [await together.run(1), await together.run(2)] == [1, 2]
    for _ in range(2):
        await asyncio.gather(*(come(number) for number in range(5)))
    assert [await together.run(number) for number in range(10)] == list(range(10))

    assert served == [(1, True), (1, True), (1, False), (4, False), (5, False), *[(1, False)] * 8, (1, True), (1, True)]


async def test_who_is_alone_and_gives_up_leaves_those_who_came_meanwhile(rig: MemoryRig) -> None:
    """House 5.2: they are served all the same."""
    first = asyncio.create_task(rig.services.remember.store(make_caller(), make_draft("One.")))
    await asyncio.sleep(0)
    others = [asyncio.create_task(rig.services.remember.store(make_caller(), make_draft(f"Number {number}."))) for number in range(3)]
    await asyncio.sleep(0)
    first.cancel()

    done = await asyncio.gather(*others)

    assert [each.memory.content for each in done] == ["Number 0.", "Number 1.", "Number 2."]
    with contextlib.suppress(asyncio.CancelledError):
        await first


async def test_an_engine_that_is_down_is_asked_once_for_all() -> None:
    """D-51: each of many must not wait for it in turn."""
    asked = list[int]()

    async def work(given: list[int]) -> list[int]:
        asked.append(len(given))
        await asyncio.sleep(0)
        raise EngineUnavailable("database", "away")

    together = Batcher[int, int](lambda given: work(list(given)))

    done = await asyncio.gather(*(together.submit(each) for each in range(5)), return_exceptions=True)

    assert all(isinstance(each, RookeryError) for each in done)
    assert asked == [5]


async def test_what_is_ended_lets_those_who_wait_go() -> None:
    """At a stop no caller may be left behind."""
    begun = list[asyncio.Task[None] | None]()

    async def work(given: list[int]) -> list[int]:
        begun.append(asyncio.current_task())
        if len(begun) == 1:
            await asyncio.Event().wait()
        return given

    together = Batcher[int, int](lambda given: work(list(given)))
    first = together.submit(1)
    await eventually(lambda: bool(begun))
    second = together.submit(2)
    task = begun[0]
    assert task is not None
    task.cancel()

    assert await second == 2
    assert first.cancelled()
    with contextlib.suppress(asyncio.CancelledError), pytest.raises(asyncio.CancelledError):
        await task
