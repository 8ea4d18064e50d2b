"""The audit log: what is noted of every change, and that nothing can be altered in it unseen (D-29)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import func, select

from rookery.access.agent_keys import AgentKeys
from rookery.access.audit_chain import GENESIS_HASH
from rookery.access.audit_log import PLATFORM_CHAIN, AuditLog, AuditSubject, entry_to_json
from rookery.access.errors import NameTaken
from rookery.access.first_run import create_first_keys
from rookery.access.key_fields import KeyChanges, NewAgentKey, NewApiKey
from rookery.access.models import SYSTEM_ACTOR, Actor, AuditEntry, AuditFilter, Tier
from rookery.access.store import audit as audit_store
from rookery.access.store import keys as key_store
from rookery.kernel.db import Database, Row, Tx, open_database
from rookery.kernel.errors import Conflict, NotFound
from tests.access.makers import Access, build_access
from tests.conftest import OPERATOR, FakeClock


async def entries(access: Access, workspace: int) -> list[AuditEntry]:
    """Return the whole chain, oldest first."""
    return [each async for each in access.audit.iter_entries(workspace)]


async def actions(access: Access, workspace: int) -> list[str]:
    """Return what was done, oldest first."""
    return [each.action for each in await entries(access, workspace)]


async def test_an_entry_tells_who_did_what_to_what_when_and_from_where(access: Access) -> None:
    """D-29: who, when, from, to; of the fields only those that differ."""
    workspace = await access.create_workspace()
    maker = await access.create_api_key(workspace, NewApiKey(name="maker", scopes=("*",), tier=Tier.ENTERPRISE))
    by = Actor.from_caller((await access.admit(maker, address="::ffff:203.0.113.9")).caller)
    target = await access.create_api_key(workspace, NewApiKey(name="target", scopes=("brain:read",)))
    access.clock.advance(seconds=1.5)
    await access.api_keys.update(workspace, target.key.id, KeyChanges(name="renamed", tier=Tier.FREE), by=by)

    *_, before, last = await entries(access, workspace)
    assert entry_to_json(last) == {
        "workspace_id": workspace,
        "seq": 4,
        "at": "2026-11-21T09:30:01.500000Z",
        "actor": {"kind": "api", "id": maker.key.id, "name": "maker", "address": "203.0.113.9", "request_id": "req_test"},
        "action": "api_key.changed",
        "subject": {"kind": "api_key", "id": target.key.id, "name": "renamed", "environment": "live"},
        "before": {"name": "target", "rate_limit_tier": "pro"},
        "after": {"name": "renamed", "rate_limit_tier": "free"},
        "previous": before.hash,
        "hash": last.hash,
    }


async def test_every_change_of_an_api_key_is_noted_once(access: Access) -> None:
    """D-29: two entries at a rotation, of the old key and the new; what changes nothing is not noted."""
    workspace, ring = await access.create_workspace(), access.api_keys
    key_id = (await access.create_api_key(workspace)).key.id
    for _ in range(2):
        await ring.update(workspace, key_id, KeyChanges(name="renamed"), by=OPERATOR)
        await ring.suspend(workspace, key_id, by=OPERATOR)
    for _ in range(2):
        await ring.resume(workspace, key_id, by=OPERATOR)
    rotated = await ring.rotate(workspace, key_id, by=OPERATOR, grace_hours=1)
    access.clock.advance(hours=1)
    await ring.delete_past_grace()
    await ring.delete(workspace, rotated.key.id, by=OPERATOR)
    await access.create_api_key(workspace, NewApiKey(name="brief", scopes=("*",), expires_at=access.clock() + timedelta(hours=1)))
    access.clock.advance(hours=1)
    await ring.prune(by=OPERATOR, dry_run=True)
    await ring.prune(by=OPERATOR)

    chain = await entries(access, workspace)
    assert [each.action.removeprefix("api_key.") for each in chain] == [
        "workspace.created", "created", "changed", "suspended", "resumed", "rotated", "created", "ended", "deleted", "created", "pruned",
    ]  # fmt: skip
    assert [(each.before is None, each.after is None) for each in chain[-5:]] == [
        (True, False), (False, True), (False, True), (True, False), (False, True),
    ]  # fmt: skip
    assert chain[7].actor_kind == "system"
    assert (chain[5].subject_id, list(chain[5].after or {})) == (key_id, ["delete_after"])
    assert (chain[6].subject_id, chain[6].after and chain[6].after["name"]) == (rotated.key.id, "renamed")


async def test_every_change_of_an_agent_key_is_noted_once(access: Access) -> None:
    """D-29: permissions and lists under words of their own."""
    workspace, ring = await access.create_workspace(), access.agent_keys
    key_id = (await access.create_agent_key(workspace)).key.id
    await ring.create_many(workspace, [NewAgentKey(name=name, permissions=("*",)) for name in ("one", "two")], by=OPERATOR)
    for _ in range(2):
        await ring.extend(workspace, key_id, access.clock() + timedelta(hours=1), by=OPERATOR)
        await ring.set_permissions(workspace, key_id, ["mcp:read"], by=OPERATOR)
        await ring.set_addresses(workspace, key_id, ["192.0.2.1"], by=OPERATOR)
        await ring.add_addresses(workspace, key_id, ["192.0.2.2"], by=OPERATOR)
    await ring.remove_addresses(workspace, key_id, ["192.0.2.1"], by=OPERATOR)
    await ring.set_enforcement(workspace, key_id, is_enforced=False, by=OPERATOR)
    successor = await ring.rotate(workspace, key_id, by=OPERATOR)
    for _ in range(2):
        await ring.revoke(workspace, successor.key.id, by=OPERATOR)
    await ring.delete(workspace, key_id, by=OPERATOR)

    chain = (await entries(access, workspace))[1:]
    assert [each.action.removeprefix("agent_key.") for each in chain] == [
        "created", "created", "created", "extended", "permissions_replaced", "addresses_changed", "addresses_changed",
        "addresses_changed", "addresses_changed", "addresses_changed", "addresses_changed", "rotated", "created", "revoked", "deleted",
    ]  # fmt: skip
    assert (chain[4].before, chain[4].after) == ({"permissions": ["brain:read"]}, {"permissions": ["mcp:read"]})
    assert (chain[10].before, chain[10].after) == ({"ip_restriction": True}, {"ip_restriction": False})


async def test_workspaces_are_told_of_in_the_platform_s_chain_and_in_their_own(access: Access) -> None:
    """D-29: made and renamed in both; a deleted one's chain goes with it, and how it ended is kept."""
    workspace = await access.create_workspace()
    await access.workspaces.rename(workspace, "aerie", by=OPERATOR)
    await access.workspaces.rename(workspace, "aerie", by=OPERATOR)
    await access.create_agent_key(workspace)
    assert await actions(access, workspace) == ["workspace.created", "workspace.renamed", "agent_key.created"]
    end = (await access.audit.verify(workspace)).last_hash
    await access.workspaces.delete(workspace, by=OPERATOR, dry_run=True)
    await access.workspaces.delete(workspace, by=OPERATOR)

    platform = await entries(access, PLATFORM_CHAIN)
    assert [each.action for each in platform] == ["workspace.created", "workspace.renamed", "workspace.deleted"]
    assert platform[-1].before == {"name": "aerie", "audit_entries": 3, "audit_hash": end}
    assert await entries(access, workspace) == []
    assert [each.workspace_id for each in await access.audit.list_chain_ends()] == [PLATFORM_CHAIN]
    assert (await access.audit.verify(workspace)).entry_count == 0


