"""Generations over HTTP: answers, errors of the provider, cancellation, and what is stored."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.chat_service import ANSWER, ChatService, hang
from tests.conftest import OPERATOR, Caller, Instance, eventually
from tests.content.conftest import GENERATIONS

Json = dict[str, Any]


async def _get(caller: Caller, generation_id: object) -> Json:
    response = await caller.get(f"{GENERATIONS}/{generation_id}")
    assert response.status_code == 200, response.text
    return cast("Json", response.json())


async def _find_newest(caller: Caller) -> Json:
    items = (await caller.get(GENERATIONS)).json()["data"]
    return items[0] if items else {}


async def _has_status(caller: Caller, generation_id: object, status: str) -> Json:
    generation = await _get(caller, generation_id)
    return generation if generation["status"] == status else {}


@pytest.mark.parametrize("prefix", ["/v1", "/api/agent"])
async def test_a_generation_returns_the_answer_with_its_usage_and_cost(content: Instance, provider: ChatService, prefix: str) -> None:
    """`{prompt}` → the record with output, usage and cost, stored under the same id."""
    response = await content.admin.post(f"{prefix}/content/generations", {"prompt": "Describe a heron.", "metadata": {"page": 7}})

    assert response.status_code == 200, response.text
    record = response.json()
    assert (record["status"], record["mode"], record["canned"], record["metadata"]) == ("succeeded", "sync", False, {"page": 7})
    assert record["output"] == {"text": ANSWER, "json": None}
    assert record["usage"] == {"input_tokens": 11, "output_tokens": 17, "is_estimated": False}
    assert record["cost"] == pytest.approx((11 * 1 + 17 * 2) / 1e6)
    assert (record["attempts"], record["error"], record["key_id"]) == (1, None, record["key_id"])
    assert record == await _get(content.admin, record["id"])
    assert provider.requests[0].json["messages"] == [{"role": "user", "content": "Describe a heron."}]


async def test_a_schema_makes_the_output_json(content: Instance, provider: ChatService) -> None:
    """JSON-schema output; the mode that was used is in the answer."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    response = await content.admin.post(GENERATIONS, {"prompt": "A city?", "schema": schema, "temperature": 0.0, "max_tokens": 50})

    record = response.json()
    assert record["status"] == "succeeded", response.text
    assert isinstance(record["output"]["json"], dict)
    assert (record["schema_mode"], record["schema"]) == ("json_schema", schema)
    assert provider.requests[0].json["max_tokens"] == 50


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "body"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": "a", "variables": {"b": 1}}, "body"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages"),
        ({"messages": [{"role": "user", "content": "a"}] * 201}, "messages"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 9_000}, "max_tokens"),
        ({"prompt": "a", "temperature": 2.5}, "temperature"),
        ({"prompt": "a", "schema": {"type": 3}}, "schema"),
        ({"prompt": "a", "mode": "later"}, "mode"),
        ({"prompt": "a", "metadata": {"a": "b" * 20_000}}, "metadata"),
        ({"prompt": "a", "promt": "b"}, "promt"),
        ({"messages": [{"role": "user", "content": "a" * 300_000}] * 2}, "messages"),
    ],
)
async def test_an_invalid_request_names_the_field_and_stores_nothing(content: Instance, body: Json, field: str) -> None:
    """Bad input is a 422 with the field; nothing is sent."""
    response = await content.admin.post(GENERATIONS, body)

    assert response.status_code == 422, response.text
    assert field in response.json()["errors"], response.text
    assert await _find_newest(content.admin) == {}


async def test_a_missing_template_is_404(content: Instance) -> None:
    """A template of the workspace must exist."""
    response = await content.admin.post(GENERATIONS, {"template": "missing"})

    assert (response.status_code, response.json()["error"]) == (404, "resource_not_found")


async def test_without_a_provider_nothing_is_invented(instance: Instance) -> None:
    """Unset → 503 `generation_not_configured`, in each mode and for batches."""
    for mode in ("sync", "queued", "stream"):
        response = await instance.admin.post(GENERATIONS, {"prompt": "a", "mode": mode})
        assert (response.status_code, response.json()["error"]) == (503, "generation_not_configured")
    batch = await instance.admin.post("/v1/content/batches", {"requests": [{"prompt": "a"}]})
    assert (batch.status_code, batch.json()["error"]) == (503, "generation_not_configured")
    assert await _find_newest(instance.admin) == {}


