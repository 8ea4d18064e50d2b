"""The end of a workspace."""

from __future__ import annotations

from tests.conftest import OPERATOR, House, eventually


async def test_a_deleted_workspace_leaves_nothing_of_itself(house: House) -> None:
    """D-04: workspace delete; spec 3.4: deleted means removed from all stores, the sandbox twin's too."""
    doomed = await house.workspace("doomed")
    live, test = await house.api_key(workspace_id=doomed), await house.api_key(workspace_id=doomed, environment="test")
    for caller in (live, test):
        await caller.remember("Nothing of this may stay.", tags=["doomed"])
        assert (await caller.post("/v1/brain/recall", {"query": "What stays?"})).json()["memories"] != []
    survivor = await house.admin.remember("This stays.")
    twin = (await house.rookery.access.workspaces.get(doomed)).id

    await house.rookery.access.workspaces.delete(doomed, by=OPERATOR)

    assert (await live.get("/v1/brain/tags")).status_code == 401
    assert (await test.get("/v1/brain/tags")).status_code == 401
    await eventually(lambda: _empty(house, twin))
    assert (await house.admin.get(f"/v1/brain/memories/{survivor['id']}")).json()["state"] == "indexed"


async def _empty(house: House, workspace_id: int) -> bool:
    return await house.rookery.vectors.count(workspace_id) == 0 and await house.rookery.jobs.backlog("DeleteFromIndex", workspace_id) == 0
