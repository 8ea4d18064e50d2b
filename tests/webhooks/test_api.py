"""The routes of webhooks, through the whole application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from rookery.app import build_route_table
from rookery.doctor import examine
from rookery.kernel.config import Settings
from rookery.webhooks.schemas import (
    AttemptResponse,
    ChangedWebhookResponse,
    DeliveryDetailResponse,
    DeliveryResponse,
    EventTypeResponse,
    NewWebhookResponse,
    WebhookResponse,
)
from rookery.wiring import build_platform
from tests.conftest import Caller, Instance, eventually, run_instance
from tests.webhooks.event_recorder import record_events
from tests.webhooks.makers import CATALOGUE
from tests.webhooks.receiver import ReceivedRequest, Receiver, Reply, run_receiver

Json = dict[str, object]

HOOKS = "/api/v1/webhooks"


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server that may reach this host."""
    async with run_instance(replace(settings, egress_allow=("127.0.0.1/32",))) as instance:
        yield instance


async def create_webhook(caller: Caller, url: str, **fields: object) -> Json:
    """Create an endpoint, and return it with its secret."""
    response = await caller.post(HOOKS, {"url": url, "events": ["memory.*"], **fields})
    assert response.status_code == 201, response.text
    return cast("Json", response.json())


async def wait_until_ended(caller: Caller, hook: Json, delivery: Json) -> Json:
    """Wait until a delivery ended, and return its details."""

    async def load() -> Json | None:
        details = cast("Json", (await caller.get(f"{HOOKS}/{hook['id']}/deliveries/{delivery['id']}")).json())
        return details if details["ended_at"] else None

    return cast("Json", await eventually(load))


async def test_an_endpoint_is_created_shown_changed_and_deleted(instance: Instance, receiver: Receiver) -> None:
    """Only the response to the creation contains the secret."""
    created = await create_webhook(instance.admin, receiver.url, description="On my desk")
    public = {name: value for name, value in created.items() if name not in {"secret", "library_secret"}}
    path = f"{HOOKS}/{created['id']}"

    assert created.keys() == NewWebhookResponse.model_fields.keys()
    assert str(created["secret"]).startswith("whsec_")
    assert (await instance.admin.get(path)).json() == public
    assert public.keys() == WebhookResponse.model_fields.keys()
    assert (await instance.admin.get(HOOKS)).json()["data"] == [public]
    response = await instance.admin.send("PATCH", path, {"events": ["*"], "concurrency": 2})
    changed = cast("Json", response.json())
    assert (response.status_code, changed) == (
        200,
        {**public, "events": ["*"], "concurrency": 2, "updated_at": changed["updated_at"]},
    )
    assert (await instance.admin.send("DELETE", path)).status_code == 204
    assert (await instance.admin.get(path)).status_code == 404
    assert (await instance.admin.get(HOOKS)).json()["meta"]["total"] == 0


async def test_a_test_event_is_delivered_and_logged(instance: Instance, receiver: Receiver) -> None:
    """A test event ignores the subscriptions of its endpoint; the log has request and response."""
    hook = await create_webhook(instance.admin, receiver.url, events=["plan.completed"])

    response = await instance.admin.post(f"{HOOKS}/{hook['id']}/test")

    delivery = cast("Json", response.json())
    assert (response.status_code, delivery.keys()) == (202, DeliveryResponse.model_fields.keys())
    assert (delivery["kind"], delivery["type"], delivery["webhook_id"]) == ("test", "webhook.test", hook["id"])
    details = await wait_until_ended(instance.admin, hook, delivery)
    (request,) = receiver.received
    assert details.keys() == DeliveryDetailResponse.model_fields.keys()
    assert (details["state"], details["attempt_count"], details["payload"]) == ("delivered", 1, request.event)
    (attempt,) = cast("list[Json]", details["attempts"])
    assert attempt.keys() == AttemptResponse.model_fields.keys()
    assert (attempt["number"], attempt["outcome"], attempt["status"], attempt["response"]) == (1, "success", 200, "thanks")
    page = (await instance.admin.get(f"{HOOKS}/{hook['id']}/deliveries")).json()
    assert page["data"] == [{name: details[name] for name in DeliveryResponse.model_fields}]
    assert (await instance.admin.get(f"{HOOKS}/{hook['id']}")).json()["last_success_at"] is not None


