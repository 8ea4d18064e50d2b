"""The data sets, as collections of documents and of questions about them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

from benchmarks.recall_quality.agent_memories import build_collection
from benchmarks.recall_quality.questions import Collection, Question

FILES = ("locomo-dev.json", "scifact-dev.json.gz", "devbench.json", "languages-dev.json")


class _Turn(TypedDict):
    speaker: str
    dia_id: str
    text: str


class _LocomoQuestion(TypedDict):
    question: str
    evidence: list[str]
    category: int


class _Conversation(TypedDict):
    sample_id: str
    conversation: dict[str, str | list[_Turn]]
    qa: list[_LocomoQuestion]


class _Abstract(TypedDict):
    id: str
    title: str
    text: str


class _Claim(TypedDict):
    id: str
    text: str
    relevant: list[str]


class _SciFact(TypedDict):
    documents: list[_Abstract]
    queries: list[_Claim]


class _DevBenchMemory(TypedDict):
    id: str
    content: str
    tags: list[str]


class _DevBenchQuery(TypedDict):
    id: str
    category: str
    question: str
    expected_tags: list[str]


class _DevBench(TypedDict):
    memories: list[_DevBenchMemory]
    queries: list[_DevBenchQuery]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """A session of a conversation; its turns have ids such as D1:3."""

    id: str
    date: str
    turns: list[_Turn]


def sets(folder: Path) -> dict[str, list[Collection]]:
    """
    Return all data sets of *folder*, in the order of the report.

    Raises:
        FileNotFoundError: One of `FILES` is not there.
    """
    conversations = cast("list[_Conversation]", json.loads((folder / "locomo-dev.json").read_bytes()))
    by_session = [_by_session(conversation) for conversation in conversations]
    return {
        "LoCoMo sessions": by_session,
        "LoCoMo one store": [_merge_collections("all", by_session)],
        "LoCoMo turns": [_by_turn(conversation) for conversation in conversations],
        "SciFact": [_scifact(folder)],
        "devbench": [_devbench(folder)],
        "agents": [build_collection()],
        "paraphrases": [_languages(folder, memory="memory_en", question="question_en")],
        "same language": [_languages(folder, memory="memory", question="question")],
        "to English": [_languages(folder, memory="memory_en", question="question")],
    }


def _by_session(conversation: _Conversation) -> Collection:
    sessions = list(_sessions(conversation))
    session_of = {turn["dia_id"]: session.id for session in sessions for turn in session.turns}
    return Collection(
        name=conversation["sample_id"],
        documents={session.id: "\n".join([session.date, *map(_line, session.turns)]) for session in sessions},
        questions=tuple(_questions(conversation, session_of)),
    )


def _by_turn(conversation: _Conversation) -> Collection:
    turns = {turn["dia_id"]: f"{session.date}\n{_line(turn)}" for session in _sessions(conversation) for turn in session.turns}
    return Collection(
        name=conversation["sample_id"],
        documents=turns,
        questions=tuple(_questions(conversation, {turn: turn for turn in turns})),
        sessions={turn["dia_id"]: session.id for session in _sessions(conversation) for turn in session.turns},
    )


def _sessions(conversation: _Conversation) -> Iterator[_Session]:
    fields = conversation["conversation"]
    number = 1
    while (turns := fields.get(f"session_{number}")) is not None:
        yield _Session(id=f"session {number}", date=str(fields[f"session_{number}_date_time"]), turns=cast("list[_Turn]", turns))
        number += 1


def _line(turn: _Turn) -> str:
    return f"{turn['speaker']}: {turn['text']}"


def _questions(conversation: _Conversation, document_of: dict[str, str]) -> Iterator[Question]:
    for number, item in enumerate(conversation["qa"]):
        if item["evidence"] and all(turn in document_of for turn in item["evidence"]):
            yield Question(
                id=f"{conversation['sample_id']}/{number}",
                text=item["question"],
                gold=frozenset(document_of[turn] for turn in item["evidence"]),
                category=str(item["category"]),
            )


def _merge_collections(name: str, parts: list[Collection]) -> Collection:
    """Merge *parts* into one collection with distinct ids."""
    return Collection(
        name=name,
        documents={f"{part.name}/{key}": text for part in parts for key, text in part.documents.items()},
        questions=tuple(
            Question(
                id=question.id,
                text=question.text,
                gold=frozenset(f"{part.name}/{key}" for key in question.gold),
                category=question.category,
            )
            for part in parts
            for question in part.questions
        ),
    )


def _scifact(folder: Path) -> Collection:
    with gzip.open(folder / "scifact-dev.json.gz", "rb") as file:
        data = cast("_SciFact", json.load(file))
    return Collection(
        name="SciFact",
        documents={document["id"]: f"{document['title']}\n{document['text']}" for document in data["documents"]},
        questions=tuple(Question(id=query["id"], text=query["text"], gold=frozenset(query["relevant"])) for query in data["queries"]),
    )


def _devbench(folder: Path) -> Collection:
    data = cast("_DevBench", json.loads((folder / "devbench.json").read_bytes()))
    questions = [
        Question(
            id=query["id"],
            text=query["question"],
            gold=frozenset(memory["id"] for memory in data["memories"] if set(memory["tags"]) & set(query["expected_tags"])),
            category=query["category"],
        )
        for query in data["queries"]
    ]
    return Collection(
        name="devbench",
        documents={memory["id"]: memory["content"] for memory in data["memories"]},
        questions=tuple(question for question in questions if question.gold),
    )


def _languages(folder: Path, *, memory: str, question: str) -> Collection:
    """Return the facts in nine languages among the memories of devbench, with *memory* and *question* as the fields to take."""
    data = cast("dict[str, list[dict[str, str]]]", json.loads((folder / "languages-dev.json").read_bytes()))
    facts = {f"{language}-{number}": fact for language, found in data.items() for number, fact in enumerate(found)}
    return Collection(
        name=f"{question} to {memory}",
        documents={**{name: fact[memory] for name, fact in facts.items()}, **_devbench(folder).documents},
        questions=tuple(
            Question(id=name, text=fact[question], gold=frozenset({name}), category=name.partition("-")[0]) for name, fact in facts.items()
        ),
    )