async def test_the_first_run_is_noted(access: Access) -> None:
    """D-03, D-29: the workspace and both keys, made by the system itself."""
    made = await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)

    chain = await entries(access, made.workspace_id or 0)
    assert [each.action for each in chain] == ["workspace.created", "api_key.created", "agent_key.created"]
    assert {(each.actor_kind, each.actor_name) for each in chain} == {("system", "rookery")}


class Full(AuditLog):
    """A log that fails once it has written."""

    def record(
        self,
        tx: Tx,
        by: Actor,
        workspace_id: int,
        action: str,
        subject: AuditSubject,
        *,
        before: Mapping[str, object] | None,
        after: Mapping[str, object] | None,
    ) -> None:
        """Write, then fail."""
        super().record(tx, by, workspace_id, action, subject, before=before, after=after)
        msg = "the log is full"
        raise Conflict(msg)


async def test_no_change_without_its_entry_and_no_entry_without_its_change(access: Access) -> None:
    """D-29: they are one transaction; what fails leaves neither, whichever fails."""
    workspace = await access.create_workspace()
    minted = await access.create_agent_key(workspace)
    full = AgentKeys(access.db, access.usage, Full(access.db, access.clock), access.clock)
    chain, key_id = await entries(access, workspace), minted.key.id

    for attempt in (
        full.create(workspace, NewAgentKey(name="new", permissions=("*",)), by=OPERATOR),
        full.update(workspace, key_id, KeyChanges(name="renamed"), by=OPERATOR),
        full.rotate(workspace, key_id, by=OPERATOR),
        full.revoke(workspace, key_id, by=OPERATOR),
        full.delete(workspace, key_id, by=OPERATOR),
    ):
        with pytest.raises(Conflict, match="the log is full"):
            await attempt
    taken = [NewAgentKey(name="free", permissions=("*",)), NewAgentKey(name="x", permissions=("*",), agent_id=minted.key.agent_id)]
    with pytest.raises(NameTaken):
        await access.agent_keys.create_many(workspace, taken, by=OPERATOR)
    with pytest.raises(NotFound):
        await access.agent_keys.delete(workspace, "unknown", by=OPERATOR)

    assert [each.key for each in (await access.agent_keys.list_page(workspace, limit=9))[0]] == [minted.key]
    assert await entries(access, workspace) == chain
    assert (await access.audit.verify(workspace)).broken_at is None


