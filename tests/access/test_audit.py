"""The audit log: an entry for every change, and the detection of altered entries."""

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
from rookery.kernel.pages import PageSlice
from tests.access.makers import Access, build_access
from tests.conftest import OPERATOR, FakeClock


async def entries(access: Access, workspace: int) -> list[AuditEntry]:
    """Return the whole chain, oldest first."""
    return [entry async for entry in access.audit.iter_entries(workspace)]


async def actions(access: Access, workspace: int) -> list[str]:
    """Return the actions, oldest first."""
    return [entry.action for entry in await entries(access, workspace)]


async def test_an_entry_has_actor_action_subject_time_and_address(access: Access) -> None:
    """Before and after have only the fields that differ."""
    workspace = await access.create_workspace()
    maker = await access.create_api_key(workspace, NewApiKey(name="maker", scopes=("*",), rate_limit_tier=Tier.ENTERPRISE))
    by = Actor.from_caller((await access.admit(maker, address="::ffff:203.0.113.9")).caller)
    target = await access.create_api_key(workspace, NewApiKey(name="target", scopes=("brain:read",)))
    access.clock.advance(seconds=1.5)
    await access.api_keys.update(workspace, target.key.id, KeyChanges(name="renamed", rate_limit_tier=Tier.FREE), by=by)

    *_, creation, entry = await entries(access, workspace)
    assert entry_to_json(entry) == {
        "workspace_id": workspace,
        "seq": 4,
        "at": "2026-11-21T09:30:01.500000Z",
        "actor": {"kind": "api", "id": maker.key.id, "name": "maker", "address": "203.0.113.9", "request_id": "req_test"},
        "action": "api_key.changed",
        "subject": {"kind": "api_key", "id": target.key.id, "name": "renamed", "environment": "live"},
        "before": {"name": "target", "rate_limit_tier": "pro"},
        "after": {"name": "renamed", "rate_limit_tier": "free"},
        "previous": creation.hash,
        "hash": entry.hash,
    }


async def test_every_change_of_an_api_key_has_one_entry(access: Access) -> None:
    """A rotation has two entries, for the old key and the new one. A change to the same value has none."""
    workspace, keyring = await access.create_workspace(), access.api_keys
    key_id = (await access.create_api_key(workspace)).key.id
    for _ in range(2):
        await keyring.update(workspace, key_id, KeyChanges(name="renamed"), by=OPERATOR)
        await keyring.suspend(workspace, key_id, by=OPERATOR)
    for _ in range(2):
        await keyring.resume(workspace, key_id, by=OPERATOR)
    successor = await keyring.rotate(workspace, key_id, by=OPERATOR, grace_hours=1)
    access.clock.advance(hours=1)
    await keyring.delete_past_grace()
    await keyring.delete(workspace, successor.key.id, by=OPERATOR)
    await access.create_api_key(workspace, NewApiKey(name="brief", scopes=("*",), expires_at=access.clock() + timedelta(hours=1)))
    access.clock.advance(hours=1)
    await keyring.prune(by=OPERATOR, dry_run=True)
    await keyring.prune(by=OPERATOR)

    chain = await entries(access, workspace)
    assert [entry.action.removeprefix("api_key.") for entry in chain] == [
        "workspace.created", "created", "changed", "suspended", "resumed", "rotated", "created", "ended", "deleted", "created", "pruned",
    ]  # fmt: skip
    assert [(entry.before is None, entry.after is None) for entry in chain[-5:]] == [
        (True, False), (False, True), (False, True), (True, False), (False, True),
    ]  # fmt: skip
    assert chain[7].actor_kind == "system"
    assert (chain[5].subject_id, list(chain[5].after or {})) == (key_id, ["delete_after"])
    assert (chain[6].subject_id, chain[6].after and chain[6].after["name"]) == (successor.key.id, "renamed")


