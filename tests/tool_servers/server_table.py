"""Writes docs/reference/tool-servers.md from the record of `make tool-servers`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.markdown_tables import NONE, PYPI, REGISTRIES, format_days, render_table, shorten
from tests.tool_servers.server_record import GatewayFacts, RawFacts, ServerRecord, WithoutCredential

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tool-servers.md"

_HEAD = """# Real tool servers

{count} tool servers of others, each in a pinned version, were run alone and behind Rookery, on {days}.
`make tool-servers` installs and runs them, and writes this page; no test needs them. What Rookery promises about such servers is tested
with those in `tests/upstreams`.

Nothing here judges a server. The page says what to expect from it, and what Rookery passes on.
"""

_START = """## Protocol, start and end

- **Later era**: the answer of the server alone to `server/discover`, the first request of version 2026-07-28. It names versions, or is an
  error code. -32601 and -32602 are usual in servers of the older era.
- **Older era**: the versions that its `initialize` accepts, of 2024-11-05 and 2025-11-25.
- **With Rookery**: the version that Rookery and the server use.
- **Input closed**, **SIGTERM**: the seconds until the server has ended after its standard input was closed, and after SIGTERM. "not in 10":
  it was still running then. Rookery closes the input first, and kills what is left.
"""

_CREDENTIAL = """## Without what it needs

Each of these servers has a credential, a folder, a file or a program that it needs or can use. It was left out.

- **Alone**: what the server does in a terminal: it starts and lists tools, or ends with an exit code and the reason on standard error.
- **Rookery shows**: the result of `rookery servers check`: "yes", or why the server cannot be used.
"""

_FEATURES = """## Features, and what passes through

- **Tools**: the tools that the server lists, and the size of the list as JSON.
- **R, T, P**: its resources, resource templates and prompts.
- **Schemas**: the `$schema` of the schemas of its tools; "none" is read as 2020-12.
- **Further fields**: what tools have beside name, description and arguments, and how many tools have it.
- **Passes**: whether tools, resources, templates and prompts arrive over the HTTP API, at `/mcp` and at `/mcp/{id}` with every field
  unchanged. Names and URIs that the HTTP API and `/mcp` translate are not compared. The numbers refer to the notes below.
- **Call**: whether the result of a real call has the same fields over all three as without Rookery. –: no tool works without the internet.
"""

_UNAVAILABLE = """## Not run

