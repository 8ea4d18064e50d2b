"""The parts of the story about plans, their phases and tasks, and templates of plans."""

from __future__ import annotations

from typing import cast

from tests.reference.recording.recorder import Json, Recorder

_BASE = "/api/agent"
_PLAN = f"{_BASE}/plans/{{plan}}"
_PHASE = f"{_PLAN}/phases/{{phase}}"
_TASK = f"{_BASE}/tasks/{{task}}"
_SLUG = "new-checkout"


async def play(recorder: Recorder) -> None:
    """Create a plan, change it, work on its tasks, and archive it."""
    kim = recorder.instance.admin
    created = await recorder.send(
        kim,
        f"POST {_BASE}/plans",
        {
            "title": "New checkout",
            "slug": _SLUG,
            "description": "One page in place of three. The old pages stay until a week after.",
            "org": "acme",
            "project": "shop",
            "status": "active",
            "phases": [
                {
                    "name": "Build",
                    "key": "build",
                    "tasks": [
                        {"name": "Draw the page", "key": "draw", "priority": 1},
                        {"name": "Write the form", "depends_on": ["draw"], "acceptance_criteria": [{"text": "Each field has a label."}]},
                        {"name": "Measure how fast the page is"},
                        {"name": "Ask the accountants"},
                    ],
                },
                {"name": "Release", "depends_on": ["build"], "tasks": [{"name": "Switch it on for one customer in ten"}]},
            ],
        },
    )
    await recorder.send(kim, f"GET {_BASE}/plans", query={"org": "acme", "status": "active", "per_page": 20})
    await recorder.send(kim, f"GET {_PLAN}", plan=_SLUG)
    await recorder.send(kim, f"GET {_PLAN}.md", plan=_SLUG)
    await recorder.send(kim, f"GET {_PLAN}/graph", plan=_SLUG)
    await recorder.send(kim, f"PATCH {_PLAN}", {"description": "One page in place of three."}, plan=_SLUG)
    await _phases(recorder)
    await _tasks(recorder, cast("list[Json]", cast("list[Json]", created["phases"])[0]["tasks"]))
    await recorder.send(kim, f"GET {_PLAN}/events", query={"per_page": 20}, plan=_SLUG)
    await recorder.send(kim, f"PATCH {_PLAN}/status", {"status": "paused", "reason": "We wait for the accountants."}, plan=_SLUG)
    await recorder.send(kim, f"POST {_PLAN}/archive", {"reason": "The old checkout stays."}, plan=_SLUG)
    await recorder.send(kim, f"POST {_PLAN}/restore", plan=_SLUG)
    await kim.post(f"{_BASE}/plans", {"title": "A mistake", "slug": "a-mistake"})
    await recorder.send(kim, f"DELETE {_PLAN}", plan="a-mistake")


async def _phases(recorder: Recorder) -> None:
    kim = recorder.instance.admin
    new = {"name": "Look back", "description": "What went well, and what did not.", "tasks": [{"name": "Write down what we learned"}]}
    await recorder.send(kim, f"POST {_PLAN}/phases", new, plan=_SLUG)
    await recorder.send(kim, f"GET {_PLAN}/phases", plan=_SLUG)
    await recorder.send(kim, f"GET {_PHASE}", plan=_SLUG, phase=1)
    await recorder.send(kim, f"PATCH {_PHASE}", {"description": "What went well, what did not, and what we change."}, plan=_SLUG, phase=3)
    checkpoint = {"note": "The page is drawn, and the designers like it.", "context": {"branch": "checkout"}}
    await recorder.send(kim, f"POST {_PHASE}/checkpoints", checkpoint, plan=_SLUG, phase=1)
    task = {"name": "Translate the texts", "priority": 3, "notes": "German and French first."}
    await recorder.send(kim, f"POST {_PHASE}/tasks", task, plan=_SLUG, phase=1)
    await recorder.send(kim, f"GET {_PHASE}/tasks", query={"state": "ready"}, plan=_SLUG, phase=1)
    await recorder.send(kim, f"PATCH {_PHASE}/status", {"status": "skipped", "reason": "We did so last week."}, plan=_SLUG, phase=3)
    await recorder.send(kim, f"DELETE {_PHASE}", plan=_SLUG, phase=3)


async def _tasks(recorder: Recorder, tasks: list[Json]) -> None:
    kim = recorder.instance.admin
    draw, write, measure, ask = (task["id"] for task in tasks)
    await recorder.send(kim, f"GET {_BASE}/tasks", query={"plan": _SLUG, "state": "ready"})
    await recorder.send(kim, f"GET {_TASK}", task=draw)
    await recorder.send(kim, f"PATCH {_TASK}", {"notes": "Begin with the telephone, then the large screen."}, task=write)
    claimed = await recorder.send(kim, f"POST {_TASK}/claim", {"ttl_s": 600}, task=draw)
    await recorder.send(kim, f"POST {_TASK}/heartbeat", {"claim_token": claimed["claim_token"], "ttl_s": 600}, task=draw)
    completion = {"claim_token": claimed["claim_token"], "result": {"file": "checkout.svg"}, "notes": "Three fields fewer than before."}
    await recorder.send(kim, f"POST {_TASK}/complete", completion, task=draw)
    next_task = await recorder.send(kim, f"POST {_BASE}/tasks/claim-next", {"plan": _SLUG, "ttl_s": 600})
    release = {"claim_token": next_task["claim_token"], "reason": "Somebody who knows the form should do it."}
    await recorder.send(kim, f"POST {_TASK}/release", release, task=next_task["id"])
    token = (await kim.post(f"{_BASE}/tasks/{measure}/claim", {})).json()["claim_token"]
    failure = {"claim_token": token, "error": "The test machine has no network.", "result": {"tried": 3}}
    await recorder.send(kim, f"POST {_TASK}/fail", failure, task=measure)
    await recorder.send(kim, f"DELETE {_TASK}", task=ask)


async def templates(recorder: Recorder) -> None:
    """Create a template, preview it, use it, and delete a copy."""
    kim, base = recorder.instance.admin, f"{_BASE}/templates"
    fields: Json = {
        "name": "Hotfix",
        "description": "Fix one thing in production, today.",
        "category": "engineering",
        "variables": {"service": {"type": "string", "required": True, "description": "What is broken."}},
        "guidelines": ["Change as little as possible."],
        "phases": [{"name": "Fix {{ service }}", "tasks": [{"name": "Find the cause"}, {"name": "Write a test that fails"}]}],
    }
    await recorder.send(kim, f"POST {base}", {"slug": "hotfix", **fields})
    await recorder.send(kim, f"GET {base}", query={"category": "engineering"})
    await recorder.send(kim, f"GET {base}/{{slug}}", slug="hotfix")
    await recorder.send(
        kim, f"PUT {base}/{{slug}}", {**fields, "description": "Fix one thing in production, within the hour."}, slug="hotfix"
    )
    await recorder.send(kim, f"GET {base}/{{slug}}/versions", slug="hotfix")
    await recorder.send(kim, f"POST {base}/{{slug}}/preview", {"variables": {"service": "the checkout"}}, slug="hotfix")
    use = {"variables": {"service": "the checkout"}, "title": "The checkout is slow", "status": "active", "org": "acme"}
    await recorder.send(kim, f"POST {base}/{{slug}}/plans", use, slug="hotfix")
    await recorder.send(kim, f"POST {base}/{{slug}}/copies", {"slug": "hotfix-at-night", "name": "Hotfix at night"}, slug="hotfix")
    await recorder.send(kim, f"DELETE {base}/{{slug}}", slug="hotfix-at-night")
