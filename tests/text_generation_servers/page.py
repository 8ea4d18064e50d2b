"""Writes docs/reference/text-generation-servers.md from the recorded exchanges."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

from tests.markdown_tables import NONE, format_days, render_table, shorten
from tests.text_generation_servers.exchanges import Exchange, Json, Outcome, ServerExchanges

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "text-generation-servers.md"

_HEAD = """# Servers of language models

What servers and proxies with OpenAI's `/v1/chat/completions` answer, and what [content generation](../how-to/generate-content.md) does with
it. The answers of {titles} were recorded from the programs themselves, on {days}; behind the proxies is a scripted service that answers as
providers do. Answers marked as documented are written by hand after the provider's public documentation: no account was used.

`make text-generation-servers` runs the programs, records them again, plays each answer to Rookery, and writes this page. A test plays all
of them in each change of Rookery.
"""

_SUMMARY = """## In short

- **Stream**: the chunk of a stream that has the usage.
- **Usage**: whether the parts make up the total, and where the tokens of the reasoning and of the provider's cache are.
- **Reasoning**: where the text of the reasoning is.
- **Schema**: the way in which the provider got the schema; after an arrow, the way that was used after a rejection.
- **Errors**: the form of the error, and of its code.
- **Limits**: the headers, or the words, that name the next time.
"""

_CHARGES = """## Tokens that are charged

