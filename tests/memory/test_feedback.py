from __future__ import annotations

import asyncio

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.memory.models import Memory, MemoryFilter, MemoryScope
from rookery.memory.ranking import adjust_confidence
from rookery.memory.recall_models import RecallRequest
from tests.conftest import FakeClock
from tests.memory.makers import HERON, MemoryRig, make_agent, make_caller
from tests.stopwatch import Stopwatch

SHARES = st.floats(min_value=0, max_value=1)


async def recall(rig: MemoryRig, *memories: Memory, query: str = "heron") -> str:
    """Recall *memories*, and return the recall's id."""
    result = await rig.services.recall.find(make_caller(), RecallRequest(query=query, top_k=50, filters=MemoryFilter()))
    assert {memory.id for memory in memories} <= {hit.memory.id for hit in result.hits}
    return result.recall_id


async def test_used_memories_gain_and_ignored_memories_lose_confidence(rig: MemoryRig) -> None:
    """A use moves the confidence by a tenth towards 1; ignoring lowers it by a twentieth."""
    used = await rig.remember("The heron sleeps.", confidence=0.8)
    ignored = await rig.remember("The heron dreams.", confidence=0.8)
    await rig.run_jobs()
    recall_id = await recall(rig, used, ignored)

    result = await rig.services.feedback.record(make_caller(), recall_id, used=[used.id], ignored=[ignored.id])

    assert (result.used, result.ignored) == ((used.id,), (ignored.id,))
    assert {memory.id: memory.confidence for memory in result.memories} == {used.id: pytest.approx(0.82), ignored.id: pytest.approx(0.76)}
    assert [(await rig.reload(memory)).confidence for memory in (used, ignored)] == [pytest.approx(0.82), pytest.approx(0.76)]


async def test_feedback_does_not_make_memories_stale_and_affects_filters(rig: MemoryRig) -> None:
    """updated_at stays, and a recall with min_confidence uses the new values."""
    raised = await rig.remember("The heron sleeps.", confidence=0.89)
    lowered = await rig.remember("The heron dreams.", confidence=0.9)
    await rig.run_jobs()
    await rig.services.feedback.record(make_caller(), await recall(rig, raised, lowered), used=[raised.id], ignored=[lowered.id])

    assert (await rig.reload(raised)).updated_at == raised.updated_at
    await rig.run_jobs()
    for mode in ("semantic", "keyword"):
        result = await rig.services.recall.find(
            make_caller(), RecallRequest(query="heron", mode=mode, filters=MemoryFilter(min_confidence=0.9))
        )
        assert [hit.memory.id for hit in result.hits] == [raised.id], mode


async def test_feedback_of_one_key_counts_once_per_recall_and_once_a_day(rig: MemoryRig, clock: FakeClock) -> None:
    """Repeated feedback has no effect; feedback of another key or on the next day counts."""
    memory = await rig.remember(HERON, confidence=0.5)
    await rig.run_jobs()
    first, second, third = [await recall(rig, memory) for _ in range(3)]
    kim, other = make_caller(), make_caller(key_id="other")

    async def is_counted(by: object, recall_id: str) -> bool:
        caller = kim if by is kim else other
        return (await rig.services.feedback.record(caller, recall_id, used=[memory.id], ignored=[])).used == (memory.id,)

    assert [await is_counted(kim, first), await is_counted(kim, first), await is_counted(kim, second)] == [True, False, False]
    assert [await is_counted(other, first), await is_counted(other, second)] == [False, True]
    clock.advance(days=1)
    assert await is_counted(kim, third)
    assert (await rig.reload(memory)).confidence == pytest.approx(
        adjust_confidence(adjust_confidence(adjust_confidence(0.5, base=0.5, is_used=True), base=0.5, is_used=True), base=0.5, is_used=True)
    )


async def test_of_many_concurrent_feedbacks_one_counts(rig: MemoryRig) -> None:
    """Twenty concurrent calls of one key raise the confidence once."""
    memory = await rig.remember(HERON, confidence=0.5)
    await rig.run_jobs()
    recall_ids = [await recall(rig, memory) for _ in range(20)]

    await asyncio.gather(
        *(rig.services.feedback.record(make_caller(), recall_id, used=[memory.id], ignored=[]) for recall_id in recall_ids)
    )

    assert (await rig.reload(memory)).confidence == pytest.approx(0.55)


async def test_invalid_feedback_is_rejected_and_changes_nothing(rig: MemoryRig) -> None:
    """Ids outside the recall or in both lists give 422; an unknown recall or another tenant's gives 404."""
    memory, foreign = await rig.remember(HERON), await rig.remember("The owl hoots.", org="elsewhere")
    await rig.run_jobs()
    recall_id = await recall(rig, memory)
    record = rig.services.feedback.record

    with pytest.raises(ValidationFailed) as error:
        await record(make_caller(), recall_id, used=[memory.id, "0" * 36], ignored=[memory.id])
    assert set(error.value.detail["errors"]) == {"used", "ignored"}  # pyright: ignore[reportArgumentType] - an object of JSON
    for caller, unknown in ((make_caller(), foreign.id), (make_caller(workspace_id=2), recall_id)):
        with pytest.raises(NotFound):
            await record(caller, unknown, used=[], ignored=[])
    assert (await rig.reload(memory)).confidence == memory.confidence


