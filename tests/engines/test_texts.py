"""One suite for every engine of `TextIndex`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from rookery.engines import texts
from rookery.engines.texts import TextEngine, frequencies
from rookery.engines.texts.embedded import EmbeddedTextIndex
from rookery.engines.texts.fts_query import MAX_SPACES
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.tokenization import to_search_terms
from rookery.memory.models import AccessFilter, IndexDocument, MemoryScope, TextQuery
from rookery.memory.visibility import is_visible
from tests.engines.conftest import NOW, damage, documents, everywhere, make_document, remove, withins


class Open(Protocol):
    """Opens the engine of this run; closed when the test ends."""

    def __call__(self) -> TextEngine: ...


@pytest.fixture(params=["embedded:"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each engine in turn."""
    return str(request.param)


@pytest.fixture
async def open_index(url: str, tmp_path: Path) -> AsyncIterator[Open]:
    """Open the same index, as often as asked: as another process would, or as this one after a restart."""
    async with contextlib.AsyncExitStack() as stack:

        def open_it() -> TextEngine:
            index = texts.open(url, data_dir=tmp_path)
            stack.push_async_callback(index.close)
            return index

        yield open_it


@pytest.fixture
def raw_index(open_index: Open) -> TextEngine:
    """An empty index."""
    return open_index()


def any_of(*words: str) -> TextQuery:
    """Ask for some of *words*."""
    return TextQuery(any_of=words)


async def found(
    index: TextEngine, words: TextQuery | None = None, *, within: AccessFilter | None = None, limit: int = 100, offset: int = 0
) -> list[str]:
    """Return the ids that match, best first."""
    answer = await index.search(words or any_of("heron"), access_filter=within or everywhere(), limit=limit, offset=offset)
    assert all(matched.score > 0 for matched in answer)
    assert [matched.score for matched in answer] == sorted((matched.score for matched in answer), reverse=True)
    return [matched.memory_id for matched in answer]


async def fill(index: TextEngine, **contents: str) -> None:
    """Put a document of each content under its name, and some of other words: what all have in common tells nothing."""
    others = [make_document(f"other{number}", content="pelican estuary") for number in range(5)]
    await index.put([*others, *(make_document(name, content=content) for name, content in contents.items())])


async def test_more_and_rarer_words_are_better(raw_index: TextEngine) -> None:
    """Spec 4.3 (search): full-text keyword search."""
    await fill(raw_index, both="the heron nests on the roof", one="a heron by the river at dawn", none="nothing of the kind")

    assert await found(raw_index, any_of("heron", "roof")) == ["both", "one"]


@pytest.mark.parametrize("word", ["nest", "nests", "nesting", "NESTED"])
async def test_words_are_found_in_their_other_forms(raw_index: TextEngine, word: str) -> None:
    """Spec 2.6: content is text with English analysis."""
    await fill(raw_index, a="The heron nests on the roof.")

    assert await found(raw_index, any_of(word)) == ["a"]


async def test_words_that_are_in_every_text_find_nothing_beside_others(raw_index: TextEngine) -> None:
    """Spec 2.6: English analysis leaves out stop words."""
    await fill(raw_index, a="the heron", b="the roof")

    assert await found(raw_index, any_of("the", "heron")) == ["a"]


async def test_type_tags_and_names_are_found_too_but_weigh_less(raw_index: TextEngine) -> None:
    """D-55: what is indexed may be enriched."""
    await raw_index.put(
        [
            make_document("tagged", tags=("kingfisher",), content="a bird of the river bank and more"),
            make_document("told", content="a kingfisher of the river bank and more"),
            make_document("typed", type="kingfisher", content="a bird of the river bank and more"),
        ]
    )
    await fill(raw_index)

    names = await found(raw_index, any_of("kingfisher"))

    assert names[0] == "told"
    assert sorted(names[1:]) == ["tagged", "typed"]


async def test_every_phrase_must_be_found_side_by_side(raw_index: TextEngine) -> None:
    """D-49: a quoted phrase works."""
    await fill(raw_index, right="the night heron nests", wrong="a heron at night", half="the night heron sleeps")

    assert await found(raw_index, TextQuery(phrases=("night heron",))) == ["half", "right"]
    assert await found(raw_index, TextQuery(phrases=("night heron", "nests"))) == ["right"]


