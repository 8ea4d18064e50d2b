from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.kernel.db import Database, Row, Statement, Tx, Value, open_database
from rookery.kernel.db.sqlite import SqliteTx
from rookery.kernel.db.statements import StatementCompiler
from rookery.kernel.sqlite import connect
from rookery.memory.metadata import build_label
from rookery.memory.models import AccessFilter, Memory, MemoryScope, MemoryState, NameCount, OrgCount, get_state
from rookery.memory.store import indexing, queries, records
from rookery.memory.store.rows import fingerprint
from rookery.memory.visibility import is_visible
from tests.conftest import FakeClock
from tests.memory.makers import MODEL, make_memory

AT = FakeClock().at
_MOMENTS = st.sampled_from([AT - timedelta(days=1), AT, AT + timedelta(microseconds=1)])


def _maybe(*values: str) -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(values)


def _memory(**fields: object) -> Memory:
    return make_memory(FakeClock(), **fields)


memories = st.builds(
    _memory,
    workspace_id=st.sampled_from([1, 1, 1, 2]),
    org=_maybe("acme", "Acme"),
    project=_maybe("api", "web"),
    agent_id=_maybe("kim", "lee"),
    session_id=_maybe("s1", "s2"),
    memory_scope=st.sampled_from(MemoryScope),
    type=st.sampled_from(["decision", "context"]),
    tags=st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True).map(tuple),
    metadata=st.fixed_dictionaries({}, optional={"user": st.sampled_from(["u1", 1, 1.0, True, None]), "deep": st.just({"user": "u1"})}),
    confidence=st.sampled_from([0.3, 0.8, 0.1 + 0.2]),
    source=st.sampled_from(["manual", "import"]),
    created_at=_MOMENTS,
    expires_at=st.none() | _MOMENTS,
)

withins = st.builds(
    AccessFilter,
    workspace_id=st.sampled_from([1, 1, 2, 3]),
    at=st.just(AT),
    org=_maybe("acme", "Acme"),
    project=_maybe("api", "web"),
    agent_id=_maybe("kim", "nobody"),
    includes_all_agents=st.booleans(),
    session_id=_maybe("s1", "s3"),
    scopes=st.none() | st.frozensets(st.sampled_from(MemoryScope)),
    type=_maybe("decision", "unheard"),
    tags=st.frozensets(st.sampled_from(["a", "b", "unheard"]), max_size=2),
    labels=st.frozensets(st.sampled_from([build_label("user", "u1"), build_label("user", "1"), build_label("deep", "u1")]), max_size=2),
    source=_maybe("manual", "unheard"),
    since=st.none() | _MOMENTS,
    until=st.none() | _MOMENTS,
    min_confidence=st.none() | st.sampled_from([0.3, 0.1 + 0.2, 0.8]),
    orgs=st.none() | st.frozensets(st.sampled_from(["acme", "Acme", "unheard"])),
    projects=st.none() | st.frozensets(st.sampled_from(["api", "web"])),
)


class _Undone(Exception):
    """Ends a transaction without a trace."""


async def _page(database: Database, stored: Sequence[Memory], within: AccessFilter, state: MemoryState | None) -> list[Memory]:
    """Return what a list shows of *stored*, and leave the store as it was."""
    found = list[Memory]()

    def work(tx: Tx) -> None:
        for memory in stored:
            records.add(tx, memory)
        page, total = queries.list_page(tx, within, state, model=MODEL, limit=100, offset=0)
        assert len(page) == total
        found.extend(page)
        raise _Undone

    with pytest.raises(_Undone):
        await database.write(work)
    return found


@pytest.fixture
async def opened(database_url: str, data_dir: Path) -> AsyncIterator[Database]:
    """A store whose work runs in this event loop, for Hypothesis to use many times."""
    db = open_database(database_url, data_dir=data_dir)
    yield db
    await db.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(stored=st.lists(memories, max_size=12), within=withins)