async def test_every_change_of_an_agent_key_has_one_entry(access: Access) -> None:
    """Permissions and address lists have actions of their own."""
    workspace, keyring = await access.create_workspace(), access.agent_keys
    key_id = (await access.create_agent_key(workspace)).key.id
    await keyring.create_many(workspace, [NewAgentKey(name=name, permissions=("*",)) for name in ("one", "two")], by=OPERATOR)
    for _ in range(2):
        await keyring.extend(workspace, key_id, access.clock() + timedelta(hours=1), by=OPERATOR)
        await keyring.set_permissions(workspace, key_id, ["mcp:read"], by=OPERATOR)
        await keyring.set_addresses(workspace, key_id, ["192.0.2.1"], by=OPERATOR)
        await keyring.add_addresses(workspace, key_id, ["192.0.2.2"], by=OPERATOR)
    await keyring.remove_addresses(workspace, key_id, ["192.0.2.1"], by=OPERATOR)
    await keyring.set_enforcement(workspace, key_id, is_enforced=False, by=OPERATOR)
    successor = await keyring.rotate(workspace, key_id, by=OPERATOR)
    for _ in range(2):
        await keyring.revoke(workspace, successor.key.id, by=OPERATOR)
    await keyring.delete(workspace, key_id, by=OPERATOR)

    chain = (await entries(access, workspace))[1:]
    assert [entry.action.removeprefix("agent_key.") for entry in chain] == [
        "created", "created", "created", "extended", "permissions_replaced", "addresses_changed", "addresses_changed",
        "addresses_changed", "addresses_changed", "addresses_changed", "addresses_changed", "rotated", "created", "revoked", "deleted",
    ]  # fmt: skip
    assert (chain[4].before, chain[4].after) == ({"permissions": ["brain:read"]}, {"permissions": ["mcp:read"]})
    assert (chain[10].before, chain[10].after) == ({"ip_restriction": True}, {"ip_restriction": False})


async def test_workspaces_have_entries_in_the_platform_chain_and_in_their_own(access: Access) -> None:
    """Creation and renaming are in both chains. A deleted workspace's chain is deleted, and its last hash is kept."""
    workspace = await access.create_workspace()
    await access.workspaces.rename(workspace, "aerie", by=OPERATOR)
    await access.workspaces.rename(workspace, "aerie", by=OPERATOR)
    await access.create_agent_key(workspace)
    assert await actions(access, workspace) == ["workspace.created", "workspace.renamed", "agent_key.created"]
    last_hash = (await access.audit.verify(workspace)).last_hash
    await access.workspaces.delete(workspace, by=OPERATOR, dry_run=True)
    await access.workspaces.delete(workspace, by=OPERATOR)

    platform = await entries(access, PLATFORM_CHAIN)
    assert [entry.action for entry in platform] == ["workspace.created", "workspace.renamed", "workspace.deleted"]
    assert platform[-1].before == {"name": "aerie", "audit_entries": 3, "audit_hash": last_hash}
    assert await entries(access, workspace) == []
    assert [end.workspace_id for end in await access.audit.list_chain_ends()] == [PLATFORM_CHAIN]
    assert (await access.audit.verify(workspace)).entry_count == 0


async def test_the_first_run_has_audit_entries(access: Access) -> None:
    """The workspace and both keys, created by the system itself."""
    first_run = await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)

    chain = await entries(access, first_run.workspace_id or 0)
    assert [entry.action for entry in chain] == ["workspace.created", "api_key.created", "agent_key.created"]
    assert {(entry.actor_kind, entry.actor_name) for entry in chain} == {("system", "rookery")}


class FailingAuditLog(AuditLog):
    """An audit log that fails after it has written."""

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


async def test_a_change_and_its_entry_are_stored_together_or_not_at_all(access: Access) -> None:
    """They are one transaction; if either fails, neither is stored."""
    workspace = await access.create_workspace()
    new_key = await access.create_agent_key(workspace)
    failing = AgentKeys(access.db, access.usage, FailingAuditLog(access.db, access.clock), access.clock)
    chain, key_id = await entries(access, workspace), new_key.key.id

    for attempt in (
        failing.create(workspace, NewAgentKey(name="new", permissions=("*",)), by=OPERATOR),
        failing.update(workspace, key_id, KeyChanges(name="renamed"), by=OPERATOR),
        failing.rotate(workspace, key_id, by=OPERATOR),
        failing.revoke(workspace, key_id, by=OPERATOR),
        failing.delete(workspace, key_id, by=OPERATOR),
    ):
        with pytest.raises(Conflict, match="the log is full"):
            await attempt
    duplicates = [NewAgentKey(name="free", permissions=("*",)), NewAgentKey(name="x", permissions=("*",), agent_id=new_key.key.agent_id)]
    with pytest.raises(NameTaken):
        await access.agent_keys.create_many(workspace, duplicates, by=OPERATOR)
    with pytest.raises(NotFound):
        await access.agent_keys.delete(workspace, "unknown", by=OPERATOR)

    assert [entry.key for entry in (await access.agent_keys.list_page(workspace, page=PageSlice(9)))[0]] == [new_key.key]
    assert await entries(access, workspace) == chain
    assert (await access.audit.verify(workspace)).broken_at is None


