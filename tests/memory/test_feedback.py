from __future__ import annotations

import asyncio

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.memory.models import Memory, MemoryFilter, MemoryScope, RecallRequest
from rookery.memory.ranking import adjust_confidence
from tests.conftest import FakeClock
from tests.memory.makers import HERON, MemoryRig, make_agent, make_caller

SHARES = st.floats(min_value=0, max_value=1)


async def recalled(rig: MemoryRig, *memories: Memory, query: str = "heron") -> str:
    """Recall *memories*, and return the recall's id."""
    answer = await rig.services.recall.find(make_caller(), RecallRequest(query=query, top_k=50, filters=MemoryFilter()))
    assert {memory.id for memory in memories} <= {hit.memory.id for hit in answer.hits}
    return answer.recall_id


async def test_what_was_used_gains_and_what_was_ignored_loses(rig: MemoryRig) -> None:
    """D-47: a tenth nearer to 1, a twentieth less; the answer tells both."""
    good = await rig.remember("The heron sleeps.", confidence=0.8)
    bad = await rig.remember("The heron dreams.", confidence=0.8)
    await rig.run_jobs()
    recall_id = await recalled(rig, good, bad)

    told = await rig.services.feedback.record(make_caller(), recall_id, used=[good.id], ignored=[bad.id])

    assert (told.used, told.ignored) == ((good.id,), (bad.id,))
    assert {memory.id: memory.confidence for memory in told.memories} == {good.id: pytest.approx(0.82), bad.id: pytest.approx(0.76)}
    assert [(await rig.reload(each)).confidence for each in (good, bad)] == [pytest.approx(0.82), pytest.approx(0.76)]


async def test_feedback_makes_nothing_stale_and_is_seen_by_filters(rig: MemoryRig) -> None:
    """D-45: updated_at stays; yet a recall for sure memories finds what became sure, and no longer what ceased to be."""
    risen = await rig.remember("The heron sleeps.", confidence=0.89)
    fallen = await rig.remember("The heron dreams.", confidence=0.9)
    await rig.run_jobs()
    await rig.services.feedback.record(make_caller(), await recalled(rig, risen, fallen), used=[risen.id], ignored=[fallen.id])

    assert (await rig.reload(risen)).updated_at == risen.updated_at
    await rig.run_jobs()
    for mode in ("semantic", "keyword"):
        sure = await rig.services.recall.find(
            make_caller(), RecallRequest(query="heron", mode=mode, filters=MemoryFilter(min_confidence=0.9))
        )
        assert [hit.memory.id for hit in sure.hits] == [risen.id], mode


async def test_it_counts_once_a_recall_and_once_a_day_for_one_key(rig: MemoryRig, clock: FakeClock) -> None:
    """D-47: neither repeating it nor recalling again makes a memory surer; another key may say so, too, and tomorrow."""
    memory = await rig.remember(HERON, confidence=0.5)
    await rig.run_jobs()
    first, second, third = [await recalled(rig, memory) for _ in range(3)]
    kim, other = make_caller(), make_caller(key_id="other")

    async def counted(by: object, recall_id: str) -> bool:
        caller = kim if by is kim else other
        return (await rig.services.feedback.record(caller, recall_id, used=[memory.id], ignored=[])).used == (memory.id,)

    assert [await counted(kim, first), await counted(kim, first), await counted(kim, second)] == [True, False, False]
    assert [await counted(other, first), await counted(other, second)] == [False, True]
    clock.advance(days=1)
    assert await counted(kim, third)
    assert (await rig.reload(memory)).confidence == pytest.approx(
        adjust_confidence(adjust_confidence(adjust_confidence(0.5, base=0.5, is_used=True), base=0.5, is_used=True), base=0.5, is_used=True)
    )


async def test_of_many_at_once_one_counts(rig: MemoryRig) -> None:
    """D-47: twenty callers of one key with the same word raise the confidence once."""
    memory = await rig.remember(HERON, confidence=0.5)
    await rig.run_jobs()
    recalls = [await recalled(rig, memory) for _ in range(20)]

    await asyncio.gather(*(rig.services.feedback.record(make_caller(), each, used=[memory.id], ignored=[]) for each in recalls))

    assert (await rig.reload(memory)).confidence == pytest.approx(0.55)


async def test_what_cannot_be_is_refused_and_changes_nothing(rig: MemoryRig) -> None:
    """D-47: 422 for ids that were not returned or are in both lists, 404 for an unknown recall; other tenants know none of ours."""
    memory, strange = await rig.remember(HERON), await rig.remember("The owl hoots.", org="elsewhere")
    await rig.run_jobs()
    recall_id = await recalled(rig, memory)
    give = rig.services.feedback.record

    with pytest.raises(ValidationFailed) as refused:
        await give(make_caller(), recall_id, used=[memory.id, "0" * 36], ignored=[memory.id])
    assert set(refused.value.detail["errors"]) == {"used", "ignored"}  # pyright: ignore[reportArgumentType] - an object of JSON
    for caller, unknown in ((make_caller(), strange.id), (make_caller(workspace_id=2), recall_id)):
        with pytest.raises(NotFound):
            await give(caller, unknown, used=[], ignored=[])
    assert (await rig.reload(memory)).confidence == memory.confidence


