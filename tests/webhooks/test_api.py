"""The routes of webhooks, through the whole application (D-80)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest

from rookery.app import build_route_table
from rookery.doctor import examine
from rookery.kernel.config import Settings
from rookery.webhooks.event_types import EVENT_TYPES
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
from tests.webhooks.receiver import ReceivedRequest, Receiver, Reply, run_receiver

Json = dict[str, object]

HOOKS = "/api/v1/webhooks"


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server that may reach this host."""
    async with run_instance(replace(settings, egress_allow=("127.0.0.1/32",))) as opened:
        yield opened


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that is glad of all."""
    async with run_receiver() as running:
        yield running


async def make(caller: Caller, url: str, **fields: object) -> Json:
    """Make an endpoint and return it with its secret."""
    answer = await caller.post(HOOKS, {"url": url, "events": ["memory.*"], **fields})
    assert answer.status_code == 201, answer.text
    return cast("Json", answer.json())


async def ended(caller: Caller, hook: Json, delivery: Json) -> Json:
    """Wait until a delivery ended, and return all that is known of it."""

    async def look() -> Json | None:
        found = cast("Json", (await caller.get(f"{HOOKS}/{hook['id']}/deliveries/{delivery['id']}")).json())
        return found if found["ended_at"] else None

    return cast("Json", await eventually(look))


async def test_an_endpoint_is_made_shown_changed_and_deleted(instance: Instance, receiver: Receiver) -> None:
    """Spec 2.4, D-80: url, events and a secret, which is shown by the answer that made it, and by no other."""
    made = await make(instance.admin, receiver.url, description="On my desk")
    shown = {name: value for name, value in made.items() if name != "secret"}
    at = f"{HOOKS}/{made['id']}"

    assert made.keys() == NewWebhookResponse.model_fields.keys()
    assert str(made["secret"]).startswith("whsec_")
    assert (await instance.admin.get(at)).json() == shown
    assert shown.keys() == WebhookResponse.model_fields.keys()
    assert (await instance.admin.get(HOOKS)).json()["data"] == [shown]
    answer = await instance.admin.send("PATCH", at, {"events": ["*"], "concurrency": 2})
    changed = cast("Json", answer.json())
    assert (answer.status_code, changed) == (
        200,
        {**shown, "events": ["*"], "concurrency": 2, "updated_at": changed["updated_at"]},
    )
    assert (await instance.admin.send("DELETE", at)).status_code == 204
    assert (await instance.admin.get(at)).status_code == 404
    assert (await instance.admin.get(HOOKS)).json()["meta"]["total"] == 0


async def test_a_test_event_arrives_and_the_log_tells_of_it(instance: Instance, receiver: Receiver) -> None:
    """D-80: the test event goes to that endpoint despite its subscriptions; the request and response are shown."""
    hook = await make(instance.admin, receiver.url, events=["plan.completed"])

    answer = await instance.admin.post(f"{HOOKS}/{hook['id']}/test")

    made = cast("Json", answer.json())
    assert (answer.status_code, made.keys()) == (202, DeliveryResponse.model_fields.keys())
    assert (made["kind"], made["type"], made["webhook_id"]) == ("test", "webhook.test", hook["id"])
    view = await ended(instance.admin, hook, made)
    (came,) = receiver.received
    assert view.keys() == DeliveryDetailResponse.model_fields.keys()
    assert (view["state"], view["attempt_count"], view["payload"]) == ("delivered", 1, came.event)
    (attempt,) = cast("list[Json]", view["attempts"])
    assert attempt.keys() == AttemptResponse.model_fields.keys()
    assert (attempt["number"], attempt["outcome"], attempt["status"], attempt["response"]) == (1, "success", 200, "thanks")
    listed = (await instance.admin.get(f"{HOOKS}/{hook['id']}/deliveries")).json()
    assert listed["data"] == [{name: view[name] for name in DeliveryResponse.model_fields}]
    assert (await instance.admin.get(f"{HOOKS}/{hook['id']}")).json()["last_success_at"] is not None


async def test_the_log_is_listed_by_state_type_and_time(instance: Instance) -> None:
    """D-12, D-80: pages, newest first."""

    def moody(received: ReceivedRequest) -> Reply:
        return Reply(status=410 if received.event["type"] == "memory.stored" else 204, body=b"")

    async with run_receiver(moody) as receiver:
        hook = await make(instance.admin, receiver.url)
        log = f"{HOOKS}/{hook['id']}/deliveries"
        tested = [cast("Json", (await instance.admin.post(f"{HOOKS}/{hook['id']}/test")).json()) for _ in range(3)]
        for each in tested:
            await ended(instance.admin, hook, each)
        await instance.admin.remember()
        await eventually(lambda: _total(instance.admin, f"{log}?state=failed"))

        newest = (await instance.admin.get(f"{log}?per_page=1")).json()
        assert (newest["data"][0]["type"], newest["data"][0]["state"], newest["meta"]["total"]) == ("memory.stored", "failed", 4)
        assert newest["links"]["next"].endswith(f"{log}?per_page=1&page=2")
        assert await _total(instance.admin, f"{log}?type=webhook.test&state=delivered") == 3
        assert await _total(instance.admin, f"{log}?since={tested[2]['created_at']}") == 2
        assert await _total(instance.admin, f"{log}?state=held") == 0


async def _total(caller: Caller, path: str) -> int:
    answer = await caller.get(path)
    assert answer.status_code == 200, answer.text
    return cast("int", answer.json()["meta"]["total"])


async def test_what_failed_or_was_held_is_sent_again_when_the_endpoint_is_enabled(instance: Instance) -> None:
    """D-80, D-81: a 410 disables at once; enabled again it is told how many wait, and resend-failed sends them under their events' ids."""
    gone = True
    async with run_receiver(lambda _: Reply(status=410 if gone else 200)) as receiver:
        hook = await make(instance.admin, receiver.url, events=["memory.*", "webhook.*"])
        at, ear = f"{HOOKS}/{hook['id']}", await record_events(instance.admin, "webhook.disabled")
        await instance.admin.remember("First.")
        disabled = cast("Json", await eventually(lambda: _disabled(instance.admin, at)))
        assert (disabled["enabled"], disabled["disabled_reason"]) == (False, "gone")
        assert await ear.only_data("webhook.disabled") == disabled
        (warned,) = (each for each in await examine(instance.rookery) if each.about == "webhooks")
        assert (warned.grade, str(hook["id"]) in warned.says, "410" in warned.says) == ("warning", True, True)
        await instance.admin.remember("Second.")
        assert await _total(instance.admin, f"{at}/deliveries?state=held") == 1, "and nothing of its own end"
        assert (await instance.admin.post(f"{at}/test")).json()["error"] == "conflict"

        gone = False
        enabled = (await instance.admin.send("PATCH", at, {"enabled": True})).json()
        assert enabled.keys() == ChangedWebhookResponse.model_fields.keys()
        assert (enabled["enabled"], enabled["disabled_reason"], enabled["held"]) == (True, None, 1)
        again = await instance.admin.post(f"{at}/resend-failed", {})

        assert (again.status_code, again.json()) == (202, {"resent": 2})
        await eventually(lambda: len(receiver.received) == 3)
        assert receiver.event_ids()[1] == receiver.event_ids()[0] != receiver.event_ids()[2]
        assert receiver.received[0].body == receiver.received[1].body
        assert (await instance.admin.post(f"{at}/resend-failed")).json() == {"resent": 0}


