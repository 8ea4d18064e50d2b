"""Goes on as a client of the older version after the upgrade: claims, sessions, signatures, repeated requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import cast

import httpx2
from standardwebhooks import Webhook, WebhookVerificationError

from tests.upgrade_check.contents import REPLAY_KEY, REPLAYED, Contents
from tests.upgrade_check.receiver import Delivery, Receiver
from tests.upgrade_check.versions import LIMIT_S, RunningServer

Json = dict[str, object]
Outcomes = dict[str, tuple[object, object]]
"""The expected and the actual outcome, by the name of the comparison."""


def act(server: RunningServer, contents: Contents, receiver: Receiver, mark: str) -> Outcomes:
    """Use what the older version gave out, and return what came of it. *mark* is a word that no memory has yet."""
    with server.connect() as client:
        return {
            "repeat: a request with its Idempotency-Key": (contents.replayed_memory, _repeat(client)),
            **_go_on_with_the_plan(client, contents),
            **_go_on_with_the_session(client, contents),
            **_receive_webhooks(client, contents, receiver, mark),
        }


def _repeat(client: httpx2.Client) -> object:
    response = client.post("/v1/brain/remember", json=REPLAYED, headers={"Idempotency-Key": REPLAY_KEY})
    return cast("Json", response.raise_for_status().json())["id"]


def _go_on_with_the_plan(client: httpx2.Client, contents: Contents) -> Outcomes:
    task = f"/v1/tasks/{contents.task}"
    foreign = client.post(f"{task}/heartbeat", json={"claim_token": "0" * len(contents.claim_token)}).status_code
    second = client.post(f"{task}/claim", json={}).status_code
    beat = client.post(f"{task}/heartbeat", json={"claim_token": contents.claim_token}).status_code
    completed = client.post(f"{task}/complete", json={"claim_token": contents.claim_token, "claim_next": True})
    body = cast("Json", completed.json())
    next_task = cast("Json", body.get("next") or {})
    return {
        "claim: another token keeps nothing": (409, foreign),
        "claim: nobody else gets the task": (409, second),
        "claim: the old token keeps the lease": (200, beat),
        "claim: the old token completes the task": (200, completed.status_code),
        "claim: the next task is that of the plan": ("check the dump", next_task.get("name")),
    }


def _go_on_with_the_session(client: httpx2.Client, contents: Contents) -> Outcomes:
    path = f"/v1/sessions/{contents.session}"
    event = client.post(f"{path}/events", json={"type": "note", "message": "Went on."})
    ended = client.post(f"{path}/end", json={"status": "completed", "summary": "Done."})
    return {
        "session: the next event": (201, event.status_code),
        "session: it ends": ("completed", cast("Json", ended.json()).get("status")),
    }


def _receive_webhooks(client: httpx2.Client, contents: Contents, receiver: Receiver, mark: str) -> Outcomes:
    """Cause an event for each endpoint, and check the signatures with the secrets that the older version gave out."""
    receiver.deliveries.clear()
    endpoint = f"/api/v1/webhooks/{contents.held}"
    client.patch(endpoint, json={"enabled": True}).raise_for_status()
    client.post(f"{endpoint}/resend-failed", json={}).raise_for_status()
    remembered = client.post("/v1/brain/remember", json={"content": f"The word is {mark}.", "type": "fact", "org": mark}).raise_for_status()
    memory = str(cast("Json", remembered.json())["id"])
    outcomes: Outcomes = {}
    for name, (_, secrets) in contents.webhooks.items():
        deliveries = _wait_for_deliveries(receiver, name, memory)
        for number, secret in enumerate(secrets):
            which = "new secret" if len(secrets) > 1 and number == 0 else "old secret"
            outcomes[f"webhook '{name}': signed by its {which}"] = (True, any(_is_signed(delivery, secret) for delivery in deliveries))
    resent = _wait(lambda: receiver.list_deliveries("held", '"held"'))
    outcomes["webhook 'held': what waited is delivered"] = (True, any(_is_signed(one, contents.webhooks["held"][1][0]) for one in resent))
    return outcomes


def _wait_for_deliveries(receiver: Receiver, path: str, text: str) -> list[Delivery]:
    return _wait(lambda: receiver.list_deliveries(path, text))


def _wait(read: Callable[[], list[Delivery]]) -> list[Delivery]:
    """Return what is read as soon as it is not empty, or nothing after the deadline of all tests."""
    deadline = time.monotonic() + LIMIT_S / 10
    while time.monotonic() < deadline:
        if deliveries := read():
            return deliveries
        time.sleep(0.1)
    return []


def _is_signed(delivery: Delivery, secret: str) -> bool:
    headers: Mapping[str, str] = delivery.headers
    try:
        Webhook(secret).verify(delivery.body, dict(headers))
    except WebhookVerificationError:
        return False
    return True
