"""Workspaces: creation, deletion, and the first run of an empty installation."""

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


async def test_workspace_names_are_unique(access: Access) -> None:
    """409 for a second workspace of the same name, 422 without a name."""
    first = await access.workspaces.create("nest", by=OPERATOR)

    assert await access.workspaces.get(first.id) == first
    assert await access.workspaces.list() == [first]
    with pytest.raises(NameTaken):
        await access.workspaces.create(" nest ", by=OPERATOR)
    for name in ("", "x" * 101, "nest/test"):
        with pytest.raises(ValidationFailed):
            await access.workspaces.create(name, by=OPERATOR)


async def test_deleting_a_workspace_deletes_the_data_of_all_domains(access: Access) -> None:
    """One transaction with every purger, for the sandbox too. A dry run changes nothing, and numbers are never reused."""
    purged_tenants: list[int] = []

    def purge(_tx: Tx, tenant: int) -> int:
        purged_tenants.append(tenant)
        return 3

    workspaces = Workspaces(access.db, access.audit, access.clock, purgers=[purge])
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    sandbox_id = (await access.create_api_key(workspace, NewApiKey(name="trial", scopes=("*",), environment="test"))).key.tenant_id
    other_key = await access.create_agent_key(other)
    await access.create_agent_key(workspace)

    dry_run = await workspaces.delete(workspace, dry_run=True, by=OPERATOR)
    assert (dry_run.key_count, dry_run.row_count, purged_tenants) == (2, None, [])
    deletion = await workspaces.delete(workspace, by=OPERATOR)
    assert (deletion.key_count, deletion.row_count, purged_tenants) == (2, 6, [workspace, sandbox_id])
    assert [listed.id for listed in await workspaces.list()] == [other]
    await access.admit(other_key)
    for deleted_id in (workspace, sandbox_id):
        with pytest.raises(NotFound):
            await workspaces.delete(deleted_id, by=OPERATOR)
    assert (await workspaces.create("nest", by=OPERATOR)).id > sandbox_id


async def test_a_failing_purger_keeps_the_workspace(access: Access) -> None:
    """Everything is deleted, or nothing."""

    def purge(_tx: Tx, _tenant: int) -> int:
        msg = "not now"
        raise Conflict(msg)

    workspace = await access.create_workspace()
    new_key = await access.create_agent_key(workspace)
    with pytest.raises(Conflict):
        await Workspaces(access.db, access.audit, access.clock, purgers=[purge]).delete(workspace, by=OPERATOR)

    await access.admit(new_key)


async def test_the_first_run_creates_a_workspace_and_two_keys_once(access: Access) -> None:
    """`default`, an enterprise key with all scopes and an agent key with the preset agent; a second run creates nothing."""
    runs = await asyncio.gather(*(create_first_keys(access.db, access.bcrypt, access.audit, access.clock) for _ in range(3)))
    with_keys = [run for run in runs if run.api_key is not None]

    assert len(with_keys) == 1
    assert with_keys[0].api_key is not None
    assert with_keys[0].agent_key is not None
    assert len({run.workspace_id for run in runs}) == 1
    api, agent = [(await access.admit(key.reveal(), required_scope="brain:read")) for key in (with_keys[0].api_key, with_keys[0].agent_key)]
    assert api.caller.has_scope("platform:workspaces")
    assert dict(api.headers)[b"x-ratelimit-limit"] == b"2147483647"
    assert agent.caller.scopes == frozenset(PRESETS["agent"])
    second_run = await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)
    assert (second_run.workspace_id, second_run.api_key, second_run.agent_key) == (with_keys[0].workspace_id, None, None)


async def test_two_processes_that_start_together_create_one_workspace(data_dir: Path, clock: FakeClock) -> None:
    """The second process finds the workspace."""
    databases = [open_database("embedded:", data_dir=data_dir) for _ in range(3)]
    bcrypt_ = Bcrypt(cost=4)

    runs = await asyncio.gather(*(create_first_keys(db, bcrypt_, AuditLog(db, clock), clock) for db in databases))

    assert sorted(run.api_key is not None for run in runs) == [False, False, True]
    assert {run.workspace_id for run in runs} == {1}
    bcrypt_.close()
    for db in databases:
        await db.close()


async def test_a_deleted_default_workspace_is_not_created_again(access: Access) -> None:
    """Once in the life of an installation. The default is then the oldest workspace."""
    first_run = await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)
    assert first_run.workspace_id is not None
    await access.workspaces.delete(first_run.workspace_id, by=OPERATOR)
    assert (await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)).workspace_id is None
    other = await access.create_workspace("other")

    second_run = await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)
    assert (second_run.workspace_id, second_run.api_key) == (other, None)
    assert [listed.name for listed in await access.workspaces.list()] == ["other"]
    assert first_run_module.WORKSPACE_NAME == "default"
