"""
The contract of `TextIndex` as tests. The test class of an engine inherits `TextContract`.

    class TestMyEngine(TextContract):
        lacks = MyIndex.lacks

        @staticmethod
        def open_engine(folder: Path) -> TextEngine:
            return MyIndex(...)
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from rookery.engines.texts import TextEngine
from rookery.kernel.languages import to_query_stem_terms
from rookery.kernel.tokenization import to_search_terms
from rookery.memory.models import AccessFilter, IndexDocument, MemoryScope, TextQuery
from rookery.memory.ports import TextFeature
from rookery.memory.text_queries import parse_query, parse_question
from rookery.memory.visibility import is_visible
from tests.engines.conftest import NOW, CloseAtEnd, access_filters, documents, make_document, make_filter
from tests.engines.engine_contracts import EngineContract, needs
from tests.engines.index_contract import IndexMachine, run_machine, run_writer

_SUPPRESSED = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]


class OpenIndex(Protocol):
    """Opens an instance of the engine, which is closed at the end of the test."""

    def __call__(self) -> TextEngine: ...


def any_of(*words: str) -> TextQuery:
    """Return a query for any of *words*."""
    return TextQuery(any_of=words)


async def find_ids(
    index: TextEngine, query: TextQuery | None = None, *, access_filter: AccessFilter | None = None, limit: int = 100, offset: int = 0
) -> list[str]:
    """Return the ids that match, best first."""
    hits = await index.search(query or any_of("heron"), access_filter=access_filter or make_filter(), limit=limit, offset=offset)
    assert all(hit.score > 0 for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return [hit.memory_id for hit in hits]


async def count_matches(index: TextEngine, query: TextQuery, *, access_filter: AccessFilter | None = None) -> int:
    """Return the number of matches."""
    access_filter = access_filter or make_filter()
    return await index.count(access_filter.workspace_id, query=query, access_filter=access_filter)


async def fill(index: TextEngine, **contents: str) -> None:
    """Store a document for each content under its name, and documents with other words, so that no word is in all documents."""
    other_documents = [make_document(f"other{number}", content="pelican estuary") for number in range(5)]
    await index.put([*other_documents, *(make_document(name, content=content) for name, content in contents.items())])


HOSTILE = [
    '"',
    '""',
    '"heron" OR "roof',
    "NEAR(heron roof)",
    "NEAR",
    "AND",
    "OR",
    "NOT",
    "*",
    "her*",
    "^heron",
    "content:heron",
    "tokens : heron",
    "{content} : heron",
    "heron) OR (roof",
    "-heron",
    "+",
    "'; DROP TABLE document; --",
    "\\",
    "%",
    "\0",
    'heron\0"',
    "\ud800",
    "🎉",
    "!!!",
    "",
    " ",
    "東京タワー",
    "a" * 5000,
    "عربى",
    "\u202e",
]


OTHER_FORMS = [
    ("Die Häuser sind auf dem Berg.", "Haus"),
    ("Le journal régional est en retard.", "Dans quels journaux régionaux ?"),
    ("Vamos a comer en el puerto con todos.", "¿Quién está comiendo?"),
    ("Vamos comer no porto com todos.", "comendo"),
    ("Мы храним секреты в сейфе.", "секретами"),
    ("أخي مصاب بالسكري", "لماذا أتجنب السكر؟"),
    ("लड़कियों का स्कूल", "लड़की"),
]
"""Texts, and questions with other forms of their words."""

_WORDS_OF_LANGUAGES = [
    *"heron nests the was an die Häuser für ist les maisons où está las casas não são no réunions A".split(),
    *"домах книги в الكتب في كتاب किताबें में की σπίτια και İstanbul größte 東京 v1.2 10".split(),
]


_WRITE = """
import asyncio, importlib, sys
from pathlib import Path
from tests.engines.conftest import make_document

