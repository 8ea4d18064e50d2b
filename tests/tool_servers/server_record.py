"""The record of `make tool-servers`: what each server did, alone and behind Rookery."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

RECORD = Path(__file__).with_name("server_record.json")
"""The record from which docs/reference/tool-servers.md is made."""


@dataclass(kw_only=True)
class RawFacts:
    """
    The behaviour of a server alone, over its standard input.

    Attributes:
        discover: The answer to `server/discover`: the versions it names, an error code, or what happened.
        versions: The versions that `initialize` accepts, of those that were tried.
        fields: How many tools have each further field.
        unstable: How its list of tools differs between two starts.
        stdin_s: Seconds from the end of its input to its end; None if it did not end.
        sigterm_s: Seconds from SIGTERM to its end; None if it did not end.
    """

    discover: str
    versions: list[str]
    tools: int = 0
    bytes: int = 0
    dialects: list[str] = field(default_factory=list[str])
    fields: dict[str, int] = field(default_factory=dict[str, int])
    resources: int = 0
    templates: int = 0
    prompts: int = 0
    failed_lists: list[str] = field(default_factory=list[str])
    unstable: list[str] = field(default_factory=list[str])
    stray_lines: int = 0
    stdin_s: float | None = None
    sigterm_s: float | None = None


@dataclass(kw_only=True)
class GatewayFacts:
    """
    The behaviour of a server behind Rookery.

    Attributes:
        era: The protocol version between Rookery and the server.
        warnings: What `rookery servers check` warns of.
        tools: The number of tools by interface: `http`, `/mcp`, `/mcp/{id}`.
        features: The number of resources, templates and prompts over HTTP.
        hidden: Tools that are not listed, with the reason.
        differences: The fields that differ from what the server itself lists, by interface.
        call: How the result of the declared call compares, by interface.
        leftover: Processes of the server that still ran after Rookery had stopped.
    """

    era: str | None
    health: str
    last_error: str | None = None
    warnings: list[str] = field(default_factory=list[str])
    tools: dict[str, int] = field(default_factory=dict[str, int])
    features: list[int] = field(default_factory=list[int])
    hidden: dict[str, str] = field(default_factory=dict[str, str])
    differences: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    call: dict[str, str] = field(default_factory=dict[str, str])
    leftover: int = 0


@dataclass(kw_only=True)
class WithoutCredential:
    """
    The behaviour without the credential, the folder or the file that a server needs.

    Attributes:
        raw: What the server does alone: "starts", or its exit code with the line that says why.
        tools: The tools that it lists then.
        shown: What `rookery servers check` says.
    """

    raw: str
    tools: int
    shown: str


@dataclass(kw_only=True)
class ServerRecord:
    """One row: a server, the day of the run, and the facts; or the reason why it has no facts."""

    id: str
    package: str
    version: str
    language: str
    kind: str
    ran_on: str
    reason: str = ""
    raw: RawFacts | None = None
    gateway: GatewayFacts | None = None
    without: WithoutCredential | None = None


def load_record(path: Path = RECORD) -> dict[str, ServerRecord]:
    """Return the rows of a file by id; no file has none."""
    return parse_record(path.read_text(encoding="utf-8")) if path.exists() else {}


def parse_record(text: str) -> dict[str, ServerRecord]:
    """Return the rows of a text by id."""
    rows = dict[str, ServerRecord]()
    for entry in json.loads(text):
        raw, gateway, without = (entry.pop(name) for name in ("raw", "gateway", "without"))
        rows[entry["id"]] = ServerRecord(
            **entry,
            raw=None if raw is None else RawFacts(**raw),
            gateway=None if gateway is None else GatewayFacts(**gateway),
            without=None if without is None else WithoutCredential(**without),
        )
    return rows


def save_record(rows: Iterable[ServerRecord], path: Path = RECORD) -> None:
    """Write the rows."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