{count} answers have a total of the service that runs the model. The charged tokens differ from it by at most {percent} %{exceptions}.
Cached tokens are a part of the input, with [a price of their own](../how-to/generate-content.md#connect-a-provider); those of the reasoning
are a part of the output.
"""

_DETAILS = """## Each answer

`→` is the request that Rookery sends after a rejection. Tokens are input + output, of which *r* are reasoning and *c* from the cache;
`≈` marks an estimate. An error is what the client of Rookery gets.
"""

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
_BLOCK = re.compile(r"</?(?:think|thinking|reasoning)>|<\|channel\|>", re.IGNORECASE)
_LIMIT_HEADER = re.compile(r"retry-after|reset", re.IGNORECASE)
_MAX_DIFFERENCE = 0.01


def render(servers: Iterable[ServerExchanges]) -> str:
    """Return the page."""
    servers = list(servers)
    recorded = [server for server in servers if server.source == "recorded"]
    titles = [server.title for server in recorded]
    lines = [
        _HEAD.format(
            titles=f"{', '.join(titles[:-1])} and {titles[-1]}", days=format_days(server.made_on for server in recorded if server.exchanges)
        ),
        _SUMMARY,
        *render_table(
            ("Server", "Version", "Source", "Stream", "Usage", "Reasoning", "Schema", "Errors", "Limits"), map(_summarise, servers)
        ),
        _render_charges(servers),
        _DETAILS,
    ]
    for server in servers:
        behind = f", in front of {server.behind}" if server.behind else ""
        lines += [f"### {server.title}", "", f"{server.version}{behind}; {server.source} on {server.made_on}.", ""]
        lines += render_table(("Answer", "Status", "Rookery"), map(_describe, server.exchanges))
        comments = [f"- {exchange.name}: {exchange.comment}" for exchange in server.exchanges if exchange.comment]
        lines += [*comments, ""] if comments else []
    return "\n".join(lines).rstrip() + "\n"


def list_differences(servers: Iterable[ServerExchanges]) -> list[tuple[ServerExchanges, Exchange, float]]:
    """Return the answers whose billed tokens are known, with the difference of what is charged, as a share of it."""
    known = [
        (server, exchange) for server in servers for exchange in server.exchanges if exchange.billed_tokens and not exchange.outcome.resent
    ]
    return [
        (server, exchange, abs(exchange.outcome.charged_tokens - exchange.billed_tokens) / exchange.billed_tokens)
        for server, exchange in known
        if exchange.billed_tokens and exchange.outcome.charged_tokens
    ]


def _render_charges(servers: list[ServerExchanges]) -> str:
    differences = list_differences(servers)
    usual = [share for _, exchange, share in differences if not exchange.comment]
    others = [f"{server.title}, {exchange.name}" for server, exchange, _ in differences if exchange.comment]
    exceptions = f", except where a proxy drops them before Rookery sees them: {'; '.join(others)}" if others else ""
    return _CHARGES.format(count=len(differences), percent=f"{100 * max(usual, default=0):g}", exceptions=exceptions)


def _summarise(server: ServerExchanges) -> Iterator[str]:
    bodies = [(exchange, list(_parse(exchange))) for exchange in server.exchanges]
    yield server.title
    yield server.version
    yield server.source
    yield _join(_describe_stream(values) for exchange, values in bodies if exchange.request.get("stream") and exchange.status == 200)
    yield _join(text for _, values in bodies for value in values for text in _describe_usage(value))
    yield _join(text for _, values in bodies for value in values for text in _describe_reasoning(value))
    yield _join(_describe_schema(exchange) for exchange in server.exchanges if "schema" in exchange.request)
    yield _join(text for exchange, values in bodies for text in _describe_error(exchange, values))
    yield _join(text for exchange in server.exchanges for text in _describe_limits(exchange))


def _join(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts))) or NONE


def _parse(exchange: Exchange) -> Iterator[Any]:
    """Yield the JSON of a body, or of each event of a stream."""
    if not exchange.body.lstrip().startswith(("data:", "event:", ":")):
        try:
            yield json.loads(exchange.body)
        except ValueError:
            yield exchange.body
        return
    for line in exchange.body.splitlines():
        if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
            yield json.loads(data)


def _as_object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _describe_stream(values: list[Any]) -> str:
    chunks = [_as_object(value) for value in values]
    with_usage = [chunk for chunk in chunks if chunk.get("usage")]
    if not with_usage:
        return "" if any("error" in chunk for chunk in chunks) else "no usage"
    if len(with_usage) > 1:
        return "usage in several chunks"
    return "a chunk with an empty choice" if with_usage[0].get("choices") else "a chunk without choices"


def _describe_usage(value: object) -> Iterator[str]:
    usage = _as_object(_as_object(value).get("usage"))
    parts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    if not any(parts):
        return
    if None in parts:
        yield "without " + ", ".join(name for name, part in zip(("input", "output", "total"), parts, strict=True) if part is None)
        return
    prompt, completion, total = (int(part) for part in parts if part is not None)
    reasoning = int(_as_object(usage.get("completion_tokens_details")).get("reasoning_tokens") or 0)
    if total > prompt + completion:
        yield "reasoning outside the output" if reasoning else "a total above the parts"
    elif reasoning > completion:
        yield "reasoning outside output and total"
    else:
        yield "reasoning in the output" if reasoning else "parts make up the total"
    if _as_object(usage.get("prompt_tokens_details")).get("cached_tokens") or usage.get("prompt_cache_hit_tokens"):
        yield "cached tokens in the input"


def _describe_reasoning(value: object) -> Iterator[str]:
    for choice in map(_as_object, _as_object(value).get("choices") or ()):
        message = _as_object(choice.get("message") or choice.get("delta"))
        yield from (f"`{name}`" for name in _REASONING_FIELDS if message.get(name))
        content = message.get("content")
        if isinstance(content, list):
            yield "a part of `content`"
        elif isinstance(content, str) and _BLOCK.search(content):
            yield "a block in `content`"


def _describe_schema(exchange: Exchange) -> str:
    outcome = exchange.outcome
    changes = [change for change in outcome.resent if change in {"json_object", "prompt"}]
    if changes:
        return f"`json_schema` → `{changes[-1]}`"
    return f"`{outcome.schema_mode}`" if outcome.schema_mode else ""


def _describe_error(exchange: Exchange, values: list[Any]) -> Iterator[str]:
    for body in values:
        value = body
        if isinstance(body, list):
            yield "a list"
            value = next(iter(cast("list[object]", body)), None)
        error = _as_object(value).get("error")
        if error is None and exchange.status != 200:
            yield "a text" if isinstance(value, str) else "an object without `error`"
        elif _as_object(error):
            code = _as_object(error).get("code")
            kind = (
                "a code in words"
                if isinstance(code, str) and not code.isdecimal()
                else "the status as a text"
                if isinstance(code, str)
                else ""
            )
            yield kind or ("the status as a number" if isinstance(code, int) else "no code")
        elif error:
            yield "a text as `error`"


def _describe_limits(exchange: Exchange) -> Iterator[str]:
    if exchange.status == 200:
        return
    yield from (f"`{name}`" for name in exchange.headers if _LIMIT_HEADER.search(name))
    if exchange.status == 429 and re.search(r"try again in|retryDelay", exchange.body):
        yield "in the body"


def _describe(exchange: Exchange) -> tuple[str, str, str]:
    return exchange.name, str(exchange.status), _describe_outcome(exchange.outcome)


def _describe_outcome(outcome: Outcome) -> str:
    parts = [f"→ `{change}`" for change in outcome.resent]
    if outcome.error:
        code, message = outcome.error.split(": ", 2)[::2]
        parts.append(f"`{code}`: {shorten(message)}")
        if outcome.retry_after_s is not None:
            parts.append(f"again in {outcome.retry_after_s} s")
    else:
        parts.append(f"“{shorten(outcome.text)}”")
        if outcome.reasoning:
            parts.append(f"reasoning “{shorten(outcome.reasoning)}”")
        if outcome.schema_mode:
            parts.append(f"`{outcome.schema_mode}`")
    if outcome.charged_tokens:
        details = [f"{count} {letter}" for count, letter in ((outcome.reasoning_tokens, "r"), (outcome.cached_tokens, "c")) if count]
        suffix = f" ({', '.join(details)})" if details else ""
        parts.append(f"{'≈ ' if outcome.is_estimated else ''}{outcome.input_tokens:,} + {outcome.output_tokens:,}{suffix}")
    return "; ".join(parts)
