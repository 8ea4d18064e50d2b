"""The record of `make agents`: what each program did in front of Rookery."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

RECORD = Path(__file__).with_name("agent_record.json")
"""The record from which docs/reference/agents.md is made."""


@dataclass(kw_only=True)
class ProtocolFacts:
    """
    The requests of a program, as they arrived at Rookery.

    Attributes:
        client: The name and version by which the program introduces itself.
        first: The first request, with the protocol version that it names.
        version: The version of its tool calls.
        connect: The requests before the first tool call, in their order.
        per_call: The requests per tool call, on average.
        ends_session: Whether it ends its session by DELETE; None if it has none.
        meta: The names in `_meta` of its tool calls.
        nulls: Arguments that it sends as null though the model left them out.
    """

    client: str
    first: str
    version: str
    connect: list[str] = field(default_factory=list[str])
    per_call: float = 0.0
    ends_session: bool | None = None
    meta: list[str] = field(default_factory=list[str])
    nulls: list[str] = field(default_factory=list[str])


@dataclass(kw_only=True)
class ModelFacts:
    """
    The tools, instructions and results that the model gets.

    Attributes:
        tools: The tools of Rookery in its first request, of `listed`.
        tool_characters: The size of all tools in its first request, with the program's own.
        searches: Searches for tools that were not offered at first.
        names: The names of the tools that the script calls, as the model knows them, by their names at `/mcp`.
        missing: Tools of the script that the model never got.
        instructions: How much of the instructions it gets: "whole", "cut" or "none".
        halves: Which half of a result it gets: "text", "structured", "both" or "neither".
        error: The same for a result that is an error, and whether the error has a mark.
        recall_characters: The size of a result of `recall`.
        lengths: The characters that it gets of a text of this many, and which part.
        broken: Calls that failed in a normal run, with what the model got.
    """

    tools: int
    listed: int
    tool_characters: int
    searches: int = 0
    names: dict[str, str] = field(default_factory=dict[str, str])
    missing: list[str] = field(default_factory=list[str])
    instructions: str = "none"
    halves: str = "neither"
    error: str = "neither"
    recall_characters: int = 0
    lengths: dict[str, str] = field(default_factory=dict[str, str])
    broken: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(kw_only=True)
class FaultFacts:
    """
    The behaviour when a call is refused, and after a restart.

    Attributes:
        unknown_key: What the user sees if the key is unknown.
        unknown_key_remark: What its model is told then.
        unknown_key_code: The exit code then; None if it did not end in time.
        unknown_key_requests: The requests then that are no requests of `/mcp`.
        unset: What stands in the header if the variable of the key is not set; empty if the program has no such setting.
        limited: What the model gets for a call beyond the key's limit.
        relaxed: The same for the next call within the limit.
        revoked: What the model gets after the key was revoked.
        restarted: What the model gets at the first and at the second call after a restart of Rookery.
    """

    unknown_key: str = ""
    unknown_key_remark: str = ""
    unknown_key_code: int | None = None
    unknown_key_requests: list[str] = field(default_factory=list[str])
    unset: str = ""
    limited: str = ""
    relaxed: str = ""
    revoked: str = ""
    restarted: list[str] = field(default_factory=list[str])


@dataclass(kw_only=True)
class AgentRecord:
    """One row: a program, the day of the run, and the facts; or the reason why it has none."""

    id: str
    package: str
    version: str
    kind: str
    family: str
    key_source: str
    ran_on: str
    seconds: float = 0.0
    reason: str = ""
    protocol: ProtocolFacts | None = None
    model: ModelFacts | None = None
    faults: FaultFacts | None = None
    hooks: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    server_errors: list[str] = field(default_factory=list[str])
    """Faults of Rookery in the run: answers of 500 and more, and lines of its log at level error."""


def load_record(path: Path = RECORD) -> dict[str, AgentRecord]:
    """Return the rows of a file by id; no file has none."""
    return parse_record(path.read_text(encoding="utf-8")) if path.exists() else {}


def parse_record(text: str) -> dict[str, AgentRecord]:
    """Return the rows of a text by id."""
    rows = dict[str, AgentRecord]()
    for entry in json.loads(text):
        protocol, model, faults = (entry.pop(name) for name in ("protocol", "model", "faults"))
        rows[entry["id"]] = AgentRecord(
            **entry,
            protocol=None if protocol is None else ProtocolFacts(**protocol),
            model=None if model is None else ModelFacts(**model),
            faults=None if faults is None else FaultFacts(**faults),
        )
    return rows


def save_record(rows: Iterable[AgentRecord], path: Path = RECORD) -> None:
    """Write the rows."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