async def _disabled(caller: Caller, path: str) -> Json | None:
    found = cast("Json", (await caller.get(path)).json())
    return None if found["enabled"] else found


async def test_one_delivery_is_sent_again(instance: Instance, receiver: Receiver) -> None:
    """D-80: as a delivery of its own, that tells of which."""
    hook = await make(instance.admin, receiver.url)
    first = cast("Json", (await instance.admin.post(f"{HOOKS}/{hook['id']}/test")).json())
    await ended(instance.admin, hook, first)

    answer = await instance.admin.post(f"{HOOKS}/{hook['id']}/deliveries/{first['id']}/resend")

    made = cast("Json", answer.json())
    assert (answer.status_code, made["kind"], made["of_delivery"], made["event_id"]) == (202, "resend", first["id"], first["event_id"])
    assert (await ended(instance.admin, hook, made))["state"] == "delivered"
    assert receiver.received[0].body == receiver.received[1].body


async def test_a_secret_is_given_or_made_and_changed_once_at_a_time(instance: Instance, receiver: Receiver) -> None:
    """D-80: 16..128 printable characters, else whsec_; a second rotation in grace is refused, unless it has none."""
    given = await make(instance.admin, receiver.url, secret="a-secret-of-my-own")
    made = await make(instance.admin, receiver.url)
    at = f"{HOOKS}/{made['id']}/rotate-secret"

    assert given["secret"] == "a-secret-of-my-own"
    once = (await instance.admin.post(at, {"grace_period_hours": 0})).json()
    assert (once["secret"] == made["secret"], once["previous_secret_until"]) == (False, None)
    twice = (await instance.admin.post(at)).json()
    assert twice["previous_secret_until"] is not None
    refused = await instance.admin.post(at, {"secret": "another-secret-of-mine"})
    assert (refused.status_code, refused.json()["error"]) == (409, "conflict")
    leaked = (await instance.admin.post(at, {"secret": "another-secret-of-mine", "grace_period_hours": 0})).json()
    assert (leaked["secret"], leaked["previous_secret_until"]) == ("another-secret-of-mine", None)
    assert "whsec_" not in (await instance.admin.get(HOOKS)).text