async def test_no_secret_is_in_any_entry(access: Access) -> None:
    """D-20, D-29: neither a plaintext, nor a hash, nor what an agent key is looked up by."""
    workspace = await access.create_workspace()
    minted = [await access.create_api_key(workspace), await access.create_agent_key(workspace)]
    minted += [
        await access.api_keys.rotate(workspace, minted[0].key.id, by=OPERATOR),
        await access.agent_keys.rotate(workspace, minted[1].key.id, by=OPERATOR),
    ]
    rows = await access.db.read(lambda tx: tx.fetch_all(select(audit_store.entries)))
    stored = await access.db.read(
        lambda tx: tx.fetch_all(select(key_store.keys.c.lookup, key_store.keys.c.key_hash, key_store.keys.c.kind))
    )
    secret = [each.plaintext.reveal()[-20:] for each in minted]
    secret += [each.text("lookup") for each in stored if each.text("kind") == "agent"]
    secret += [found for each in stored if (found := each.maybe_text("key_hash"))]

    written = " ".join(str(value) for row in rows for value in row.values)
    assert len(secret) == 8
    assert [each for each in secret if each in written] == []


async def test_anybody_can_compute_the_hashes_from_what_is_exported(access: Access) -> None:
    """D-29: SHA-256 of the fields as JSON with sorted names, no spaces, UTF-8; from JSON read back, with the standard library."""
    workspace = await access.create_workspace("Nést 鴉")
    minted = await access.create_api_key(
        workspace, NewApiKey(name='"quoted" \\ naïve 🐦', scopes=("*",), expires_at=access.clock() + timedelta(days=1))
    )
    await access.api_keys.update(
        workspace, minted.key.id, KeyChanges(tools=("web/*",), tool_limits={"b": 2, "a": 1}, expires_at=None), by=OPERATOR
    )

    exported = [json.loads(json.dumps(entry_to_json(each))) for each in await entries(access, workspace)]
    previous = hashlib.sha256(b"rookery audit").hexdigest()
    for entry in exported:
        told = entry.pop("hash")
        assert entry["previous"] == previous
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(text.encode()).hexdigest() == told
        previous = told
    assert (await access.audit.verify(workspace)).last_hash == previous


async def test_a_hash_that_was_kept_tells_a_chain_that_was_rewritten(access: Access) -> None:
    """D-29: which of them the chain has; the empty chain's is in every chain, and another chain's in none."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    for _ in range(3):
        await access.create_agent_key(workspace)
    kept = {each.hash for each in await entries(access, workspace)} | {GENESIS_HASH}
    foreign = {(await access.audit.verify(other)).last_hash, min(kept)[:-1], min(kept).upper(), ""}
    told = list[int]()

    verdict = await access.audit.verify(workspace, known_hashes=kept | foreign, progress=told.append)
    assert (verdict.broken_at, verdict.entry_count, verdict.found_hashes, told[-1]) == (None, 4, kept, 4)


async def test_entries_come_in_pages_newest_first_by_what_is_asked(access: Access) -> None:
    """D-29: by environment, action, subject, actor and time; another workspace's are in none."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    await access.create_agent_key(other)
    live = await access.create_api_key(workspace)
    by = Actor.from_caller((await access.admit(live)).caller)
    access.clock.advance(hours=1)
    later = access.clock()
    test = await access.api_keys.create(workspace, NewApiKey(name="trial", scopes=("*",), environment="test"), by=by)
    await access.api_keys.suspend(workspace, test.key.id, by=OPERATOR)

    async def found(**asked: object) -> list[str]:
        which = replace(AuditFilter(), **asked)
        page, total = await access.audit.list_page(workspace, which, limit=99, offset=0)
        assert total == len(page)
        return [f"{each.seq} {each.action.partition('.')[2]}" for each in page]

    assert await found() == ["4 suspended", "3 created", "2 created", "1 created"]
    assert await found(environment="test") == ["4 suspended", "3 created"]
    assert await found(action="api_key.created") == ["3 created", "2 created"]
    assert await found(subject_id=live.key.id) == ["2 created"]
    assert await found(actor_id=live.key.id) == ["3 created"]
    assert await found(since=later, environment="live") == []
    assert await found(until=later) == ["2 created", "1 created"]
    assert ([each.seq for each in (await access.audit.list_page(workspace, AuditFilter(), limit=2, offset=1))[0]]) == [3, 2]


