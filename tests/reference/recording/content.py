"""The part of the story about generated content."""

from __future__ import annotations

from tests.conftest import eventually
from tests.reference.recording.recorder import Json, Recorder

_CONTENT = "/api/agent/content"
_GENERATION = f"{_CONTENT}/generations/{{generation_id}}"
_BATCH = f"{_CONTENT}/batches/{{batch_id}}"
_TEMPLATE = f"{_CONTENT}/templates/{{slug}}"
_BUDGET = f"{_CONTENT}/budgets/keys/{{key_id}}"


async def play(recorder: Recorder) -> None:
    """Generate from a prompt and a template, queue a batch, and set a budget."""
    admin = recorder.instance.admin
    note: Json = {
        "name": "Release note",
        "variables": {"product": {"description": "The name of the product"}, "tone": {"default": "dry", "enum": ["dry", "warm"]}},
        "messages": [
            {"role": "system", "content": "Write in a {{ tone }} tone."},
            {"role": "user", "content": "Write a release note for {{ product }}."},
        ],
        "max_tokens": 300,
    }
    await recorder.send(admin, f"POST {_CONTENT}/templates", {"slug": "release-note", **note})
    await recorder.send(admin, f"GET {_CONTENT}/templates", query={"per_page": 20})
    await recorder.send(admin, f"GET {_TEMPLATE}", query={"version": 1}, slug="release-note")
    await recorder.send(admin, f"POST {_TEMPLATE}/preview", {"variables": {"product": "the kettle"}}, slug="release-note")
    await recorder.send(admin, f"PUT {_TEMPLATE}", {**note, "temperature": 0.4}, slug="release-note")
    await recorder.send(admin, f"GET {_TEMPLATE}/versions", slug="release-note")
    body = {"template": "release-note", "variables": {"product": "the kettle"}, "metadata": {"page": "home"}}
    generation = await recorder.send(admin, f"POST {_CONTENT}/generations", body)
    await recorder.send(admin, f"GET {_CONTENT}/generations", query={"status": "succeeded", "per_page": 20})
    await recorder.send(admin, f"GET {_GENERATION}", generation_id=generation["id"])
    await recorder.send(admin, f"GET {_GENERATION}/score", generation_id=generation["id"])
    requests = [{"prompt": "Describe a rook."}, {"prompt": "Describe a heron.", "max_tokens": 50}]
    batch = (await recorder.send(admin, f"POST {_CONTENT}/batches", {"requests": requests}))["id"]

    async def has_ended() -> Json | None:
        answer = (await admin.get(f"{_CONTENT}/batches/{batch}")).json()
        return answer if answer["ended_at"] else None

    await eventually(has_ended)
    await recorder.send(admin, f"GET {_CONTENT}/batches", query={"per_page": 20})
    await recorder.send(admin, f"GET {_BATCH}", batch_id=batch)
    await recorder.send(admin, f"GET {_BATCH}/generations", query={"per_page": 20}, batch_id=batch)
    await recorder.send(admin, f"POST {_BATCH}/cancel", batch_id=batch)
    queued = (await admin.post(f"{_CONTENT}/generations", {"prompt": "Describe a crane.", "model": "hang", "mode": "queued"})).json()["id"]

    async def is_running() -> bool:
        return (await admin.get(f"{_CONTENT}/generations/{queued}")).json()["status"] == "running"

    await eventually(is_running)
    await recorder.send(admin, f"POST {_GENERATION}/cancel", generation_id=queued)
    await recorder.send(admin, f"POST {_GENERATION}/retry", generation_id=queued)
    key = str(generation["key_id"])
    await recorder.send(admin, "GET /api/agent/usage", query={"month": "this", "by": "kind,model"})
    await recorder.send(admin, f"PUT {_CONTENT}/budgets/workspace", {"daily": 20, "monthly": 300})
    await recorder.send(admin, f"PUT {_BUDGET}", {"daily": 5}, key_id=key)
    await recorder.send(admin, f"GET {_CONTENT}/budgets")
    await recorder.send(admin, f"DELETE {_BUDGET}", key_id=key)
    await recorder.send(admin, f"DELETE {_CONTENT}/budgets/workspace")
    await recorder.send(admin, f"GET {_CONTENT}/usage", query={"since": "2027-03-01"})
    await recorder.send(admin, f"DELETE {_TEMPLATE}", slug="release-note")
