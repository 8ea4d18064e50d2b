from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.kernel.db import Database, Row, Statement, Tx, Value
from rookery.kernel.db.sqlite import SqliteTx
from rookery.kernel.db.statements import compile_statement
from rookery.kernel.pages import PageSlice
from rookery.kernel.sqlite import connect
from rookery.memory.metadata import build_label
from rookery.memory.models import AccessFilter, Memory, MemoryScope, MemoryState, NameCount, OrgCount, get_state
from rookery.memory.store import indexing, queries, records
from rookery.memory.store.codecs import fingerprint
from rookery.memory.store.tables import MEMORIES, TOMBSTONES
from rookery.memory.visibility import is_visible
from tests.conftest import FakeClock
from tests.memory.makers import MODEL, make_memory

AT = FakeClock().at
_MOMENTS = st.sampled_from([AT - timedelta(days=1), AT, AT + timedelta(microseconds=1)])


def _optional(*values: str) -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(values)


def _memory(**fields: object) -> Memory:
    return make_memory(FakeClock(), **fields)


memories = st.builds(
    _memory,
    workspace_id=st.sampled_from([1, 1, 1, 2]),
    org=_optional("acme", "Acme"),
    project=_optional("api", "web"),
    agent_id=_optional("kim", "lee"),
    session_id=_optional("s1", "s2"),
    memory_scope=st.sampled_from(MemoryScope),
    type=st.sampled_from(["decision", "context"]),
    tags=st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True).map(tuple),
    metadata=st.fixed_dictionaries({}, optional={"user": st.sampled_from(["u1", 1, 1.0, True, None]), "deep": st.just({"user": "u1"})}),
    confidence=st.sampled_from([0.3, 0.8, 0.1 + 0.2]),
    source=st.sampled_from(["manual", "import"]),
    created_at=_MOMENTS,
    expires_at=st.none() | _MOMENTS,
)

access_filters = st.builds(
    AccessFilter,
    workspace_id=st.sampled_from([1, 1, 2, 3]),
    at=st.just(AT),
    org=_optional("acme", "Acme"),
    project=_optional("api", "web"),
    agent_id=_optional("kim", "nobody"),
    includes_all_agents=st.booleans(),
    session_id=_optional("s1", "s3"),
    continued_session_ids=st.frozensets(st.sampled_from(["s2", "s4"]), max_size=2),
    scopes=st.none() | st.frozensets(st.sampled_from(MemoryScope)),
    type=_optional("decision", "unknown"),
    tags=st.frozensets(st.sampled_from(["a", "b", "unknown"]), max_size=2),
    labels=st.frozensets(st.sampled_from([build_label("user", "u1"), build_label("user", "1"), build_label("deep", "u1")]), max_size=2),
    source=_optional("manual", "unknown"),
    since=st.none() | _MOMENTS,
    until=st.none() | _MOMENTS,
    min_confidence=st.none() | st.sampled_from([0.3, 0.1 + 0.2, 0.8]),
    orgs=st.none() | st.frozensets(st.sampled_from(["acme", "Acme", "unknown"])),
    projects=st.none() | st.frozensets(st.sampled_from(["api", "web"])),
)


class _Rollback(Exception):
    """Raised to roll a transaction back."""


async def _list_page(
    database: Database, memories_to_list: Sequence[Memory], access_filter: AccessFilter, state: MemoryState | None
) -> list[Memory]:
    """Return the memories of *memories_to_list* that a list contains, and roll the store back."""
    listed = list[Memory]()

    def work(tx: Tx) -> None:
        for memory in memories_to_list:
            records.add(tx, memory)
        page, total, *_ = queries.list_page(tx, access_filter, state, model=MODEL, page=PageSlice(100))
        assert len(page) == total
        listed.extend(page)
        raise _Rollback

    with pytest.raises(_Rollback):
        await database.write(work)
    return listed


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(stored=st.lists(memories, max_size=12), access_filter=access_filters)
async def test_lists_contain_exactly_the_visible_memories(database: Database, stored: list[Memory], access_filter: AccessFilter) -> None:
    """The SQL filter equals the visibility rule in Python."""
    listed = await _list_page(database, stored, access_filter, None)

    assert {memory.id for memory in listed} == {memory.id for memory in stored if is_visible(access_filter, memory)}
    assert listed == sorted(listed, key=lambda memory: (memory.created_at, memory.id), reverse=True)


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
async def test_a_list_with_a_state_has_the_memories_in_that_state(
    database: Database, stored: list[Memory], state: MemoryState | None
) -> None:
    """The SQL filter equals the states in Python; another model makes a memory stale."""
    listed = await _list_page(database, stored, AccessFilter(workspace_id=1, at=AT), state)

    states = {memory.id: get_state(memory, model=MODEL) for memory in stored}
    expected = {
        memory_id
        for memory_id, memory_state in states.items()
        if (memory_state is not MemoryState.ARCHIVED if state is None else memory_state is state)
    }
    assert {memory.id for memory in listed} == expected


async def _store(database: Database, *stored: Memory) -> None:
    await database.write(lambda tx: [records.add(tx, memory) for memory in stored])