@pytest.fixture
async def two_processes(
    database: Database, database_url: str, data_dir: Path, clock: FakeClock, access: Access
) -> AsyncIterator[list[Access]]:
    """Access in two processes, as far as one process can have it."""
    other = open_database(database_url, data_dir=data_dir)
    built = [build_access(each, access.counter, clock) for each in (database, other)]
    yield built
    for each in built:
        await each.close()
    await other.close()


async def test_many_writers_leave_no_gap(two_processes: list[Access]) -> None:
    """D-29: 32 at once, through two record stores, in two chains; each chain is in the order in which the changes came to be."""
    here = two_processes[0]
    workspaces = [await here.create_workspace(), await here.create_workspace("other")]
    made = [await here.create_agent_key(workspace) for workspace in workspaces for _ in range(4)]

    await asyncio.gather(
        *(
            two_processes[number % 2].agent_keys.update(key.workspace_id, key.id, KeyChanges(name=f"{number} {which}"), by=SYSTEM_ACTOR)
            for which, key in enumerate(each.key for each in made)
            for number in range(4)
        )
    )

    for workspace in workspaces:
        chain = await entries(here, workspace)
        assert [each.seq for each in chain] == list(range(1, 1 + 1 + 4 + 16))
        assert (await here.audit.verify(workspace)).broken_at is None
        names = {each.key.id: each.key.name for each in (await here.agent_keys.list_page(workspace, limit=9))[0]}
        assert {each.subject_id: each.subject_name for each in chain if each.subject_kind == "agent_key"} == names
        for key_id in names:
            told = [(each.before or {}, each.after or {}) for each in chain if each.subject_id == key_id]
            assert all(after["name"] == before["name"] for (_, after), (before, _) in pairwise(told))


async def test_a_chain_is_checked_while_others_write(two_processes: list[Access]) -> None:
    """D-29: what comes after the check began does not make it fail."""
    here, there = two_processes
    workspace = await here.create_workspace()
    writing = [asyncio.create_task(there.create_agent_key(workspace)) for _ in range(40)]
    verdicts = [await here.audit.verify(workspace) for _ in range(8)]
    await asyncio.gather(*writing)

    assert [each.reason for each in verdicts] == [""] * 8
    assert (await here.audit.verify(workspace)).entry_count == 41


async def test_a_workspace_is_deleted_while_its_keys_change(two_processes: list[Access]) -> None:
    """Spec 2.8, D-29: its chain is deleted completely, in any order of the requests."""
    here, there = two_processes
    for number in range(6):
        workspace = await here.create_workspace(f"short-lived {number}")
        minted = [await here.create_agent_key(workspace) for _ in range(4)]
        changing = [there.agent_keys.suspend(workspace, each.key.id, by=OPERATOR) for each in minted]
        done = await asyncio.gather(here.workspaces.delete(workspace, by=OPERATOR), *changing, return_exceptions=True)

        assert not isinstance(done[0], BaseException)
        assert {type(each).__name__ for each in done[1:]} <= {"Key", "NotFound"}
        assert await left(here.db, workspace) == 0
    assert (await here.audit.verify(PLATFORM_CHAIN)).broken_at is None


async def left(db: Database, workspace: int) -> int:
    """Return how many rows of the workspace's chain there are."""

    def work(tx: Tx) -> Row | None:
        return tx.fetch_one(
            select(func.count().label("n")).select_from(audit_store.entries).where(audit_store.entries.c.workspace_id == workspace)
        )

    row = await db.read(work)
    return 0 if row is None else row.integer("n")