async def test_the_log_is_listed_by_state_type_and_time(instance: Instance) -> None:
    """Pages, newest first."""

    def reply(request: ReceivedRequest) -> Reply:
        return Reply(status=410 if request.event["type"] == "memory.stored" else 204, body=b"")

    async with run_receiver(reply) as receiver:
        hook = await create_webhook(instance.admin, receiver.url)
        log = f"{HOOKS}/{hook['id']}/deliveries"
        deliveries = [cast("Json", (await instance.admin.post(f"{HOOKS}/{hook['id']}/test")).json()) for _ in range(3)]
        for delivery in deliveries:
            await wait_until_ended(instance.admin, hook, delivery)
        await instance.admin.remember()
        await eventually(lambda: _total(instance.admin, f"{log}?status=failed"))

        newest = (await instance.admin.get(f"{log}?per_page=1")).json()
        assert (newest["data"][0]["type"], newest["data"][0]["state"], newest["meta"]["total"]) == ("memory.stored", "failed", 4)
        assert newest["links"]["next"].endswith(f"{log}?per_page=1&page=2")
        assert await _total(instance.admin, f"{log}?type=webhook.test&status=delivered") == 3
        assert await _total(instance.admin, f"{log}?since={deliveries[2]['created_at']}") == 2
        assert await _total(instance.admin, f"{log}?status=held") == 0


async def _total(caller: Caller, path: str) -> int:
    response = await caller.get(path)
    assert response.status_code == 200, response.text
    return cast("int", response.json()["meta"]["total"])


async def test_failed_and_held_deliveries_can_be_resent_after_the_endpoint_is_enabled(instance: Instance) -> None:
    """A 410 disables at once; enabling returns the number held; resend-failed sends them with their event ids."""
    is_gone = True
    async with run_receiver(lambda _: Reply(status=410 if is_gone else 200)) as receiver:
        hook = await create_webhook(instance.admin, receiver.url, events=["memory.*", "webhook.*"])
        path, recorder = f"{HOOKS}/{hook['id']}", await record_events(instance.admin, "webhook.disabled")
        await instance.admin.remember("First.")
        disabled = cast("Json", await eventually(lambda: _load_if_disabled(instance.admin, path)))
        assert (disabled["enabled"], disabled["disabled_reason"]) == (False, "gone")
        assert await recorder.only_data("webhook.disabled") == disabled
        (warning,) = (check for check in await examine(instance.rookery) if check.about == "webhooks")
        assert (warning.grade, str(hook["id"]) in warning.says, "410" in warning.says) == ("warning", True, True)
        await instance.admin.remember("Second.")
        assert await _total(instance.admin, f"{path}/deliveries?status=held") == 1, "and no event about its own disabling"
        assert (await instance.admin.post(f"{path}/test")).json()["error"] == "conflict"

        is_gone = False
        enabled = (await instance.admin.send("PATCH", path, {"enabled": True})).json()
        assert enabled.keys() == ChangedWebhookResponse.model_fields.keys()
        assert (enabled["enabled"], enabled["disabled_reason"], enabled["held"]) == (True, None, 1)
        resent = await instance.admin.post(f"{path}/resend-failed", {})

        assert (resent.status_code, resent.json()) == (202, {"resent": 2})
        await eventually(lambda: len(receiver.received) == 3)
        first, *others = receiver.event_ids()  # the endpoint gets several at the same time, in any order
        assert sorted(event_id == first for event_id in others) == [False, True]
        assert len({request.body for request in receiver.received if request.headers["webhook-id"] == first}) == 1
        assert (await instance.admin.post(f"{path}/resend-failed")).json() == {"resent": 0}


async def _load_if_disabled(caller: Caller, path: str) -> Json | None:
    endpoint = cast("Json", (await caller.get(path)).json())
    return None if endpoint["enabled"] else endpoint