async def test_words_beside_a_phrase_are_welcome_but_not_needed(raw_index: TextEngine) -> None:
    """`Words.any_of`: at least one must be found unless phrases is given."""
    await fill(raw_index, b="the night heron nests here", a="the night heron sleeps here", c="it nests")

    assert await found(raw_index, TextQuery(any_of=("nests", "unheard"), phrases=("night heron",))) == ["b", "a"]
    assert await raw_index.count_matches(TextQuery(any_of=("nests",), phrases=("night heron",)), access_filter=everywhere()) == 2


async def test_what_is_unwanted_is_left_out(raw_index: TextEngine) -> None:
    """D-49: a leading minus works, before words and phrases."""
    await fill(raw_index, a="heron roof", b="heron river", c="heron night river")

    assert await found(raw_index, TextQuery(any_of=("heron",), none_of=("roof",))) == ["b", "c"]
    assert await found(raw_index, TextQuery(any_of=("heron",), none_of=("night river", "roof"))) == ["b"]
    assert await found(raw_index, TextQuery(none_of=("roof",))) == []


async def test_a_word_of_several_parts_is_found_side_by_side(raw_index: TextEngine) -> None:
    """D-49: `fail-over` counts as one word."""
    await fill(raw_index, a="the fail-over test", b="we fail, then it is over")

    assert await found(raw_index, any_of("fail-over")) == ["a"]
    assert await found(raw_index, any_of("fail/over")) == ["a"]


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


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_nothing_in_a_word_is_syntax(raw_index: TextEngine, hostile: str) -> None:
    """D-49: query text is data."""
    await fill(raw_index, a="the roof", b="unrelated")

    for words in (any_of(hostile), any_of(hostile, "roof"), TextQuery(phrases=(hostile,)), TextQuery(any_of=("roof",), none_of=(hostile,))):
        names = await found(raw_index, words)
        assert len(names) == await raw_index.count_matches(words, access_filter=everywhere())
        assert set(names) <= {"a"}
    assert await found(raw_index, any_of(hostile, "roof")) == ["a"]


@given(text=st.text(max_size=30), other=st.text(max_size=10))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_text_may_be_asked_for(raw_index: TextEngine, text: str, other: str) -> None:
    """D-49: any query text is treated as data."""
    await raw_index.put([make_document(content=f"heron {text}".replace("\0", " "))])
    words = TextQuery(any_of=("heron", text), none_of=("roof", "pelican"), phrases=())

    assert "a" in await found(raw_index, words)
    await raw_index.search(TextQuery(any_of=(text,), phrases=(other,), none_of=(text + other,)), access_filter=everywhere(), limit=1)


async def test_whole_words_of_other_scripts_are_found(raw_index: TextEngine) -> None:
    """D-49: no script is refused, and what has no spaces is found by each part of it."""
    await fill(raw_index, a="東京タワー ist hoch", b="Схема базы данных", c="Ärger mit Umlauten")

    assert await found(raw_index, any_of(*to_search_terms("東京タワー"))) == ["a"]
    assert await found(raw_index, any_of("タワ")) == await found(raw_index, any_of("京")) == ["a"]
    assert await found(raw_index, TextQuery(phrases=("東京 京タ",))) == ["a"]
    assert await found(raw_index, any_of("базы")) == ["b"]
    assert await found(raw_index, any_of("ÄRGER")) == ["c"]


async def test_equally_good_memories_come_in_the_order_of_their_ids(raw_index: TextEngine) -> None:
    """D-44 ends in the id, so an index must not choose among equals by chance, nor from page to page."""
    ids = [f"m{number:02}" for number in range(30)]
    await raw_index.put([make_document(memory_id) for memory_id in reversed(ids)])
    await raw_index.put([make_document(f"other{number}", content="pelican") for number in range(40)])

    pages = [await found(raw_index, limit=7, offset=offset) for offset in range(0, 35, 7)]

    assert [name for page in pages for name in page] == ids
    assert await raw_index.count_matches(any_of("heron"), access_filter=everywhere()) == 30


