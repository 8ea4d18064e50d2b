"""The log of recalls: what was asked and returned, and why a memory was not returned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import cast

import pytest

from rookery.access.models import SYSTEM_ACTOR, KeyRestrictions
from rookery.memory.maintenance.forgetting import ForgetRequest
from rookery.memory.maintenance.scrubbing import CleanRequest
from tests.conftest import Caller, Instance

Json = dict[str, object]
RECALLS = "/v1/brain/recalls"
QUESTION = "Where do herons nest?"


async def _recall(caller: Caller, query: str = QUESTION, **fields: object) -> Json:
    response = await caller.post("/v1/brain/recall", {"query": query, **fields})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def _list(caller: Caller, parameters: str = "") -> list[Json]:
    response = await caller.get(f"{RECALLS}?{parameters}")
    assert response.status_code == 200, response.text
    return list(response.json()["data"])


async def _explain(caller: Caller, recall: Json, memory: object) -> Json:
    response = await caller.get(f"{RECALLS}/{recall['recall_id']}/explain?memory_id={memory}")
    assert response.status_code == 200, response.text
    return dict(response.json()["memory"])


async def test_a_recall_is_logged_with_its_question_filters_results_and_feedback(instance: Instance) -> None:
    """The entry has what the request had, and what the answer had."""
    agent = await instance.agent_key(agent_id="kim")
    herons = await instance.admin.remember("Herons nest on pier 7.", project="web", tags=["birds"])
    recall = await _recall(agent, project="web", tags=["birds"], top_k=3, session_id="s-1", min_confidence=0.1)
    await agent.post(f"/v1/brain/recall/{recall['recall_id']}/feedback", {"used": [herons["id"]]})
    entry = dict((await agent.get(f"{RECALLS}/{recall['recall_id']}")).json())

    assert (entry["query"], entry["mode"], entry["top_k"], entry["is_confident"]) == (QUESTION, "hybrid", 3, recall["is_confident"])
    assert (entry["key_id"], entry["agent_id"], entry["session_id"], entry["project"]) == (agent.key_id, "kim", "s-1", "web")
    assert entry["memories"] == [{"id": herons["id"], "rank": 1, "feedback": "used"}]
    filters = cast("Json", entry["filters"])
    assert (filters["tags"], filters["min_confidence"], filters["type"]) == (["birds"], 0.1, None)
    assert await _list(agent) == [entry]


async def test_the_log_is_filtered_by_key_agent_session_project_memory_and_time(instance: Instance) -> None:
    """Each filter selects one of two recalls."""
    memory = await instance.admin.remember("Herons nest on pier 7.", project="web")
    other = await instance.api_key()
    first = await _recall(instance.admin, project="web", agent_id="kim", session_id="s-1")
    second = await _recall(other, "Zebras?", project="zoo", mode="keyword")
    (newest, oldest) = await _list(instance.admin)

    assert [newest["id"], oldest["id"]] == [second["recall_id"], first["recall_id"]]
    for parameters in ("agent_id=kim", "session_id=s-1", "project=web", f"memory_id={memory['id']}", f"until={newest['created_at']}"):
        assert await _list(instance.admin, parameters) == [oldest], parameters
    for parameters in (f"key_id={other.key_id}", "project=zoo", f"since={newest['created_at']}"):
        assert await _list(instance.admin, parameters) == [newest], parameters


async def test_pages_neither_repeat_nor_lose_a_recall_while_others_are_made(instance: Instance) -> None:
    """The pages are like those of every list."""
    made = [str((await _recall(instance.admin, f"Question {number}?"))["recall_id"]) for number in range(5)]
    seen, cursor = list[str](), ""
    for _ in range(10):
        page = (await instance.admin.get(f"{RECALLS}?per_page=2{cursor}")).json()
        seen += [entry["id"] for entry in page["data"]]
        await _recall(instance.admin, "Meanwhile?")
        if page["meta"]["next_cursor"] is None:
            break
        cursor = f"&cursor={page['meta']['next_cursor']}"

    assert seen == made[::-1]
    first = (await instance.admin.get(f"{RECALLS}?per_page=2")).json()
    assert (first["meta"]["total"], first["links"]["prev"]) == (8, None)
    second = (await instance.admin.get(f"{RECALLS}?per_page=2&page=2")).json()
    assert second["data"] == (await instance.admin.get(f"{RECALLS}?per_page=2&cursor={first['meta']['next_cursor']}")).json()["data"]


async def test_a_key_sees_its_own_recalls_and_with_audit_read_those_within_its_rights(instance: Instance) -> None:
    """Lists of orgs and projects and the agent of a key limit what it sees, and another workspace sees nothing."""
    plain, auditor = await instance.api_key("brain:read"), await instance.api_key("brain:read", "audit:read")
    limited = await instance.api_key("brain:read", "audit:read", restrictions=KeyRestrictions(projects=frozenset({"web"})))
    kim = await instance.agent_key("brain:read", "audit:read", agent_id="kim")
    stranger = await instance.api_key(workspace_id=await instance.workspace("other"))
    own = await _recall(plain)
    of_project = await _recall(instance.admin, project="web")
    of_agent = await _recall(instance.admin, agent_id="lee")
    expected = {
        plain: [own],
        auditor: [of_agent, of_project, own],
        limited: [of_project],
        kim: [of_project, own],
        stranger: [],
    }

    for caller, recalls in expected.items():
        assert [entry["id"] for entry in await _list(caller)] == [recall["recall_id"] for recall in recalls]
        for recall in (own, of_project, of_agent):
            for path in (f"{RECALLS}/{recall['recall_id']}", f"{RECALLS}/{recall['recall_id']}/explain"):
                assert (await caller.get(path)).status_code == (200 if recall in recalls else 404)


@dataclass(frozen=True)
class Questions:
    """Memories that leave a recall at different steps, and the recall."""

    recall: Json
    expected: dict[str, tuple[str, list[str]]]


@pytest.fixture
async def questions(instance: Instance) -> Questions:
    """A recall of project web, tag birds, of which one memory is returned."""
    admin = instance.admin
    fields: Json = {"project": "web", "tags": ["birds"]}
    best = await admin.remember("Herons nest on pier 7 in May.", **fields)
    beaten = await admin.remember("Some herons nest elsewhere, it is said.", **fields)
    archived = await admin.remember("Herons nest on pier 8.", **fields)
    await admin.post(f"/v1/brain/memories/{archived['id']}/archive")
    untagged = await admin.remember("Herons nest on pier 9.", project="web")
    elsewhere = await admin.remember("Herons nest in the zoo.", project="zoo", tags=["birds"])
    private = await admin.remember("Herons nest with Lee.", memory_scope="agent", agent_id="lee", **fields)
    recall = await _recall(admin, project="web", tags=["birds"], top_k=1)
    (returned,) = cast("list[Json]", recall["memories"])
    missing = beaten if returned["id"] == best["id"] else best
    later = await admin.remember("Herons nest on pier 7 in May and June.", **fields)
    return Questions(
        recall,
        {
            str(returned["id"]): ("returned", []),
            str(missing["id"]): ("top_k", []),
            str(archived["id"]): ("archived", []),
            str(untagged["id"]): ("filter", ["tags"]),
            str(elsewhere["id"]): ("filter", ["project"]),
            str(private["id"]): ("filter", ["agent_id"]),
            str(later["id"]): ("stored_later", []),
            "00000000-0000-7000-8000-000000000000": ("not_visible", []),
        },
    )


async def test_one_request_says_why_a_memory_was_not_returned(instance: Instance, questions: Questions) -> None:
    """The answer names the step at which the memory leaves the recall."""
    before = await _list(instance.admin)
    for memory_id, (reason, filters) in questions.expected.items():
        verdict = await _explain(instance.admin, questions.recall, memory_id)
        if reason == "returned" and verdict["reason"] == "top_k":  # a later, better memory took its place
            assert verdict["logged_rank"] == 1
            continue
        assert (verdict["reason"], verdict["filters"]) == (reason, filters), verdict

    assert await _list(instance.admin) == before  # a repeated recall is not logged


async def test_a_memory_below_the_minimum_or_beyond_the_budget_is_named_as_such(instance: Instance) -> None:
    """The rules are those of the explanation of a recall."""
    short = await instance.admin.remember("Herons nest on pier 7.")
    far = await instance.admin.remember("The harbour crane was painted.")
    large = await instance.admin.remember("Herons nest on pier 7. " + "They are grey birds with long legs. " * 40)
    strict = await _recall(instance.admin, min_relevance=0.9, mode="semantic")
    small = await _recall(instance.admin, max_tokens=20)

    assert (await _explain(instance.admin, strict, far["id"]))["reason"] == "min_relevance"
    assert (await _explain(instance.admin, small, large["id"]))["reason"] == "max_tokens"
    assert (await _explain(instance.admin, small, short["id"]))["reason"] == "returned"


async def test_a_workspace_without_a_log_keeps_no_question_and_feedback_still_works(instance: Instance) -> None:
    """Switching it off deletes what was logged and leaves an audit entry."""
    memory = await instance.admin.remember("Herons nest on pier 7.")
    await _recall(instance.admin)
    log = instance.rookery.memory.recall_log
    cleared = await log.set_enabled(instance.workspace_id, is_enabled=False, by=SYSTEM_ACTOR)
    recall = await _recall(instance.admin)
    feedback = await instance.admin.post(f"/v1/brain/recall/{recall['recall_id']}/feedback", {"used": [memory["id"]]})
    listed_off = await _list(instance.admin)
    await log.set_enabled(instance.workspace_id, is_enabled=True, by=SYSTEM_ACTOR)
    await _recall(instance.admin)
    actions = [entry["action"] for entry in (await instance.admin.get("/api/v1/audit")).json()["data"]]

    assert (cleared, listed_off, feedback.json()["used"]) == (1, [], [memory["id"]])
    assert len(await _list(instance.admin)) == 1
    assert {"recall_log.disabled", "recall_log.enabled"} <= set(actions)


async def test_recalls_are_deleted_after_their_retention(instance: Instance) -> None:
    """The setting gives the days."""
    await _recall(instance.admin)
    assert len(await _list(instance.admin)) == 1
    retention = instance.rookery.memory.retention
    await replace(retention, recall_retention=timedelta(days=-1)).sweep()

    assert retention.recall_retention == timedelta(days=instance.rookery.settings.recall_days)
    assert await _list(instance.admin) == []


async def test_cleaning_masks_secrets_in_logged_questions_and_forgetting_deletes_them(instance: Instance) -> None:
    """The log keeps no more than the memories do."""
    await _recall(instance.admin, "What did kim@example.org say about herons?", agent_id="kim")
    await _recall(instance.admin, project="web")
    assert len(await _list(instance.admin)) == 2  # they are written with a delay
    maintenance = instance.rookery.memory.maintenance
    await maintenance.scrubbing.run(CleanRequest(workspace_id=instance.workspace_id, strip_pii=True))
    cleaned = await _list(instance.admin)
    await maintenance.forgetting.run(ForgetRequest(workspace_id=instance.workspace_id, agent_id="kim"))
    remaining = await _list(instance.admin)

    assert [entry["query"] for entry in cleaned] == [QUESTION, "What did [email] say about herons?"]
    assert [entry["query"] for entry in remaining] == [QUESTION]


async def test_forgetting_a_memory_deletes_the_questions_that_repeat_it(instance: Instance) -> None:
    """A prompt that said what to remember is a copy of the memory."""
    memory = await instance.admin.remember("The safe opens with 4711. It stands in the cellar.")
    for question in ("Remember this! The safe opens with 4711.", "the safe  opens with 4711?", "How does the safe open?"):
        await _recall(instance.admin, question)
    assert len(await _list(instance.admin)) == 3  # they are written with a delay
    forgetting = instance.rookery.memory.maintenance.forgetting
    request = ForgetRequest(workspace_id=instance.workspace_id, ids=(str(memory["id"]),))
    await forgetting.run(replace(request, dry_run=True))
    after_dry_run = await _list(instance.admin)
    await forgetting.run(request)

    assert len(after_dry_run) == 3
    assert [entry["query"] for entry in await _list(instance.admin)] == ["How does the safe open?"]
