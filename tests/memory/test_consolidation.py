"""brain:consolidate."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.db import Database
from rookery.memory import merging, statements
from rookery.memory.batch_runs import RunItem, RunObserver, RunReport
from rookery.memory.maintenance.consolidation import ConsolidationRequest
from rookery.memory.models import Memory, MemoryChange, MemoryScope, MemoryState, Passage, Tombstone, Vector, get_state
from rookery.memory.recall_models import RecallRequest
from tests.conftest import FakeClock
from tests.engines.conftest import compute_similarities
from tests.memory.makers import MODEL, MemoryRig, StemEmbedder, build_rig, make_caller, make_memory

BASE = "Herons nest on tall trees near quiet lakes where many small fish swim all year between reeds and stones under willows"
MORE = f"{BASE}. They return in March."
OTHER = "The release train leaves the station every second Tuesday after lunch unless somebody has pulled its emergency brake before"
REQUEST = ConsolidationRequest(workspace_id=1)


class Killed(BaseException):
    """The process of a run is killed."""


async def _consolidate(rig: MemoryRig, request: ConsolidationRequest = REQUEST) -> tuple[RunReport, list[RunItem]]:
    items = list[RunItem]()
    return await rig.services.maintenance.consolidation.run(
        request, observer=RunObserver(on_item=items.append, on_progress=lambda done, total: None)
    ), items


async def _are_live(rig: MemoryRig, *memories: Memory) -> list[bool]:
    return [(await rig.reload(memory)).archived_at is None for memory in memories]


async def _remember_similar_pair(rig: MemoryRig) -> tuple[Memory, Memory]:
    """Store and index two similar memories. The first has the higher confidence."""
    pair = (await rig.remember(BASE, confidence=0.9), await rig.remember(MORE, confidence=0.5, tags=("march",)))
    await rig.run_jobs()
    return pair


async def test_the_memory_with_the_highest_confidence_absorbs_new_sentences_of_the_others(rig: MemoryRig) -> None:
    """Unique content is appended to the primary and re-embedded; the others are archived and stay in its history."""
    other = await rig.remember(OTHER)
    primary, second = await _remember_similar_pair(rig)
    rig.clock.advance(days=1)

    report, items = await _consolidate(rig)
    await rig.run_jobs()
    current_primary, merged_memory = await rig.reload(primary), await rig.reload(second)
    by_keyword = await rig.services.recall.find(make_caller(), RecallRequest(query="March", mode="keyword"))
    by_meaning = await rig.services.recall.find(make_caller(), RecallRequest(query=MORE, mode="semantic", top_k=1))

    assert (report.total, report.successes, report.failures) == (3, 3, 0)
    assert report.counts == {"clusters": 1, "merged": 1, "kept_apart": 0, "left_out": 0}
    assert (current_primary.content, current_primary.tags, current_primary.confidence) == (
        f"{BASE}\n\nThey return in March.",
        ("march",),
        0.9,
    )
    assert (current_primary.content_at, get_state(current_primary, model=MODEL)) == (primary.content_at, MemoryState.INDEXED)
    assert (merged_memory.content, merged_memory.superseded_by, merged_memory.archived_at) == (MORE, primary.id, rig.clock())
    assert items == [RunItem(id=second.id, action="merge", why="21 characters of it were added", into=primary.id)]
    assert [hit.memory.id for hit in (*by_keyword.hits, *by_meaning.hits)] == [primary.id, primary.id]
    assert by_meaning.hits[0].score.similarity == pytest.approx(1.0)
    assert await _are_live(rig, other) == [True]
    assert [memory.id for memory in await rig.services.records.history(make_caller(), primary.id)] == [second.id, primary.id]
    assert [memory.id for memory in await rig.services.records.history(make_caller(), second.id)] == [second.id, primary.id]


async def test_a_restore_undoes_the_merge(rig: MemoryRig) -> None:
    """The merged memory is as before, and the primary has only its own sentences again."""
    primary, second = await _remember_similar_pair(rig)
    await _consolidate(rig)
    await rig.services.records.restore(make_caller(), second.id)
    await rig.run_jobs()

    current_primary, restored = await rig.reload(primary), await rig.reload(second)
    assert (current_primary.content, current_primary.tags) == (primary.content, primary.tags)
    assert (restored.content, restored.superseded_by, restored.archived_at) == (MORE, None, None)
    assert [memory.id for memory in await rig.services.records.history(make_caller(), primary.id)] == [primary.id]
    assert [
        hit.memory.id for hit in (await rig.services.recall.find(make_caller(), RecallRequest(query="March", mode="keyword"))).hits
    ] == [second.id]


async def test_a_restore_keeps_text_written_after_the_merge(rig: MemoryRig) -> None:
    """A restore removes only text that came with the merge and was not changed since."""
    primary, second = await _remember_similar_pair(rig)
    await _consolidate(rig)
    content = f"{BASE}\n\nThey return in March.\n\nOr in April."
    await rig.services.records.change(make_caller(), primary.id, MemoryChange.of(content=content))
    await rig.services.records.restore(make_caller(), second.id)

    assert (await rig.reload(primary)).content == f"{BASE}\n\nOr in April."


async def test_a_restore_keeps_a_merged_paragraph_that_was_extended(rig: MemoryRig) -> None:
    """Paragraphs changed after the merge stay."""
    primary, second = await _remember_similar_pair(rig)
    await _consolidate(rig)
    content = f"{BASE}\n\nThey return in March. Not all of them."
    await rig.services.records.change(make_caller(), primary.id, MemoryChange.of(content=content))
    await rig.services.records.restore(make_caller(), second.id)

    assert (await rig.reload(primary)).content == content


async def test_a_deleted_memory_of_a_cluster_leaves_a_tombstone(rig: MemoryRig) -> None:
    """The tombstone has no content, and the text that the memory added to the primary is removed."""
    primary, second = await _remember_similar_pair(rig)
    await _consolidate(rig)
    assert (await rig.reload(primary)).tags == ("march",)
    await rig.services.records.delete(make_caller(), second.id)
    assert ((await rig.reload(primary)).content, (await rig.reload(primary)).tags) == (BASE, ())
    first, last = await rig.services.records.history(make_caller(), primary.id)

    assert isinstance(first, Tombstone)
    assert (first.id, first.superseded_by, last.id) == (second.id, primary.id, primary.id)


OTHER_SPACES: Mapping[str, Mapping[str, object]] = {
    "org": {"org": "zoo"},
    "project": {"project": "api"},
    "scope": {"memory_scope": MemoryScope.SHARED},
    "type": {"type": "decision"},
    "agent": {"agent_id": "kim"},
    "no org": {"org": None},
    "own": {"memory_scope": MemoryScope.AGENT, "agent_id": "kim"},
    "session": {"memory_scope": MemoryScope.SESSION, "session_id": "s"},
}


@pytest.mark.parametrize("space", list(OTHER_SPACES))
async def test_only_memories_of_the_same_space_are_merged(rig: MemoryRig, space: str) -> None:
    """Memories are merged only within one org, project, scope, agent, type and workspace."""
    original = await rig.remember(BASE)
    in_other_space = await rig.remember(BASE, None, **OTHER_SPACES[space])
    foreign = await rig.remember(BASE, make_caller(workspace_id=2))
    await rig.run_jobs()
    await _consolidate(rig)

    assert await _are_live(rig, original, in_other_space, foreign) == [True, True, True]


async def test_only_pairs_above_the_threshold_are_merged(rig: MemoryRig) -> None:
    """The cosine similarity must exceed the threshold; `--org` and `--project` limit the run."""
    primary, second = await _remember_similar_pair(rig)
    vectors = await rig.vectors.fetch(1, [primary.id, second.id])
    similarity = (await compute_similarities(rig.vectors, vectors[primary.id][0], [second.id]))[second.id]

    assert (await _consolidate(rig, replace(REQUEST, threshold=similarity + 0.001)))[0].counts["merged"] == 0
    assert (await _consolidate(rig, replace(REQUEST, org="zoo")))[0].total == 0
    assert (await _consolidate(rig, replace(REQUEST, project="api")))[0].total == 0
    assert (await _consolidate(rig, replace(REQUEST, threshold=similarity - 0.001, org="acme", project="web")))[0].counts["merged"] == 1


async def test_memories_that_expire_or_are_not_indexed_are_left_out(rig: MemoryRig) -> None:
    """A merge does not change an expiry time, and only vectors of the current content are compared."""
    primary, second = await _remember_similar_pair(rig)
    third = await rig.remember(BASE, expires_in=5)
    await rig.run_jobs()
    fourth = await rig.remember(BASE)
    change = MemoryChange.of(content=OTHER)
    await rig.services.records.change(make_caller(), second.id, change)

    report, _ = await _consolidate(rig)
    assert (report.total, report.counts) == (1, {"clusters": 0, "merged": 0, "kept_apart": 0, "left_out": 3})
    assert await _are_live(rig, primary, second, third, fourth) == [True] * 4


async def test_a_merge_that_cannot_be_embedded_changes_nothing(rig: MemoryRig) -> None:
    """A merge is written, verified, and then archived; a failed merge is rolled back and counted."""
    primary, second = await _remember_similar_pair(rig)
    rig.embedder.poison = f"{BASE}\n\n"

    report, items = await _consolidate(rig)
    assert (report.successes, report.failures, report.counts["merged"], items) == (1, 1, 0, [])
    assert ((await rig.reload(primary)).content, await _are_live(rig, primary, second)) == (BASE, [True, True])
    rig.embedder.poison = None
    await rig.run_jobs()
    assert (await _consolidate(rig))[0].counts["merged"] == 1


async def test_an_engine_that_goes_down_ends_the_run_without_loss(rig: MemoryRig) -> None:
    """No memory is archived before its merge is verified."""
    primary, second = await _remember_similar_pair(rig)
    rig.embedder.is_down = True

    report, _ = await _consolidate(rig)
    assert report.stopped is not None
    assert ((await rig.reload(primary)).content, await _are_live(rig, primary, second)) == (BASE, [True, True])


async def test_the_next_run_finishes_a_merge_that_a_killed_run_began(rig: MemoryRig) -> None:
    """A repeated run after a kill loses no text and adds none twice."""
    primary, second = await _remember_similar_pair(rig)

    async def kill() -> None:
        raise Killed

    rig.embedder.before_embedding = kill
    with pytest.raises(Killed):
        await _consolidate(rig)
    rig.embedder.before_embedding = None
    live_between = await _are_live(rig, primary, second)
    planned_items = (await _consolidate(rig, replace(REQUEST, dry_run=True)))[1]
    report, items = await _consolidate(rig)

    assert (live_between, planned_items) == ([True, True], items)
    assert items == [RunItem(id=second.id, action="merge", why="begun by an earlier run", into=primary.id)]
    assert (report.counts["merged"], await _are_live(rig, primary, second)) == (1, [True, False])
    assert (await rig.reload(primary)).content == f"{BASE}\n\nThey return in March."
    assert (await _consolidate(rig))[0].counts["merged"] == 0


@pytest.mark.parametrize("changed_memory", ["primary", "primary and indexed", "other"])
async def test_a_memory_changed_during_the_merge_is_not_archived(rig: MemoryRig, changed_memory: str) -> None:
    """A memory is archived only if it is unchanged and the primary contains its text."""
    primary, second = await _remember_similar_pair(rig)

    async def change() -> None:
        rig.hooks.before_put = None
        memory = second if changed_memory == "other" else primary
        await rig.services.records.change(make_caller(), memory.id, MemoryChange.of(content=OTHER))

    async def index() -> None:
        rig.hooks.after_put = None
        if changed_memory == "primary and indexed":
            await rig.run_jobs()

    rig.hooks.before_put, rig.hooks.after_put = change, index
    report, items = await _consolidate(rig)
    await rig.run_jobs()

    assert (items, report.failures, await _are_live(rig, primary, second)) == ([], 1, [True, True])
    assert (await rig.reload(primary)).content == (BASE if changed_memory == "other" else OTHER)
    assert (await rig.reload(second)).content == (OTHER if changed_memory == "other" else MORE)


async def test_two_concurrent_runs_merge_each_cluster_once(rig: MemoryRig) -> None:
    """The run that comes second finds nothing to merge."""
    primary, second = await _remember_similar_pair(rig)

    async def consolidate() -> None:
        rig.hooks.before_write = None
        assert (await _consolidate(rig))[0].counts["merged"] == 1

    rig.hooks.before_write = consolidate
    assert (await _consolidate(rig))[0].counts["merged"] == 0
    assert (await rig.reload(primary)).content.count("They return in March.") == 1
    assert await _are_live(rig, primary, second) == [True, False]


async def test_a_dry_run_lists_what_a_run_then_does(rig: MemoryRig) -> None:
    """`--dry-run` lists ids and reasons, also over several batches; a run merges no result of its own merges."""
    topics, stored = "lakes owls trains tea moss ink salt wind bread glass".split(), list[Memory]()
    for topic, number in product(topics, range(9)):
        words = " ".join(f"{topic}{number_of_word}" for number_of_word in range(48))
        stored.append(await rig.remember(f"{words}." + " Seen again." * (number % 2), confidence=(number * 7 % 9) / 10 + 0.1))
    await rig.run_jobs()

    dry_run, planned_items = await _consolidate(rig, replace(REQUEST, dry_run=True))
    live_after_dry_run = await _are_live(rig, *stored)
    report, items = await _consolidate(rig)

    assert (planned_items, dry_run.counts) == (items, report.counts)
    assert (live_after_dry_run, report.counts["merged"]) == ([True] * 90, 80)
    by_id = {memory.id: memory for memory in stored}
    assert all(by_id[item.into or ""].confidence == 0.9 for item in items)
    assert (await _consolidate(rig))[0].counts["merged"] == 0


sentences = st.lists(
    st.sampled_from(["The heron nests.", "it nests", "IT  NESTS!", "Tea is hot", "a\nb", "x. y. z.", " ", "one; two"]), max_size=6
)
separators = st.sampled_from([" ", "\n", "\n\n"])


@given(st.lists(st.tuples(sentences, separators), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_a_merge_loses_no_sentence_and_is_undone_in_any_order(contents: list[tuple[list[str], str]], random_source: Random) -> None:
    """Unique content is appended once, also by a second run, and a restore removes it."""
    memories = [make_memory(FakeClock(), content=separator.join(texts) or "-", tags=tuple(texts[:2])) for texts, separator in contents]
    primary, others = memories[0], memories[1:]
    merged, merges = merging.merge_memories(primary, others, run="one")

    assert all(statements.extract_new_sentences(merged.content, other.content) == "" for other in others)
    assert all(merging.contains_merge(merged, merge) for merge in merges)
    assert merging.merge_memories(merged, others, run="two")[0] == merged
    random_source.shuffle(merges)
    assert merging.remove_merged_text(merged, merges) == primary


async def test_statements_that_differ_are_kept_apart_and_listed_with_the_reason(rig: MemoryRig) -> None:
    """Similar is not the same: a number, or two additions to one statement, may contradict."""
    primary = await rig.remember(BASE, confidence=0.9)
    additions = [await rig.remember(f"{BASE}. Seen in {year}.", confidence=0.5) for year in (2025, 2026)]
    reworded = await rig.remember(BASE.replace("Herons", "Storks"), confidence=0.4)
    await rig.run_jobs()

    planned_items = (await _consolidate(rig, replace(REQUEST, dry_run=True)))[1]
    report, items = await _consolidate(rig)

    assert (items, report.counts) == (planned_items, {"clusters": 1, "merged": 1, "kept_apart": 2, "left_out": 0})
    assert {(item.id, item.action, item.into, item.apart_from) for item in items} == {
        (additions[0].id, "merge", primary.id, None),
        (additions[1].id, "keep apart", None, additions[0].id),
        (reworded.id, "keep apart", None, primary.id),
    }
    assert {item.why for item in items if item.action == "keep apart"} == {
        "they differ in a number, date or identifier: '2025' and '2026'",
        "they differ in a name: 'Herons' and 'Storks'",
    }
    assert await _are_live(rig, primary, *additions, reworded) == [True, False, True, True]


async def test_equal_statements_about_different_users_are_kept_apart(rig: MemoryRig) -> None:
    """A merge would hide one of them from filters by metadata, or show it to the other user."""
    of_kim = await rig.remember(BASE, confidence=0.9, metadata={"user_id": "kim", "mem0_id": "a1"}, tags=("user:kim",))
    copy = await rig.remember(BASE, confidence=0.8, metadata={"user_id": "kim", "mem0_id": "b2"}, tags=("user:kim", "new"))
    of_ana = await rig.remember(BASE, confidence=0.7, metadata={"user_id": "ana"}, tags=("user:kim",))
    tagged = await rig.remember(BASE, confidence=0.6, metadata={"user_id": "kim"}, tags=("user:ana",))
    await rig.run_jobs()

    report, items = await _consolidate(rig)

    assert report.counts == {"clusters": 1, "merged": 1, "kept_apart": 2, "left_out": 0}
    assert {item.why for item in items if item.action == "keep apart"} == {
        """they differ in metadata: 'user_id="kim"' and 'user_id="ana"'""",
        "they differ in a tag: 'user:kim' and 'user:ana'",
    }
    assert await _are_live(rig, of_kim, copy, of_ana, tagged) == [True, False, True, True]


async def test_a_run_does_not_merge_the_result_of_its_own_merge(rig: MemoryRig) -> None:
    """A run equals its dry run, although a merge can make the primary similar to further memories."""
    new_words = "alder birch cedar damson elder fir gorse hazel ivy juniper larch maple".split()
    texts = [BASE, f"{BASE} {' '.join(new_words[:6])}", f"{BASE} {' '.join(new_words)}"]
    stored = [await rig.remember(text, confidence=confidence) for text, confidence in zip(texts, (0.9, 0.8, 0.7), strict=True)]
    await rig.run_jobs()
    (chunk,) = (await rig.vectors.fetch(1, [stored[0].id]))[stored[0].id]
    similarities = await compute_similarities(rig.vectors, chunk, [memory.id for memory in stored])
    request = replace(REQUEST, threshold=(similarities[stored[1].id] + similarities[stored[2].id]) / 2)

    planned_items = (await _consolidate(rig, replace(request, dry_run=True)))[1]
    items = (await _consolidate(rig, request))[1]
    assert ([item.id for item in planned_items], planned_items) == ([stored[1].id], items)
    assert [item.id for item in (await _consolidate(rig, request))[1]] == [stored[2].id]


async def test_a_chain_of_similar_memories_is_not_merged_into_one(rig: MemoryRig) -> None:
    """Each merged memory is similar to the primary itself, not only to another merged one."""
    words = [
        f"{first}{second}"
        for first, second in product(("ash", "oak", "elm", "fir", "yew"), ("bark", "bud", "leaf", "nut", "root", "seed", "twig", "wood"))
    ]
    contents = [" ".join(words[: 24 + more]) for more in (0, 5, 10, 15)]
    for text, confidence in zip(contents, (0.9, 0.8, 0.7, 0.6), strict=True):
        await rig.remember(text, confidence=confidence)
    await rig.run_jobs()

    items = (await _consolidate(rig, replace(REQUEST, threshold=0.82, dry_run=True)))[1]
    assert items
    for item in items:
        (chunk,) = (await rig.vectors.fetch(1, [item.id]))[item.id]
        assert (await compute_similarities(rig.vectors, chunk, [item.into or ""]))[item.into or ""] > 0.82


class ParagraphEmbedder(StemEmbedder):
    """An embedder with a vector for each paragraph."""

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Return the vectors of the paragraphs of each passage."""
        paragraphs = [[replace(passage, content=part) for part in passage.content.split("\n\n")] for passage in passages]
        vectors = iter([vector for (vector,) in await super().embed_passages([part for parts in paragraphs for part in parts])])
        return [tuple(next(vectors) for _ in parts) for parts in paragraphs]