async def test_an_offset_beyond_the_end_finds_nothing(raw_index: TextEngine) -> None:
    """A page past the last hit is empty (D-49: limit and offset)."""
    await fill(raw_index, a="heron")

    assert await found(raw_index, offset=1) == []


async def test_putting_again_replaces_the_text(raw_index: TextEngine) -> None:
    """D-46: an index holds a memory as it is now."""
    await fill(raw_index, a="heron")
    for _ in range(3):
        await fill(raw_index, a="kingfisher")

    assert await found(raw_index) == []
    assert await found(raw_index, any_of("kingfisher")) == ["a"]
    assert await raw_index.count_matches(any_of("kingfisher"), access_filter=everywhere()) == 1


async def test_putting_again_replaces_what_is_filtered_by(raw_index: TextEngine) -> None:
    """D-46, for a memory whose words stay."""
    await raw_index.put([make_document(confidence=0.2, org="acme", source="manual")])
    await raw_index.put([make_document(confidence=0.9, org="umbrella", source="import")])

    assert await found(raw_index, within=everywhere(org="umbrella", source="import", min_confidence=0.8)) == ["a"]
    assert await found(raw_index, within=everywhere(org="acme")) == []


async def test_the_last_of_two_documents_of_one_memory_counts(raw_index: TextEngine) -> None:
    """D-51: a batch may hold a memory twice."""
    await raw_index.put([make_document(content="heron"), make_document(content="roof")])

    assert await found(raw_index, any_of("heron", "roof")) == ["a"]
    assert await found(raw_index, any_of("heron")) == []


async def test_what_is_offered_is_found_at_once_but_replaces_nothing_that_is_as_new(raw_index: TextEngine) -> None:
    """`TextIndex.put_if_newer` and the indexing job may write a memory's words in either order."""
    await raw_index.put_if_newer([make_document(content="heron")])
    offered = await found(raw_index, any_of("heron"))
    await raw_index.put_if_newer([make_document(content="stork", updated_at=NOW + timedelta(seconds=1))])
    newer = await found(raw_index, any_of("stork"))
    await raw_index.put_if_newer([make_document(content="crane", updated_at=NOW + timedelta(seconds=1)), make_document(content="heron")])

    assert (offered, newer) == (["a"], ["a"])
    assert [await found(raw_index, any_of(word)) for word in ("stork", "crane", "heron")] == [["a"], [], []]


async def test_what_is_dropped_is_gone_and_what_is_unknown_is_ignored(raw_index: TextEngine) -> None:
    """Spec 3.4: a deleted memory leaves all stores; D-51: the job that does it may run again."""
    await fill(raw_index, a="heron", b="heron")

    for _ in range(2):
        await raw_index.delete(1, ["a", "never seen"])

    assert await found(raw_index) == ["b"]
    await fill(raw_index, a="heron")
    assert await found(raw_index) == ["a", "b"]


async def test_workspaces_never_mix(raw_index: TextEngine) -> None:
    """Spec 2.8: workspace_id is a hard boundary, for memories of one id too."""
    await raw_index.put([make_document(), make_document(workspace_id=2, content="roof"), make_document("b", workspace_id=2)])
    await raw_index.delete(1, ["b"])

    assert await found(raw_index, any_of("heron", "roof"), within=everywhere(1)) == ["a"]
    assert await found(raw_index, within=everywhere(2)) == ["b"]
    assert await raw_index.count_matches(any_of("heron"), access_filter=everywhere(3)) == 0


async def test_names_are_told_apart_to_the_letter(raw_index: TextEngine) -> None:
    """Spec 2.8: a query with an org filter never returns memories of another org, whatever its name looks like."""
    orgs = ["acme", "Acme", "acmé", "acme ", "acme OR umbrella", '"acme"', "acme'", "Acme Inc"]
    await raw_index.put([make_document(f"m{number}", org=org, project=org, tags=(org,)) for number, org in enumerate(orgs)])

    for number, org in enumerate(orgs):
        only = frozenset([org])
        for within in (
            everywhere(org=org),
            everywhere(project=org),
            everywhere(tags=only),
            everywhere(orgs=only),
            everywhere(projects=only),
        ):
            assert await found(raw_index, within=within) == [f"m{number}"]


