"""
Send valid and invalid requests to every route of a server, and report each 500: `python -m benchmarks.fuzz --requests 20000 --seed 1`.

Routes, parameters and bodies come from the server's OpenAPI document. A valid body is changed in up to three places: wrong types, unicode,
huge numbers, deep nesting, missing and added fields, broken JSON. Ids from earlier responses are used again, so that requests reach
existing resources. A run is repeatable with its seed if the server generates the same ids. Requests and time are limited. The exit code
is 1 if the server failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, cast
from urllib.parse import quote

import httpx2

from benchmarks.servers import run_server
from rookery.kernel.http.connection import MAX_DISCARDED_BYTES

TOOL_FAILURES: Final = frozenset({"tool_execution_error", "tool_timeout", "server_unavailable", "resource_error", "result_too_large"})
"""Codes of an answer of 5xx that is not a failure of Rookery."""

_METHODS = ("get", "post", "put", "patch", "delete")
_MAX_DEPTH = 6
_MAX_IDS = 200
_CLIENTS = 4
_READ_TIMEOUT_S = 3.0
"""A stream without news ends here; what is still open then counts as answered."""
_MAX_PRINTED = 20

_STRINGS: Final = (
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ud800",
    "\U0010ffff",
    "\u202e\u200b\ufeff",
    "é" * 3000,
    "x" * 60_000,
    "%s%n{0}${HOME}",
    "'; DROP TABLE memories;--",
    '" OR "a" NEAR b*',
    "../../etc/passwd",
    "\r\nX-Injected: 1",
    "0",
    "-1",
    "1e400",
    "NaN",
    "null",
    "2026-02-30T25:61:61Z",
    "9999-12-31T23:59:59.999999+14:00",
    "0001-01-01T00:00:00-14:00",
    "http://[::1",
    "http://127.0.0.1:99999/",
    "https://user:pass@\u0661.example/%zz",
    "0.0.0.0/33",
    "::1/128",
    "01a1fbcd-a48b-7917-98b5-5a15ad842035",
    "[" * 300,
    "(((((a*)*)*)*)*)b",
    "\U0001d54f\u0301\u0301\u0301",
)
_NUMBERS: Final = (0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0, 1e308, 5e-324, 1e16)
_COLLECTIONS: Final = {"remember": "memories", "batch": "memories", "claim-next": "tasks", "copies": "templates"}
"""The collection of what a route makes, where its path ends otherwise."""
_RAW: Final = (
    b"",
    b"{",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"7",
    b'"a"',
    b'{"a":1e999}',
    b'{"a":NaN}',
    b"[" * 50_000,
    b'{"a":' * 60 + b"1" + b"}" * 60,
)
_MEDIA_TYPES: Final = ("application/json", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedRequest:
    """A request that is ready to be sent; *path* is percent-encoded and has the query."""

    method: str
    template: str
    path: str
    headers: dict[str, str]
    content: bytes | None

    def __str__(self) -> str:
        """Return the request in one line, shortened."""
        return f"{self.method} {self.path[:300]} {self.headers} {(self.content or b'')[:600]!r}"


@dataclass(slots=True)
class RequestGenerator:
    """A seeded generator of requests from an OpenAPI document."""

    document: Mapping[str, object]
    random: Random
    protected: frozenset[str] = frozenset()
    """Ids of the caller's own key and workspace: no request may delete or change these."""
    ids: list[str] = field(default_factory=list[str])
    ids_by_collection: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Ids by the part of the path before the parameter: `plans` for `/api/agent/plans/{plan}`."""

    def learn(self, template: str, content: object) -> None:
        """Store ids and names of a response for later requests."""
        self._collect(content)
        collection = next((part for part in reversed(template.split("/")) if not part.startswith("{")), "")
        of_collection = self.ids_by_collection.setdefault(_COLLECTIONS.get(collection, collection), [])
        of_collection += [id_ for id_ in _own_ids(content) if id_ not in of_collection]
        if len(of_collection) > _MAX_IDS:
            del of_collection[: _MAX_IDS // 2]
        del self.ids[:-_MAX_IDS]

    def _collect(self, content: object) -> None:
        match content:
            case dict():
                for name, value in cast("dict[str, object]", content).items():
                    is_id = name in {"id", "slug", "name", "uri"} or name.endswith("_id")
                    if is_id and isinstance(value, str) and 0 < len(value) < 200:
                        self.ids.append(value)
                    else:
                        self._collect(value)
            case list():
                for item in cast("list[object]", content)[:5]:
                    self._collect(item)
            case _:
                pass

    def operations(self) -> list[tuple[str, str]]:
        """Return path and method of every operation."""
        paths = cast("dict[str, dict[str, object]]", self.document["paths"])
        return [(path, method) for path, item in sorted(paths.items()) for method in _METHODS if method in item]

    def request(self, path: str, method: str) -> GeneratedRequest:
        """Generate one request of an operation."""
        paths = cast("dict[str, dict[str, dict[str, object]]]", self.document["paths"])
        operation = paths[path][method]
        headers, query, target = dict[str, str](), list[str](), path
        for parameter in map(self._resolve, cast("list[object]", operation.get("parameters", []))):
            name, where = str(parameter["name"]), parameter["in"]
            if where == "path":
                before = path.split(f"/{{{name}}}", maxsplit=1)[0].rsplit("/", 1)[-1]
                known_ids = self.ids_by_collection.get(before)
                value = self.random.choice(known_ids) if known_ids and self.random.random() < 0.7 else self._parameter(parameter, 0.3)
                is_protected = method != "get" and value.strip() in self.protected
                target = target.replace(f"{{{name}}}", self._encode("x" if is_protected else value))
            elif where == "query" and (parameter.get("required") or self.random.random() < 0.3):
                query.append(f"{quote(name)}={self._encode(self._parameter(parameter, 0.3))}")
            elif where == "header" and name != "X-Workspace-ID" and self.random.random() < 0.1:
                text = self._parameter(parameter, 0.3).encode("ascii", "ignore").decode()[:500]
                headers[name] = "".join(char for char in text if char.isprintable()).strip()
        if self.random.random() < 0.03:
            query.append(self.random.choice(("bogus=1", "%00", "%ff=%ff", "=", "&&&", "page=1&page=2", "%ed%a0%80=1")))
        content = self._content(operation, headers)
        return GeneratedRequest(
            method=method.upper(), template=path, path=target + ("?" + "&".join(query) if query else ""), headers=headers, content=content
        )

    def _encode(self, text: str) -> str:
        return quote(text.encode("utf-8", "surrogatepass")[:4000], safe="")

    def _parameter(self, parameter: Mapping[str, object], share_damaged: float) -> str:
        chance = self.random.random()
        if chance < share_damaged:
            return self._odd_string() if self.random.random() < 0.7 else str(self._odd_number())
        if parameter["in"] == "path" and self.ids and chance < 0.8:
            return self.random.choice(self.ids)
        value = self._valid(parameter.get("schema", {}), 0)
        return value if isinstance(value, str) else json.dumps(value)

    def _content(self, operation: Mapping[str, object], headers: dict[str, str]) -> bytes | None:
        body = self._resolve(operation.get("requestBody", {}))
        media = cast("dict[str, dict[str, object]]", body.get("content", {}))
        if not media:
            return self.random.choice(_RAW) if self.random.random() < 0.1 else None
        kind, described = next(iter(media.items()))
        headers["Content-Type"] = kind if self.random.random() < 0.97 else self.random.choice(_MEDIA_TYPES)
        if self.random.random() < 0.04:
            return self.random.choice(_RAW)
        value = self._valid(described.get("schema", {}), 0)
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))):
            value = self._damage(value)
        raw = (
            json.dumps(value).encode()
            if self.random.random() < 0.5
            else json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
        )
        if raw and self.random.random() < 0.03:
            at = self.random.randrange(len(raw))
            raw = raw[:at] + bytes([self.random.randrange(256)]) + raw[at + 1 :]
        return raw

    def _resolve(self, part: object) -> dict[str, object]:
        resolved = cast("dict[str, object]", part)
        while "$ref" in resolved:
            target: object = self.document
            for name in str(resolved["$ref"]).removeprefix("#/").split("/"):
                target = cast("dict[str, object]", target)[name]
            resolved = cast("dict[str, object]", target)
        return resolved

    def _valid(self, part: object, depth: int) -> object:
        """Return a value with the types, choices and lengths of a schema."""
        if not isinstance(part, dict) or depth > _MAX_DEPTH:
            return "deep"
        schema = self._resolve(cast("object", part))
        for name in ("example", "default", "const"):
            if name in schema and self.random.random() < 0.7:
                return schema[name]
        examples = schema.get("examples")
        if isinstance(examples, list) and examples and self.random.random() < 0.7:
            return self.random.choice(cast("list[object]", examples))
        if "enum" in schema:
            return self.random.choice(cast("list[object]", schema["enum"]))
        for name in ("oneOf", "anyOf"):
            if name in schema:
                return self._valid(self.random.choice(cast("list[object]", schema[name])), depth + 1)
        if "allOf" in schema:
            parts = [self._valid(alternative, depth + 1) for alternative in cast("list[object]", schema["allOf"])]
            merged = dict[str, object]()
            for subschema in parts:
                merged |= cast("dict[str, object]", subschema) if isinstance(subschema, dict) else {}
            return merged or parts[0]
        kinds = schema.get("type")
        kind = self.random.choice(cast("list[object]", kinds)) if isinstance(kinds, list) else kinds
        return self._valid_of_type(kind, schema, depth)

    def _valid_of_type(self, kind: object, schema: Mapping[str, object], depth: int) -> object:
        match kind:
            case "integer" | "number":
                least, most = schema.get("minimum", 0), schema.get("maximum", 100)
                return self.random.choice((least, most, 1))
            case "boolean":
                return self.random.random() < 0.5
            case "null":
                return None
            case "array":
                least = cast("int", schema.get("minItems", 0))
                return [self._valid(schema.get("items", {}), depth + 1) for _ in range(max(least, self.random.choice((0, 1, 2))))]
            case "string":
                return self._valid_string(schema)
            case _:
                return self._valid_object(schema, depth)

    def _valid_object(self, schema: Mapping[str, object], depth: int) -> object:
        required = cast("list[str]", schema.get("required", []))
        fields = cast("dict[str, object]", schema.get("properties", {}))
        return {
            name: self._secret() if name == "secret" else self._valid(part, depth + 1)
            for name, part in fields.items()
            if name in required or self.random.random() < 0.4
        }

    def _valid_string(self, schema: Mapping[str, object]) -> str:
        match schema.get("format"):
            case "date-time":
                return self.random.choice(("2026-11-21T10:00:00Z", "2030-01-01T00:00:00.123456+02:00"))
            case "uri":
                return self.random.choice(("https://example.com/hook", "http://127.0.0.1:9/"))
            case _:
                text = (
                    self.random.choice(self.ids)
                    if self.ids and self.random.random() < 0.4
                    else self.random.choice(("a", "deploy", "note-1"))
                )
                return text.ljust(cast("int", schema.get("minLength", 0)), "a")[: cast("int", schema.get("maxLength", 1000))]

    def _damage(self, value: object) -> object:
        """Change one place of a value."""
        if isinstance(value, dict) and value:
            fields = dict(cast("dict[str, object]", value))
            name = self.random.choice(sorted(fields))
            match self.random.randrange(8):
                case 0:
                    del fields[name]
                case 1:
                    fields[self._odd_string()[:200]] = self._odd_value()
                case _:
                    fields[name] = self._secret() if name == "secret" else self._damage(fields[name])
            return fields
        if isinstance(value, list) and value:
            items = list(cast("list[object]", value))
            at = self.random.randrange(len(items))
            match self.random.randrange(6):
                case 0:
                    return items * self.random.choice((2, 200))
                case 1:
                    return [*items, self._odd_value()]
                case _:
                    items[at] = self._damage(items[at])
                    return items
        return self._odd_value()

    def _secret(self) -> object:
        """Return a unique secret, so that a search for leaked secrets finds only real leaks."""
        letters = "".join(self.random.choice("abcdefghijklmnop") for _ in range(40))
        return self.random.choice((None, 5, "", "short", f"whsec_{letters}", letters))

    def _odd_string(self) -> str:
        if self.random.random() < 0.2:
            return "".join(
                chr(self.random.choice((self.random.randrange(128), self.random.randrange(0xD800))))
                for _ in range(self.random.randrange(1, 40))
            )
        return self.random.choice(_STRINGS)

    def _odd_number(self) -> object:
        return self.random.choice(_NUMBERS)

    def _odd_value(self) -> object:
        match self.random.randrange(9):
            case 0:
                return None
            case 1:
                return self.random.random() < 0.5
            case 2 | 3:
                return self._odd_number()
            case 4:
                return list[object]()
            case 5:
                return {self._odd_string()[:100]: self._odd_string()[:100]}
            case 6:
                nested: object = 1
                for _ in range(self.random.choice((3, 30, 70))):
                    nested = [nested] if self.random.random() < 0.5 else {"a": nested}
                return nested
            case _:
                return self._odd_string()


def _own_ids(content: object) -> list[str]:
    """Return the ids and slugs of the resources in a response."""
    ids = list[str]()
    if isinstance(content, dict):
        fields = cast("dict[str, object]", content)
        ids += [str(fields[name]) for name in ("id", "slug", "recall_id") if isinstance(fields.get(name), str | int)]
        for value in fields.values():
            ids += _own_ids(value)
    elif isinstance(content, list):
        for item in cast("list[object]", content)[:20]:
            ids += _own_ids(item)
    return ids


def is_own_failure(status: int, content: bytes) -> bool:
    """Return whether a response is a failure of Rookery: a 500 that is not a failure of a tool."""
    if status != 500:
        return False
    try:
        body = cast("object", json.loads(content))
    except ValueError:
        return True
    fields = cast("dict[str, object]", body) if isinstance(body, dict) else {}
    return TOOL_FAILURES.isdisjoint({str(fields.get("error")), str(fields.get("code"))})  # a failed call has its code beside a text


@dataclass(slots=True)
class FuzzReport:
    """The result of a run."""

    statuses: Counter[int] = field(default_factory=Counter[int])
    successes: Counter[str] = field(default_factory=Counter[str])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    failed: int = 0
    operations: int = 0
    unanswered: Counter[str] = field(default_factory=Counter[str])


async def fuzz(
    client: httpx2.AsyncClient, generator: RequestGenerator, *, requests: int, seconds: float, clients: int = _CLIENTS
) -> FuzzReport:
    """Send *requests* requests or as many as *seconds* allow, operation by operation in random order."""
    report, deadline, operations = FuzzReport(), time.monotonic() + seconds, generator.operations()
    report.operations = len(operations)
    remaining = iter(range(requests))

    async def send_some() -> None:
        for _ in remaining:
            if time.monotonic() > deadline:
                return
            await send(client, generator, generator.request(*generator.random.choice(operations)), report)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(send_some())
    return report


async def send(client: httpx2.AsyncClient, generator: RequestGenerator, request: GeneratedRequest, report: FuzzReport) -> None:
    """Send one request, and record its result in *report*."""
    content, status = b"", 0
    try:
        async with (
            asyncio.timeout(30),
            client.stream(request.method, request.path, headers=request.headers, content=request.content) as response,
        ):
            status = response.status_code
            async for piece in response.aiter_bytes():
                content += piece
    except (httpx2.TimeoutException, TimeoutError):
        report.unanswered[f"{request.method} {request.template}"] += status == 0
    except httpx2.InvalidURL:
        return
    except httpx2.TransportError as error:
        _record_lost(request, error, report)
        return
    report.statuses[status] += 1
    if status < 300:
        report.successes[f"{request.method} {request.template}"] += 1
    if status == 401:
        report.failures.setdefault("key", f"the run lost its key: {request}")
    if is_own_failure(status, content):
        report.failed += 1
        report.failures.setdefault(f"{request.method} {request.template}", f"{request}\n    -> {status} {content[:300]!r}")
    if status in {200, 201}:
        try:
            generator.learn(request.template, json.loads(content))
        except (ValueError, RecursionError):
            return


def _record_lost(request: GeneratedRequest, error: httpx2.TransportError, report: FuzzReport) -> None:
    """Record a connection that ended without a response: a failure unless the server closed it because of an oversized body."""
    name = f"{request.method} {request.template}"
    report.unanswered[name] += 1
    if len(request.content or b"") <= MAX_DISCARDED_BYTES:
        report.failed += 1
        report.failures.setdefault(name, f"{request}\n    -> {error!r}")


async def _run(url: str, key: str, *, requests: int, seconds: float, seed: int) -> FuzzReport:
    timeout = httpx2.Timeout(30, read=_READ_TIMEOUT_S)
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=timeout) as client:
        described = (await client.get("/openapi.json", timeout=30)).raise_for_status().json()
        identity = (await client.get("/api/v1/whoami", timeout=30)).raise_for_status().json()
        generator = RequestGenerator(described, Random(seed), protected=frozenset(ids_of(identity)), ids=["brain", "agents", "deploy"])
        return await fuzz(client, generator, requests=requests, seconds=seconds)


def ids_of(value: object) -> set[str]:
    """Return every text and number of a response, which includes its ids."""
    if isinstance(value, dict):
        return set[str]().union(*map(ids_of, cast("dict[str, object]", value).values()))
    return {str(value)} if isinstance(value, str | int) else set[str]()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a server, fuzz it and print the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="maximum number of requests")
    parser.add_argument("--seconds", type=float, default=600.0, help="maximum duration")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="rookery-fuzz-") as folder,
        run_server(Path(folder), log_level="error", min_free_disk_mb="0") as running,
    ):
        report = asyncio.run(_run(running.url, running.api_key, requests=options.requests, seconds=options.seconds, seed=options.seed))
        log = (Path(folder) / "server.log").read_text(encoding="utf-8", errors="replace")
    print(
        json.dumps(
            {
                "statuses": dict(sorted(report.statuses.items())),
                "operations_that_succeeded": len(report.successes),
                "of": report.operations,
                "failed": report.failed,
                "unanswered": report.unanswered,
            }
        )
    )
    for failure in list(report.failures.values())[:_MAX_PRINTED]:
        print(failure)
    if report.failures:
        print(log[-20_000:], file=sys.stderr)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
