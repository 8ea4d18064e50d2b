"""The exchanges with servers of language models, as files: the request, the answer as it came, and what Rookery does with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).with_name("exchanges")

Json = dict[str, Any]


@dataclass(kw_only=True)
class Outcome:
    """
    The outcome of an answer in Rookery.

    Attributes:
        resent: The change of each further request, such as `json_object`.
        error: The code and the message of the error; empty if there is an answer.
        retry_after_s: What the error says about the next attempt; None: nothing.
    """

    resent: list[str] = field(default_factory=list[str])
    text: str = ""
    reasoning: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    is_estimated: bool = False
    schema_mode: str | None = None
    error: str = ""
    retry_after_s: int | None = None

    @property
    def charged_tokens(self) -> int:
        """All tokens that Rookery charges."""
        return self.input_tokens + self.output_tokens


@dataclass(kw_only=True)
class Exchange:
    """
    A request of Rookery and the answer of a server.

    Attributes:
        name: What the exchange shows, for the page.
        request: The fields of the request beside the model and its one message; `stream` is true for a streamed answer.
        headers: The headers that say something.
        billed_tokens: The tokens that the service of the model bills, if that is known.
        comment: Why Rookery cannot do better; empty if it need not.
    """

    name: str
    request: Json
    status: int
    headers: Json
    body: str
    billed_tokens: int | None = None
    comment: str = ""
    outcome: Outcome = field(default_factory=Outcome)


@dataclass(kw_only=True)
class ServerExchanges:
    """
    The exchanges with one server.

    Attributes:
        source: `recorded` from the server itself, or `documented`: written by hand after the public documentation of the provider.
        behind: What the server passes requests on to; empty for one that runs the model itself.
        reason: Why it was not run; empty if it was.
    """

    id: str
    title: str
    version: str
    source: Literal["recorded", "documented"]
    made_on: str
    behind: str = ""
    reason: str = ""
    exchanges: list[Exchange] = field(default_factory=list[Exchange])


def load_servers() -> list[ServerExchanges]:
    """Return all servers, the recorded ones first."""
    servers = [_parse(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(FOLDER.glob("*.json"))]
    return sorted(servers, key=lambda server: (server.source != "recorded", server.title.lower()))


def save_servers(servers: Iterable[ServerExchanges]) -> None:
    """Write each server to its file."""
    FOLDER.mkdir(exist_ok=True)
    for server in servers:
        text = json.dumps(asdict(server), indent=1, ensure_ascii=False)
        (FOLDER / f"{server.id}.json").write_text(f"{text}\n", encoding="utf-8")


def _parse(fields: Mapping[str, Any]) -> ServerExchanges:
    server = ServerExchanges(**fields)
    server.exchanges = [_parse_exchange(exchange) for exchange in fields["exchanges"]]
    return server


def _parse_exchange(fields: Mapping[str, Any]) -> Exchange:
    exchange = Exchange(**fields)
    exchange.outcome = Outcome(**fields.get("outcome", {}))
    return exchange