async def test_all_chunks_of_a_long_memory_must_be_similar(database: Database, data_dir: Path, clock: FakeClock) -> None:
    """A memory may have several vectors; one similar chunk is not enough for a merge."""
    rig = build_rig(database, data_dir, clock, embedder=ParagraphEmbedder())
    one_topic = await rig.remember(BASE, confidence=0.9)
    two_topics = await rig.remember(f"{BASE}\n\n{OTHER}", confidence=0.5)
    await rig.run_jobs()

    assert (await _consolidate(rig))[0].counts["merged"] == 0
    assert await _are_live(rig, one_topic, two_topics) == [True, True]
    await rig.services.records.change(make_caller(), two_topics.id, MemoryChange.of(confidence=0.95))
    await rig.run_jobs()
    assert (await _consolidate(rig))[0].counts["merged"] == 1
    assert await _are_live(rig, one_topic, two_topics) == [False, True]
    await rig.close()


async def test_one_failing_merge_does_not_stop_the_others(rig: MemoryRig) -> None:
    """Merges are written, embedded and archived in batches; each is verified on its own."""
    pairs = list[tuple[Memory, Memory]]()
    for topic in ("owls", "trains", "tea"):
        words = " ".join(f"{topic}{number}" for number in range(40))
        pairs.append((await rig.remember(words, confidence=0.9), await rig.remember(f"{words} more{topic}", confidence=0.5)))
    await rig.run_jobs()
    rig.embedder.poison = "moretrains"

    report, items = await _consolidate(rig)
    assert (report.counts["merged"], report.failures, report.stopped) == (2, 1, None)
    assert {item.id for item in items} == {pairs[0][1].id, pairs[2][1].id}
    assert [await _are_live(rig, *pair) for pair in pairs] == [[True, False], [True, True], [True, False]]
    assert (await rig.reload(pairs[1][0])).content == pairs[1][0].content


