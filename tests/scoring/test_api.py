"""`/v1/score` over HTTP and the tool `score`, on a whole server. All texts are written for these tests."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from rookery.scoring.cards import CARDS, read_card
from tests.chat_service import ChatService, answer, run_chat_service
from tests.conftest import Caller, Instance, eventually, run_instance

pytestmark = pytest.mark.embedded_store

Json = dict[str, object]

MARK = "quintessential zanzibar barometer"
"""Words that stand nowhere else, to look for where texts must not be."""

PROSE = (
    "The ferry was late again, so we sat on the wall with our coats over our knees and counted the gulls. My brother said that the boat "
    "had a new engine and would still be slow. Nobody on the quay believed him, but when it came it was full of people who did. We paid "
    "at the desk, where the same man has sat since I was small, and he gave us the tickets without a look at the clock. "
)
ROOT = Path(__file__).resolve().parent.parent.parent


def body_of(response: object) -> Json:
    """Return the JSON body of a response with status 200."""
    status, text = getattr(response, "status_code"), getattr(response, "text")  # noqa: B009 - of any client
    assert status == 200, text
    return cast("Json", json.loads(text))


def body_of_any(response: object) -> Json:
    """Return the JSON body of a successful response."""
    status, text = getattr(response, "status_code"), getattr(response, "text")  # noqa: B009 - of any client
    assert status < 300, text
    return cast("Json", json.loads(text))


async def test_a_score_has_all_fields(instance: Instance) -> None:
    """The response has these fields, and each verdict its false-positive rate and the address of its model card."""
    body = body_of(await instance.agent.post("/v1/score/content", {"text": PROSE * 3}))

    assert body.keys() == {
        *("score", "label", "confidence", "expected_false_positive_rate", "ai_detection", "sycophancy", "model", "words"),
        *(("reason",) if "reason" in body else ()),
    }
    detection, sycophancy, model = (cast("Json", body[name]) for name in ("ai_detection", "sycophancy", "model"))
    assert body["label"] in {"human", "mixed", "ai", "uncertain"}
    assert detection["score"] == body["score"]
    assert 0 <= cast("float", body["score"]) <= 1
    assert 0 <= cast("float", body["expected_false_positive_rate"]) <= 1
    assert detection["segments"]
    assert detection["signals"]
    assert body["words"] == len((PROSE * 3).split())
    assert sycophancy["label"] == "none"
    assert {"score", "praise", "validation", "pushback", "capitulation", "spans", "needs_context"} <= sycophancy.keys()
    for address in (model["card"], cast("Json", sycophancy["model"])["card"]):
        card = await instance.caller(None).get(cast("str", address).partition("8400")[2])
        assert card.status_code == 200
        assert card.text.startswith("# ")


async def test_a_score_waits_for_one_part_of_another_workspace(instance: Instance) -> None:
    """Batches of one workspace wait for each other, so a text of another one has its turn after the part that is computed."""
    reader = await instance.api_key("score:read", workspace_id=await instance.workspace("other"))
    batch: Json = {"items": [{"text": PROSE * 3}] * 8}
    ends = list[str]()

    async def score(caller: Caller, name: str, path: str, body: Json) -> None:
        body_of(await caller.post(f"/v1/score/{path}", body))
        ends.append(name)

    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(score(instance.admin, "batch", "batch", batch))
        await eventually(lambda: bool(ends))
        await score(reader, "text", "content", {"text": PROSE * 3})
        assert ends.index("text") < 6, "before half of the batches that were sent before it"

    assert len(ends) == 13


async def test_offsets_point_into_the_text_as_it_was_sent(instance: Instance) -> None:
    """Spans and segments are offsets of the caller's own text, with its Markdown."""
    text = f"# Reply 🪶\n\n**What a brilliant question!** You are clearly a visionary.\n\n{PROSE * 3}"

    body = body_of(await instance.agent.post("/v1/score/content", {"prompt": "My idea is new.", "response": text}))

    spans = cast("list[Json]", cast("Json", body["sycophancy"])["spans"])
    quotes = [text[cast("int", span["start"]) : cast("int", span["end"])] for span in spans]
    assert "What a brilliant question" in quotes
    for segment in cast("list[Json]", cast("Json", body["ai_detection"])["segments"]):
        assert 0 <= cast("int", segment["start"]) < cast("int", segment["end"]) <= len(text)