These servers could not be installed or started where the table was made.
"""


def render(records: Iterable[ServerRecord]) -> str:
    """Return the page."""
    rows = list(records)
    running = [row for row in rows if row.raw is not None]
    head = _HEAD.format(count=len(running), days=format_days(row.ran_on for row in rows))
    sections = [
        [head, _START, *_render_start(running)],
        [_CREDENTIAL, *_render_credentials(rows)],
        [_FEATURES, *_render_features(running)],
        [_UNAVAILABLE, *_render_unavailable([row for row in rows if row.raw is None])],
    ]
    return "\n".join(line for section in sections for line in section)


def _render_start(rows: Iterable[ServerRecord]) -> Iterator[str]:
    head = ("Server", "Package", "Version", "Written in", "Later era", "Older era", "With Rookery", "Input closed", "SIGTERM")
    yield from render_table(head, (_start_row(row, row.raw) for row in rows if row.raw is not None))


def _start_row(row: ServerRecord, raw: RawFacts) -> tuple[str, ...]:
    era = row.gateway.era if row.gateway is not None else None
    package = f"`{row.package}`, {REGISTRIES.get(row.kind, PYPI)}"
    ends = (_format_seconds(raw.stdin_s), _format_seconds(raw.sigterm_s))
    return (row.id, package, row.version, row.language, raw.discover, ", ".join(raw.versions) or NONE, era or NONE, *ends)


def _render_credentials(rows: Iterable[ServerRecord]) -> Iterator[str]:
    body = [(row.id, _describe_start(row.without), shorten(row.without.shown)) for row in rows if row.without is not None]
    yield from render_table(("Server", "Alone", "Rookery shows"), body)


def _describe_start(without: WithoutCredential) -> str:
    return f"{shorten(without.raw)}, {without.tools} tools" if without.raw.startswith("starts") else shorten(without.raw)


def _render_features(rows: Iterable[ServerRecord]) -> Iterator[str]:
    notes = list[str]()
    body = [_feature_row(row, row.raw, row.gateway, notes) for row in rows if row.raw is not None and row.gateway is not None]
    head = ("Server", "Tools", "R, T, P", "Schemas", "Further fields", "Passes", "Call")
    yield from render_table(head, body)
    yield "Notes:\n"
    yield from (f"{number}. {note}" for number, note in enumerate(notes, 1))
    yield ""


def _feature_row(row: ServerRecord, raw: RawFacts, gateway: GatewayFacts, notes: list[str]) -> tuple[str, ...]:
    fields = ", ".join(f"`{name}` {'all' if count == raw.tools else count}" for name, count in raw.fields.items())
    numbers = [_add_note(text, notes) for text in _list_notes(row, raw, gateway)]
    has_difference = bool(gateway.differences)
    passes = " ".join(["yes" if not has_difference else "not all", *(f"({number})" for number in numbers)])
    results = set(gateway.call.values())
    call = NONE if not results else "same" if results == {"same"} else f"differs ({_add_note(_describe_call(row.id, gateway.call), notes)})"
    counts = f"{raw.resources}, {raw.templates}, {raw.prompts}"
    size = f"{raw.tools}, {raw.bytes:,} bytes" if raw.tools else "0"
    return (row.id, size, counts, ", ".join(raw.dialects) or NONE, fields or NONE, passes, call)


def _list_notes(row: ServerRecord, raw: RawFacts, gateway: GatewayFacts) -> Iterator[str]:
    """Yield what is unusual about a server, a sentence each."""
    if gateway.differences:
        yield f"{row.id}: {_describe_differences(gateway.differences)}."
    for warning in gateway.warnings:
        yield f"{row.id}: `rookery servers check` warns: {shorten(warning)}."
    if gateway.hidden and not gateway.warnings:
        names = ", ".join(f"`{name}`" for name in gateway.hidden)
        yield f"{row.id}: {names} is not offered. {next(iter(gateway.hidden.values()))}"
    if gateway.health != "online":
        yield f"{row.id}: its health in Rookery is `{gateway.health}`. {shorten(gateway.last_error or '')}"
    if raw.unstable:
        yield f"{row.id}: its own list of tools differs from one start to the next: {', '.join(raw.unstable)}."
    if raw.failed_lists:
        yield f"{row.id}: alone, {', '.join(raw.failed_lists)} is its answer to a list."
    if raw.stray_lines:
        yield f"{row.id}: {raw.stray_lines} lines on its standard output are no messages."
    if gateway.leftover:
        yield f"{row.id}: {gateway.leftover} of its processes still ran 5 s after Rookery had stopped."


def _describe_differences(differences: Mapping[str, list[str]]) -> str:
    """Return which fields differ, with interfaces of equal differences together."""
    groups = dict[tuple[str, ...], list[str]]()
    for interface, texts in differences.items():
        groups.setdefault(tuple(texts), []).append(_format_interface(interface))
    return "; ".join(f"{' and '.join(interfaces)} {', '.join(texts)}" for texts, interfaces in groups.items())


def _describe_call(id: str, call: Mapping[str, str]) -> str:
    texts = {
        f"{'over HTTP' if interface == 'http' else f'at `{interface}`'} {shorten(text)}"
        for interface, text in call.items()
        if text != "same"
    }
    return f"{id}: the result of the call: {'; '.join(sorted(texts))}."


def _add_note(text: str, notes: list[str]) -> int:
    notes.append(text.replace("<", "&lt;"))
    return len(notes)


def _render_unavailable(rows: Iterable[ServerRecord]) -> Iterator[str]:
    body = [(row.id, f"`{row.package}`, {REGISTRIES.get(row.kind, PYPI)}", row.version, row.language, shorten(row.reason)) for row in rows]
    yield from render_table(("Server", "Package", "Version", "Written in", "Reason"), body)


def _format_interface(interface: str) -> str:
    return "over HTTP" if interface == "http" else f"at `{interface}`"


def _format_seconds(seconds: float | None) -> str:
    return "not in 10" if seconds is None else f"{seconds:.1f}"
