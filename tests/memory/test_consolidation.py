"""brain:consolidate (spec 3.4, 4.4, D-41, D-52)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.db import Tx
from rookery.memory import merging
from rookery.memory.batch_runs import RunItem, RunObserver, RunReport
from rookery.memory.maintenance.consolidation import ConsolidationRequest
from rookery.memory.models import (
    EmbeddedDocument,
    Memory,
    MemoryChange,
    MemoryScope,
    MemoryState,
    Passage,
    RecallRequest,
    Tombstone,
    Vector,
    get_state,
)
from tests.conftest import FakeClock
from tests.memory.makers import MODEL, MemoryRig, StemEmbedder, make_caller, make_memory

BASE = "Herons nest on tall trees near quiet lakes where many small fish swim all year between reeds and stones under willows"
MORE = f"{BASE}. They return in March."
OTHER = "The release train leaves the station every second Tuesday after lunch unless somebody has pulled its emergency brake before"
WANTED = ConsolidationRequest(workspace_id=1)


async def _consolidate(rig: MemoryRig, wanted: ConsolidationRequest = WANTED) -> tuple[RunReport, list[RunItem]]:
    items = list[RunItem]()
    return await rig.services.maintenance.consolidation.run(
        wanted, observer=RunObserver(on_item=items.append, on_progress=lambda done, total: None)
    ), items


async def _live(rig: MemoryRig, *memories: Memory) -> list[bool]:
    return [(await rig.reload(memory)).archived_at is None for memory in memories]


async def _twins(rig: MemoryRig) -> tuple[Memory, Memory]:
    """Remember and index two that say nearly the same; the first is the more trusted."""
    pair = (await rig.remember(BASE, confidence=0.9), await rig.remember(MORE, confidence=0.5, tags=("march",)))
    await rig.run_jobs()
    return pair


async def test_the_most_trusted_takes_in_what_the_others_say_beyond_it(rig: MemoryRig) -> None:
    """Spec 4.4: highest confidence is the primary; unique content appended, re-embedded, others archived. 3.4: lineage."""
    other = await rig.remember(OTHER)
    primary, second = await _twins(rig)
    rig.clock.advance(days=1)

    report, items = await _consolidate(rig)
    await rig.run_jobs()
    kept, merged = await rig.reload(primary), await rig.reload(second)
    found = await rig.services.recall.find(make_caller(), RecallRequest(query="March", mode="keyword"))
    near = await rig.services.recall.find(make_caller(), RecallRequest(query=MORE, mode="semantic", top_k=1))

    assert (report.total, report.successes, report.failures) == (3, 3, 0)
    assert report.counts == {"clusters": 1, "merged": 1, "left_out": 0}
    assert (kept.content, kept.tags, kept.confidence) == (f"{BASE}\n\nThey return in March.", ("march",), 0.9)
    assert (kept.content_at, get_state(kept, model=MODEL)) == (primary.content_at, MemoryState.INDEXED)
    assert (merged.content, merged.superseded_by, merged.archived_at) == (MORE, primary.id, rig.clock())
    assert items == [RunItem(id=second.id, action="merge", why="21 characters of it were added", into=primary.id)]
    assert [hit.memory.id for hit in (*found.hits, *near.hits)] == [primary.id, primary.id]
    assert near.hits[0].similarity == pytest.approx(1.0)
    assert await _live(rig, other) == [True]
    assert [each.id for each in await rig.services.records.history(make_caller(), primary.id)] == [second.id, primary.id]
    assert [each.id for each in await rig.services.records.history(make_caller(), second.id)] == [second.id, primary.id]


async def test_a_restore_undoes_it(rig: MemoryRig) -> None:
    """D-52: restore undoes: the merged one is as it was, and the primary has its own words again."""
    primary, second = await _twins(rig)
    await _consolidate(rig)
    await rig.services.records.restore(make_caller(), second.id)
    await rig.run_jobs()

    kept, restored = await rig.reload(primary), await rig.reload(second)
    assert (kept.content, kept.tags) == (primary.content, primary.tags)
    assert (restored.content, restored.superseded_by, restored.archived_at) == (MORE, None, None)
    assert [each.id for each in await rig.services.records.history(make_caller(), primary.id)] == [primary.id]
    assert [
        hit.memory.id for hit in (await rig.services.recall.find(make_caller(), RecallRequest(query="March", mode="keyword"))).hits
    ] == [second.id]


async def test_a_restore_leaves_what_somebody_wrote_since(rig: MemoryRig) -> None:
    """D-52: only the words that came with the merge go again, where they still stand as they came."""
    primary, second = await _twins(rig)
    await _consolidate(rig)
    content = f"{BASE}\n\nThey return in March.\n\nOr in April."
    await rig.services.records.change(make_caller(), primary.id, MemoryChange(changed_fields=frozenset({"content"}), content=content))
    await rig.services.records.restore(make_caller(), second.id)

    assert (await rig.reload(primary)).content == f"{BASE}\n\nOr in April."


async def test_a_restore_leaves_a_paragraph_that_somebody_went_on_with(rig: MemoryRig) -> None:
    """D-52: what was changed there since stays."""
    primary, second = await _twins(rig)
    await _consolidate(rig)
    content = f"{BASE}\n\nThey return in March. Not all of them."
    await rig.services.records.change(make_caller(), primary.id, MemoryChange(changed_fields=frozenset({"content"}), content=content))
    await rig.services.records.restore(make_caller(), second.id)

    assert (await rig.reload(primary)).content == content


async def test_what_is_deleted_of_a_cluster_keeps_its_place_in_the_lineage(rig: MemoryRig) -> None:
    """D-41: a tombstone without content; what it had brought to the primary goes with it."""
    primary, second = await _twins(rig)
    await _consolidate(rig)
    assert (await rig.reload(primary)).tags == ("march",)
    await rig.services.records.delete(make_caller(), second.id)
    assert ((await rig.reload(primary)).content, (await rig.reload(primary)).tags) == (BASE, ())
    first, last = await rig.services.records.history(make_caller(), primary.id)

    assert isinstance(first, Tombstone)
    assert (first.id, first.superseded_by, last.id) == (second.id, primary.id, primary.id)


SPACES: Mapping[str, Mapping[str, object]] = {
    "org": {"org": "zoo"},
    "project": {"project": "api"},
    "scope": {"memory_scope": MemoryScope.SHARED},
    "type": {"type": "decision"},
    "agent": {"agent_id": "kim"},
    "no org": {"org": None},
    "own": {"memory_scope": MemoryScope.AGENT, "agent_id": "kim"},
    "session": {"memory_scope": MemoryScope.SESSION, "session_id": "s"},
}


@pytest.mark.parametrize("space", list(SPACES))
async def test_only_memories_of_one_space_become_one(rig: MemoryRig, space: str) -> None:
    """D-52: only inside one org, project, scope, agent, type, and workspace."""
    here = await rig.remember(BASE)
    there = await rig.remember(BASE, None, **SPACES[space])
    foreign = await rig.remember(BASE, make_caller(workspace_id=2))
    await rig.run_jobs()
    await _consolidate(rig)

    assert await _live(rig, here, there, foreign) == [True, True, True]


async def test_only_what_exceeds_the_threshold_is_merged(rig: MemoryRig) -> None:
    """Spec 4.4: whose cosine similarity exceeds the threshold; --org, --project."""
    primary, second = await _twins(rig)
    vectors = await rig.vectors.get_vectors(1, [primary.id, second.id])
    similarity = (await rig.vectors.compute_similarities(vectors[primary.id][0], workspace_id=1, ids=[second.id]))[second.id]

    assert (await _consolidate(rig, replace(WANTED, threshold=similarity + 0.001)))[0].counts["merged"] == 0
    assert (await _consolidate(rig, replace(WANTED, org="zoo")))[0].total == 0
    assert (await _consolidate(rig, replace(WANTED, project="api")))[0].total == 0
    assert (await _consolidate(rig, replace(WANTED, threshold=similarity - 0.001, org="acme", project="web")))[0].counts["merged"] == 1


async def test_what_will_expire_or_is_not_indexed_is_left_out(rig: MemoryRig) -> None:
    """D-52: an end that was chosen is neither lengthened nor shortened, and only vectors of today's words are compared."""
    primary, second = await _twins(rig)
    third = await rig.remember(BASE, expires_in_h=5)
    await rig.run_jobs()
    fourth = await rig.remember(BASE)
    change = MemoryChange(changed_fields=frozenset({"content"}), content=OTHER)
    await rig.services.records.change(make_caller(), second.id, change)

    report, _ = await _consolidate(rig)
    assert (report.total, report.counts) == (1, {"clusters": 0, "merged": 0, "left_out": 3})
    assert await _live(rig, primary, second, third, fourth) == [True] * 4


