"""Batches of queued generations."""

from __future__ import annotations

from typing import Any, cast

from tests.chat_service import ChatService
from tests.conftest import Caller, Instance, eventually
from tests.content.conftest import BATCHES, GENERATIONS

Json = dict[str, Any]


async def _is_finished(caller: Caller, batch_id: object) -> Json:
    batch = cast("Json", (await caller.get(f"{BATCHES}/{batch_id}")).json())
    return batch if batch["status"] == "finished" else {}


async def test_each_generation_of_a_batch_has_its_own_outcome(content: Instance, provider: ChatService) -> None:
    """A bad model fails its row alone; the order of the list is that of the request."""
    requests = [{"prompt": f"number {number}", **({"model": "413"} if number == 2 else {})} for number in range(5)]
    response = await content.admin.post(BATCHES, {"requests": requests, "metadata": {"job": "x"}})

    assert response.status_code == 202, response.text
    batch = await eventually(lambda: _is_finished(content.admin, response.json()["id"]))
    assert (batch["total"], batch["metadata"]) == (5, {"job": "x"})
    assert batch["counts"] == {"queued": 0, "running": 0, "succeeded": 4, "failed": 1, "cancelled": 0}
    assert cast("Json", batch["usage"])["output_tokens"] == 4 * 17
    items = (await content.admin.get(f"{BATCHES}/{batch['id']}/generations")).json()
    assert [(item["index"], item["status"]) for item in items["data"]] == [
        (number, "failed" if number == 2 else "succeeded") for number in range(5)
    ]
    assert (await content.admin.get(f"{GENERATIONS}?batch_id={batch['id']}")).json()["meta"]["total"] == 5
    assert len(provider.requests) == 5


async def test_a_batch_with_an_invalid_item_stores_nothing(content: Instance) -> None:
    """The error names the position of the item."""
    bad_items: list[tuple[Json, str]] = [
        ({"prompt": ""}, "requests.1.prompt"),
        ({}, "requests.1"),
        ({"template": "missing"}, "requests.1.template"),
        ({"prompt": "a", "max_tokens": 9_000}, "requests.1.max_tokens"),
        ({"prompt": "a", "schema": {"type": 3}}, "requests.1.schema"),
        ({"prompt": "a", "mode": "sync"}, "requests.1.mode"),
    ]
    for item, field in bad_items:
        response = await content.admin.post(BATCHES, {"requests": [{"prompt": "a"}, item]})
        assert response.status_code == 422, response.text
        assert field in response.json()["errors"], response.text
    too_many = await content.admin.post(BATCHES, {"requests": [{"prompt": "a"}] * 501})
    assert (too_many.status_code, (await content.admin.post(BATCHES, {"requests": []})).status_code) == (422, 422)
    assert (await content.admin.get(BATCHES)).json()["meta"]["total"] == 0
    assert (await content.admin.get(GENERATIONS)).json()["meta"]["total"] == 0


async def test_a_cancelled_batch_ends_every_generation(content: Instance, provider: ChatService) -> None:
    """Queued and running generations are cancelled, and running calls are cut off."""
    batch = (await content.admin.post(BATCHES, {"requests": [{"prompt": "a", "model": "hang"}] * 20})).json()
    await eventually(lambda: provider.active_count == 4)
    response = await content.admin.post(f"{BATCHES}/{batch['id']}/cancel")

    assert (response.status_code, response.json()["status"], response.json()["counts"]["cancelled"]) == (200, "finished", 20)
    await eventually(lambda: provider.disconnects == 4)
    assert (await content.admin.get("/api/agent/content/budgets")).json()["data"][0]["reserved"] == 0.0
    assert (await content.admin.post(f"{BATCHES}/{batch['id']}/cancel")).json()["counts"]["cancelled"] == 20


async def test_the_usage_of_a_batch_says_whether_it_is_estimated(content: Instance) -> None:
    """One generation whose provider reported no usage is enough; the field was once always false."""
    for models, is_estimated in ((["ok", "ok"], False), (["ok", "no-usage"], True)):
        requests = [{"prompt": "a", "model": model} for model in models]
        created = (await content.admin.post(BATCHES, {"requests": requests})).json()
        batch = await eventually(lambda batch_id=created["id"]: _is_finished(content.admin, batch_id))

        assert cast("Json", batch["usage"])["is_estimated"] is is_estimated
    listed = (await content.admin.get(BATCHES)).json()["data"]
    assert [batch["usage"]["is_estimated"] for batch in listed] == [True, False]


async def test_five_hundred_generations_are_queued_at_once(content: Instance) -> None:
    """The limit of a batch; all of them end."""
    batch = (await content.admin.post(BATCHES, {"requests": [{"prompt": str(number)} for number in range(500)]})).json()
    finished = await eventually(lambda: _is_finished(content.admin, batch["id"]))

    assert cast("Json", finished["counts"])["succeeded"] == 500
    usage = (await content.admin.get("/api/agent/content/usage")).json()["data"]
    assert [(row["requests"], row["succeeded"], row["input_tokens"]) for row in usage] == [(500, 500, 5_500)]


async def test_another_workspace_has_no_access_to_a_batch(content: Instance) -> None:
    """Walls: a batch of another tenant does not exist."""
    batch = (await content.admin.post(BATCHES, {"requests": [{"prompt": "a"}]})).json()
    stranger = await content.api_key(workspace_id=await content.workspace("Other"))
    for method, path in (("GET", ""), ("GET", "/generations"), ("POST", "/cancel")):
        assert (await stranger.send(method, f"{BATCHES}/{batch['id']}{path}")).status_code == 404
    await eventually(lambda: _is_finished(content.admin, batch["id"]))


async def test_events_announce_the_ends_of_generations_and_batches(content: Instance) -> None:
    """`generation.*` events; their data has no messages and no output, and a batch equals its GET."""
    hook = await content.admin.post("/api/v1/webhooks", {"url": "http://[2a00:ffff::1]/hook", "events": ["generation.*"]})
    assert hook.status_code == 201, hook.text
    batch = (await content.admin.post(BATCHES, {"requests": [{"prompt": "a"}, {"prompt": "b", "model": "413"}]})).json()
    finished = await eventually(lambda: _is_finished(content.admin, batch["id"]))

    log = f"/api/v1/webhooks/{hook.json()['id']}/deliveries"
    deliveries = (await content.admin.get(log)).json()["data"]
    assert sorted(delivery["type"] for delivery in deliveries) == ["generation.batch_finished", "generation.completed", "generation.failed"]
    for delivery in deliveries:
        data = (await content.admin.get(f"{log}/{delivery['id']}")).json()["payload"]["data"]
        if delivery["type"] == "generation.batch_finished":
            assert data == finished
        else:
            assert "output" not in data
            assert "messages" not in data
            assert data["batch_id"] == batch["id"]