async def test_a_creation_with_an_idempotency_key_makes_one_endpoint_and_keeps_no_secret(instance: Instance, receiver: Receiver) -> None:
    """D-14: the replay tells which endpoint it was, not its secret."""
    body = {"url": receiver.url, "events": ["memory.*"]}
    first, second = [await instance.admin.post(HOOKS, body, **{"Idempotency-Key": "one"}) for _ in range(2)]

    assert (second.status_code, second.json()["error"], second.json()["id"]) == (409, "secret_already_shown", first.json()["id"])
    assert await _total(instance.admin, HOOKS) == 1


async def test_what_cannot_be_an_endpoint_is_refused_with_the_field(instance: Instance, receiver: Receiver) -> None:
    """D-10, D-82: 422 at once, in words that name the field; nothing is stored."""
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
        ({"secret": "sixteen with spaces"}, "secret"),
        ({"concurrency": 17}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"description": "a" * 5000}, "description"),
        ({"workspace_id": 2}, "workspace_id"),
    ]
    for fields, field in cases:
        answer = await instance.admin.post(HOOKS, {"url": receiver.url, "events": ["memory.*"], **fields})

        assert (answer.status_code, answer.json()["error"]) == (422, "validation_error"), f"{fields}: {answer.text}"
        assert {name.partition(".")[0] for name in answer.json()["errors"]} == {field}, f"{fields}: {answer.text}"
        assert "sixteen with" not in answer.text
    assert await _total(instance.admin, HOOKS) == 0


async def test_a_name_that_is_nearly_an_event_is_told_the_event(instance: Instance, receiver: Receiver) -> None:
    """The error for an unknown event suggests the nearest event type (D-10)."""
    answer = await instance.admin.post(HOOKS, {"url": receiver.url, "events": ["memory.storred"]})

    assert "'memory.stored'" in answer.json()["errors"]["events"][0]


async def test_another_workspace_and_the_sandbox_see_nothing(instance: Instance, receiver: Receiver) -> None:
    """D-10, D-25: another tenant's endpoint is missing, in the words of one that never was; shown are the parent's numbers."""
    hook = await make(instance.admin, receiver.url)
    delivery = cast("Json", (await instance.admin.post(f"{HOOKS}/{hook['id']}/test")).json())
    other = await instance.api_key(workspace_id=await instance.workspace("other"))
    sandbox = await instance.api_key(environment="test")

    for caller in (other, sandbox):
        assert await _total(caller, HOOKS) == 0
        for path in (f"{HOOKS}/{hook['id']}", f"{HOOKS}/{hook['id']}/deliveries", f"{HOOKS}/{hook['id']}/deliveries/{delivery['id']}"):
            answer = await caller.get(path)
            assert (answer.status_code, answer.json()["error"]) == (404, "resource_not_found")
    of_the_sandbox = await make(sandbox, receiver.url)
    assert of_the_sandbox["workspace_id"] == instance.workspace_id
    mixed = await instance.admin.get(f"{HOOKS}/{of_the_sandbox['id']}")
    assert mixed.status_code == 404


async def test_a_delivery_is_found_under_its_own_endpoint_only(instance: Instance, receiver: Receiver) -> None:
    """D-10: an address that mixes two endpoints names nothing."""
    one, other = await make(instance.admin, receiver.url), await make(instance.admin, receiver.url)
    delivery = cast("Json", (await instance.admin.post(f"{HOOKS}/{one['id']}/test")).json())

    assert (await instance.admin.get(f"{HOOKS}/{other['id']}/deliveries/{delivery['id']}")).status_code == 404
    assert (await instance.admin.post(f"{HOOKS}/{other['id']}/deliveries/{delivery['id']}/resend")).status_code == 404


async def test_the_catalogue_is_listed_and_names_routes_that_are_there(instance: Instance, settings: Settings) -> None:
    """D-80, D-81: GET /events; what `data` is, is the answer of a route that is mounted."""
    listed = cast("list[Json]", (await instance.admin.get("/api/v1/events?per_page=100")).json()["data"])
    mounted = {f"{each.route.method} {each.path}" for each in build_route_table(build_platform(settings)).endpoints}

    assert [each["name"] for each in listed] == [each.name for each in EVENT_TYPES]
    assert all(each.keys() == EventTypeResponse.model_fields.keys() for each in listed)
    assert {str(each["resource"]) for each in listed if each["resource"]} - {each.removeprefix("GET ") for each in mounted} == set()


async def test_every_change_is_in_the_audit_log_without_a_secret(instance: Instance, receiver: Receiver) -> None:
    """D-29: who, when, from, to."""
    hook = await make(instance.admin, receiver.url)
    at = f"{HOOKS}/{hook['id']}"
    await instance.admin.send("PATCH", at, {"enabled": False})
    rotated = (await instance.admin.post(f"{at}/rotate-secret")).json()
    await instance.admin.send("DELETE", at)

    log = await instance.admin.get(f"/api/v1/audit?subject_id={hook['id']}")

    assert len({each["action"] for each in log.json()["data"]}) == 4, log.text
    assert str(hook["secret"]) not in log.text
    assert str(rotated["secret"]) not in log.text