async def test_one_delivery_is_sent_again(instance: Instance, receiver: Receiver) -> None:
    """A resend is a new delivery that refers to the first."""
    hook = await create_webhook(instance.admin, receiver.url)
    first = cast("Json", (await instance.admin.post(f"{HOOKS}/{hook['id']}/test")).json())
    await wait_until_ended(instance.admin, hook, first)

    response = await instance.admin.post(f"{HOOKS}/{hook['id']}/deliveries/{first['id']}/resend")

    resent = cast("Json", response.json())
    assert (response.status_code, resent["kind"], resent["of_delivery"], resent["event_id"]) == (
        202,
        "resend",
        first["id"],
        first["event_id"],
    )
    assert (await wait_until_ended(instance.admin, hook, resent))["state"] == "delivered"
    assert receiver.received[0].body == receiver.received[1].body


async def test_a_secret_is_chosen_or_generated_and_rotated_once_at_a_time(instance: Instance, receiver: Receiver) -> None:
    """A second rotation during a grace period is rejected, unless it has no grace period."""
    chosen = await create_webhook(instance.admin, receiver.url, secret="a-secret-of-my-own")
    generated = await create_webhook(instance.admin, receiver.url)
    path = f"{HOOKS}/{generated['id']}/rotate-secret"

    assert chosen["secret"] == "a-secret-of-my-own"
    first = (await instance.admin.post(path, {"grace_period_hours": 0})).json()
    assert (first["secret"] == generated["secret"], first["previous_secret_until"]) == (False, None)
    second = (await instance.admin.post(path)).json()
    assert second["previous_secret_until"] is not None
    rejected = await instance.admin.post(path, {"secret": "another-secret-of-mine"})
    assert (rejected.status_code, rejected.json()["error"]) == (409, "conflict")
    forced = (await instance.admin.post(path, {"secret": "another-secret-of-mine", "grace_period_hours": 0})).json()
    assert (forced["secret"], forced["previous_secret_until"]) == ("another-secret-of-mine", None)
    assert "whsec_" not in (await instance.admin.get(HOOKS)).text


async def test_a_creation_with_an_idempotency_key_creates_one_endpoint_and_stores_no_secret(instance: Instance, receiver: Receiver) -> None:
    """The replay has the id of the endpoint, not its secret."""
    body = {"url": receiver.url, "events": ["memory.*"]}
    first, second = [await instance.admin.post(HOOKS, body, **{"Idempotency-Key": "one"}) for _ in range(2)]

    assert (second.status_code, second.json()["error"], second.json()["id"]) == (409, "secret_already_shown", first.json()["id"])
    assert await _total(instance.admin, HOOKS) == 1


async def test_an_invalid_endpoint_is_rejected_with_the_field(instance: Instance, receiver: Receiver) -> None:
    """The error names the field, and nothing is stored."""
    cases: list[tuple[Json, str]] = [
        ({"url": "ftp://example.com/"}, "url"),
        ({"url": "http://user:password@[2a00:ffff::1]/"}, "url"),
        ({"url": "http://[2a00:ffff::1]/#part"}, "url"),
        ({"url": "http://169.254.169.254/latest"}, "url"),
        ({"url": "http://[::ffff:10.0.0.1]/"}, "url"),
        ({"url": "http://0.0.0.0:80/"}, "url"),
        ({"url": "http://[::1]:1/"}, "url"),
        ({"url": "http://2130706433/"}, "url"),
        ({"url": "http://0177.0.0.1/"}, "url"),
        ({"url": "not an address"}, "url"),
        ({"url": "http://[2a00:ffff::1]/" + "a" * 3000}, "url"),
        ({"events": []}, "events"),
        ({"events": ["memory.stored", "memori.stored"]}, "events"),
        ({"events": ["plans.*"]}, "events"),
        ({"secret": "short"}, "secret"),
        ({"secret": "whsec_this!is!no!base64"}, "secret"),
        ({"secret": "sixteen with spaces"}, "secret"),
        ({"concurrency": 17}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"description": "a" * 5000}, "description"),
        ({"workspace_id": 2}, "workspace_id"),
    ]
    for fields, field in cases:
        response = await instance.admin.post(HOOKS, {"url": receiver.url, "events": ["memory.*"], **fields})

        assert (response.status_code, response.json()["error"]) == (422, "validation_error"), f"{fields}: {response.text}"
        assert {name.partition(".")[0] for name in response.json()["errors"]} == {field}, f"{fields}: {response.text}"
        assert "sixteen with" not in response.text
    assert await _total(instance.admin, HOOKS) == 0