async def test_a_key_of_many_orgs_and_projects_sees_them_all(raw_index: TextEngine) -> None:
    """D-23: allow-lists may be longer than is good for one expression."""
    names = [f"n{number}" for number in range(MAX_SPACES)]
    await raw_index.put(
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
    many = everywhere(orgs=frozenset(names), projects=frozenset(names), agent_id="kim")

    assert sorted(await found(raw_index, within=many)) == ["in", "mine", "shared"]
    assert sorted(await found(raw_index, within=replace(many, org="n1", project="n2"))) == ["in", "mine", "shared"]
    assert sorted(await found(raw_index, within=replace(many, org="n2"))) == ["mine"]
    assert await raw_index.count_matches(any_of("heron"), access_filter=replace(many, agent_id=None)) == 2


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=documents, within=withins)
async def test_a_query_sees_what_the_rule_of_visibility_says(
    raw_index: TextEngine, drawn: list[IndexDocument], within: AccessFilter
) -> None:
    """D-43: one rule, whatever the engine."""
    for workspace_id in (1, 2):
        await raw_index.delete(workspace_id, [f"m{number:02}" for number in range(31)])
    await raw_index.put(drawn)
    expected = sorted(document.memory_id for document in drawn if is_visible(within, document))

    assert sorted(await found(raw_index, any_of("heron"), within=within)) == expected
    assert sorted(await found(raw_index, TextQuery(any_of=("heron",), is_question=True), within=within)) == expected
    assert await raw_index.count_matches(any_of("heron"), access_filter=within) == len(expected)