async def test_a_merge_that_cannot_be_embedded_changes_nothing(rig: MemoryRig) -> None:
    """Issue: written, verified, then archived; what fails is put back and counted."""
    primary, second = await _twins(rig)
    rig.embedder.poison = f"{BASE}\n\n"

    report, items = await _consolidate(rig)
    assert (report.successes, report.failures, report.counts["merged"], items) == (1, 1, 0, [])
    assert ((await rig.reload(primary)).content, await _live(rig, primary, second)) == (BASE, [True, True])
    rig.embedder.poison = None
    await rig.run_jobs()
    assert (await _consolidate(rig))[0].counts["merged"] == 1


async def test_an_engine_that_goes_down_ends_the_run_and_loses_nothing(rig: MemoryRig) -> None:
    """Issue, D-51: nothing is archived that was not verified."""
    primary, second = await _twins(rig)
    rig.embedder.is_down = True

    report, _ = await _consolidate(rig)
    assert report.stopped is not None
    assert ((await rig.reload(primary)).content, await _live(rig, primary, second)) == (BASE, [True, True])


async def test_a_run_that_was_killed_between_writing_and_archiving_is_finished_by_the_next(
    rig: MemoryRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue: killed in the middle and run again: nothing lost, nothing twice."""
    primary, second = await _twins(rig)
    index = rig.services.indexer.index

    async def die(memories: Sequence[Memory], *, words_only: bool = False) -> Mapping[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(rig.services.indexer, "index", die)
    with pytest.raises(KeyboardInterrupt):
        await _consolidate(rig)
    monkeypatch.setattr(rig.services.indexer, "index", index)
    between = await _live(rig, primary, second)
    told = (await _consolidate(rig, replace(WANTED, dry_run=True)))[1]
    report, done = await _consolidate(rig)

    assert (between, told) == ([True, True], done)
    assert done == [RunItem(id=second.id, action="merge", why="begun by an earlier run", into=primary.id)]
    assert (report.counts["merged"], await _live(rig, primary, second)) == (1, [True, False])
    assert (await rig.reload(primary)).content == f"{BASE}\n\nThey return in March."
    assert (await _consolidate(rig))[0].counts["merged"] == 0


@pytest.mark.parametrize("changed", ["primary", "primary and indexed", "other"])
async def test_what_somebody_changes_meanwhile_is_not_archived(rig: MemoryRig, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    """Issue: safe beside a server: only what was merged as it is may go, and only while the primary has its words."""
    primary, second = await _twins(rig)
    put = rig.vectors.put

    async def change_it(items: Sequence[object]) -> None:
        monkeypatch.setattr(rig.vectors, "put", put)
        memory = second if changed == "other" else primary
        await rig.services.records.change(make_caller(), memory.id, MemoryChange(changed_fields=frozenset({"content"}), content=OTHER))
        await put(items)  # pyright: ignore[reportArgumentType] - passed on as it came
        if changed == "primary and indexed":
            await rig.run_jobs()

    monkeypatch.setattr(rig.vectors, "put", change_it)
    report, items = await _consolidate(rig)
    await rig.run_jobs()

    assert (items, report.failures, await _live(rig, primary, second)) == ([], 1, [True, True])
    assert (await rig.reload(primary)).content == (BASE if changed == "other" else OTHER)
    assert (await rig.reload(second)).content == (OTHER if changed == "other" else MORE)


async def test_two_runs_at_once_merge_once(rig: MemoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two concurrent runs merge each cluster once (issue: nothing twice)."""
    primary, second = await _twins(rig)
    write, first = rig.db.write, [True]

    async def run_another_first(work: Callable[[Tx], object]) -> object:
        if first.pop() if first else False:
            assert (await _consolidate(rig))[0].counts["merged"] == 1
        return await write(work)

    monkeypatch.setattr(rig.db, "write", run_another_first)
    assert (await _consolidate(rig))[0].counts["merged"] == 0
    assert (await rig.reload(primary)).content.count("They return in March.") == 1
    assert await _live(rig, primary, second) == [True, False]


async def test_a_dry_run_tells_what_a_run_then_does(rig: MemoryRig) -> None:
    """Issue: --dry-run: ids and why; over more than one batch; what one run merges is not merged on by the same run."""
    topics, stored = "lakes owls trains tea moss ink salt wind bread glass".split(), list[Memory]()
    for topic, number in product(topics, range(9)):
        words = " ".join(f"{topic}{number_of_word}" for number_of_word in range(48))
        stored.append(await rig.remember(f"{words} variant{number}", confidence=(number * 7 % 9) / 10 + 0.1))
    await rig.run_jobs()

    dry, told = await _consolidate(rig, replace(WANTED, dry_run=True))
    untouched = await _live(rig, *stored)
    real, done = await _consolidate(rig)

    assert (told, dry.counts) == (done, real.counts)
    assert (untouched, real.counts["merged"]) == ([True] * 90, 80)
    by_id = {memory.id: memory for memory in stored}
    assert all(by_id[item.into or ""].confidence == 0.9 for item in done)
    assert (await _consolidate(rig))[0].counts["merged"] == 0


sentences = st.lists(
    st.sampled_from(["The heron nests.", "it nests", "IT  NESTS!", "Tea is hot", "a\nb", "x. y. z.", " ", "one; two"]), max_size=6
)
joints = st.sampled_from([" ", "\n", "\n\n"])


@given(st.lists(st.tuples(sentences, joints), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_a_merge_loses_no_sentence_and_is_undone_in_any_order(contents: list[tuple[list[str], str]], chance: Random) -> None:
    """Spec 4.4: append unique content; D-52: restore undoes; done twice it appends nothing."""
    memories = [make_memory(FakeClock(), content=joint.join(texts) or "-", tags=tuple(texts[:2])) for texts, joint in contents]
    primary, others = memories[0], memories[1:]
    whole, merges = merging.merge_memories(primary, others, run="one")

    assert all(merging.extract_new_sentences(whole.content, other.content) == "" for other in others)
    assert all(merging.contains_merge(whole, merge) for merge in merges)
    assert merging.merge_memories(whole, others, run="two")[0] == whole
    chance.shuffle(merges)
    assert merging.remove_merged_text(whole, merges) == primary


async def test_a_memory_that_took_others_in_is_left_alone_by_that_run(rig: MemoryRig) -> None:
    """Issue: a run does what its dry run told, though a merge makes its primary like others."""
    new = [f"word{number}" for number in range(12)]
    texts = [BASE, f"{BASE} {' '.join(new[:6])}", f"{BASE} {' '.join(new)}"]
    stored = [await rig.remember(text, confidence=confidence) for text, confidence in zip(texts, (0.9, 0.8, 0.7), strict=True)]
    await rig.run_jobs()
    (chunk,) = (await rig.vectors.get_vectors(1, [stored[0].id]))[stored[0].id]
    likeness = await rig.vectors.compute_similarities(chunk, workspace_id=1, ids=[each.id for each in stored])
    wanted = replace(WANTED, threshold=(likeness[stored[1].id] + likeness[stored[2].id]) / 2)

    told = (await _consolidate(rig, replace(wanted, dry_run=True)))[1]
    done = (await _consolidate(rig, wanted))[1]
    assert ([item.id for item in told], told) == ([stored[1].id], done)
    assert [item.id for item in (await _consolidate(rig, wanted))[1]] == [stored[2].id]


async def test_a_chain_of_likes_does_not_become_one(rig: MemoryRig) -> None:
    """D-52: each merged one is like the one that it is merged into, not like another that is."""
    words = [f"word{number}" for number in range(40)]
    links = [" ".join(words[start : start + 24]) for start in (0, 3, 6, 9)]
    for text, confidence in zip(links, (0.9, 0.8, 0.7, 0.6), strict=True):
        await rig.remember(text, confidence=confidence)
    await rig.run_jobs()

    items = (await _consolidate(rig, replace(WANTED, threshold=0.82, dry_run=True)))[1]
    assert items
    for item in items:
        (chunk,) = (await rig.vectors.get_vectors(1, [item.id]))[item.id]
        assert (await rig.vectors.compute_similarities(chunk, workspace_id=1, ids=[item.into or ""]))[item.into or ""] > 0.82


async def test_of_a_long_memory_all_parts_must_be_alike(rig: MemoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-55: a memory is several vectors; sharing one chunk is not saying the same."""
    embed = StemEmbedder.embed_passages

    async def in_halves(self: StemEmbedder, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        parts = [[replace(passage, content=half) for half in passage.content.split("\n\n")] for passage in passages]
        flat = iter([vectors[0] for vectors in await embed(self, [part for each in parts for part in each])])
        return [tuple(next(flat) for _ in each) for each in parts]

    monkeypatch.setattr(StemEmbedder, "embed_passages", in_halves)
    short = await rig.remember(BASE, confidence=0.9)
    both = await rig.remember(f"{BASE}\n\n{OTHER}", confidence=0.5)
    await rig.run_jobs()

    assert (await _consolidate(rig))[0].counts["merged"] == 0
    assert await _live(rig, short, both) == [True, True]
    await rig.services.records.change(make_caller(), both.id, MemoryChange(changed_fields=frozenset({"confidence"}), confidence=0.95))
    await rig.run_jobs()
    assert (await _consolidate(rig))[0].counts["merged"] == 1
    assert await _live(rig, short, both) == [False, True]


async def test_one_merge_that_cannot_be_embedded_keeps_no_other_from_its_end(rig: MemoryRig) -> None:
    """Issue: merges are written, embedded and archived many at a time; each is verified on its own."""
    pairs = list[tuple[Memory, Memory]]()
    for topic in ("owls", "trains", "tea"):
        words = " ".join(f"{topic}{number}" for number in range(40))
        pairs.append((await rig.remember(words, confidence=0.9), await rig.remember(f"{words} more{topic}", confidence=0.5)))
    await rig.run_jobs()
    rig.embedder.poison = "moretrains"

    report, items = await _consolidate(rig)
    assert (report.counts["merged"], report.failures, report.stopped) == (2, 1, None)
    assert {item.id for item in items} == {pairs[0][1].id, pairs[2][1].id}
    assert [await _live(rig, *pair) for pair in pairs] == [[True, False], [True, True], [True, False]]
    assert (await rig.reload(pairs[1][0])).content == pairs[1][0].content


async def test_several_merges_that_a_killed_run_had_begun_are_all_finished(rig: MemoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue: killed in the middle and run again: nothing lost, nothing twice; also of those that were written together."""
    topics, last = ("owls", "trains", "tea"), list[Memory]()
    for topic in topics:
        words = " ".join(f"{topic}{number}" for number in range(40))
        await rig.remember(words, confidence=0.9)
        last.append(await rig.remember(f"{words} more{topic}", confidence=0.5))
    await rig.run_jobs()
    stored = rig.vectors.get_vectors

    async def die(workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        if len(ids) == len(topics):  # what was merged, looked up again
            raise KeyboardInterrupt
        return await stored(workspace_id, ids)

    monkeypatch.setattr(rig.vectors, "get_vectors", die)
    with pytest.raises(KeyboardInterrupt):
        await _consolidate(rig)
    monkeypatch.setattr(rig.vectors, "get_vectors", stored)
    between = await _live(rig, *last)
    told = (await _consolidate(rig, replace(WANTED, dry_run=True)))[1]
    report, done = await _consolidate(rig)

    assert (between, told) == ([True] * 3, done)
    assert ({item.id for item in done}, report.counts["merged"]) == ({each.id for each in last}, 3)
    assert await _live(rig, *last) == [False] * 3
    assert (await _consolidate(rig))[0].counts["merged"] == 0


async def test_dozens_that_say_the_same_become_one_at_once(rig: MemoryRig) -> None:
    """Spec 4.4: merges clusters; of any size, though most are of two."""
    stored = [await rig.remember(f"{BASE} turn{number}", confidence=0.5) for number in range(45)]
    best = await rig.remember(f"{BASE} turn45", confidence=0.9)
    await rig.run_jobs()

    told, items = await _consolidate(rig, replace(WANTED, dry_run=True))
    report, done = await _consolidate(rig)
    assert (report.counts, told.counts, done) == ({"clusters": 1, "merged": 45, "left_out": 0}, report.counts, items)
    assert await _live(rig, best, *stored) == [True] + [False] * 45
    assert (await rig.reload(best)).content.count("turn") == 46


async def test_what_is_remembered_while_it_goes_is_left_to_the_next_run(rig: MemoryRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue: safe beside a server: vectors are compared as they were when the run began."""
    primary, second = await _twins(rig)
    put, late = rig.vectors.put, list[Memory]()

    async def remember_another(items: Sequence[EmbeddedDocument]) -> None:
        monkeypatch.setattr(rig.vectors, "put", put)
        await put(items)
        late.append(await rig.remember(f"{MORE} Indeed", confidence=0.4))
        await rig.run_jobs()

    monkeypatch.setattr(rig.vectors, "put", remember_another)
    assert (await _consolidate(rig))[0].counts["merged"] == 1
    assert await _live(rig, primary, second, *late) == [True, False, True]
    assert [item.id for item in (await _consolidate(rig))[1]] == [late[0].id]
