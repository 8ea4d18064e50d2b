"""The end of a workspace."""

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

OF_ALL = {"access_once", "sealing", "tool_catalogue", "tool_deprecations", "tool_revisions", "workspaces"}
"""Tables without a workspace: what was done once, the secret key, what servers offer, and the workspaces themselves."""

TEXT = "planted text"


async def test_a_deleted_workspace_leaves_nothing_of_itself(instance: Instance) -> None:
    """D-04: workspace delete; spec 3.4: deleted means removed from all stores, the sandbox twin's too."""
    doomed = await instance.workspace("doomed")
    live, test = await instance.api_key(workspace_id=doomed), await instance.api_key(workspace_id=doomed, environment="test")
    for caller in (live, test):
        await caller.remember("Nothing of this may stay.", tags=["doomed"])
        assert (await caller.post("/v1/brain/recall", {"query": "What stays?"})).json()["memories"] != []
    survivor = await instance.admin.remember("This stays.")
    twin = (await instance.rookery.access.workspaces.get(doomed)).id

    await instance.rookery.access.workspaces.delete(doomed, by=OPERATOR)

    assert (await live.get("/v1/brain/tags")).status_code == 401
    assert (await test.get("/v1/brain/tags")).status_code == 401
    await eventually(lambda: _empty(instance, twin))
    assert (await instance.admin.get(f"/v1/brain/memories/{survivor['id']}")).json()["state"] == "indexed"


async def _empty(instance: Instance, workspace_id: int) -> bool:
    within = AccessFilter(workspace_id=workspace_id, at=instance.rookery.clock())
    left = await instance.rookery.vectors.count(workspace_id) + await instance.rookery.texts.count_matches(
        parse_query("stay"), access_filter=within
    )
    return left == 0 and await instance.rookery.jobs.count_pending("DeleteFromIndex", workspace_id) == 0


async def test_no_table_keeps_a_row_of_a_deleted_workspace(settings: Settings) -> None:
    """D-04: `workspace delete` deletes the rows of every table, its twin's too, and no other workspace's; new tables are covered."""
    tables = [table for table in metadata.sorted_tables if table.name not in OF_ALL]
    assert [table.name for table in tables if "workspace_id" not in table.c] == []
    async with build_platform(settings).open_for_command() as rookery:
        doomed, other = [(await rookery.access.workspaces.create(name, by=OPERATOR)).id for name in ("doomed", "other")]
        for number in (doomed, other):
            await rookery.access.api_keys.create(number, NewApiKey(name="test", scopes=("*",), environment="test"), by=OPERATOR)
        twins = {number: await _twin(rookery, number) for number in (doomed, other)}
        tenants = [*twins, *twins.values()]
        # Keys, calls and the audit log are the parent's, also those of test keys.
        places = [(table, tenant) for table in tables for tenant in tenants if tenant in twins or not table.name.startswith("access_")]
        await rookery.db.write(lambda tx: [_plant(tx, *place) for place in places])
        before = await _counted(rookery, places)
        assert all(before.values())

        await rookery.access.workspaces.delete(doomed, by=OPERATOR)

        after = await _counted(rookery, places)
        queued = metadata.tables["jobs"]
        jobs = await rookery.db.read(
            lambda tx: tx.fetch_all(select(queued.c.kind).where(queued.c.workspace_id.in_([doomed, twins[doomed]])))
        )
    # What is left to be done clears the indexes, and ends by itself.
    assert {row.text("kind") for row in jobs} == {"DeleteFromIndex"}
    gone = {(name, tenant): number for (name, tenant), number in after.items() if tenant in {doomed, twins[doomed]} and name != "jobs"}
    assert {each: number for each, number in gone.items() if number} == {}
    assert {each: number for each, number in after.items() if each[1] in {other, twins[other]} and number != before[each]} == {}


async def _twin(rookery: Rookery, workspace_id: int) -> int:
    workspaces = metadata.tables["workspaces"]
    row = await rookery.db.read(lambda tx: tx.fetch_one(select(workspaces.c.id).where(workspaces.c.parent_id == workspace_id)))
    assert row is not None
    return row.integer("id")


def _plant(tx: Tx, table: Table, tenant: int) -> None:
    """Put a row of *tenant* into *table*, whatever that means, unless there is one."""
    if not _number(tx, table, tenant):
        row: Mapping[str, Value] = {column.name: _value(column.type, column.name, tenant) for column in table.c}
        tx.execute(insert(table), row)


def _value(kind: object, name: str, tenant: int) -> Value:
    if name == "workspace_id":
        return tenant
    match kind:
        case Text():
            return f"{TEXT} {tenant}"  # all ids alike, so that what belongs to a thing is that thing's
        case Double():
            return 0.5
        case LargeBinary():
            return b"planted"
        case _:
            return 1_000_000 + tenant


async def _counted(rookery: Rookery, places: Sequence[tuple[Table, int]]) -> dict[tuple[str, int], int]:
    return await rookery.db.read(lambda tx: {(table.name, tenant): _number(tx, table, tenant) for table, tenant in places})


def _number(tx: Tx, table: Table, tenant: int) -> int:
    row = tx.fetch_one(select(func.count().label("n")).select_from(table).where(table.c.workspace_id == tenant))
    return 0 if row is None else row.integer("n")
