"""Explanations of recall: the parts of each score, and what was dropped by which rule."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.access.models import KeyRestrictions
from tests.conftest import Caller, Instance

TEXTS = (
    "The crane on pier 3 lifts 40 tons.",
    "The crane on pier 4 lifts 20 tons.",
    "The crane on pier 5 lifts 10 tons and is painted yellow, as the harbour master wanted it in the spring.",
)


async def explain(caller: Caller, **body: object) -> dict[str, Any]:
    """Send a recall with `explain`; return its response."""
    response = await caller.post("/v1/brain/recall", {"query": "How many tons does the crane lift?", "explain": True} | body)
    assert response.status_code == 200, response.text
    return response.json()


def get_rules(answer: dict[str, Any]) -> dict[str, tuple[str, list[str]]]:
    """Return the rule and filters of each dropped memory by the number of its pier."""
    return {each["excerpt"].partition("pier ")[2][0]: (each["rule"], each["filters"]) for each in answer["explain"]["dropped"]}


@pytest.fixture
async def harbor(instance: Instance) -> Instance:
    """A workspace with three memories that answer alike."""
    for text, project in zip(TEXTS, ("web", "web", "shop"), strict=True):
        await instance.admin.remember(text, org="acme", project=project, type="fact" if project == "web" else "decision")
    return instance


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
async def test_the_parts_of_a_score_add_up(harbor: Instance, mode: str) -> None:
    """Meaning, words, neighbours and keywords are the whole score, in each mode, with and without keywords."""
    for extra in ({}, {"keywords": ["pier 3"], "boost_keywords": 0.5}):
        answer = await explain(harbor.admin, mode=mode, **extra)
        assert len(answer["memories"]) == 3
        for memory in answer["memories"]:
            assert sum(memory["explain"]["parts"].values()) == pytest.approx(memory["score"], abs=0.0003), memory["explain"]
    assert answer["explain"]["mode"] == mode
    assert answer["explain"]["candidates"] == 3


async def test_a_common_word_of_a_dissimilar_memory_counts_less_than_meaning(instance: Instance) -> None:
    """A paraphrase finds its answer before a memory about something else that has one of its words."""
    answer, other = "Requests above sixty a minute are answered with status 429.", "The server rejects many cars at the car park."
    texts = (other, "The crane in the harbour is operated by two people.", "The bakery opens at six.", "The museum opens at night.", answer)
    for text in texts:
        await instance.admin.remember(text)

    memories = (await explain(instance.admin, query="How many calls may I send?"))["memories"]
    explanations = {memory["content"]: memory["explain"] for memory in memories}
    assert memories[0]["content"] == answer
    assert explanations[answer]["text_score"] is None, "it has none of the words"
    assert 0 < explanations[other]["parts"]["words"] < 0.5 * explanations[other]["text_score"]
    for memory in memories:
        assert sum(memory["explain"]["parts"].values()) == pytest.approx(memory["score"], abs=0.0003), memory["explain"]


async def test_words_of_the_question_are_marked(harbor: Instance) -> None:
    """Each hit shows which words of the question it has."""
    memory = (await explain(harbor.admin, top_k=1))["memories"][0]
    assert "<mark>crane</mark>" in memory["explain"]["highlight"]
    assert "<mark>tons</mark>" in memory["explain"]["highlight"]


async def test_each_rule_that_drops_is_named(harbor: Instance) -> None:
    """Rank, relevance, budget and filters each name themselves. Nothing is dropped if all is returned."""
    assert get_rules(await explain(harbor.admin)) == {}
    assert [rule for rule, _ in get_rules(await explain(harbor.admin, top_k=1)).values()] == ["top_k", "top_k"]
    assert [rule for rule, _ in get_rules(await explain(harbor.admin, min_relevance=1.0)).values()] == ["min_relevance"] * 3
    assert get_rules(await explain(harbor.admin, max_tokens=18)) == {"5": ("max_tokens", [])}
    assert get_rules(await explain(harbor.admin, project="web")) == {"5": ("filter", ["project"])}
    assert get_rules(await explain(harbor.admin, type="fact", project="web", top_k=1))["5"] == ("filter", ["project", "type"])
    assert get_rules(await explain(harbor.admin, tags=["none"], metadata={"ticket": 1}))["3"] == ("filter", ["tags", "metadata"])
    assert get_rules(await explain(harbor.admin, include_scopes=["shared"]))["4"] == ("filter", ["include_scopes"])


async def test_what_a_key_may_not_read_is_not_named(harbor: Instance) -> None:
    """Memories of other agents, sessions, workspaces and projects outside the key's list are not among the dropped ones."""
    question = "crane tons lift"
    secrets = (
        {"memory_scope": "agent", "agent_id": "other"},
        {"memory_scope": "session", "session_id": "private"},
        {"project": "web"},
    )
    for number, fields in enumerate(secrets):
        await harbor.admin.remember(f"The secret crane {number} can lift tons.", **{"org": "acme", "project": "shop"} | fields)
    second = await harbor.api_key("*", workspace_id=await harbor.workspace("Second"))
    await second.remember("The secret crane of others can lift tons.")
    key = await harbor.agent_key("brain:read", restrictions=KeyRestrictions(projects=frozenset({"shop"})))
    answer = await explain(key, query=question, top_k=1, type="nothing")
    assert answer["memories"] == []
    assert get_rules(answer) == {"5": ("filter", ["type"])}


async def test_recall_without_explain_says_nothing_more(harbor: Instance) -> None:
    """The fields of an explanation are omitted unless they are wanted."""
    answer = (await harbor.admin.post("/v1/brain/recall", {"query": "crane"})).json()
    assert "explain" not in answer
    assert all("explain" not in memory for memory in answer["memories"])
