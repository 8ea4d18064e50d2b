"""Recall among memories of the same words but for numbers and dates."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.memory.ranking import find_series, find_values
from tests.conftest import Instance

QUESTION = "Can I deploy the shop today?"
RULE = "Since the outage of last year nobody deploys the shop in December, because the tax office audits then."


async def store_notes(instance: Instance, count: int) -> None:
    """Store *count* notes of one series, and the rule that is older than half of them."""
    notes = [f"The deploy of the shop on 2026-{1 + number // 28:02}-{number % 28 + 1:02} went well." for number in range(count)]
    contents = [*notes[: count // 2], RULE, *notes[count // 2 :]]
    for start in range(0, len(contents), 50):
        memories = [{"content": content, "project": "shop"} for content in contents[start : start + 50]]
        response = await instance.admin.post("/v1/brain/remember/batch", {"memories": memories, "wait_ms": 5000})
        assert {result["status"] for result in response.json()["results"]} == {201}


async def recall(instance: Instance, query: str, **body: object) -> list[dict[str, Any]]:
    """Return the memories that a recall with `explain` returns."""
    response = await instance.admin.post("/v1/brain/recall", {"query": query, "project": "shop", "explain": True} | body)
    assert response.status_code == 200, response.text
    return response.json()["memories"]


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
async def test_notes_of_one_series_do_not_crowd_out_another_memory(instance: Instance, mode: str) -> None:
    """They differ by a date, and the first of them takes its place; `similar` says how many more there are."""
    await store_notes(instance, 40)

    for question in (QUESTION, "How do deploys of the shop go?", "What do I need to know before the deploy of the shop?"):
        memories = await recall(instance, question, mode=mode)
        assert RULE in [memory["content"] for memory in memories]
        first = next(memory for memory in memories if memory["content"] != RULE)
        assert first["similar"] == 40 - sum(memory["content"] != RULE for memory in memories)
        assert [memory["explain"].get("is_repeated", False) for memory in memories if memory["content"] != RULE] == [
            False,
            True,
            True,
            True,
        ]
        assert [memory["score"] for memory in memories] == sorted((memory["score"] for memory in memories), reverse=True)
        assert all(sum(memory["explain"]["parts"].values()) == pytest.approx(memory["score"], abs=0.0003) for memory in memories)


async def test_a_long_series_is_read_to_its_end(instance: Instance) -> None:
    """More notes than one round compares do not hide the memory beside them."""
    await store_notes(instance, 180)

    assert RULE in [memory["content"] for memory in (await recall(instance, QUESTION))[:2]]


async def test_a_note_with_the_date_that_is_asked_for_keeps_its_rank(instance: Instance) -> None:
    """It has what no other of its series has."""
    await store_notes(instance, 40)

    memories = await recall(instance, "How did the deploy of the shop on 2026-01-17 go?", top_k=2)
    assert any("2026-01-17" in memory["content"] and "is_repeated" not in memory["explain"] for memory in memories)


async def test_a_series_alone_fills_all_places_in_its_order(instance: Instance) -> None:
    """Nothing is left out for being similar, and no score changes."""
    for number in range(6):
        await instance.admin.remember(f"The crane on pier {number} lifts tons.", project="shop")

    memories = await recall(instance, "What does the crane lift?", top_k=6)
    assert len(memories) == 6
    assert all("similar" not in memory and "repeated" not in memory["explain"]["parts"] for memory in memories)


async def test_a_memory_that_ranks_lower_for_its_series_says_so_when_it_is_dropped(instance: Instance) -> None:
    """Its rule is `similar` if it had more score than the last one returned."""
    await store_notes(instance, 10)

    response = await instance.admin.post("/v1/brain/recall", {"query": QUESTION, "project": "shop", "explain": True, "top_k": 2})
    assert {memory["rule"] for memory in response.json()["explain"]["dropped"]} == {"similar"}


async def test_a_start_has_other_memories_beside_a_series(instance: Instance) -> None:
    """The newest notes of one series leave a place for an older memory, in the order of time."""
    await store_notes(instance, 40)

    memories = (await instance.admin.get("/v1/brain/agent/kim/boot?project=shop&max_memories=5")).json()["project"]
    assert RULE in [memory["content"] for memory in memories]
    assert [memory["created_at"] for memory in memories] == sorted((memory["created_at"] for memory in memories), reverse=True)


@pytest.mark.parametrize(
    ("content", "other", "is_same"),
    [
        ("The deploy of 2026-11-21 went well.", "the deploy of 2026-11-22  went well.", True),
        ("Am Montag, den 3. März, lief alles.", "Am Freitag, den 14. Mai, lief alles.", True),
        ("端口 4100 打开", "端口 4107 打开", True),
        ("Kim owns port 5.", "Ann owns port 5.", False),
        ("Version v1.2 is old.", "Version v1.10 is old.", True),
        ("The deploy of 2026-11-21 went well.", "The deploy of 2026-11-22 did not go well.", False),
    ],
)
def test_numbers_days_and_months_do_not_make_another_series(content: str, other: str, is_same: bool) -> None:
    """Names and other words do."""
    none = find_values("")
    assert (find_series(content, none) == find_series(other, none)) is is_same