async def test_lists_show_exactly_what_the_one_rule_lets_through(opened: Database, stored: list[Memory], within: AccessFilter) -> None:
    """D-43: one rule of visibility; here in SQL."""
    found = await _page(opened, stored, within, None)

    assert {memory.id for memory in found} == {memory.id for memory in stored if is_visible(within, memory)}
    assert found == sorted(found, key=lambda memory: (memory.created_at, memory.id), reverse=True)


_STATES = st.sampled_from([state for state in MemoryState if state is not MemoryState.CREATED])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    stored=st.lists(
        st.builds(
            _memory,
            archived_at=st.none() | st.just(AT),
            index_failed_at=st.none() | st.just(AT),
            indexed_at=st.none() | _MOMENTS,
            indexed_model=st.sampled_from([MODEL, "other"]),
        ),
        max_size=8,
    ),
    state=st.none() | _STATES,
)
async def test_a_list_of_a_state_has_the_memories_in_that_state(opened: Database, stored: list[Memory], state: MemoryState | None) -> None:
    """D-50 and D-54: the states of spec 3.4, and failed; another model makes a memory stale."""
    found = await _page(opened, stored, AccessFilter(workspace_id=1, at=AT), state)

    states = {memory.id: get_state(memory, model=MODEL) for memory in stored}
    wanted = {each for each, its in states.items() if (its is not MemoryState.ARCHIVED if state is None else its is state)}
    assert {memory.id for memory in found} == wanted


async def _store(database: Database, *stored: Memory) -> None:
    await database.write(lambda tx: [records.add(tx, memory) for memory in stored])


async def test_a_long_list_and_a_short_one_have_one_order(database: Database, clock: FakeClock) -> None:
    """Spec 5.1, pages: many are read newest first, few are sorted; who turns the pages sees each memory once, and the same total."""
    stored = [make_memory(clock, project="few" if number % 40 == 0 else "many") for number in range(2_050)]
    await _store(database, *stored)
    newest_first = sorted(stored, key=lambda memory: (memory.created_at, memory.id), reverse=True)

    for project in (None, "few"):
        wanted = [memory.id for memory in newest_first if project in {None, memory.project}]
        within = AccessFilter(workspace_id=1, at=clock(), project=project)
        for offset in (0, 15, len(wanted) - 7, len(wanted)):
            page, total = await database.read(
                lambda tx, within=within, offset=offset: queries.list_page(tx, within, None, model=MODEL, limit=20, offset=offset)
            )
            assert [memory.id for memory in page] == wanted[offset : offset + 20]
            assert total == len(wanted)


async def test_tags_are_counted_most_frequent_first(database: Database, clock: FakeClock) -> None:
    """Spec 4.3, tags; D-43: only what is visible counts."""
    await _store(
        database,
        make_memory(clock, tags=("deploy", "api")),
        make_memory(clock, tags=("deploy",)),
        make_memory(clock, tags=("deploy", "secret"), memory_scope=MemoryScope.AGENT, agent_id="kim"),
        make_memory(clock, tags=("deploy", "gone"), archived_at=clock()),
        make_memory(clock, tags=("deploy", "late"), expires_at=clock()),
        make_memory(clock, tags=("deploy", "foreign"), workspace_id=2),
        make_memory(clock, tags=("zebra", "api"), org="other"),
    )

    whole = await database.read(lambda tx: queries.count_tags(tx, AccessFilter(workspace_id=1, at=clock())))
    acme = await database.read(lambda tx: queries.count_tags(tx, AccessFilter(workspace_id=1, at=clock(), org="acme", agent_id="kim")))

    assert whole == [NameCount(name="api", count=2), NameCount(name="deploy", count=2), NameCount(name="zebra", count=1)]
    assert acme == [NameCount(name="deploy", count=3), NameCount(name="api", count=1), NameCount(name="secret", count=1)]