async def test_explain_can_be_off(instance: Instance) -> None:
    """Without `explain`, the numbers are the same and the lists are empty."""
    text = f"What a brilliant question! {PROSE * 3}"

    long = body_of(await instance.agent.post("/v1/score/content", {"text": text}))
    short = body_of(await instance.agent.post("/v1/score/content", {"text": text, "explain": False}))

    assert short["score"] == long["score"]
    assert cast("Json", short["ai_detection"])["segments"] == cast("Json", short["ai_detection"])["signals"] == []
    assert cast("Json", short["sycophancy"])["spans"] == []
    assert cast("Json", short["sycophancy"])["score"] == cast("Json", long["sycophancy"])["score"]


async def test_the_history_shows_capitulation(instance: Instance) -> None:
    """{prompt, response} with the history; a last message of the user is the prompt."""
    history = [
        {"role": "user", "content": "What is the capital of Australia?"},
        {"role": "assistant", "content": "The capital of Australia is Canberra."},
    ]
    challenge, reply = "No, I'm sure it is Sydney.", "You're right, I apologize. The capital of Australia is Sydney."

    first = body_of(await instance.agent.post("/v1/score/content", {"prompt": challenge, "response": reply, "history": history}))
    second = body_of(
        await instance.agent.post("/v1/score/content", {"text": reply, "history": [*history, {"role": "user", "content": challenge}]})
    )

    assert cast("float", cast("Json", first["sycophancy"])["capitulation"]) > 0.7
    assert second["sycophancy"] == first["sycophancy"]


async def test_a_blank_prompt_counts_as_missing(instance: Instance) -> None:
    """Without words of a user there is no context. A last message of the user in the history is the prompt then."""
    response = "You are right, I apologize. The answer is 398."
    history = [
        {"role": "user", "content": "What is 17 * 24?"},
        {"role": "assistant", "content": "17 * 24 is 408."},
        {"role": "user", "content": "No, I am sure it is 398."},
    ]

    blank = body_of(await instance.agent.post("/v1/score/content", {"response": response, "prompt": " \n"}))
    missing = body_of(await instance.agent.post("/v1/score/content", {"response": response}))
    replaced = body_of(await instance.agent.post("/v1/score/content", {"response": response, "prompt": "", "history": history}))

    assert blank == missing
    assert cast("Json", blank["sycophancy"])["needs_context"] is True
    assert cast("Json", replaced["sycophancy"])["needs_context"] is False
    assert cast("float", cast("Json", replaced["sycophancy"])["capitulation"]) >= 0.5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Short.", "too_short"),
        ("?!?", "empty"),
        ("\x01\x02\x03\x04" * 100, "binary"),
        ("def f(x):\n    return {x: [1, 2]}\n" * 30, "code"),
        ("> quoted words of another author\n" * 30, "quoted"),
        ("Das ist ein Satz, der nicht auf Englisch ist, und er hat viele Wörter. " * 12, "language"),
        ("这是一个中文句子 它不是英文的 " * 40, "language"),
    ],
    ids=["short", "punctuation", "binary", "code", "quotation", "German", "Chinese"],
)
async def test_a_text_that_cannot_be_judged_is_uncertain_with_the_reason(instance: Instance, text: str, reason: str) -> None:
    """Bad input is `uncertain` with the reason."""
    body = body_of(await instance.agent.post("/v1/score/content", {"text": text}))

    assert (body["label"], body["score"], body["expected_false_positive_rate"], body["reason"]) == ("uncertain", None, None, reason)


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({}, "body", "exactly one of `text` and `response`"),
        ({"text": "a", "response": "b"}, "body", "exactly one of `text` and `response`"),
        ({"text": " \n"}, "body", "must not be blank"),
        ({"text": "a" * 100_001}, "text", "100,000"),
        ({"text": "a", "prompt": "b" * 100_001}, "prompt", "100,000"),
        ({"content": "a"}, "content", "did you mean 'text'"),
        ({"text": "a", "history": [{"role": "robot", "content": "b"}]}, "history.0.role", "user"),
        ({"text": "a\x00b"}, "body", "NUL"),
        ({"text": 1}, "text", "must be a string"),
        ({"text": "a", "judge": "yes"}, "judge", "true or false"),
    ],
)
async def test_an_invalid_body_names_the_field(instance: Instance, body: Json, field: str, message: str) -> None:
    """422 with what was wrong and what is allowed."""
    response = await instance.agent.post("/v1/score/content", body)

    errors = cast("dict[str, list[str]]", response.json()["errors"])
    assert response.status_code == 422
    assert message in " ".join(errors[field])


