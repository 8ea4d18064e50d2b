"""Recall looks at the memories stored just before and after a candidate in its session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rookery.access.models import Caller
from rookery.memory.models import AccessFilter, Memory, MemoryFilter, MemoryScope
from rookery.memory.ranking import RecallHit
from rookery.memory.recall_models import RecallRequest
from rookery.memory.store.neighbours import find_neighbours
from tests.memory.makers import MemoryRig, make_agent, make_caller

QUESTION = "where do the herons nest"
ANSWER = "on the roof of the boathouse"


async def _recall(rig: MemoryRig, by: Caller | None = None, filters: MemoryFilter | None = None, **fields: object) -> Sequence[RecallHit]:
    request = replace(RecallRequest(query=QUESTION, filters=filters or MemoryFilter(), top_k=50), **fields)
    return (await rig.services.recall.find(by or make_caller(), request)).hits


async def _store(rig: MemoryRig, *contents: str, session_id: str | None = "s1", **fields: object) -> list[Memory]:
    caller = make_caller()
    return [await rig.remember(content, caller, session_id=session_id, **fields) for content in contents]


def _find(hits: Sequence[RecallHit], memory: Memory) -> RecallHit:
    (hit,) = [hit for hit in hits if hit.memory.id == memory.id]
    return hit


async def test_an_answer_beside_its_question_is_lifted(rig: MemoryRig) -> None:
    """A memory gains from the relevance of its neighbours in the session; `explain` shows it."""
    _, answer = await _store(rig, "Kim asks where the herons nest", ANSWER)
    (alone,) = await _store(rig, ANSWER, session_id=None)
    await rig.run_jobs()

    hits = await _recall(rig)
    assert _find(hits, answer).score.total > _find(hits, alone).score.total
    assert _find(hits, answer).score.neighbour == pytest.approx(1.0, abs=0.35)
    assert _find(hits, alone).score.neighbour is None


@pytest.mark.parametrize("mode", ["semantic", "keyword"])
async def test_pure_modes_ignore_neighbours(rig: MemoryRig, mode: str) -> None:
    """Neighbours count in hybrid recall alone."""
    _, answer = await _store(rig, "Kim asks where the herons nest", f"{ANSWER} with the herons")
    await rig.run_jobs()

    assert _find(await _recall(rig, mode=mode), answer).score.neighbour is None


async def test_neighbours_of_other_sessions_do_not_count(rig: MemoryRig) -> None:
    """Two sessions that run at the same time are apart."""
    await _store(rig, "Kim asks where the herons nest", session_id="s1")
    (answer,) = await _store(rig, ANSWER, session_id="s2")
    await rig.run_jobs()

    assert _find(await _recall(rig), answer).score.neighbour is None


async def test_a_hidden_neighbour_does_not_change_a_score(rig: MemoryRig) -> None:
    """Private memories of others, other orgs, workspaces, expired and archived ones are not seen, not even by their score."""
    about = "Kim asks where the herons nest"
    kim = make_agent("kim")
    (baseline,) = await _store(rig, ANSWER, session_id="s0")
    await rig.remember(about, kim, session_id="s1", memory_scope=MemoryScope.AGENT)
    (beside_private,) = await _store(rig, ANSWER, session_id="s1")
    await _store(rig, about, session_id="s2", org="other")
    (beside_other_org,) = await _store(rig, ANSWER, session_id="s2")
    await rig.remember(about, session_id="s3", expires_in=1.0)
    (beside_expired,) = await _store(rig, ANSWER, session_id="s3")
    (archived, beside_archived) = await _store(rig, about, ANSWER, session_id="s4")
    await rig.remember(about, make_caller(workspace_id=2), session_id="s5")
    (beside_foreign,) = await _store(rig, ANSWER, session_id="s5")
    await rig.run_jobs()
    await rig.services.records.archive(make_caller(), archived.id)
    await rig.run_jobs()
    rig.clock.advance(hours=2)

    hits = await _recall(rig, make_caller(), MemoryFilter(org="acme"), context=2)
    score = _find(hits, baseline).score.total
    for memory in (beside_private, beside_other_org, beside_expired, beside_archived, beside_foreign):
        assert _find(hits, memory).score.total == pytest.approx(score), memory.session_id
        assert _find(hits, memory).context is not None
        assert about not in [other.content for hit in hits if hit.context for other in (*hit.context.before, *hit.context.after)]
    own_hits = await _recall(rig, kim, MemoryFilter(org="acme"))
    assert _find(own_hits, beside_private).score.total > _find(own_hits, baseline).score.total, "Kim may read her own memory"


async def test_context_shows_neighbours_that_the_filters_leave_out(rig: MemoryRig) -> None:
    """A filter by field selects what is ranked; the context of a hit is what was stored around it."""
    await _store(rig, "Kim asks where the herons nest", type="observation")
    (answer,) = await _store(rig, ANSWER, type="decision")
    await rig.run_jobs()

    (hit,) = await _recall(rig, filters=MemoryFilter(type="decision"), context=1)
    assert hit.memory.id == answer.id
    assert hit.score.neighbour is None
    assert hit.context is not None
    assert [memory.type for memory in hit.context.before] == ["observation"]


async def test_context_returns_the_neighbours_of_a_hit_in_order(rig: MemoryRig) -> None:
    """`context` returns as many memories before and after as it says, also of memories of the same time."""
    one, two, hit_memory, four, five = await _store(rig, "one", "two", "herons nest", "four", "five")
    await rig.run_jobs()

    for distance, before, after in ((1, [two], [four]), (2, [one, two], [four, five])):
        hit = _find(await _recall(rig, context=distance), hit_memory)
        assert hit.context is not None
        assert [memory.id for memory in hit.context.before] == [memory.id for memory in before]
        assert [memory.id for memory in hit.context.after] == [memory.id for memory in after]
    assert _find(await _recall(rig), hit_memory).context is None


async def test_context_counts_towards_the_token_budget(rig: MemoryRig) -> None:
    """A memory that fits only without its context is returned without it."""
    _, hit_memory = await _store(rig, "a long text about ladders " * 20, "herons nest")
    await rig.run_jobs()

    hits = await _recall(rig, context=1, max_tokens=50)
    (hit,) = [hit for hit in hits if hit.memory.id == hit_memory.id]
    assert hit.context is not None
    assert hit.context.before == ()
    wide_hit = _find(await _recall(rig, context=1, max_tokens=1000), hit_memory)
    assert wide_hit.context is not None
    assert len(wide_hit.context.before) == 1


@pytest.mark.parametrize("step_minutes", [0, 1])
async def test_neighbours_are_found_in_a_session_of_any_order_of_times(rig: MemoryRig, step_minutes: int) -> None:
    """Memories of the same time are ordered by their ids."""
    memories = list[Memory]()
    for number in range(9):
        memories += await _store(rig, f"turn {number}")
        rig.clock.advance(minutes=step_minutes * (number % 2))
    ids = [memory.id for memory in sorted(memories, key=lambda memory: (memory.created_at, memory.id))]

    access_filter = AccessFilter(workspace_id=1, at=rig.clock())
    found = await rig.db.read(lambda tx: find_neighbours(tx, access_filter, ids))
    for position, memory_id in enumerate(ids):
        expected = {(distance, ids[position + distance]) for distance in (-2, -1, 1, 2) if 0 <= position + distance < len(ids)}
        assert {(neighbour.distance, neighbour.memory_id) for neighbour in found[memory_id]} == expected


async def test_a_neighbour_that_no_index_returned_joins_the_candidates(rig: MemoryRig) -> None:
    """The answer beside the question is found although a hundred memories are closer to the words of the question."""
    for number in range(130):
        await rig.remember(f"herons {number} feathers ladder")
    _, answer = await _store(rig, "Kim asks where the herons nest", "behind it")
    await rig.run_jobs()

    hits = await _recall(rig, top_k=5)
    assert answer.id in [hit.memory.id for hit in hits]
    assert answer.id not in [hit.memory.id for hit in await _recall(rig, top_k=5, filters=MemoryFilter(type="decision"))]


@pytest.mark.parametrize("order", [(MemoryScope.SHARED, MemoryScope.PROJECT), (MemoryScope.PROJECT, MemoryScope.SHARED)])
async def test_neighbours_with_equal_fields_and_other_scopes_are_judged_apart(
    rig: MemoryRig, order: tuple[MemoryScope, MemoryScope]
) -> None:
    """A shared memory without a project is read from every project, and a project's memory without one is not."""
    for scope in order:
        await rig.remember(f"Kim asks in scope {scope.value}.", org="acme", project=None, memory_scope=scope, session_id="s1")
    answer = await rig.remember(ANSWER, org="acme", project="nests", session_id="s1")
    await rig.run_jobs()

    hits = await _recall(rig, make_caller(), MemoryFilter(org="acme", project="nests"), context=2)

    context = _find(hits, answer).context
    assert context is not None
    assert [memory.content for memory in (*context.before, *context.after)] == ["Kim asks in scope shared."]
