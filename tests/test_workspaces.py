"""The deletion of a workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Double, LargeBinary, Table, Text, func, insert, select

from rookery.access.key_fields import NewApiKey
from rookery.kernel.config import Settings
from rookery.kernel.db import Tx, Value, metadata
from rookery.memory.models import AccessFilter
from rookery.memory.text_queries import parse_query
from rookery.wiring import Rookery, build_platform
from tests.conftest import OPERATOR, Instance, eventually

GLOBAL_TABLES = {
    "access_once", "agent_server_pulse", "console_sign_outs", "installation_keys", "notify_hosts", "notify_waits", "processes", "sealing",
    "tool_catalogue", "tool_deprecations", "tool_negotiated_protocols", "tool_revisions", "workspaces",
}  # fmt: skip
"""
Tables without a workspace: completed setup steps, the last beat of the server, sign-ins to the console that have ended, keys of the
installation, rates of hosts, waits of hosts (their `scope_id` may be a workspace, and they are deleted with it), running processes,
the secret key, the tools and protocol revisions of servers, and the workspaces.
"""

TEXT = "planted text"


async def test_a_deleted_workspace_leaves_no_data(instance: Instance) -> None:
    """Workspace delete: data is removed from all stores, also data of the sandbox."""
    doomed = await instance.workspace("doomed")
    live_key, test_key = await instance.api_key(workspace_id=doomed), await instance.api_key(workspace_id=doomed, environment="test")
    for caller in (live_key, test_key):
        await caller.remember("Nothing of this may stay.", tags=["doomed"])
        assert (await caller.post("/v1/brain/recall", {"query": "What stays?"})).json()["memories"] != []
    survivor = await instance.admin.remember("This stays.")
    sandbox = (await instance.rookery.access.workspaces.get(doomed)).id

    await instance.rookery.access.workspaces.delete(doomed, by=OPERATOR)

    assert (await live_key.get("/v1/brain/tags")).status_code == 401
    assert (await test_key.get("/v1/brain/tags")).status_code == 401
    await eventually(lambda: _is_empty(instance, sandbox))
    assert (await instance.admin.get(f"/v1/brain/memories/{survivor['id']}")).json()["state"] == "indexed"


async def _is_empty(instance: Instance, workspace_id: int) -> bool:
    access_filter = AccessFilter(workspace_id=workspace_id, at=instance.rookery.clock())
    remaining = await instance.rookery.engines.vectors.count(workspace_id) + await instance.rookery.engines.texts.count(
        workspace_id, query=parse_query("stay"), access_filter=access_filter
    )
    return remaining == 0 and await instance.rookery.runtime.jobs.count_pending("DeleteFromIndex", workspace_id) == 0


async def test_no_table_keeps_a_row_of_a_deleted_workspace(settings: Settings) -> None:
    """`workspace delete` deletes all rows of the workspace and its sandbox, and of no other; new tables are tested too."""
    tables = [table for table in metadata.sorted_tables if table.name not in GLOBAL_TABLES]
    assert [table.name for table in tables if "workspace_id" not in table.c] == []
    async with build_platform(settings).open_for_command() as rookery:
        doomed, other = [(await rookery.access.workspaces.create(name, by=OPERATOR)).id for name in ("doomed", "other")]
        for number in (doomed, other):
            await rookery.access.api_keys.create(number, NewApiKey(name="test", scopes=("*",), environment="test"), by=OPERATOR)
        sandboxes = {number: await _find_sandbox_id(rookery, number) for number in (doomed, other)}
        tenants = [*sandboxes, *sandboxes.values()]
        # Keys, calls and the audit log belong to the parent, also those of test keys.
        table_tenants = [
            (table, tenant) for table in tables for tenant in tenants if tenant in sandboxes or not table.name.startswith("access_")
        ]
        await rookery.db.write(lambda tx: [_insert_row(tx, *pair) for pair in table_tenants])
        before = await _count_all(rookery, table_tenants)
        assert all(before.values())

        await rookery.access.workspaces.delete(doomed, by=OPERATOR)

        after = await _count_all(rookery, table_tenants)
        jobs_table = metadata.tables["jobs"]
        jobs = await rookery.db.read(
            lambda tx: tx.fetch_all(select(jobs_table.c.kind).where(jobs_table.c.workspace_id.in_([doomed, sandboxes[doomed]])))
        )
    # The remaining jobs clear the indexes.
    assert {row.text("kind") for row in jobs} == {"DeleteFromIndex"}
    deleted = {
        (name, tenant): number for (name, tenant), number in after.items() if tenant in {doomed, sandboxes[doomed]} and name != "jobs"
    }
    assert {pair: number for pair, number in deleted.items() if number} == {}
    assert {pair: number for pair, number in after.items() if pair[1] in {other, sandboxes[other]} and number != before[pair]} == {}


async def _find_sandbox_id(rookery: Rookery, workspace_id: int) -> int:
    workspaces = metadata.tables["workspaces"]
    row = await rookery.db.read(lambda tx: tx.fetch_one(select(workspaces.c.id).where(workspaces.c.parent_id == workspace_id)))
    assert row is not None
    return row.integer("id")


def _insert_row(tx: Tx, table: Table, tenant: int) -> None:
    """Insert a row of *tenant* into *table* unless there is one."""
    if not _count_rows(tx, table, tenant):
        row: Mapping[str, Value] = {column.name: _make_value(column.type, column.name, tenant) for column in table.c}
        tx.execute(insert(table), row)


def _make_value(kind: object, name: str, tenant: int) -> Value:
    if name == "workspace_id":
        return tenant
    match kind:
        case Text():
            return f"{TEXT} {tenant}"  # all ids are equal, so that references match
        case Double():
            return 0.5
        case LargeBinary():
            return b"planted"
        case _:
            return 1_000_000 + tenant


async def _count_all(rookery: Rookery, places: Sequence[tuple[Table, int]]) -> dict[tuple[str, int], int]:
    return await rookery.db.read(lambda tx: {(table.name, tenant): _count_rows(tx, table, tenant) for table, tenant in places})


def _count_rows(tx: Tx, table: Table, tenant: int) -> int:
    row = tx.fetch_one(select(func.count().label("n")).select_from(table).where(table.c.workspace_id == tenant))
    return 0 if row is None else row.integer("n")