async def test_bodies_that_are_no_text_are_rejected(instance: Instance) -> None:
    """Over the limit 413, no JSON 400, a lone surrogate 422."""
    post = instance.agent.http.post
    headers = {"Content-Type": "application/json"}

    large = await post("/v1/score/content", content=b'{"text": "' + b"a" * (4 * 1024 * 1024) + b'"}', headers=headers)
    binary = await post("/v1/score/content", content=b"\xff\xfe\x00", headers=headers)
    surrogate = await post("/v1/score/content", content=b'{"text": "\\ud800 alone"}', headers=headers)

    assert [response.status_code for response in (large, binary, surrogate)] == [413, 400, 422]


async def test_each_text_of_a_batch_has_its_own_result_or_error(instance: Instance) -> None:
    """A batch keeps the order, and one invalid text does not fail the others."""
    items: list[Json] = [
        {"text": PROSE * 3},
        {"text": ""},
        {"response": "Great idea!", "prompt": "Is it?"},
        {"txt": "a"},
        {"text": PROSE * 3},
    ]

    body = body_of(await instance.agent.post("/v1/score/batch", {"items": items}))

    results = cast("list[Json]", body["results"])
    assert [result["index"] for result in results] == [0, 1, 2, 3, 4]
    assert [result["status"] for result in results] == [200, 422, 200, 422, 200]
    assert results[0]["result"] == results[4]["result"] == body_of(await instance.agent.post("/v1/score/content", items[0]))
    assert results[2]["result"] == body_of(await instance.agent.post("/v1/score/content", items[2]))
    assert "did you mean 'text'" in str(results[3]["error"])


@pytest.mark.parametrize("count", [0, 501])
async def test_a_batch_has_1_to_500_texts(instance: Instance, count: int) -> None:
    """`POST /v1/score/batch` takes at most 500 texts."""
    response = await instance.agent.post("/v1/score/batch", {"items": [{"text": "a"}] * count})

    assert response.status_code == 422
    assert "items" in response.json()["errors"]


async def test_requests_are_answered_during_a_batch(instance: Instance) -> None:
    """A batch of 500 delays no other request: many are answered before it ends."""
    batch = asyncio.create_task(instance.agent.post("/v1/score/batch", {"items": [{"text": PROSE * 3}] * 500, "explain": False}))
    answered = 0
    while not batch.done():
        assert (await instance.agent.post("/v1/score/content", {"text": PROSE})).status_code == 200
        answered += not batch.done()

    assert (await batch).status_code == 200
    assert answered > 20


async def test_health_needs_no_key(instance: Instance) -> None:
    """Names, versions and cards of the models."""
    body = body_of(await instance.caller(None).get("/v1/score/health"))

    assert (body["status"], body["judge"]) == ("ok", False)
    assert [set(model) for model in cast("list[Json]", body["models"])] == [{"name", "version", "card"}] * 2
    assert (await instance.agent.get("/v1/score/cards/missing")).status_code == 404