async def test_the_next_run_finishes_all_merges_that_a_killed_run_began(rig: MemoryRig) -> None:
    """A repeated run after a kill loses no text and adds none twice, also for merges of one batch."""
    topics, less_trusted = ("owls", "trains", "tea"), list[Memory]()
    for topic in topics:
        words = " ".join(f"{topic}{number}" for number in range(40))
        await rig.remember(words, confidence=0.9)
        less_trusted.append(await rig.remember(f"{words} more{topic}", confidence=0.5))
    await rig.run_jobs()

    def kill(ids: Collection[str]) -> None:
        if len(ids) == len(topics):  # the lookup of the merged memories
            raise Killed

    rig.hooks.before_fetch = kill
    with pytest.raises(Killed):
        await _consolidate(rig)
    rig.hooks.before_fetch = None
    live_between = await _are_live(rig, *less_trusted)
    planned_items = (await _consolidate(rig, replace(REQUEST, dry_run=True)))[1]
    report, items = await _consolidate(rig)

    assert (live_between, planned_items) == ([True] * 3, items)
    assert ({item.id for item in items}, report.counts["merged"]) == ({memory.id for memory in less_trusted}, 3)
    assert await _are_live(rig, *less_trusted) == [False] * 3
    assert (await _consolidate(rig))[0].counts["merged"] == 0