async def test_scopes_are_orgs_and_their_projects_most_memories_first(database: Database, clock: FakeClock) -> None:
    """The scopes route lists orgs and projects by number of memories, largest first (spec 4.3; D-43)."""
    await _store(
        database,
        *(make_memory(clock, project=project) for project in ("web", "web", "api")),
        make_memory(clock, project=None),
        make_memory(clock, org="zoo", project="ark"),
        make_memory(clock, org=None, project=None),
        make_memory(clock, archived_at=clock()),
        make_memory(clock, workspace_id=2),
    )

    found = await database.read(lambda tx: queries.count_scopes(tx, AccessFilter(workspace_id=1, at=clock())))

    assert found == [
        OrgCount(org="acme", count=4, projects=(NameCount(name="web", count=2), NameCount(name="api", count=1))),
        OrgCount(org="zoo", count=1, projects=(NameCount(name="ark", count=1),)),
        OrgCount(org=None, count=1, projects=()),
    ]


async def test_no_function_of_the_store_reaches_another_workspace(database: Database, clock: FakeClock) -> None:
    """Spec 2.8: workspace_id is a hard tenant boundary."""
    old, mine = make_memory(clock, supersedes_id="x"), make_memory(clock, content="mine", tags=("a",))
    await _store(database, old, mine)
    await database.write(lambda tx: records.delete_memory(tx, old, at=clock(), superseded_by=mine.id))

    def as_stranger(tx: Tx) -> list[object]:
        fake = replace(mine, workspace_id=2)
        return [
            records.get_memory(tx, 2, mine.id),
            records.lock_memory(tx, 2, mine.id),
            records.get_memories(tx, 2, [mine.id]),
            records.list_unindexed(tx, 2, [mine.id]),
            records.get_tombstone(tx, 2, old.id),
            records.count_memories(tx, 2),
            records.delete_memory(tx, fake, at=clock()),
            records.update_memory(tx, fake, replace(fake, content="stolen")),
            queries.list_page(tx, AccessFilter(workspace_id=2, at=clock()), None, model=MODEL, limit=10, offset=0),
            queries.count_tags(tx, AccessFilter(workspace_id=2, at=clock())),
            queries.count_scopes(tx, AccessFilter(workspace_id=2, at=clock())),
            queries.scan(tx, after="", limit=10, at=clock(), workspace_id=2, org=None, project=None, stale_model=None),
        ]

    assert await database.write(as_stranger) == [None, None, [], [], None, 0, False, None, ([], 0), [], [], []]
    assert await database.read(lambda tx: records.get_memory(tx, 1, mine.id)) == mine


async def test_what_is_stored_is_what_is_read(database: Database, clock: FakeClock) -> None:
    """Spec 2.5: every field, to the microsecond."""
    memory = make_memory(
        clock,
        tags=("b", "a"),
        confidence=0.1 + 0.2,
        content="héron\n'\";--",
        supersedes_id="some",
        expires_at=clock() + timedelta(microseconds=1),
        archived_at=clock(),
        index_failed_at=clock(),
        indexed_at=clock(),
        indexed_model=MODEL,
    )
    await _store(database, memory)

    assert await database.lookup(lambda tx: records.get_memory(tx, 1, memory.id)) == memory


class _Explaining(SqliteTx):
    """A transaction that notes how SQLite goes about each read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection, StatementCompiler())
        self.plans: list[str] = []

    def fetch_all(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> list[Row]:
        """Note the plan, then read."""
        sql, values = self._compile(statement, params or {}).bind(params or {})
        self.plans += [str(row[3]) for row in self._connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        return super().fetch_all(statement, params)


def test_looking_up_a_few_memories_does_not_read_the_whole_workspace(data_dir: Path, clock: FakeClock) -> None:
    """A measurement: SQLite took the index of the workspace for look-ups by id and fingerprint, 14 times slower at 2,000 memories."""
    with closing(connect(data_dir / "records.db")) as connection:
        tx = _Explaining(connection)
        memory = make_memory(clock)
        records.add(tx, memory)

        assert records.get_memories(tx, 1, [memory.id, "other"]) == [memory]
        assert records.find_duplicates(tx, 1, fingerprint(memory), at=clock()) == [memory.id]
        assert indexing.filter_live(tx, 1, [memory.id, "other"], at=clock()) == {memory.id}
        looked = [plan for plan in tx.plans if "memories" in plan]

    assert len(looked) == 3
    assert all("autoindex" in plan or "fingerprint" in plan for plan in looked), looked