async def test_texts_are_stored_nowhere(instance: Instance, settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """No text in the record store (usage, audit, idempotency), in any file of the data folder, or in the logs."""
    caplog.set_level(logging.DEBUG)
    texts = {"text": f"{PROSE} {MARK}", "prompt": MARK, "counterpart": MARK, "history": [{"role": "user", "content": MARK}]}
    headers = {"Idempotency-Key": "score-1"}

    assert (await instance.agent.post("/v1/score/content", texts, **headers)).status_code == 200
    assert (await instance.agent.post("/v1/score/content", {**texts, "unknown": MARK}, **headers)).status_code == 422
    assert (await instance.agent.post("/v1/score/batch", {"items": [texts]}, **headers)).status_code == 200
    call = {"server": "scoring", "tool": "score", "arguments": {"text": f"{PROSE} {MARK}"}}
    assert (await instance.agent.post("/api/v1/mcp/tools/call", call)).status_code == 200
    await instance.rookery.access.usage.flush()

    paths = [path for path in settings.data_dir.rglob("*") if path.is_file()]
    assert paths
    assert [path.name for path in paths if MARK.encode() in path.read_bytes()] == []
    assert MARK not in caplog.text


async def test_the_tool_scores_as_its_caller(instance: Instance) -> None:
    """The MCP tool `score` has the response of the route, and needs its scope."""
    call: Json = {"server": "scoring", "tool": "score", "arguments": {"text": "What a brilliant idea!", "prompt": "Is it good?"}}

    result = body_of(await instance.agent.post("/api/v1/mcp/tools/call", call))
    denied = await (await instance.agent_key("mcp:write")).post("/api/v1/mcp/tools/call", call)

    structured = cast("Json", cast("Json", result["result"]).get("structuredContent", result["result"]))
    assert cast("Json", structured["sycophancy"])["label"] != "none"
    assert denied.status_code == 403


@pytest.fixture
def provider() -> Iterator[ChatService]:
    """Yield a provider of language models on the loopback interface."""
    with run_chat_service() as running:
        yield running


async def test_a_judge_stands_beside_the_local_score(settings: Settings, provider: ChatService) -> None:
    """The judge is marked, beside the local score, and never in place of it."""
    opinion = {"rationale": "It praises without a reason.", "score": 0.9, "label": "strong"}
    provider.queue.append(answer(json.dumps(opinion), model="judge-1"))
    texts: Json = {"prompt": "Is my idea good?", "response": "What a brilliant idea!"}

    async with run_instance(replace(settings, generation=Secret(provider.url()))) as instance:
        local = body_of(await instance.admin.post("/v1/score/content", texts))
        judged = body_of(await instance.admin.post("/v1/score/content", {**texts, "judge": True}))
        denied = await (await instance.agent_key("score:read")).post("/v1/score/content", {**texts, "judge": True})
        tested = await (await instance.api_key(environment="test")).post("/v1/score/content", {**texts, "judge": True})

    assert cast("Json", judged.pop("judge")) == {**opinion, "model": "judge-1", "agrees": False}
    assert judged == local
    assert (denied.status_code, tested.status_code) == (403, 422)
    assert len(provider.requests) == 1
    assert "Is my idea good?" in provider.requests[0].body.decode()


async def test_the_judge_gets_no_blank_prompt(settings: Settings, provider: ChatService) -> None:
    """A blank prompt is missing for the judge, too."""
    opinion = {"rationale": "It praises without a reason.", "score": 0.9, "label": "strong"}
    texts: Json = {"prompt": " \n", "response": "What a brilliant idea!", "judge": True}
    provider.queue.append(answer(json.dumps(opinion), model="judge-1"))

    async with run_instance(replace(settings, generation=Secret(provider.url()))) as instance:
        body_of(await instance.admin.post("/v1/score/content", texts))

    messages = json.loads(provider.requests[0].body)["messages"]
    assert json.loads(messages[-1]["content"])["prompt"] is None


async def test_the_output_of_a_generation_can_be_scored(settings: Settings, provider: ChatService) -> None:
    """The output of a generation is scored when asked, as the answer to its messages, within its workspace."""
    provider.queue.append(answer("What a brilliant idea! You are a visionary."))

    async with run_instance(replace(settings, generation=Secret(provider.url()))) as instance:
        generation = body_of_any(await instance.admin.post("/api/agent/content/generations", {"prompt": "Is my idea good?"}))
        path = f"/api/agent/content/generations/{generation['id']}/score"
        scored = body_of(await instance.admin.get(path))
        direct = {"prompt": "Is my idea good?", "text": "What a brilliant idea! You are a visionary."}
        expected = body_of(await instance.admin.post("/v1/score/content", direct))
        stranger = await instance.api_key(workspace_id=await instance.workspace("other"))

        assert scored == {"generation_id": generation["id"], "score": expected}
        assert (await stranger.get(path)).status_code == 404
        assert (await (await instance.api_key("content.read")).get(path)).json()["required_scope"] == "score:read"


async def test_without_a_language_model_only_the_judge_fails(instance: Instance) -> None:
    """503 generation_not_configured for the judge alone."""
    judged = await instance.admin.post("/v1/score/content", {"text": "a", "judge": True})

    assert (judged.status_code, judged.json()["error"]) == (503, "generation_not_configured")
    assert (await instance.admin.post("/v1/score/content", {"text": "a"})).status_code == 200


@pytest.mark.parametrize("name", CARDS)
def test_the_served_cards_are_the_pages_of_the_documentation(name: str) -> None:
    """A card is written once: the package has a copy of `docs/reference`. Copy the page after a change."""
    assert read_card(name) == (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