async def test_a_test_key_gets_a_marked_fixed_text(content: Instance, provider: ChatService) -> None:
    """Generation answers from a marked canned writer in the sandbox, which the live keys do not see."""
    sandbox = await content.api_key(environment="test")
    for mode in ("sync", "queued"):
        record = (await sandbox.post(GENERATIONS, {"prompt": "a", "mode": mode})).json()
        record = await eventually(lambda record=record: _has_status(sandbox, record["id"], "succeeded"))
        assert (record["canned"], record["cost"]) == (True, None)
        assert "No language model was called" in cast("Json", record["output"])["text"]

    assert provider.requests == []
    assert await _find_newest(content.admin) == {}


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("413", 422, "provider_refused"),
        ("429", 503, "provider_rate_limited"),
        ("500", 503, "provider_unavailable"),
        ("html", 502, "provider_response_invalid"),
        ("truncated", 502, "provider_response_invalid"),
        ("empty", 502, "provider_response_invalid"),
        ("no-such-model", 422, "provider_refused"),
        ("cut-after-headers", 503, "provider_unavailable"),
    ],
)
async def test_a_failure_of_the_provider_is_a_clear_state(content: Instance, model: str, status: int, code: str) -> None:
    """A provider that answers nonsense, 413, 429, 500: an error with the id, and a row with the reason."""
    response = await content.admin.post(GENERATIONS, {"prompt": "a", "model": model})

    assert (response.status_code, response.json()["error"]) == (status, code), response.text
    record = await _get(content.admin, response.json()["generation_id"])
    assert (record["status"], record["output"]) == ("failed", None)
    assert cast("Json", record["error"])["code"] == code
    assert await eventually(lambda: _read_reserved(content)) == [0.0, 0.0]


async def _read_reserved(content: Instance) -> list[float]:
    return [budget["reserved"] for budget in (await content.admin.get("/v1/content/budgets")).json()["data"]]


async def test_a_wrong_key_of_the_operator_is_not_shown(content: Instance, provider: ChatService) -> None:
    """The provider's refusal of the operator's key is a 502 without the key."""
    provider.key = "sk-another"
    response = await content.admin.post(GENERATIONS, {"prompt": "a"})

    assert (response.status_code, response.json()["error"]) == (502, "provider_access_denied")
    assert "sk-the-key" not in response.text


async def test_a_cancelled_generation_stays_cancelled(content: Instance, provider: ChatService) -> None:
    """Cancelling closes the provider's connection; the waiting client gets 409, and the row keeps its status."""
    waiting = asyncio.create_task(content.admin.post(GENERATIONS, {"prompt": "a", "model": "hang"}))
    newest = await eventually(lambda: _find_newest(content.admin))
    await eventually(lambda: provider.active_count)
    first, second = [await content.admin.post(f"{GENERATIONS}/{newest['id']}/cancel") for _ in range(2)]

    assert (first.status_code, first.json()["status"], second.json()["status"]) == (200, "cancelled", "cancelled")
    response = await waiting
    assert (response.status_code, response.json()["error"]) == (409, "generation_cancelled")
    await eventually(lambda: provider.disconnects)
    record = await eventually(lambda: _is_counted(content.admin, newest["id"]))
    assert record["status"] == "cancelled"
    assert cast("Json", record["error"])["code"] == "cancelled"
    assert await _read_reserved(content) == [0.0, 0.0]


async def _is_counted(caller: Caller, generation_id: object) -> Json:
    generation = await _get(caller, generation_id)
    return generation if generation["usage"] is not None else {}


async def test_a_deleted_workspace_ends_its_calls(content: Instance, provider: ChatService) -> None:
    """The waiting client gets 409, and not a success without an answer; the provider's connection is closed."""
    workspace = await content.workspace("other")
    waiting = [
        asyncio.create_task((await content.api_key(workspace_id=workspace)).post(GENERATIONS, {"prompt": "a", "model": model}))
        for model in ("hang", "hold")
    ]
    await eventually(lambda: provider.active_count == 2)
    await content.rookery.access.workspaces.delete(workspace, by=OPERATOR)
    provider.release()

    for response in await asyncio.gather(*waiting):
        assert (response.status_code, response.json()["error"]) == (409, "generation_cancelled"), response.text
    await eventually(lambda: provider.active_count == 0)


async def test_a_finished_generation_cannot_be_cancelled(content: Instance) -> None:
    """Cancelling something that has ended is a conflict."""
    record = (await content.admin.post(GENERATIONS, {"prompt": "a"})).json()
    response = await content.admin.post(f"{GENERATIONS}/{record['id']}/cancel")

    assert (response.status_code, response.json()["error"]) == (409, "conflict")


async def test_a_queued_generation_runs_in_the_background(content: Instance) -> None:
    """`queued` answers at once with 202; the row gets the output."""
    response = await content.admin.post(GENERATIONS, {"prompt": "a", "mode": "queued"})

    assert (response.status_code, response.json()["status"]) == (202, "queued")
    record = await eventually(lambda: _has_status(content.admin, response.json()["id"], "succeeded"))
    assert cast("Json", record["output"])["text"] == ANSWER


