"""
The hooks of coding agents, with a scripted agent and no language model: `python -m benchmarks.coding_agent_hooks`.

The server has the memories of the set `agents` of `benchmarks.recall_quality`, in one project. The agent works on one service after
another, in a session each: it starts on a branch with the name of the service, asks every question of the set about it as a prompt, and
ends each turn with a message. A question is answerable if the memory with its answer is in a text that the session was given before, or
with the prompt. Without the hooks no question is, as the agent has no other source. Unrelated prompts show how often a text is added for
nothing.

Tokens are characters divided by four. Times are those of requests over HTTP on one connection, and of the command as a client starts it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import httpx2

from benchmarks.recall_quality.agent_memories import build_collection
from benchmarks.recall_quality.questions import Collection, Question
from benchmarks.servers import Running, run_server
from rookery.agents.hooks.texts import quote

PROJECT = "platform"
THRESHOLDS = (0.03, 0.06, 0.1, 0.2, 0.3, 0.5)
UNRELATED = (
    "Rename the variable in this function so that its name says what it holds.",
    "Write a regular expression that matches an IPv6 address.",
    "Why does this list comprehension raise a TypeError?",
    "Sort the imports of the module and remove the unused ones.",
    "Explain the difference between a mutex and a semaphore.",
    "Convert this loop into a generator.",
    "Add type annotations to the function below.",
    "How do I undo the last commit in git without losing the changes?",
    "Make the button blue and centre it on small screens.",
    "Translate the error messages of this form into French.",
    "What does the keyword yield do?",
    "Format this table as Markdown.",
    "Write a unit test for a function that adds two numbers.",
    "Fix the typo in the second paragraph of the readme.",
    "Is it better to use a tuple or a list here?",
    "Continue.",
    "Thanks, that works now.",
    "Draw the class diagram of a linked list as text.",
    "Replace the nested ifs by early returns.",
    "Which HTTP status means that a resource has moved for good?",
)
"""Prompts of everyday work that none of the memories answers."""

_CHARS_PER_TOKEN = 4
_CONTENT_CHARS = 120
_INDEX_TIMEOUT_S = 120.0
_COMMAND_RUNS = 20


@dataclass(slots=True)
class Figures:
    """The measurements of the scripted sessions."""

    start_chars: list[int] = field(default_factory=list[int])
    session_chars: list[int] = field(default_factory=list[int])
    times_ms: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    questions: int = 0
    answerable_at_start: int = 0
    answerable: int = 0
    unrelated_with_text: int = 0


@dataclass(frozen=True, slots=True)
class ScriptedAgent:
    """A coding agent that reports its events to the server."""

    http: httpx2.Client
    figures: Figures

    def report(self, event: str, payload: Mapping[str, object], **query: str) -> str:
        """Send an event of Claude Code and return the text in the answer, or an empty text."""
        started = time.perf_counter()
        response = self.http.post(f"/api/agent/hooks/claude-code/{event}", params=query, json=payload)
        self.figures.times_ms.setdefault(event, []).append((time.perf_counter() - started) * 1000)
        response.raise_for_status()
        output = cast("Mapping[str, Mapping[str, str]]", response.json()).get("hookSpecificOutput", {})
        return output.get("additionalContext", "")

    def work(self, service: str, questions: Sequence[Question], contents: Mapping[str, str]) -> None:
        """Run the session of one service."""
        session = f"session-{service}"
        commit = f"Work on the {service} service"
        start = self.report("session-start", {"session_id": session, "source": "startup"}, project=PROJECT, branch=service, commit=commit)
        texts = [start]
        for question in questions:
            texts.append(self.report("prompt", {"session_id": session, "prompt": question.text}))
            self.report("stop", {"session_id": session, "last_assistant_message": f"I answered a question about {service}: {question.id}."})
            self.figures.questions += 1
            answers = [quote(contents[name], limit=_CONTENT_CHARS).rstrip("…") for name in question.gold]
            self.figures.answerable_at_start += any(answer in start for answer in answers)
            self.figures.answerable += any(answer in text for answer in answers for text in texts)
        self.report("end", {"session_id": session, "reason": "other"})
        self.figures.start_chars.append(len(start))
        self.figures.session_chars.append(sum(map(len, texts)))

    def ask_unrelated(self) -> None:
        """Send the unrelated prompts in a session of their own."""
        self.report("session-start", {"session_id": "unrelated", "source": "startup"}, project=PROJECT)
        for prompt in UNRELATED:
            self.figures.unrelated_with_text += bool(self.report("prompt", {"session_id": "unrelated", "prompt": prompt}))


def store(http: httpx2.Client, collection: Collection) -> None:
    """Store the memories of *collection* and wait until all are indexed."""
    memories = [
        {"content": content, "type": collection.types.get(name, "observation"), "project": PROJECT}
        | ({"session_id": collection.sessions[name]} if name in collection.sessions else {})
        for name, content in collection.documents.items()
    ]
    http.post("/v1/brain/remember/batch", json={"memories": memories}).raise_for_status()
    deadline = time.monotonic() + _INDEX_TIMEOUT_S
    while http.get("/v1/brain/memories", params={"state": "pending_embed", "per_page": 1}).json()["meta"]["total"]:
        if time.monotonic() > deadline:
            msg = "the memories were not indexed in time"
            raise RuntimeError(msg)
        time.sleep(0.2)


def measure_threshold(http: httpx2.Client, collection: Collection, threshold: float) -> tuple[float, float, float]:
    """Return the share of questions whose answer is among five memories above *threshold*, the mean memories, and the noise."""

    def recall(text: str) -> list[str]:
        body = {"query": text, "project": PROJECT, "top_k": 5, "min_relevance": threshold}
        response = http.post("/v1/brain/recall", json=body)
        response.raise_for_status()
        return [memory["content"] for memory in response.json()["memories"]]

    hits = [(question, recall(question.text)) for question in collection.questions]
    answered = sum(any(collection.documents[name] in contents for name in question.gold) for question, contents in hits)
    noise = sum(bool(recall(prompt)) for prompt in UNRELATED)
    return answered / len(hits), statistics.fmean(len(contents) for _, contents in hits), noise / len(UNRELATED)


def time_command(server: Running, folder: Path) -> tuple[list[float], list[float]]:
    """Return the milliseconds of `rookery hook session-start`, and of a Python that does nothing."""
    (folder / ".rookery.toml").write_text(f'project = "{PROJECT}"\n', encoding="utf-8")
    environment = {**os.environ, "ROOKERY_URL": server.url, "ROOKERY_KEY": server.agent_key}
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(_COMMAND_RUNS):
        payload = json.dumps({"session_id": f"command-{number}", "cwd": str(folder)}).encode()
        for place, arguments in enumerate((["-m", "rookery", "hook", "session-start", "--client", "codex"], ["-c", "pass"])):
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments], input=payload, env=environment, cwd=folder, check=True, capture_output=True, timeout=60
            )
            times[place].append((time.perf_counter() - started) * 1000)
    return times


def percentiles(times_ms: Sequence[float]) -> str:
    """Return the median and the 95th percentile."""
    ordered = sorted(times_ms)
    return f"p50 {statistics.median(ordered):.1f} ms, p95 {ordered[round(0.95 * (len(ordered) - 1))]:.1f} ms (n={len(ordered)})"


def print_figures(figures: Figures) -> None:
    """Print the measurements of the scripted sessions."""
    sessions = len(figures.start_chars)
    per_session = figures.questions / sessions
    start_tokens, session_tokens = (statistics.fmean(chars) / _CHARS_PER_TOKEN for chars in (figures.start_chars, figures.session_chars))
    print(f"sessions {sessions}, prompts per session {per_session:.1f}")
    print(f"tokens (characters / 4): start {start_tokens:.0f}, whole session {session_tokens:.0f}")
    print(f"answerable without hooks: 0 of {figures.questions}")
    print(f"answerable from the start text alone: {figures.answerable_at_start} of {figures.questions}")
    print(f"answerable with start and prompt texts: {figures.answerable} of {figures.questions}")
    print(f"unrelated prompts that got a text: {figures.unrelated_with_text} of {len(UNRELATED)}")
    for event, times_ms in figures.times_ms.items():
        print(f"{event}: {percentiles(times_ms)}")


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    collection = build_collection()
    services = dict.fromkeys(name.partition("-")[0] for name in collection.documents)
    with tempfile.TemporaryDirectory() as name, run_server(Path(name) / "data", preload_embedder="true") as server:
        headers = {"Authorization": f"Bearer {server.api_key}"}
        with httpx2.Client(base_url=server.url, headers=headers, timeout=60) as http:
            store(http, collection)
            figures = Figures()
            agent = ScriptedAgent(http, figures)
            for service in services:
                questions = [question for question in collection.questions if question.id.startswith(f"{service}-")]
                agent.work(service, questions, collection.documents)
            agent.ask_unrelated()
            print_figures(figures)
            command_ms, floor_ms = time_command(server, Path(name))
            print(f"rookery hook session-start: {percentiles(command_ms)}; python -c pass: {percentiles(floor_ms)}")
            for threshold in THRESHOLDS:
                answered, memories, noise = measure_threshold(http, collection, threshold)
                print(
                    f"relevance {threshold}: answered {answered:.2f}, memories per question {memories:.2f}, unrelated with text {noise:.2f}"
                )


if __name__ == "__main__":
    main()