async def main():
    index = getattr(importlib.import_module(sys.argv[1]), sys.argv[2]).open_engine(Path(sys.argv[3]))
    await index.put([make_document("a"), make_document("b")])
    await index.drop(1, ["b"])
    print("stored", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


class TextContract(EngineContract, ABC):
    """Tests of every engine of `TextIndex`."""

    port = "TextIndex"

    @staticmethod
    @abstractmethod
    def open_engine(folder: Path) -> TextEngine:
        """Return the engine with its data in *folder*. Opened again, it has the same documents."""
        ...

    @pytest.fixture
    def open_index(self, tmp_path: Path, close_at_end: CloseAtEnd) -> OpenIndex:
        """Return a function that opens another instance of the same index, as a separate process or a restart would."""
        return lambda: close_at_end(self.open_engine(tmp_path))

    @pytest.fixture
    def index(self, open_index: OpenIndex) -> TextEngine:
        """Return an empty index."""
        return open_index()

    def another_process(self, folder: Path) -> AbstractContextManager[subprocess.Popen[str]]:
        """Run a process that has written documents and then sleeps."""
        return run_writer(_WRITE, type(self).__module__, type(self).__qualname__, str(folder))

    async def test_the_number_of_all_memories_of_a_workspace_includes_private_ones(self, index: TextEngine) -> None:
        """`rookery doctor` compares it with the records."""
        await index.put(
            [make_document(), make_document("b", memory_scope=MemoryScope.AGENT, agent_id="lee"), make_document(workspace_id=2)]
        )

        assert [await index.count(workspace_id) for workspace_id in (1, 2, 3)] == [2, 1, 0]

    async def test_documents_of_all_workspaces_are_listed_in_pages(self, index: TextEngine) -> None:
        """Texts without a memory are looked for among them."""
        keys = [(1, "a"), (1, "b"), (2, "a"), (10, "b"), (10, "c")]
        await index.put([make_document(memory_id, workspace_id=workspace_id) for workspace_id, memory_id in reversed(keys)])
        pages, after = list[list[tuple[int, str]]](), None
        while page := [*await index.list_ids(after=after, limit=2)]:
            pages.append(page)
            after = page[-1]

        assert pages == [keys[:2], keys[2:4], keys[4:]]

    async def test_more_and_rarer_words_are_better(self, index: TextEngine) -> None:
        """Hits are sorted by the number and rarity of the matching words."""
        await fill(index, both="the heron nests on the roof", one="a heron by the river at dawn", none="nothing of the kind")

        assert await find_ids(index, any_of("heron", "roof")) == ["both", "one"]

    @pytest.mark.parametrize("word", ["nest", "nests", "nesting", "NESTED"])
    async def test_words_are_found_in_their_other_forms(self, index: TextEngine, word: str) -> None:
        """Content is analysed as English text."""
        await fill(index, a="The heron nests on the roof.")

        assert await find_ids(index, any_of(word)) == ["a"]

    async def test_stop_words_are_ignored_beside_other_words(self, index: TextEngine) -> None:
        """English analysis removes stop words."""
        await fill(index, a="the heron", b="the roof")

        assert await find_ids(index, any_of("the", "heron")) == ["a"]

    async def test_stop_words_of_english_count_in_another_language(self, index: TextEngine) -> None:
        """The German 'an' and the Spanish 'no' are not the English words."""
        await fill(index, a="the heron", b="the roof")

        assert sorted(await find_ids(index, TextQuery(any_of=("the", "heron"), keeps_stop_words=True))) == ["a", "b"]

    @needs(TextFeature.LANGUAGES)
    @pytest.mark.parametrize(("text", "question"), OTHER_FORMS)
    async def test_words_of_other_languages_are_found_in_their_other_forms(self, index: TextEngine, text: str, question: str) -> None:
        """`TextQuery.stem_terms` has the stems of a question's words."""
        await fill(index, a=text, b="the heron nests on the roof")
        query = parse_question(question)

        assert await find_ids(index, query) == ["a"]
        assert await find_ids(index, replace(query, stem_terms={})) == [], "the question shares only stems with the text"
        assert await count_matches(index, query) == 1

    @needs(TextFeature.LANGUAGES)
    async def test_stems_are_found_as_soon_as_a_memory_of_the_workspace_has_any(self, index: TextEngine) -> None:
        """Stems of another workspace do not count, and neither do deleted ones."""
        text, question = OTHER_FORMS[0]
        await fill(index, b="heron")
        counts = list[int]()
        for write in (
            index.put([make_document("other", workspace_id=2, content=text)]),
            index.put([make_document("a", content=text)]),
            index.drop(1, ["a"]),
        ):
            await write
            counts.append(len(await find_ids(index, parse_question(question))))

        assert counts == [0, 1, 0]

    @needs(TextFeature.PHRASES)
    async def test_stems_of_other_languages_are_in_no_phrase_and_exclude_nothing(self, index: TextEngine) -> None:
        """Phrases and exclusions apply to the words of the text."""
        await fill(index, a="Die Häuser sind auf dem Berg.")
        (houses,) = to_query_stem_terms("Häuser", ("de",))

        assert await find_ids(index, TextQuery(phrases=("hauser sind auf",))) == ["a"]
        assert await find_ids(index, TextQuery(phrases=("haus",))) == await find_ids(index, TextQuery(phrases=(houses,))) == []
        assert await find_ids(index, TextQuery(any_of=("berg",), none_of=("haus", houses))) == ["a"]
        assert await find_ids(index, TextQuery(any_of=("berg",), none_of=("hauser",))) == []

    async def test_a_text_indexed_without_stems_is_found_by_its_words(self, index: TextEngine) -> None:
        """Texts that an older version indexed have none."""
        await fill(index, a="heron")

        assert await find_ids(index, TextQuery(any_of=("heron",), stem_terms={"heron": ("reiher0",)})) == ["a"]

    @settings(max_examples=60, deadline=None, suppress_health_check=_SUPPRESSED)
    @given(words=st.lists(st.sampled_from(_WORDS_OF_LANGUAGES), min_size=1, max_size=12))
    async def test_a_text_is_found_by_each_of_its_words(self, index: TextEngine, words: list[str]) -> None:
        """This holds in every language, and for a mix of them."""
        await fill(index, a=" ".join(words))

        queries = {(parse.__name__, word): parse(word) for word in words for parse in (parse_question, parse_query)}
        results = await asyncio.gather(*(find_ids(index, query) for query in queries.values()))
        assert dict(zip(queries, results, strict=True)) == {key: ["a"] for key in queries}

    async def test_type_and_tags_are_searched_with_a_lower_weight(self, index: TextEngine) -> None:
        """The indexed text may have more than the content."""
        await index.put(
            [
                make_document("tagged", tags=("kingfisher",), content="a bird of the river bank and more"),
                make_document("in content", content="a kingfisher of the river bank and more"),
                make_document("typed", type="kingfisher", content="a bird of the river bank and more"),
            ]
        )
        await fill(index)

        names = await find_ids(index, any_of("kingfisher"))

        assert names[0] == "in content"
        assert sorted(names[1:]) == ["tagged", "typed"]

    @needs(TextFeature.PHRASES)
    async def test_every_phrase_must_match_as_a_whole(self, index: TextEngine) -> None:
        """The words of a phrase must be adjacent."""
        await fill(index, right="the night heron nests", wrong="a heron at night", half="the night heron sleeps")

        assert await find_ids(index, TextQuery(phrases=("night heron",))) == ["half", "right"]
        assert await find_ids(index, TextQuery(phrases=("night heron", "nests"))) == ["right"]

    @needs(TextFeature.PHRASES)
    async def test_words_beside_a_phrase_are_optional(self, index: TextEngine) -> None:
        """`TextQuery.any_of` must match at least one word, unless there are phrases."""
        await fill(index, b="the night heron nests here", a="the night heron sleeps here", c="it nests")

        assert await find_ids(index, TextQuery(any_of=("nests", "unknown"), phrases=("night heron",))) == ["b", "a"]
        assert await count_matches(index, TextQuery(any_of=("nests",), phrases=("night heron",)), access_filter=make_filter()) == 2

    @needs(TextFeature.PHRASES)
    async def test_excluded_words_and_phrases_are_left_out(self, index: TextEngine) -> None:
        """A leading minus excludes words and phrases."""
        await fill(index, a="heron roof", b="heron river", c="heron night river")

        assert await find_ids(index, TextQuery(any_of=("heron",), none_of=("roof",))) == ["b", "c"]
        assert await find_ids(index, TextQuery(any_of=("heron",), none_of=("night river", "roof"))) == ["b"]
        assert await find_ids(index, TextQuery(none_of=("roof",))) == []

    @needs(TextFeature.PHRASES)
    async def test_the_parts_of_a_word_must_be_adjacent(self, index: TextEngine) -> None:
        """`fail-over` counts as one word."""
        await fill(index, a="the fail-over test", b="we fail, then it is over")

        assert await find_ids(index, any_of("fail-over")) == ["a"]
        assert await find_ids(index, any_of("fail/over")) == ["a"]

    @pytest.mark.parametrize("hostile", HOSTILE)
    async def test_a_word_has_no_query_syntax(self, index: TextEngine, hostile: str) -> None:
        """Query text is data."""
        await fill(index, a="the roof", b="unrelated")

        for query in (
            any_of(hostile),
            any_of(hostile, "roof"),
            TextQuery(phrases=(hostile,)),
            TextQuery(any_of=("roof",), none_of=(hostile,)),
        ):
            names = await find_ids(index, query)
            assert len(names) == await count_matches(index, query, access_filter=make_filter())
            assert set(names) <= {"a"}
        assert await find_ids(index, any_of(hostile, "roof")) == ["a"]

    @given(text=st.text(max_size=30), other_text=st.text(max_size=10))
    @settings(max_examples=150, deadline=None, suppress_health_check=_SUPPRESSED)
    async def test_any_text_can_be_searched(self, index: TextEngine, text: str, other_text: str) -> None:
        """No query text is an error."""
        await index.put([make_document(content=f"heron {text}".replace("\0", " "))])
        query = TextQuery(any_of=("heron", text), none_of=("roof", "pelican"), phrases=())

        other_query = TextQuery(any_of=(text,), phrases=(other_text,), none_of=(text + other_text,))
        found, _ = await asyncio.gather(find_ids(index, query), index.search(other_query, access_filter=make_filter(), limit=1))
        assert "a" in found

    async def test_words_of_other_scripts_are_found(self, index: TextEngine) -> None:
        """All scripts are supported; text without spaces is found by each part of it."""
        await fill(index, a="東京タワー ist hoch", b="Схема базы данных", c="Ärger mit Umlauten")

        assert await find_ids(index, any_of(*to_search_terms("東京タワー"))) == ["a"]
        assert await find_ids(index, any_of("タワ")) == await find_ids(index, any_of("京")) == ["a"]
        assert await find_ids(index, TextQuery(phrases=("東京 京タ",))) == ["a"]
        assert await find_ids(index, any_of("базы")) == ["b"]
        assert await find_ids(index, any_of("ÄRGER")) == ["c"]

    async def test_memories_with_equal_scores_are_sorted_by_id(self, index: TextEngine) -> None:
        """The order is total, so that pages do not overlap."""
        ids = [f"m{number:02}" for number in range(30)]
        await index.put([make_document(memory_id) for memory_id in reversed(ids)])
        await index.put([make_document(f"other{number}", content="pelican") for number in range(40)])

        pages = [await find_ids(index, limit=7, offset=offset) for offset in range(0, 35, 7)]

        assert [name for page in pages for name in page] == ids
        assert await count_matches(index, any_of("heron"), access_filter=make_filter()) == 30

    async def test_an_offset_beyond_the_end_finds_nothing(self, index: TextEngine) -> None:
        """A page past the last hit is empty."""
        await fill(index, a="heron")

        assert await find_ids(index, offset=1) == []

    async def test_putting_again_replaces_the_text(self, index: TextEngine) -> None:
        """The index has only the current content."""
        await fill(index, a="heron")
        for _ in range(3):
            await fill(index, a="kingfisher")

        assert await find_ids(index) == []
        assert await find_ids(index, any_of("kingfisher")) == ["a"]
        assert await count_matches(index, any_of("kingfisher"), access_filter=make_filter()) == 1

    async def test_putting_again_replaces_the_filter_fields(self, index: TextEngine) -> None:
        """This also holds if the content is unchanged."""
        await index.put([make_document(confidence=0.2, org="acme", source="manual")])
        await index.put([make_document(confidence=0.9, org="umbrella", source="import")])

        assert await find_ids(index, access_filter=make_filter(org="umbrella", source="import", min_confidence=0.8)) == ["a"]
        assert await find_ids(index, access_filter=make_filter(org="acme")) == []

    async def test_the_last_of_two_documents_of_one_memory_counts(self, index: TextEngine) -> None:
        """A batch may contain a memory twice."""
        await index.put([make_document(content="heron"), make_document(content="roof")])

        assert await find_ids(index, any_of("heron", "roof")) == ["a"]
        assert await find_ids(index, any_of("heron")) == []

    async def test_an_early_write_stores_only_newer_documents(self, index: TextEngine) -> None:
        """An early write and the indexing job may write a memory's words in either order."""
        await index.put([make_document(content="heron")], is_early=True)
        ids_after_first = await find_ids(index, any_of("heron"))
        await index.put([make_document(content="stork", updated_at=NOW + timedelta(seconds=1))], is_early=True)
        ids_after_second = await find_ids(index, any_of("stork"))
        await index.put(
            [make_document(content="crane", updated_at=NOW + timedelta(seconds=1)), make_document(content="heron")], is_early=True
        )

        assert (ids_after_first, ids_after_second) == (["a"], ["a"])
        assert [await find_ids(index, any_of(word)) for word in ("stork", "crane", "heron")] == [["a"], [], []]

    async def test_a_deleted_document_is_not_found_and_unknown_ids_are_ignored(self, index: TextEngine) -> None:
        """A deletion may be repeated."""
        await fill(index, a="heron", b="heron")

        for _ in range(2):
            await index.drop(1, ["a", "never seen"])

        assert await find_ids(index) == ["b"]
        await fill(index, a="heron")
        assert await find_ids(index) == ["a", "b"]

    async def test_workspaces_never_mix(self, index: TextEngine) -> None:
        """The workspace is a strict boundary, also for memories with the same id."""
        await index.put([make_document(), make_document(workspace_id=2, content="roof"), make_document("b", workspace_id=2)])
        await index.drop(1, ["b"])

        assert await find_ids(index, any_of("heron", "roof"), access_filter=make_filter(1)) == ["a"]
        assert await find_ids(index, access_filter=make_filter(2)) == ["b"]
        assert await count_matches(index, any_of("heron"), access_filter=make_filter(3)) == 0

    async def test_names_are_compared_exactly(self, index: TextEngine) -> None:
        """A filter never matches a similar name of another org, project or tag."""
        orgs = ["acme", "Acme", "acmé", "acme ", "acme OR umbrella", '"acme"', "acme'", "Acme Inc"]
        await index.put([make_document(f"m{number}", org=org, project=org, tags=(org,)) for number, org in enumerate(orgs)])

        for number, org in enumerate(orgs):
            allowed = frozenset([org])
            for access_filter in (
                make_filter(org=org),
                make_filter(project=org),
                make_filter(tags=allowed),
                make_filter(orgs=allowed),
                make_filter(projects=allowed),
            ):
                assert await find_ids(index, access_filter=access_filter) == [f"m{number}"]

    async def test_long_allow_lists_of_orgs_and_projects_are_supported(self, index: TextEngine) -> None:
        """Allow-lists may be longer than one query expression can be."""
        names = [f"n{number}" for number in range(64)]
        await index.put(
            [
                make_document("in", org="n1", project="n2"),
                make_document("shared", org="n1", project=None, memory_scope=MemoryScope.SHARED),
                make_document("mine", org=None, project=None, memory_scope=MemoryScope.AGENT, agent_id="kim"),
                make_document("other org", org="x", project="n2"),
                make_document("other project", org="n1", project="x"),
                make_document("no org", org=None, project="n2"),
                make_document("another's", org="n1", project="n1", memory_scope=MemoryScope.AGENT, agent_id="lee"),
                make_document("elsewhere", workspace_id=2, org="n1", project="n2"),
            ]
        )
        broad_filter = make_filter(orgs=frozenset(names), projects=frozenset(names), agent_id="kim")

        assert sorted(await find_ids(index, access_filter=broad_filter)) == ["in", "mine", "shared"]
        assert sorted(await find_ids(index, access_filter=replace(broad_filter, org="n1", project="n2"))) == ["in", "mine", "shared"]
        assert sorted(await find_ids(index, access_filter=replace(broad_filter, org="n2"))) == ["mine"]
        assert await count_matches(index, any_of("heron"), access_filter=replace(broad_filter, agent_id=None)) == 2

    @settings(max_examples=200, deadline=None, suppress_health_check=_SUPPRESSED)
    @given(drawn_documents=documents, access_filter=access_filters)
    async def test_a_search_follows_the_visibility_rule(
        self, index: TextEngine, drawn_documents: list[IndexDocument], access_filter: AccessFilter
    ) -> None:
        """Every engine applies the same rule."""
        await asyncio.gather(*(index.drop(workspace_id, [f"m{number:02}" for number in range(31)]) for workspace_id in (1, 2)))
        await index.put(drawn_documents)
        expected = sorted(document.memory_id for document in drawn_documents if is_visible(access_filter, document))

        query = any_of("heron")
        searched, answered, count = await asyncio.gather(
            find_ids(index, query, access_filter=access_filter),
            find_ids(index, replace(query, is_question=True), access_filter=access_filter),
            count_matches(index, query, access_filter=access_filter),
        )
        assert sorted(searched) == sorted(answered) == expected
        assert count == len(expected)

    async def test_word_frequencies_of_other_workspaces_do_not_hide_hits(self, index: TextEngine) -> None:
        """The other workspace has nearly all matching documents, this one nearly all documents."""
        await index.put([make_document(f"ours{number}", content="pelican") for number in range(60)])
        await index.put([make_document(f"theirs{number}", workspace_id=2, content="heron heron") for number in range(50)])
        await index.put([make_document("mine", content="a heron somewhere in a longer text")])

        assert await find_ids(index, TextQuery(any_of=("heron",), is_question=True), limit=1) == ["mine"]
        assert len(await find_ids(index, TextQuery(any_of=("heron",), is_question=True), access_filter=make_filter(2), limit=60)) == 50

    async def test_a_question_finds_the_best_hits_of_a_search(self, index: TextEngine) -> None:
        """`TextQuery.is_question` needs only the best hits, so an engine may ignore frequent words; a search finds all."""
        common = [make_document(f"common{number:02}", content="pelican on the roof") for number in range(30)]
        await index.put([*common, *(make_document(f"rare{number}", content=f"heron on the roof {number}") for number in range(5))])
        query = TextQuery(any_of=("heron", "roof"))

        assert await find_ids(index, replace(query, is_question=True), limit=1) == await find_ids(index, query, limit=1)
        assert len(await find_ids(index, query)) == await count_matches(index, query) == 35

    @needs(TextFeature.COVERAGE)
    async def test_the_best_hit_of_a_question_states_how_much_of_it_was_found(self, index: TextEngine) -> None:
        """`TextHit.coverage` is the share of the question's words that the hit has; rare words weigh more."""
        await fill(index, both="a heron on the roof", roof="the roof leaks", other="the roof again", another="one more roof")

        async def cover(*words: str, **fields: Mapping[str, tuple[str, ...]]) -> float:
            hits = await index.search(replace(any_of(*words), is_question=True, **fields), access_filter=make_filter(), limit=10)
            assert all(hit.coverage is None for hit in hits[1:])
            assert hits[0].coverage is not None
            return hits[0].coverage

        assert await cover("heron", "roof") == await cover("roofs") == pytest.approx(1.0)
        assert await cover("heron", "roof", stem_terms={"heron": ("reiher0",), "roof": ("dach0",)}) == pytest.approx(1.0)
        assert 0 < await cover("roof", "zx81") < 0.5 < await cover("heron", "estuary") < 1
        (hit, *_) = await index.search(any_of("heron"), access_filter=make_filter(), limit=10)
        assert hit.coverage is None, "a search shows what matched by itself"

    @needs(TextFeature.COVERAGE)
    async def test_the_coverage_does_not_depend_on_other_workspaces(self, index: TextEngine) -> None:
        """A word that only others use is as rare as one that nobody uses, so that no score shows what they store."""
        await fill(index, mine="a heron on the roof")
        await index.put([make_document(f"theirs{number}", workspace_id=2, content="the zx81 again") for number in range(9)])

        (one, *_) = await index.search(TextQuery(any_of=("heron", "zx81"), is_question=True), access_filter=make_filter(), limit=10)
        (other, *_) = await index.search(TextQuery(any_of=("heron", "qq99"), is_question=True), access_filter=make_filter(), limit=10)
        assert one.coverage == other.coverage

    async def test_a_question_uses_frequent_words_if_rare_ones_find_too_few(self, index: TextEngine) -> None:
        """Words are ignored only for speed, never at the cost of results."""
        await fill(index, rare="heron", one="the pelican", two="the pelican again", other_tenants="heron pelican")

        names = await find_ids(index, TextQuery(any_of=("heron", "pelican"), is_question=True), limit=6)

        assert len(names) == 6
        assert {"rare", "other_tenants"} < set(names)

    async def test_setting_up_twice_changes_nothing(self, open_index: OpenIndex) -> None:
        """brain:elastic-setup may run repeatedly."""
        index = open_index()
        await index.setup()
        await fill(index, a="heron")
        await index.setup()
        await open_index().setup()

        assert await find_ids(index) == ["a"]

    @needs(TextFeature.SHARED_BY_PROCESSES)
    async def test_the_next_query_finds_what_another_instance_committed(self, open_index: OpenIndex) -> None:
        """Several processes share the data folder."""
        first_index, second_index = open_index(), open_index()
        await fill(first_index, a="heron")
        assert await find_ids(second_index) == ["a"]
        await second_index.drop(1, ["a"])
        assert await find_ids(first_index) == []

    @needs(TextFeature.SHARED_BY_PROCESSES)
    async def test_stored_documents_survive_a_kill(self, open_index: OpenIndex, tmp_path: Path) -> None:
        """indexed_at is set when `put` returns, so the document must be durable then."""
        with self.another_process(tmp_path) as process:
            process.send_signal(signal.SIGKILL)
            process.wait(10)

        assert await find_ids(open_index()) == ["a"]

    @needs(TextFeature.SHARED_BY_PROCESSES)
    async def test_the_next_query_finds_what_another_process_committed(self, open_index: OpenIndex, tmp_path: Path) -> None:
        """This includes commits of commands."""
        index = open_index()
        await index.put([make_document("mine")])
        assert await find_ids(index) == ["mine"]

        with self.another_process(tmp_path):
            assert await find_ids(index) == ["a", "mine"]

    async def test_concurrent_queries_find_either_the_old_or_the_new_document(self, index: TextEngine) -> None:
        """While `put` replaces a document, a query never finds neither version."""
        ids = [f"m{number:02}" for number in range(20)]
        await index.put([make_document(memory_id) for memory_id in ids])

        async def rewrite() -> None:
            for turn in range(20):
                await index.put([make_document(memory_id, content=f"heron {turn}") for memory_id in ids])

        async def query() -> None:
            for _ in range(40):
                assert sorted(await find_ids(index)) == ids

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(rewrite())
            for _ in range(4):
                tasks.create_task(query())

    def test_any_order_of_writes_equals_a_dict(self) -> None:
        """The state machine compares every search with a dict."""
        contract = self

        class EngineMachine(_Machine):
            def open_engine(self, folder: Path) -> TextEngine:
                return contract.open_engine(folder)

        run_machine(EngineMachine)


class _Machine(IndexMachine[TextEngine, IndexDocument]):
    """The writes and searches of a text index."""

    @rule(
        memory_ids=st.lists(st.integers(0, 9), min_size=1, max_size=6),
        workspace_id=st.sampled_from([1, 2]),
        content=st.sampled_from(["heron", "heron nests", "roof", "the night heron"]),
        org=st.sampled_from(["acme", "Acme"]),
        expires_at=st.sampled_from([None, NOW, NOW + timedelta(days=1)]),
    )
    def put(self, memory_ids: list[int], workspace_id: int, **fields: object) -> None:
        """Write some memories."""
        documents_to_put = [make_document(f"m{number}", workspace_id=workspace_id, **fields) for number in memory_ids]
        self.model |= {(workspace_id, document.memory_id): document for document in documents_to_put}
        self.runner.run(self.index.put(documents_to_put))

    @rule(word=st.sampled_from(["heron", "nest", "roof"]), workspace_id=st.sampled_from([1, 2]), org=st.sampled_from([None, "acme"]))
    def check_search(self, word: str, workspace_id: int, org: str | None) -> None:
        """Search both instances."""
        access_filter = make_filter(workspace_id, org=org)
        expected = sorted(
            document.memory_id for document in self.model.values() if word in document.content and is_visible(access_filter, document)
        )

        async def check(index: TextEngine) -> None:
            ids, count = await asyncio.gather(
                find_ids(index, any_of(word), access_filter=access_filter), count_matches(index, any_of(word), access_filter=access_filter)
            )
            assert sorted(ids) == expected
            assert count == len(expected)

        async def check_both() -> None:
            await asyncio.gather(check(self.index), check(self.second_index))

        self.runner.run(check_both())