async def test_what_never_was_a_recall_is_not_waited_for(rig: MemoryRig) -> None:
    """D-47: only a very recent recall id may still be unwritten in another process; other ids fail at once."""
    feedback = rig.services.feedback
    async with asyncio.timeout(10):
        for unknown in ("nothing", "01a1fbcb-446f-75ce-83e5-d2f5fa0e9eb6") * 10:
            with pytest.raises(NotFound):
                await feedback.record(make_caller(), unknown, used=[], ignored=[])


async def test_what_is_gone_or_not_for_this_key_is_passed_over(rig: MemoryRig) -> None:
    """D-47, D-23: a memory deleted or archived since, or beyond the key's orgs, neither fails the rest nor changes."""
    kept, gone, old, foreign = [
        await rig.remember(f"The heron number {each}.", org=org) for each, org in enumerate(("acme", "acme", "acme", "zeta"))
    ]
    await rig.run_jobs()
    recall_id = await recalled(rig, kept, gone, old, foreign)
    await rig.services.records.delete(make_caller(), gone.id)
    await rig.services.records.archive(make_caller(), old.id)

    told = await rig.services.feedback.record(
        make_caller(orgs=frozenset({"acme"})), recall_id, used=[kept.id, gone.id, old.id, foreign.id], ignored=[]
    )

    assert told.used == (kept.id,)
    assert [memory.id for memory in told.memories] == [kept.id]
    assert (await rig.reload(foreign)).confidence == foreign.confidence


async def test_verdicts_are_forgotten_with_their_recalls(rig: MemoryRig, clock: FakeClock) -> None:
    """D-17: after 30 days the recall is unknown."""
    memory = await rig.remember(HERON)
    await rig.run_jobs()
    recall_id = await recalled(rig, memory)
    await rig.services.feedback.record(make_caller(), recall_id, used=[memory.id], ignored=[])
    await rig.services.recall_buffer.flush()
    clock.advance(days=32)
    await rig.services.retention.sweep()

    with pytest.raises(NotFound):
        await rig.services.feedback.record(make_caller(), recall_id, used=[memory.id], ignored=[])


async def test_over_http(api: httpx2.AsyncClient, rig: MemoryRig) -> None:
    """Spec 4.3: POST /recall/{recall_id}/feedback with used and ignored."""
    memory = await rig.remember(HERON)
    await rig.run_jobs()
    recall = (await api.post("/recall", json={"query": "heron"})).json()

    done = await api.post(f"/recall/{recall['recall_id']}/feedback", json={"used": [memory.id]})
    again = await api.post(f"/recall/{recall['recall_id']}/feedback", json={"used": [memory.id.upper()]})
    refused = await api.post(f"/recall/{recall['recall_id']}/feedback", json={"used": ["x"], "usd": []})
    reader = await api.post(f"/recall/{recall['recall_id']}/feedback", json={}, headers={"X-Test-Caller": "reader"})

    assert (done.status_code, again.status_code, refused.status_code, reader.status_code) == (200, 200, 422, 403)
    assert done.json() == {
        "recall_id": recall["recall_id"],
        "used": [memory.id],
        "ignored": [],
        "memories": [{"id": memory.id, "confidence": pytest.approx(0.82)}],
    }
    assert again.json()["used"] == []
    assert set(refused.json()["errors"]) == {"used.0", "usd"}


@given(SHARES, SHARES, st.lists(st.booleans(), max_size=60))
def test_confidence_stays_a_share_and_never_falls_under_half_of_what_was_given(base: float, start: float, verdicts: list[bool]) -> None:
    """D-47: in 0..1 whatever is said; a use never lowers it, ignoring never raises it, and half of the author's word is kept."""
    confidence = max(base, start)
    for is_used in verdicts:
        after = adjust_confidence(confidence, base=base, is_used=is_used)
        assert 0 <= after <= 1
        assert after >= confidence if is_used else after <= confidence
        assert after >= base / 2
        confidence = after


async def test_an_agent_s_own_memory_is_no_other_agent_s_to_judge(rig: MemoryRig) -> None:
    """D-43: lee may know the recall's id, and still not change what is kim's own."""
    memory = await rig.remember("kim's heron", make_agent("kim"), memory_scope=MemoryScope.AGENT)
    await rig.run_jobs()
    answer = await rig.services.recall.find(make_agent("kim"), RecallRequest(query="heron", filters=MemoryFilter(agent_id="kim")))

    told = await rig.services.feedback.record(make_agent("lee"), answer.recall_id, used=[memory.id], ignored=[])

    assert told.memories == ()
