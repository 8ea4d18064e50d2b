"""Writes docs/reference/agents.md from the record of `make agents`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.markdown_tables import NONE, PYPI, REGISTRIES, format_days, render_table, shorten
from tests.real_agents.agent_record import AgentRecord, FaultFacts, ModelFacts, ProtocolFacts

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "agents.md"

_MAX_ANSWER = 80
_MESSAGE = re.compile(r'message\\*["\']:\s*\\*["\']([^"\\]+)')

_HEAD = """# Real agents and frameworks

{count} agents, frameworks and bridges of others, each in a pinned version, were run against Rookery, on {days}.
`make agents` installs and runs them, and writes this page; no test needs them. Their model is a script on the same machine, which calls
`remember` and `recall` and records what it is given. A proxy in front of Rookery records the requests.

The page says what to expect from a program as it is. What it does with a result, a name or a refusal is its own behaviour, unless
[the last section](#faults-of-rookery) says otherwise.
"""

_PROTOCOL = """## Connection

- **First request**: the first message that arrives at `/mcp`, with the protocol version that it names.
- **Version**: the version of its tool calls.
- **Before the first call**: the requests of the connection, without those after an earlier call. GET opens a stream.
- **Per call**: the requests per tool call.
- **Ends its session**: whether a DELETE arrives at the end. {none}: it has no session.
- **`_meta`**: the names that its calls carry there, beside those of the protocol.
"""

_NAMES = """## Tools and instructions

- **Offered**: how many of the tools that a key of the preset `agent` sees, with a server of probes, are in the first request to the model.
  "by search": the model gets their names alone, and loads a tool by a search.
- **Characters**: the size of all tools in this request, with those of the program itself.
- **`brain__remember`**, **Long name**: the names by which the model knows this tool, and
  `probe__a_tool_whose_name_has_fifty_nine_cha_78146b`, which `/mcp` has cut to 50 characters.
- **Instructions**: whether the model gets the instructions of the server.
"""

_RESULTS = """## What the model gets of a result

- **Result**, **Error**: which half of a result that has a text and structured content: the text, the structured content, or both.
- **`recall`**: the characters of a result with one memory.
- **40,000 characters**, **300,000 characters**: how much of such a text arrives. "whole": all of it.
"""

_KEYS = """## Keys and refusals

- **Key from**: where the program takes the key from.
- **Not set**: the header that arrives if the variable is not set.
- **Unknown key**: what the program prints if the key is unknown, what its model is told, its exit code, and its requests to other paths
  than `/mcp`.
"""

_FAULTS = """## Refused calls, and a restart

What the model gets. "works": the result of the tool.

- **Over the limit**: for a call beyond the key's requests per minute, then for a call within them.
- **Revoked**: for a call after the key was revoked.
- **After a restart**: for the first and the second call after Rookery was restarted.
"""

_HOOKS = """## Hooks

The events of each program whose hooks a run has seen, and the fields that their input has.
"""

_SERVER = """## Faults of Rookery

Answers with a status of 500 or more, and lines of its log at level error, in the runs of each program.
"""

_UNAVAILABLE = """## Not run

These programs could not be installed or run where the table was made.
"""


def render(records: Iterable[AgentRecord]) -> str:
    """Return the page."""
    rows = list(records)
    running = [row for row in rows if row.protocol is not None]
    sections = [
        [_HEAD.format(count=len(running), days=format_days(row.ran_on for row in rows)), *_render_programs(running)],
        [_PROTOCOL.format(none=NONE), *_render_protocol(running)],
        [_NAMES, *_render_names(running)],
        [_RESULTS, *_render_results(running)],
        [_KEYS, *_render_keys(running)],
        [_FAULTS, *_render_faults(running)],
        [_HOOKS, *_render_hooks(running)],
        [_SERVER, *_render_server(running)],
        [_UNAVAILABLE, *_render_unavailable([row for row in rows if row.protocol is None])] if len(running) < len(rows) else [],
    ]
    return "\n".join(line for section in sections for line in section)


def _render_programs(rows: Iterable[AgentRecord]) -> Iterator[str]:
    body = [(row.id, _format_package(row), row.version, row.family, _get_protocol(row).client or NONE) for row in rows]
    yield from render_table(("Program", "Package", "Version", "Kind", "Introduces itself as"), body)


def _render_protocol(rows: Iterable[AgentRecord]) -> Iterator[str]:
    head = ("Program", "First request", "Version", "Before the first call", "Per call", "Ends its session", "`_meta`")
    yield from render_table(head, (_protocol_row(row, _get_protocol(row)) for row in rows))


def _protocol_row(row: AgentRecord, facts: ProtocolFacts) -> tuple[str, ...]:
    ends = NONE if facts.ends_session is None else "yes" if facts.ends_session else "no"
    meta = ", ".join(f"`{name}`" for name in facts.meta)
    return (row.id, facts.first, facts.version or NONE, _count_repeats(facts.connect), f"{facts.per_call:g}", ends, meta or NONE)


def _count_repeats(labels: Iterable[str]) -> str:
    """Return labels in their order, each once, with how often it comes."""
    counts = dict[str, int]()
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    return ", ".join(label if count == 1 else f"{label} ({count})" for label, count in counts.items()) or NONE


def _render_names(rows: Iterable[AgentRecord]) -> Iterator[str]:
    head = ("Program", "Offered", "Characters", "`brain__remember`", "Long name", "Instructions")
    yield from render_table(head, (_name_row(row, row.model) for row in rows if row.model is not None))


def _name_row(row: AgentRecord, facts: ModelFacts) -> tuple[str, ...]:
    offered = f"{facts.tools} of {facts.listed}{', the rest by search' if facts.searches and facts.tools else ''}"
    long_name = next((name for tool, name in facts.names.items() if tool.startswith("probe__a_tool")), "")
    names = [f"`{name}`" if name else NONE for name in (facts.names.get("brain__remember", ""), long_name)]
    return (
        row.id,
        "by search" if facts.searches and not facts.tools else offered,
        f"{facts.tool_characters:,}",
        *names,
        facts.instructions,
    )


def _render_results(rows: Iterable[AgentRecord]) -> Iterator[str]:
    head = ("Program", "Result", "Error", "`recall`", "40,000 characters", "300,000 characters")
    yield from render_table(head, (_result_row(row, row.model) for row in rows if row.model is not None))
    notes = [
        f"- {row.id}: `{label}` fails in a run without faults; the model gets: {shorten(text)}"
        for row in rows
        if row.model is not None
        for label, text in row.model.broken.items()
    ]
    yield from [*notes, ""] if notes else []
    nulls = [f"{row.id} ({', '.join(_get_protocol(row).nulls)})" for row in rows if _get_protocol(row).nulls]
    yield from [f"Arguments that the model leaves out are sent as null by: {'; '.join(nulls)}.", ""] if nulls else []


def _result_row(row: AgentRecord, facts: ModelFacts) -> tuple[str, ...]:
    lengths = [facts.lengths.get(size, NONE) for size in ("40000", "300000")]
    return (row.id, facts.halves, facts.error, f"{facts.recall_characters:,}", *lengths)


def _render_keys(rows: Iterable[AgentRecord]) -> Iterator[str]:
    head = ("Program", "Key from", "Not set", "Unknown key: printed", "To the model", "Exit code", "Other requests")
    yield from render_table(head, (_key_row(row, row.faults) for row in rows if row.faults is not None))


def _key_row(row: AgentRecord, facts: FaultFacts) -> tuple[str, ...]:
    code = "none in time" if facts.unknown_key_code is None else str(facts.unknown_key_code)
    others = ", ".join(f"`{one.rpartition(' ')[0]}` {one.rpartition(' ')[2]}" for one in facts.unknown_key_requests)
    return (
        row.id,
        row.key_source,
        facts.unset or NONE,
        shorten(facts.unknown_key),
        shorten(facts.unknown_key_remark) or NONE,
        code,
        others or NONE,
    )


def _render_faults(rows: Iterable[AgentRecord]) -> Iterator[str]:
    head = ("Program", "Over the limit", "Then", "Revoked", "After a restart", "Then")
    yield from render_table(head, (_fault_row(row, row.faults) for row in rows if row.faults is not None))


def _fault_row(row: AgentRecord, facts: FaultFacts) -> tuple[str, ...]:
    restarted = [*facts.restarted, "", ""][:2]
    return (row.id, *(_format_answer(text) for text in (facts.limited, facts.relaxed, facts.revoked, *restarted)))


def _format_answer(text: str) -> str:
    """Return what the model got, with the sentence of Rookery if it stands in a longer text."""
    messages = _MESSAGE.findall(text)
    if not messages or len(text) <= _MAX_ANSWER:
        return shorten(text) or NONE
    return f"{shorten(text[:_MAX_ANSWER])}… “{shorten(messages[-1])}”"


def _render_hooks(rows: Iterable[AgentRecord]) -> Iterator[str]:
    body = [(row.id, event, ", ".join(f"`{field}`" for field in fields)) for row in rows for event, fields in row.hooks.items()]
    yield from render_table(("Program", "Event", "Fields"), body)


def _render_server(rows: Iterable[AgentRecord]) -> Iterator[str]:
    body = [(row.id, shorten(text)) for row in rows for text in row.server_errors]
    yield from render_table(("Program", "Fault"), body) if body else ["These runs have no such fault.", ""]


def _render_unavailable(rows: Iterable[AgentRecord]) -> Iterator[str]:
    yield from render_table(
        ("Program", "Package", "Version", "Reason"), ((row.id, _format_package(row), row.version, shorten(row.reason)) for row in rows)
    )


def _format_package(row: AgentRecord) -> str:
    kind = "npm" if row.family == "bridge" else row.kind  # a driver in Python starts the bridge
    return f"`{row.package}`, {REGISTRIES.get(kind, PYPI)}"


def _get_protocol(row: AgentRecord) -> ProtocolFacts:
    assert row.protocol is not None
    return row.protocol