async def test_long_and_short_lists_have_the_same_order(database: Database, clock: FakeClock) -> None:
    """A client that reads all pages gets each memory once and the same total."""
    stored = [make_memory(clock, project="few" if number % 40 == 0 else "many") for number in range(2_050)]
    await _store(database, *stored)
    newest_first = sorted(stored, key=lambda memory: (memory.created_at, memory.id), reverse=True)

    for project in (None, "few"):
        expected = [memory.id for memory in newest_first if project in {None, memory.project}]
        within = AccessFilter(workspace_id=1, at=clock(), project=project)
        for offset in (0, 15, len(expected) - 7, len(expected)):
            page, total, *_ = await database.read(
                lambda tx, within=within, offset=offset: queries.list_page(tx, within, None, model=MODEL, page=PageSlice(20, offset))
            )
            assert [memory.id for memory in page] == expected[offset : offset + 20]
            assert total == len(expected)


async def test_tags_are_counted_most_frequent_first(database: Database, clock: FakeClock) -> None:
    """Only visible memories count."""
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

    counts = await database.read(lambda tx: queries.count_tags(tx, AccessFilter(workspace_id=1, at=clock())))
    acme_counts = await database.read(
        lambda tx: queries.count_tags(tx, AccessFilter(workspace_id=1, at=clock(), org="acme", agent_id="kim"))
    )

    assert counts == [NameCount(name="api", count=2), NameCount(name="deploy", count=2), NameCount(name="zebra", count=1)]
    assert acme_counts == [NameCount(name="deploy", count=3), NameCount(name="api", count=1), NameCount(name="secret", count=1)]


async def test_scopes_are_sorted_by_number_of_memories(database: Database, clock: FakeClock) -> None:
    """The scopes route lists orgs and projects by number of memories, largest first."""
    await _store(
        database,
        *(make_memory(clock, project=project) for project in ("web", "web", "api")),
        make_memory(clock, project=None),
        make_memory(clock, org="zoo", project="ark"),
        make_memory(clock, org=None, project=None),
        make_memory(clock, archived_at=clock()),
        make_memory(clock, workspace_id=2),
    )

    scopes = await database.read(lambda tx: queries.count_scopes(tx, AccessFilter(workspace_id=1, at=clock())))

    assert scopes == [
        OrgCount(org="acme", count=4, projects=(NameCount(name="web", count=2), NameCount(name="api", count=1))),
        OrgCount(org="zoo", count=1, projects=(NameCount(name="ark", count=1),)),
        OrgCount(org=None, count=1, projects=()),
    ]


async def test_no_store_function_reads_or_changes_another_workspace(database: Database, clock: FakeClock) -> None:
    """The workspace is a strict boundary between tenants."""
    superseded, current = make_memory(clock, supersedes_id="x"), make_memory(clock, content="mine", tags=("a",))
    await _store(database, superseded, current)
    await database.write(lambda tx: records.delete_memory(tx, superseded, at=clock(), superseded_by=current.id))

    def call_as_other_workspace(tx: Tx) -> list[object]:
        foreign = replace(current, workspace_id=2)
        return [
            MEMORIES.find(tx, 2, id=current.id),
            MEMORIES.find(tx, 2, id=current.id, lock=True),
            records.get_memories(tx, 2, [current.id]),
            records.list_unindexed(tx, 2, [current.id]),
            TOMBSTONES.find(tx, 2, id=superseded.id),
            MEMORIES.count(tx, 2),
            records.delete_memory(tx, foreign, at=clock()),
            records.update_memory(tx, foreign, replace(foreign, content="stolen")),
            queries.list_page(tx, AccessFilter(workspace_id=2, at=clock()), None, model=MODEL, page=PageSlice(10))[:2],
            queries.count_tags(tx, AccessFilter(workspace_id=2, at=clock())),
            queries.count_scopes(tx, AccessFilter(workspace_id=2, at=clock())),
            queries.scan(tx, after="", limit=10, at=clock(), workspace_id=2, org=None, project=None, stale_model=None),
        ]

    assert await database.write(call_as_other_workspace) == [None, None, [], [], None, 0, False, None, ([], 0), [], [], []]
    assert await database.read(lambda tx: MEMORIES.find(tx, 1, id=current.id)) == current


async def test_a_memory_is_read_back_as_stored(database: Database, clock: FakeClock) -> None:
    """Every field is kept, times to the microsecond."""
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

    assert await database.lookup(lambda tx: MEMORIES.find(tx, 1, id=memory.id)) == memory


class _ExplainingTx(SqliteTx):
    """A transaction that records the query plan of each read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.plans: list[str] = []

    def fetch_all(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> list[Row]:
        """Record the plan, then read."""
        sql, values = compile_statement(statement, params or {}).bind(params or {})
        self.plans += [str(row[3]) for row in self._connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        return super().fetch_all(statement, params)


def test_looking_up_a_few_memories_does_not_read_the_whole_workspace(data_dir: Path, clock: FakeClock) -> None:
    """With the index of the workspace, look-ups by id and fingerprint were 14 times slower at 2,000 memories."""
    with closing(connect(data_dir / "records.db")) as connection:
        tx = _ExplainingTx(connection)
        memory = make_memory(clock)
        records.add(tx, memory)

        assert records.get_memories(tx, 1, [memory.id, "other"]) == [memory]
        assert records.find_duplicates(tx, 1, fingerprint(memory), at=clock()) == [memory.id]
        assert indexing.filter_live(tx, 1, [memory.id, "other"], at=clock()) == {memory.id}
        plans = [plan for plan in tx.plans if "memories" in plan]

    assert len(plans) == 3
    assert all("autoindex" in plan or "fingerprint" in plan for plan in plans), plans