async def test_an_unknown_event_is_rejected_with_a_suggestion(instance: Instance, receiver: Receiver) -> None:
    """The error for an unknown event suggests the nearest event type."""
    response = await instance.admin.post(HOOKS, {"url": receiver.url, "events": ["memory.storred"]})

    assert "'memory.stored'" in response.json()["errors"]["events"][0]


async def test_another_workspace_and_the_sandbox_see_nothing(instance: Instance, receiver: Receiver) -> None:
    """Another tenant's endpoint is not found; an endpoint of the sandbox has the id of its parent workspace."""
    hook = await create_webhook(instance.admin, receiver.url)
    delivery = cast("Json", (await instance.admin.post(f"{HOOKS}/{hook['id']}/test")).json())
    other = await instance.api_key(workspace_id=await instance.workspace("other"))
    sandbox = await instance.api_key(environment="test")

    for caller in (other, sandbox):
        assert await _total(caller, HOOKS) == 0
        for path in (f"{HOOKS}/{hook['id']}", f"{HOOKS}/{hook['id']}/deliveries", f"{HOOKS}/{hook['id']}/deliveries/{delivery['id']}"):
            response = await caller.get(path)
            assert (response.status_code, response.json()["error"]) == (404, "resource_not_found")
    sandboxed = await create_webhook(sandbox, receiver.url)
    assert sandboxed["workspace_id"] == instance.workspace_id
    hidden = await instance.admin.get(f"{HOOKS}/{sandboxed['id']}")
    assert hidden.status_code == 404


async def test_a_delivery_is_found_under_its_own_endpoint_only(instance: Instance, receiver: Receiver) -> None:
    """A path with a delivery of another endpoint is not found."""
    first, other = await create_webhook(instance.admin, receiver.url), await create_webhook(instance.admin, receiver.url)
    delivery = cast("Json", (await instance.admin.post(f"{HOOKS}/{first['id']}/test")).json())

    assert (await instance.admin.get(f"{HOOKS}/{other['id']}/deliveries/{delivery['id']}")).status_code == 404
    assert (await instance.admin.post(f"{HOOKS}/{other['id']}/deliveries/{delivery['id']}/resend")).status_code == 404


async def test_the_event_catalogue_names_mounted_routes(instance: Instance, settings: Settings) -> None:
    """`resource` of an event type is a mounted route, whose response `data` contains."""
    event_types = cast("list[Json]", (await instance.admin.get("/api/v1/events?per_page=100")).json()["data"])
    mounted = {f"{endpoint.route.method} {endpoint.path}" for endpoint in build_route_table(build_platform(settings)).endpoints}

    assert [event_type["name"] for event_type in event_types] == [event_type.name for event_type in CATALOGUE.types]
    assert all(event_type.keys() == EventTypeResponse.model_fields.keys() for event_type in event_types)
    assert {str(route["resource"]) for route in event_types if route["resource"]} - {
        route.removeprefix("GET ") for route in mounted
    } == set()


async def test_every_change_is_in_the_audit_log_without_a_secret(instance: Instance, receiver: Receiver) -> None:
    """Each change has one entry."""
    hook = await create_webhook(instance.admin, receiver.url)
    path = f"{HOOKS}/{hook['id']}"
    await instance.admin.send("PATCH", path, {"enabled": False})
    rotated = (await instance.admin.post(f"{path}/rotate-secret")).json()
    await instance.admin.send("DELETE", path)

    log = await instance.admin.get(f"/api/v1/audit?subject_id={hook['id']}")

    assert len({entry["action"] for entry in log.json()["data"]}) == 4, log.text
    assert str(hook["secret"]) not in log.text
    assert str(rotated["secret"]) not in log.text
