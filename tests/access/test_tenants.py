"""Workspaces made and deleted, and what an empty installation starts with (spec 2.8; D-03, D-04)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rookery.access import first_run as first_run_module
from rookery.access.audit_log import AuditLog
from rookery.access.errors import NameTaken
from rookery.access.first_run import create_first_keys
from rookery.access.hashing import Bcrypt
from rookery.access.key_fields import NewApiKey
from rookery.access.scopes import PRESETS
from rookery.access.workspaces import Workspaces
from rookery.kernel.db import Tx, open_database
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from tests.access.makers import Access
from tests.conftest import OPERATOR, FakeClock


async def test_workspaces_have_names_of_their_own(access: Access) -> None:
    """Spec 2.8: 409 for a second one of the same name, 422 for none."""
    first = await access.workspaces.create("nest", by=OPERATOR)

    assert await access.workspaces.get(first.id) == first
    assert await access.workspaces.list() == [first]
    with pytest.raises(NameTaken):
        await access.workspaces.create(" nest ", by=OPERATOR)
    for bad in ("", "x" * 101, "nest/test"):
        with pytest.raises(ValidationFailed):
            await access.workspaces.create(bad, by=OPERATOR)


async def test_deleting_a_workspace_takes_all_domains_with_it(access: Access) -> None:
    """D-04: one transaction with every purger, for the twin too; a dry run changes nothing; numbers are never given twice."""
    purged: list[int] = []

    def purge(_tx: Tx, tenant: int) -> int:
        purged.append(tenant)
        return 3

    workspaces = Workspaces(access.db, access.audit, access.clock, purgers=[purge])
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    twin = (await access.create_api_key(workspace, NewApiKey(name="trial", scopes=("*",), environment="test"))).key.tenant_id
    kept = await access.create_agent_key(other)
    await access.create_agent_key(workspace)

    would = await workspaces.delete(workspace, dry_run=True, by=OPERATOR)
    assert (would.key_count, would.row_count, purged) == (2, None, [])
    done = await workspaces.delete(workspace, by=OPERATOR)
    assert (done.key_count, done.row_count, purged) == (2, 6, [workspace, twin])
    assert [each.id for each in await workspaces.list()] == [other]
    await access.admit(kept)
    for nowhere in (workspace, twin):
        with pytest.raises(NotFound):
            await workspaces.delete(nowhere, by=OPERATOR)
    assert (await workspaces.create("nest", by=OPERATOR)).id > twin


async def test_a_purger_that_fails_keeps_the_workspace(access: Access) -> None:
    """D-04: all of it goes, or nothing."""

    def purge(_tx: Tx, _tenant: int) -> int:
        msg = "not now"
        raise Conflict(msg)

    workspace = await access.create_workspace()
    minted = await access.create_agent_key(workspace)
    with pytest.raises(Conflict):
        await Workspaces(access.db, access.audit, access.clock, purgers=[purge]).delete(workspace, by=OPERATOR)

    await access.admit(minted)


async def test_the_first_run_makes_a_workspace_and_two_keys_once(access: Access) -> None:
    """D-03: `default`, an enterprise key with all scopes, an agent key of preset agent; again nothing; concurrently once."""
    runs = await asyncio.gather(*(create_first_keys(access.db, access.bcrypt, access.audit, access.clock) for _ in range(3)))
    made = [each for each in runs if each.api_key is not None]

    assert len(made) == 1
    assert made[0].api_key is not None
    assert made[0].agent_key is not None
    assert len({each.workspace_id for each in runs}) == 1
    api, agent = [(await access.admit(key.reveal(), required_scope="brain:read")) for key in (made[0].api_key, made[0].agent_key)]
    assert api.caller.has_scope("platform:workspaces")
    assert dict(api.headers)[b"x-ratelimit-limit"] == b"2147483647"
    assert agent.caller.scopes == frozenset(PRESETS["agent"])
    again = await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)
    assert (again.workspace_id, again.api_key, again.agent_key) == (made[0].workspace_id, None, None)


async def test_two_processes_that_start_together_make_it_once(data_dir: Path, clock: FakeClock) -> None:
    """D-03: the one that comes second finds it done."""
    databases = [open_database("embedded:", data_dir=data_dir) for _ in range(3)]
    bcrypt_ = Bcrypt(cost=4)

    runs = await asyncio.gather(*(create_first_keys(each, bcrypt_, AuditLog(each, clock), clock) for each in databases))

    assert sorted(each.api_key is not None for each in runs) == [False, False, True]
    assert {each.workspace_id for each in runs} == {1}
    bcrypt_.close()
    for each in databases:
        await each.close()


async def test_what_the_operator_deleted_is_not_made_again(access: Access) -> None:
    """D-03: once in an installation's life; the number is then the oldest workspace's."""
    first = await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)
    assert first.workspace_id is not None
    await access.workspaces.delete(first.workspace_id, by=OPERATOR)
    assert (await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)).workspace_id is None
    other = await access.create_workspace("other")

    again = await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)
    assert (again.workspace_id, again.api_key) == (other, None)
    assert [each.name for each in await access.workspaces.list()] == ["other"]
    assert first_run_module.WORKSPACE_NAME == "default"