async def test_no_secret_is_in_any_entry(access: Access) -> None:
    """No plaintext, no hash, no lookup value of an agent key."""
    workspace = await access.create_workspace()
    new_keys = [await access.create_api_key(workspace), await access.create_agent_key(workspace)]
    new_keys += [
        await access.api_keys.rotate(workspace, new_keys[0].key.id, by=OPERATOR),
        await access.agent_keys.rotate(workspace, new_keys[1].key.id, by=OPERATOR),
    ]
    rows = await access.db.read(lambda tx: tx.fetch_all(select(audit_store.entries)))
    stored = await access.db.read(
        lambda tx: tx.fetch_all(select(key_store.keys.c.lookup, key_store.keys.c.key_hash, key_store.keys.c.kind))
    )
    secrets = [new_key.plaintext.reveal()[-20:] for new_key in new_keys]
    secrets += [row.text("lookup") for row in stored if row.text("kind") == "agent"]
    secrets += [key_hash for row in stored if (key_hash := row.maybe_text("key_hash"))]

    stored_text = " ".join(str(value) for row in rows for value in row.values)
    assert len(secrets) == 8
    assert [secret for secret in secrets if secret in stored_text] == []


async def test_the_hashes_can_be_computed_from_an_export(access: Access) -> None:
    """SHA-256 of the fields as JSON with sorted names, no spaces, UTF-8; with the standard library, from parsed JSON."""
    workspace = await access.create_workspace("Nést 鴉")
    new_key = await access.create_api_key(
        workspace, NewApiKey(name='"quoted" \\ naïve 🐦', scopes=("*",), expires_at=access.clock() + timedelta(days=1))
    )
    await access.api_keys.update(
        workspace, new_key.key.id, KeyChanges(tools=("web/*",), tool_limits={"b": 2, "a": 1}, expires_at=None), by=OPERATOR
    )

    exported = [json.loads(json.dumps(entry_to_json(entry))) for entry in await entries(access, workspace)]
    previous = hashlib.sha256(b"rookery audit").hexdigest()
    for entry in exported:
        exported_hash = entry.pop("hash")
        assert entry["previous"] == previous
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(text.encode()).hexdigest() == exported_hash
        previous = exported_hash
    assert (await access.audit.verify(workspace)).last_hash == previous


async def test_a_saved_hash_detects_a_rewritten_chain(access: Access) -> None:
    """Verify returns which known hashes the chain has. Every chain has the genesis hash; none has the hash of another chain."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    for _ in range(3):
        await access.create_agent_key(workspace)
    saved = {entry.hash for entry in await entries(access, workspace)} | {GENESIS_HASH}
    unknown = {(await access.audit.verify(other)).last_hash, min(saved)[:-1], min(saved).upper(), ""}
    progress = list[int]()

    verdict = await access.audit.verify(workspace, known_hashes=saved | unknown, progress=progress.append)
    assert (verdict.broken_at, verdict.entry_count, verdict.found_hashes, progress[-1]) == (None, 4, saved, 4)


async def test_entries_are_listed_in_pages_newest_first_and_filtered(access: Access) -> None:
    """By environment, action, subject, actor and time; no entry of another workspace is listed."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    await access.create_agent_key(other)
    live_key = await access.create_api_key(workspace)
    by = Actor.from_caller((await access.admit(live_key)).caller)
    access.clock.advance(hours=1)
    second_change_at = access.clock()
    test = await access.api_keys.create(workspace, NewApiKey(name="trial", scopes=("*",), environment="test"), by=by)
    await access.api_keys.suspend(workspace, test.key.id, by=OPERATOR)

    async def list_matching(**criteria: object) -> list[str]:
        entry_filter = replace(AuditFilter(), **criteria)
        page, total, *_ = await access.audit.list_page(workspace, entry_filter, page=PageSlice(99))
        assert total == len(page)
        return [f"{entry.seq} {entry.action.partition('.')[2]}" for entry in page]

    assert await list_matching() == ["4 suspended", "3 created", "2 created", "1 created"]
    assert await list_matching(environment="test") == ["4 suspended", "3 created"]
    assert await list_matching(action="api_key.created") == ["3 created", "2 created"]
    assert await list_matching(subject_id=live_key.key.id) == ["2 created"]
    assert await list_matching(actor_id=live_key.key.id) == ["3 created"]
    assert await list_matching(since=second_change_at, environment="live") == []
    assert await list_matching(until=second_change_at) == ["2 created", "1 created"]
    assert ([entry.seq for entry in (await access.audit.list_page(workspace, AuditFilter(), page=PageSlice(2, 1)))[0]]) == [3, 2]