async def test_a_question_passes_over_words_that_very_many_have(raw_index: TextEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Words.is_question`: only the best are wanted; a search finds all the same."""
    monkeypatch.setattr(frequencies, "MAX_SCORED_DOCUMENTS", 20)
    common = [make_document(f"common{number:02}", content="pelican on the roof") for number in range(30)]
    await raw_index.put([*common, *(make_document(f"rare{number}", content=f"heron on the roof {number}") for number in range(5))])
    words = TextQuery(any_of=("heron", "roof"))

    assert await found(raw_index, replace(words, is_question=True), limit=1) == await found(raw_index, words, limit=1)
    assert len(await found(raw_index, words)) == await raw_index.count_matches(words, access_filter=everywhere()) == 35


async def test_a_question_whose_rare_words_find_too_few_gets_what_common_ones_find(
    raw_index: TextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Words.is_question`: words are passed over for speed, never at the price of results."""
    monkeypatch.setattr(frequencies, "MAX_SCORED_DOCUMENTS", 1)
    monkeypatch.setattr(frequencies, "MIN_DOCUMENTS_FACTOR", 0)
    await fill(raw_index, rare="heron", one="the pelican", two="the pelican again", other_tenants="heron pelican")

    names = await found(raw_index, TextQuery(any_of=("heron", "pelican"), is_question=True), limit=6)

    assert len(names) == 6
    assert {"rare", "other_tenants"} < set(names)


async def test_a_question_in_a_small_workspace_is_answered_from_it_alone(raw_index: TextEngine) -> None:
    """Spec 2.8, where another workspace has nearly all of the words and ours nearly all of the documents."""
    await raw_index.put([make_document(f"ours{number}", content="pelican") for number in range(60)])
    await raw_index.put([make_document(f"theirs{number}", workspace_id=2, content="heron heron") for number in range(50)])
    await raw_index.put([make_document("mine", content="a heron somewhere in a longer text of ours")])

    assert await found(raw_index, TextQuery(any_of=("heron",), is_question=True), limit=1) == ["mine"]
    assert len(await found(raw_index, TextQuery(any_of=("heron",), is_question=True), within=everywhere(2), limit=60)) == 50


async def test_setting_up_twice_changes_nothing(open_index: Open) -> None:
    """Spec 4.4: brain:elastic-setup creates the full-text index."""
    index = open_index()
    await index.setup()
    await fill(index, a="heron")
    await index.setup()
    await open_index().setup()

    assert await found(index) == ["a"]


async def test_what_another_instance_commits_is_seen_by_the_next_query(open_index: Open) -> None:
    """D-01: any number of processes share the data folder."""
    one, other = open_index(), open_index()
    await fill(one, a="heron")
    assert await found(other) == ["a"]
    await other.delete(1, ["a"])
    assert await found(one) == []


_WRITE = """
import asyncio, sys
from pathlib import Path
from rookery.engines import texts
from tests.engines.conftest import make_document

async def main():
    index = texts.open(sys.argv[1], data_dir=Path(sys.argv[2]))
    await index.put([make_document("a"), make_document("b")])
    await index.delete(1, ["b"])
    print("stored", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@contextlib.contextmanager
def another_process(url: str, data_dir: Path) -> Generator[subprocess.Popen[str]]:
    """Run a process that has written, and hangs."""
    command = [sys.executable, "-c", _WRITE, url, str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stored\n"
            yield process
        finally:
            process.kill()


async def test_what_was_put_survives_a_kill(open_index: Open, url: str, tmp_path: Path) -> None:
    """D-51: indexed_at is set when put returns, so it must be true then."""
    with another_process(url, tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    assert await found(open_index()) == ["a"]


async def test_what_another_process_commits_is_seen_by_the_next_query(open_index: Open, url: str, tmp_path: Path) -> None:
    """D-01: a commit by a command too is seen by the next search."""
    index = open_index()
    await index.put([make_document("mine")])
    assert await found(index) == ["mine"]

    with another_process(url, tmp_path):
        assert await found(index) == ["a", "mine"]


async def test_queries_and_writes_at_once_see_whole_documents(raw_index: TextEngine) -> None:
    """The port: put replaces a document, so a query meets the old one or the new one, never neither."""
    ids = [f"m{number:02}" for number in range(20)]
    await raw_index.put([make_document(memory_id) for memory_id in ids])

    async def rewrite() -> None:
        for turn in range(20):
            await raw_index.put([make_document(memory_id, content=f"heron {turn}") for memory_id in ids])

    async def query() -> None:
        for _ in range(40):
            assert sorted(await found(raw_index)) == ids

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rewrite())
        for _ in range(4):
            tasks.create_task(query())


class Machine(RuleBasedStateMachine):
    """Any order of writes, against a dict; a second instance looks on, and one is reopened at times."""

    url: str = "embedded:"

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[tuple[int, str], IndexDocument] = {}
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.index, self.onlooker = self.opened(), self.opened()

    def opened(self) -> TextEngine:
        """Open the machine's index."""

        async def open_it() -> TextEngine:
            return texts.open(self.url, data_dir=Path(self.folder.name))

        return self.runner.run(open_it())

    @rule(
        memory_ids=st.lists(st.integers(0, 9), min_size=1, max_size=6),
        workspace_id=st.sampled_from([1, 2]),
        content=st.sampled_from(["heron", "heron nests", "roof", "the night heron"]),
        org=st.sampled_from(["acme", "Acme"]),
        expires_at=st.sampled_from([None, NOW, NOW + timedelta(days=1)]),
    )
    def put(self, memory_ids: list[int], workspace_id: int, **fields: object) -> None:
        """Write some memories."""
        put = [make_document(f"m{number}", workspace_id=workspace_id, **fields) for number in memory_ids]
        self.model |= {(workspace_id, document.memory_id): document for document in put}
        self.runner.run(self.index.put(put))

    @rule(memory_ids=st.sets(st.integers(0, 10), max_size=5), workspace_id=st.sampled_from([1, 2]))
    def drop(self, memory_ids: set[int], workspace_id: int) -> None:
        """Forget some, known or not."""
        ids = [f"m{number}" for number in memory_ids]
        for memory_id in ids:
            self.model.pop((workspace_id, memory_id), None)
        self.runner.run(self.index.delete(workspace_id, ids))

    @rule()
    def reopen(self) -> None:
        """Restart."""
        self.runner.run(self.index.close())
        self.index = self.opened()

    @rule(word=st.sampled_from(["heron", "nest", "roof"]), workspace_id=st.sampled_from([1, 2]), org=st.sampled_from([None, "acme"]))
    def match(self, word: str, workspace_id: int, org: str | None) -> None:
        """Ask both."""
        within = everywhere(workspace_id, org=org)
        expected = sorted(
            document.memory_id for document in self.model.values() if word in document.content and is_visible(within, document)
        )
        for index in (self.index, self.onlooker):
            assert sorted(self.runner.run(found(index, any_of(word), within=within))) == expected
            assert self.runner.run(index.count_matches(any_of(word), access_filter=within)) == len(expected)

    def teardown(self) -> None:
        """Let go of everything."""
        for index in (self.index, self.onlooker):
            self.runner.run(index.close())
        self.runner.close()
        self.folder.cleanup()


def test_any_order_of_writes_leaves_what_a_dict_would_hold(url: str) -> None:
    """The port, as a state machine."""

    class OfEngine(Machine):
        pass

    OfEngine.url = url
    run_state_machine_as_test(OfEngine, settings=settings(max_examples=15, stateful_step_count=15, deadline=None))


def test_an_engine_that_does_not_exist_refuses_to_start(tmp_path: Path) -> None:
    """D-02: a setting that cannot work is refused in one line, without what may be a password in it."""
    with pytest.raises(WrongSettings) as refusal:
        texts.open("nothing://user:secret@host", data_dir=tmp_path)

    assert "secret" not in refusal.value.message


class TestTheEmbeddedEngine:
    """Properties of an engine with its own file."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """The path of the engine's file."""
        return tmp_path / "texts.db"

    @pytest.fixture
    async def opened(self, path: Path) -> AsyncIterator[Callable[[], TextEngine]]:
        """Open it, as often as asked."""
        async with contextlib.AsyncExitStack() as stack:

            def open_it() -> TextEngine:
                index = texts.open("embedded:", data_dir=path.parent)
                stack.push_async_callback(index.close)
                return index

            yield open_it

    @pytest.mark.parametrize("with_journal", [True, False])
    @pytest.mark.parametrize("while_in_use", [True, False])
    async def test_a_deleted_file_is_an_empty_index_to_fill_again(
        self, opened: Callable[[], TextEngine], path: Path, while_in_use: bool, with_journal: bool
    ) -> None:
        """Derived stores may be deleted and rebuilt by brain:reindex (spec 4.4)."""
        index = opened()
        await fill(index, a="heron")
        assert await found(index) == ["a"]
        if not while_in_use:
            await index.close()
            index = opened()

        remove(path, with_journal=with_journal)

        assert await found(index) == []
        await fill(index, b="heron")
        assert await found(index) == ["b"]
        assert await found(opened()) == ["b"]

    async def test_a_damaged_file_says_what_to_do(self, opened: Callable[[], TextEngine], path: Path) -> None:
        """D-46: the index is derived, so the way out is to build it anew; and then it works without a restart."""
        damage(path, at=0)
        index = opened()

        for call in (index.setup(), index.put([make_document()]), index.search(any_of("heron"), access_filter=everywhere(), limit=1)):
            with pytest.raises(EngineUnavailable, match=r"texts\.db .*delete it.*rookery brain:reindex"):
                await call

        remove(path)
        await fill(index, a="heron")
        assert await found(index) == ["a"]

    async def test_a_folder_that_cannot_be_is_an_engine_that_is_not_there(self, path: Path) -> None:
        """The port: one error, whatever the engine's own was."""
        (path.parent / "taken").touch()
        index = texts.open("embedded:", data_dir=path.parent / "taken")

        with pytest.raises(EngineUnavailable, match="taken"):
            await index.start()
        await index.close()

    async def test_damage_within_the_file_is_told_in_the_same_words(self, opened: Callable[[], TextEngine], path: Path) -> None:
        """D-46, for a file that opens well."""
        index = opened()
        await index.put([make_document(f"m{number}", content="heron " * 100) for number in range(100)])
        await index.close()
        damage(path, at=4096)

        with pytest.raises(EngineUnavailable, match=r"texts\.db .*delete it.*rookery brain:reindex"):
            await found(opened())

    async def test_a_query_that_takes_too_long_is_interrupted(self, path: Path) -> None:
        """No request waits without a bound; the engine goes on working."""
        index = EmbeddedTextIndex(path, timeout_s=0)
        try:
            await index.put([make_document(f"m{number}") for number in range(3000)])

            with pytest.raises(EngineUnavailable, match="took longer"):
                await index.search(any_of("heron"), access_filter=everywhere(), limit=1)

            assert await index.search(any_of("unheard of"), access_filter=everywhere(), limit=1) == []
        finally:
            await index.close()
