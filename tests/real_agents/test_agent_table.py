"""The page about real agents, the record that it is made from, and the model that the agents are given."""

from __future__ import annotations

import json

import httpx2
import pytest

from tests.real_agents.agent_record import load_record
from tests.real_agents.agent_table import PAGE, render
from tests.real_agents.installation import HERE
from tests.real_agents.observations import describe_halves, describe_length, find_reason
from tests.real_agents.probe_server import STRUCTURED_MARK, TEXT_MARK, build_long_text
from tests.real_agents.programs import PROGRAMS
from tests.real_agents.scripted_model import END, Conversation, Step, run_model

MIN_PROGRAMS = 12
Json = dict[str, object]


def test_the_page_is_the_record_of_the_last_run() -> None:
    """`make agents` writes both; nobody edits the page by hand."""
    assert PAGE.read_text(encoding="utf-8") == render(load_record().values())


def test_the_record_has_every_declared_program_in_its_version() -> None:
    """A program that is added or updated without a run fails here; at least 12 of them did run, and called a tool."""
    rows = load_record()

    assert [(row.id, row.version) for row in rows.values()] == [(program.id, program.version) for program in PROGRAMS]
    assert len({row.package for row in rows.values() if row.model is not None and row.model.recall_characters}) >= MIN_PROGRAMS
    assert all(row.reason for row in rows.values() if row.protocol is None)


def test_every_program_is_pinned_in_the_lock_of_its_kind() -> None:
    """The declared version is the one that the lock installs, and no lock names the host of a registry."""
    packages = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["optionalDependencies"]
    for program in PROGRAMS:
        if program.bridge or program.kind == "npm":
            assert packages[program.package] == program.version
        else:
            assert f"\n{program.package}=={program.version} " in f"\n{(HERE / f'{program.kind}.lock').read_text(encoding='utf-8')}"
    assert not [lock for lock in (*HERE.glob("*.lock"), HERE / "package-lock.json") if '"resolved": "http' in lock.read_text("utf-8")]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("path", "tools", "result"),
    [
        (
            "/v1/chat/completions",
            [{"type": "function", "function": {"name": "r__brain__recall"}}],
            {"messages": [{"role": "tool", "content": "a memory"}]},
        ),
        (
            "/v1/messages",
            [{"name": "mcp__r__brain__recall"}],
            {"messages": [{"content": [{"type": "tool_result", "content": [{"type": "text", "text": "a memory"}]}]}]},
        ),
        (
            "/v1/responses",
            [{"type": "namespace", "name": "r", "tools": [{"name": "brain__recall"}]}],
            {"input": [{"type": "function_call_output", "output": "a memory"}]},
        ),
        (
            "/v1beta/models/m:{}",
            [{"functionDeclarations": [{"name": "r_brain__recall"}]}],
            {"contents": [{"parts": [{"functionResponse": {"response": "a memory"}}]}]},
        ),
    ],
)
def test_the_model_calls_a_tool_and_records_its_result_in_each_protocol(
    path: str, tools: list[Json], result: Json, *, streams: bool
) -> None:
    """The script is the same in each: a call of the tool under the client's name, then the end."""
    path = path.format("streamGenerateContent" if streams else "generateContent")
    with run_model() as model:
        conversation = model.conversation = Conversation(steps=[Step(label="recall", tool="brain__recall", arguments={"query": "x"})])
        body: Json = {"tools": tools, "stream": streams}
        call = httpx2.post(f"{model.url}{path}", json=body).raise_for_status()
        ending = httpx2.post(f"{model.url}{path}", json={**body, **result}).raise_for_status()

    assert conversation.names["brain__recall"] in {"r__brain__recall", "mcp__r__brain__recall", "r/brain__recall", "r_brain__recall"}
    assert "brain__recall" in call.text
    assert END in ending.text
    assert conversation.results["recall"].strip('"') == "a memory"
    assert ("text/event-stream" in call.headers["content-type"]) == streams


def test_the_part_of_a_text_that_is_left_is_measured() -> None:
    """Numbered lines show whether the head, the tail or both are left."""
    text = build_long_text(4_000)

    assert describe_length(text, 4_000) == "whole"
    assert describe_length(f"{text[:400]}… saved to a file", 4_000) == "first 400, the rest in a file"
    assert describe_length(f"{text[:400]}…{text[-200:]}", 4_000) == "first 400 and last 200"
    assert describe_length("", 4_000) == "nothing"


def test_the_halves_of_a_result_are_told_apart() -> None:
    """The text and the structured content of a probe have marks of their own."""
    assert describe_halves(f"{TEXT_MARK} {STRUCTURED_MARK}", TEXT_MARK) == "both"
    assert describe_halves(TEXT_MARK, TEXT_MARK) == "text"
    assert describe_halves(STRUCTURED_MARK, TEXT_MARK) == "structured"
    assert describe_halves("x", TEXT_MARK) == "neither"


def test_the_reason_of_a_failed_connection_is_the_line_that_names_it() -> None:
    """Stacks, colours, ports and times are left out."""
    output = 'starting\n  File "x.py", line 3\n\x1b[31mError: 401 from 127.0.0.1:4711 at 2026-11-28T22:00:00.1Z\x1b[0m\nbye\n'

    assert find_reason(output) == "Error: 401 from HOST at TIME"
    assert find_reason("bye") == "nothing of it"