@pytest.fixture
async def two_processes(
    database: Database, database_url: str, data_dir: Path, clock: FakeClock, access: Access
) -> AsyncIterator[list[Access]]:
    """The access services of two processes, in one process."""
    second_database = open_database(database_url, data_dir=data_dir)
    services = [build_access(db, access.counter, clock) for db in (database, second_database)]
    yield services
    for service in services:
        await service.close()
    await second_database.close()


async def test_concurrent_writers_leave_no_gap(two_processes: list[Access]) -> None:
    """32 at once, through two record stores, in two chains. The order of each chain is the order of the changes."""
    first = two_processes[0]
    workspaces = [await first.create_workspace(), await first.create_workspace("other")]
    new_keys = [await first.create_agent_key(workspace) for workspace in workspaces for _ in range(4)]

    await asyncio.gather(
        *(
            two_processes[number % 2].agent_keys.update(key.workspace_id, key.id, KeyChanges(name=f"{number} {index}"), by=SYSTEM_ACTOR)
            for index, key in enumerate(new_key.key for new_key in new_keys)
            for number in range(4)
        )
    )

    for workspace in workspaces:
        chain = await entries(first, workspace)
        assert [entry.seq for entry in chain] == list(range(1, 1 + 1 + 4 + 16))
        assert (await first.audit.verify(workspace)).broken_at is None
        names = {listed.key.id: listed.key.name for listed in (await first.agent_keys.list_page(workspace, page=PageSlice(9)))[0]}
        assert {entry.subject_id: entry.subject_name for entry in chain if entry.subject_kind == "agent_key"} == names
        for key_id in names:
            changes = [(entry.before or {}, entry.after or {}) for entry in chain if entry.subject_id == key_id]
            assert all(after["name"] == before["name"] for (_, after), (before, _) in pairwise(changes))


async def test_a_chain_is_checked_while_others_write(two_processes: list[Access]) -> None:
    """An entry written after the check began does not make it fail."""
    first, second = two_processes
    workspace = await first.create_workspace()
    writers = [asyncio.create_task(second.create_agent_key(workspace)) for _ in range(40)]
    verdicts = [await first.audit.verify(workspace) for _ in range(8)]
    await asyncio.gather(*writers)

    assert [verdict.reason for verdict in verdicts] == [""] * 8
    assert (await first.audit.verify(workspace)).entry_count == 41


async def test_a_workspace_is_deleted_while_its_keys_change(two_processes: list[Access]) -> None:
    """Its chain is deleted completely, in any order of the requests."""
    first, second = two_processes
    for number in range(6):
        workspace = await first.create_workspace(f"short-lived {number}")
        new_keys = [await first.create_agent_key(workspace) for _ in range(4)]
        suspensions = [second.agent_keys.suspend(workspace, new_key.key.id, by=OPERATOR) for new_key in new_keys]
        results = await asyncio.gather(first.workspaces.delete(workspace, by=OPERATOR), *suspensions, return_exceptions=True)

        assert not isinstance(results[0], BaseException)
        assert {type(result).__name__ for result in results[1:]} <= {"Key", "NotFound"}
        assert await count_entries(first.db, workspace) == 0
    assert (await first.audit.verify(PLATFORM_CHAIN)).broken_at is None


async def count_entries(db: Database, workspace: int) -> int:
    """Return the number of entries in the workspace's chain."""

    def work(tx: Tx) -> Row | None:
        return tx.fetch_one(
            select(func.count().label("n")).select_from(audit_store.entries).where(audit_store.entries.c.workspace_id == workspace)
        )

    row = await db.read(work)
    return 0 if row is None else row.integer("n")