async def test_unknown_recall_ids_fail_without_waiting(rig: MemoryRig) -> None:
    """Only a very recent recall id may still be unwritten in another process; other ids fail immediately."""
    feedback = rig.services.feedback
    with Stopwatch() as watch:
        for unknown in ("nothing", "01a1fbcb-446f-75ce-83e5-d2f5fa0e9eb6") * 10:
            with pytest.raises(NotFound):
                await feedback.record(make_caller(), unknown, used=[], ignored=[])

    assert watch.reference_s < 10


async def test_feedback_skips_deleted_archived_and_inaccessible_memories(rig: MemoryRig) -> None:
    """Such a memory does not change, and the feedback for the others succeeds."""
    visible, deleted, archived, foreign = [
        await rig.remember(f"The heron number {number}.", org=org) for number, org in enumerate(("acme", "acme", "acme", "zeta"))
    ]
    await rig.run_jobs()
    recall_id = await recall(rig, visible, deleted, archived, foreign)
    await rig.services.records.delete(make_caller(), deleted.id)
    await rig.services.records.archive(make_caller(), archived.id)

    result = await rig.services.feedback.record(
        make_caller(orgs=frozenset({"acme"})), recall_id, used=[visible.id, deleted.id, archived.id, foreign.id], ignored=[]
    )

    assert result.used == (visible.id,)
    assert [memory.id for memory in result.memories] == [visible.id]
    assert (await rig.reload(foreign)).confidence == foreign.confidence


async def test_feedback_is_rejected_after_its_recall_expired(rig: MemoryRig, clock: FakeClock) -> None:
    """A recall id is kept for 30 days."""
    memory = await rig.remember(HERON)
    await rig.run_jobs()
    recall_id = await recall(rig, memory)
    await rig.services.feedback.record(make_caller(), recall_id, used=[memory.id], ignored=[])
    await rig.services.recall_buffer.flush()
    clock.advance(days=32)
    await rig.services.retention.sweep()

    with pytest.raises(NotFound):
        await rig.services.feedback.record(make_caller(), recall_id, used=[memory.id], ignored=[])


async def test_feedback_over_http(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """POST /recall/{recall_id}/feedback takes used and ignored."""
    memory = await rig.remember(HERON)
    await rig.run_jobs()
    recall = (await api.post("/recall", json={"query": "heron"})).json()

    response = await api.post(f"/recall/{recall['recall_id']}/feedback", json={"used": [memory.id]})
    repeated = await api.post(f"/recall/{recall['recall_id']}/feedback", json={"used": [memory.id.upper()]})
    invalid = await api.post(f"/recall/{recall['recall_id']}/feedback", json={"used": ["x"], "usd": []})
    forbidden = await api.post(f"/recall/{recall['recall_id']}/feedback", json={}, headers={"X-Test-Caller": "reader"})

    assert (response.status_code, repeated.status_code, invalid.status_code, forbidden.status_code) == (200, 200, 422, 403)
    assert response.json() == {
        "recall_id": recall["recall_id"],
        "used": [memory.id],
        "ignored": [],
        "memories": [{"id": memory.id, "confidence": pytest.approx(0.82)}],
    }
    assert repeated.json()["used"] == []
    assert set(invalid.json()["errors"]) == {"used.0", "usd"}


@given(SHARES, SHARES, st.lists(st.booleans(), max_size=60))
def test_confidence_stays_between_half_of_its_base_and_one(base: float, start: float, are_used: list[bool]) -> None:
    """A use never lowers the confidence, and ignoring never raises it."""
    confidence = max(base, start)
    for is_used in are_used:
        adjusted = adjust_confidence(confidence, base=base, is_used=is_used)
        assert 0 <= adjusted <= 1
        assert adjusted >= confidence if is_used else adjusted <= confidence
        assert adjusted >= base / 2
        confidence = adjusted


async def test_an_agent_cannot_give_feedback_on_another_agents_own_memory(rig: MemoryRig) -> None:
    """The recall id does not give lee access to kim's private memory."""
    memory = await rig.remember("kim's heron", make_agent("kim"), memory_scope=MemoryScope.AGENT)
    await rig.run_jobs()
    result = await rig.services.recall.find(make_agent("kim"), RecallRequest(query="heron", filters=MemoryFilter(agent_id="kim")))

    result = await rig.services.feedback.record(make_agent("lee"), result.recall_id, used=[memory.id], ignored=[])

    assert result.memories == ()