async def test_dozens_of_similar_memories_are_merged_in_one_run(rig: MemoryRig) -> None:
    """A cluster may have any size, though most have two memories."""
    stored = [await rig.remember(f"{BASE}{'.' * (number % 3)}{' ' * number}", confidence=0.5) for number in range(45)]
    best = await rig.remember(BASE, confidence=0.9)
    await rig.run_jobs()

    dry_run, planned_items = await _consolidate(rig, replace(REQUEST, dry_run=True))
    report, items = await _consolidate(rig)
    assert (report.counts, dry_run.counts, items) == (
        {"clusters": 1, "merged": 45, "kept_apart": 0, "left_out": 0},
        report.counts,
        planned_items,
    )
    assert await _are_live(rig, best, *stored) == [True] + [False] * 45
    assert (await rig.reload(best)).content == BASE


async def test_a_memory_stored_during_a_run_is_left_to_the_next_run(rig: MemoryRig) -> None:
    """A run compares the vectors that existed when it began."""
    primary, second = await _remember_similar_pair(rig)
    late_memories = list[Memory]()

    async def remember_another() -> None:
        rig.hooks.after_put = None
        late_memories.append(await rig.remember(f"{MORE} Indeed", confidence=0.4))
        await rig.run_jobs()

    rig.hooks.after_put = remember_another
    assert (await _consolidate(rig))[0].counts["merged"] == 1
    assert await _are_live(rig, primary, second, *late_memories) == [True, False, True]
    assert [item.id for item in (await _consolidate(rig))[1]] == [late_memories[0].id]