async def test_a_queued_generation_can_be_cancelled_while_it_runs(content: Instance, provider: ChatService) -> None:
    """Cancelled stays cancelled, also for work that a job runs."""
    queued = (await content.admin.post(GENERATIONS, {"prompt": "a", "model": "hang", "mode": "queued"})).json()
    await eventually(lambda: provider.active_count)
    response = await content.admin.post(f"{GENERATIONS}/{queued['id']}/cancel")

    assert response.json()["status"] == "cancelled"
    await eventually(lambda: provider.disconnects)
    record = await eventually(lambda: _is_counted(content.admin, queued["id"]))
    assert record["status"] == "cancelled"


async def test_a_queued_generation_waits_for_a_provider_that_fails_for_a_while(content: Instance, provider: ChatService) -> None:
    """A failure that may pass is tried again later; until then the row is queued and holds no budget."""
    queued = (await content.admin.post(GENERATIONS, {"prompt": "a", "model": "429", "mode": "queued"})).json()
    record = await eventually(lambda: _has_error(content.admin, queued["id"]))

    assert (record["status"], cast("Json", record["error"])["code"]) == ("queued", "provider_rate_limited")
    assert await _read_reserved(content) == [0.0, 0.0]


async def _has_error(caller: Caller, generation_id: object) -> Json:
    generation = await _get(caller, generation_id)
    return generation if generation["error"] is not None else {}


async def test_a_failed_generation_can_be_repeated(content: Instance) -> None:
    """The copy names the original, has its messages and is queued; one that succeeded is not repeated."""
    failed = (await content.admin.post(GENERATIONS, {"prompt": "Once more", "model": "413"})).json()
    response = await content.admin.post(f"{GENERATIONS}/{failed['generation_id']}/retry")

    assert response.status_code == 202, response.text
    copy = response.json()
    assert (copy["retry_of"], copy["messages"]) == (failed["generation_id"], [{"role": "user", "content": "Once more"}])
    await eventually(lambda: _has_status(content.admin, copy["id"], "failed"))
    succeeded = (await content.admin.post(GENERATIONS, {"prompt": "a"})).json()
    assert (await content.admin.post(f"{GENERATIONS}/{succeeded['id']}/retry")).status_code == 409


async def test_a_repeated_request_with_a_key_returns_the_stored_answer(content: Instance, provider: ChatService) -> None:
    """The second request with the same Idempotency-Key does not reach the provider; another body is a 422."""
    headers = {"Idempotency-Key": "one"}
    first, second = [await content.admin.post(GENERATIONS, {"prompt": "a"}, **headers) for _ in range(2)]
    other = await content.admin.post(GENERATIONS, {"prompt": "b"}, **headers)

    assert (first.status_code, second.text, second.headers["idempotent-replay"]) == (200, first.text, "true")
    assert (other.status_code, other.json()["error"]) == (422, "idempotency_mismatch")
    assert len(provider.requests) == 1


async def test_a_failed_request_with_a_key_is_not_stored(content: Instance, provider: ChatService) -> None:
    """Only 2xx are kept, so that the same key works again after a failure of the provider."""
    provider.queue.append(hang)
    headers, body = {"Idempotency-Key": "one"}, {"prompt": "a"}
    waiting = asyncio.create_task(content.admin.post(GENERATIONS, body, **headers))
    newest = await eventually(lambda: _find_newest(content.admin))
    await eventually(lambda: provider.active_count)
    await content.admin.post(f"{GENERATIONS}/{newest['id']}/cancel")
    assert (await waiting).status_code == 409

    repeated = await content.admin.post(GENERATIONS, body, **headers)
    assert (repeated.status_code, "idempotent-replay" in repeated.headers) == (200, False)


async def test_generations_are_filtered(content: Instance) -> None:
    """The list has filters, newest first, and no texts."""
    await content.admin.post(GENERATIONS, {"prompt": "a"})
    await content.admin.post(GENERATIONS, {"prompt": "a", "model": "413"})
    queries = {"?status=failed": 1, "?status=succeeded": 1, "?model=ok": 1, "?mode=stream": 0, "?mode=sync": 2, "?key_id=none": 0, "": 2}
    for query, count in queries.items():
        page = (await content.admin.get(GENERATIONS + query)).json()
        assert (page["meta"]["total"], len(page["data"])) == (count, count), query
    assert "messages" not in (await content.admin.get(GENERATIONS)).json()["data"][0]


async def test_another_workspace_sees_and_cancels_nothing(content: Instance) -> None:
    """Walls: a generation, a batch and a template of another tenant do not exist."""
    record = (await content.admin.post(GENERATIONS, {"prompt": "a"})).json()
    stranger = await content.api_key(workspace_id=await content.workspace("Other"))
    for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/retry")):
        response = await stranger.send(method, f"{GENERATIONS}/{record['id']}{path}")
        assert response.status_code == 404, path
    assert (await stranger.get(GENERATIONS)).json()["data"] == []
    assert (await stranger.get("/v1/content/usage")).json()["data"] == []
