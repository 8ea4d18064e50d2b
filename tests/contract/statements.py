"""
The statements of the contract, each with the requests that verify it on a running server.

A module of this folder registers its statements by `statement` and `statements_about_fields`; `test_contract.py` runs each as a test, and
`python -m tests.contract` prints how many hold.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import httpx2

from tests.deadlines import HANG_S
from tests.processes import Server, run_rookery, run_server

TOOLBOX = Path(__file__).resolve().parent / "servers" / "toolbox.py"

SERVERS: Mapping[str, object] = {
    "mcpServers": {
        "toolbox": {
            "command": sys.executable,
            "args": [str(TOOLBOX)],
            "name": "Toolbox",
            "tagline": "Every outcome of a call",
            "description": "A server for the contract.",
            "use_when": "Testing",
        },
        "trial": {"command": sys.executable, "args": [str(TOOLBOX)], "status": "beta"},
        "legacy": {"command": sys.executable, "args": [str(TOOLBOX)], "status": "deprecated"},
        "off": {"command": sys.executable, "args": [str(TOOLBOX)], "enabled": False},
        "slow": {"command": sys.executable, "args": [str(TOOLBOX)], "timeout_s": 1},
        "hidden": {"command": sys.executable, "args": [str(TOOLBOX)], "private": True},
        "box": {"command": sys.executable, "args": [str(TOOLBOX)], "sandbox": True},
        "missing": {"command": "no-such-program-here"},
    }
}


@dataclass(slots=True)
class Api:
    """A running server with its first keys, and functions that create more."""

    server: Server
    _numbers: Iterable[int] = field(default_factory=itertools.count)

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self.server.folder

    @property
    def key(self) -> str:
        """The API key of the first run."""
        return self.server.keys["api_key"]

    @property
    def agent(self) -> str:
        """The agent key of the first run."""
        return self.server.keys["agent_key"]

    def name(self, prefix: str = "n") -> str:
        """Return a unique name."""
        return f"{prefix}-{next(iter(self._numbers))}"

    def send(self, method: str, path: str, body: object = None, *, key: str | None = "", headers: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401 - a response whose JSON may be anything
        """Send a request with *key*: the first API key by default, None for no key."""
        token = self.key if key == "" else key
        request_headers = {"Authorization": f"Bearer {token}"} if token else {}
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if content is not None:
            request_headers["Content-Type"] = "application/json"
        return httpx2.request(
            method, f"{self.server.url}{path}", content=content, headers=request_headers | dict(headers or {}), timeout=HANG_S
        )

    def get(self, path: str, *, key: str | None = "", **headers: str) -> Any:  # noqa: ANN401 - as above
        """Send a GET."""
        return self.send("GET", path, key=key, headers=headers)

    def post(self, path: str, body: object = None, *, key: str | None = "", **headers: str) -> Any:  # noqa: ANN401 - as above
        """Send a POST."""
        return self.send("POST", path, body, key=key, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def api_key(self, *scopes: str, **fields: object) -> dict[str, Any]:
        """Create an API key and return the response."""
        response = self.post("/api/v1/api-keys", {"name": self.name("key"), "scopes": scopes or ["*"]} | fields)
        assert response.status_code == 201, response.text
        return cast("dict[str, Any]", response.json())

    def agent_key(self, *permissions: str, **fields: object) -> dict[str, Any]:
        """Create an agent key and return the response."""
        body = {"name": self.name("agent"), "permissions": permissions or ["brain:read", "brain:write"]} | fields
        response = self.post("/api/v1/agent-keys", body)
        assert response.status_code == 201, response.text
        return cast("dict[str, Any]", response.json())

    def remember(self, content: str = "We deploy on Tuesdays.", *, key: str | None = "", **fields: object) -> dict[str, Any]:
        """Store a memory, wait until it is indexed and return the response."""
        response = self.post("/v1/brain/remember", {"content": content, "type": "fact", "wait_ms": 5000} | fields, key=key)
        assert response.status_code == 201, response.text
        return cast("dict[str, Any]", response.json())

    def recall(self, query: str, *, key: str | None = "", **fields: object) -> dict[str, Any]:
        """Recall memories and return the response."""
        response = self.post("/v1/brain/recall", {"query": query} | fields, key=key)
        assert response.status_code == 200, response.text
        return cast("dict[str, Any]", response.json())

    def call(self, server: str, tool: str, *, key: str | None = "", **arguments: object) -> Any:  # noqa: ANN401 - as above
        """Call a tool."""
        return self.post("/api/v1/mcp/tools/call", {"server": server, "tool": tool, "arguments": arguments}, key=key)

    def plan(self, *tasks: str, **fields: object) -> dict[str, Any]:
        """Create an active plan with one phase of *tasks* and return it."""
        phases = [{"name": "First", "tasks": [{"name": task} for task in tasks]}]
        response = self.post("/v1/plans", {"title": self.name("Plan"), "status": "active", "phases": phases} | fields)
        assert response.status_code == 201, response.text
        return cast("dict[str, Any]", response.json())

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line on the data folder of the server."""
        return run_rookery(*arguments, data_dir=self.folder, environment=os.environ | {"COLUMNS": "200"})

    def run_json(self, *arguments: str) -> Any:  # noqa: ANN401 - as above
        """Run a command with --json and return its document."""
        result = self.run(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


@contextmanager
def open_api(folder: Path) -> Generator[Api]:
    """Start a server with the tool servers of `SERVERS`, with its data in a folder below *folder*; it ends with the block."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "servers.json").write_text(json.dumps(SERVERS), encoding="utf-8")
    with run_server(data, egress_allow="127.0.0.1/32") as server:
        api = Api(server)
        api.call("toolbox", "echo", text="ready")
        api.recall("ready")  # loads the embedder, so that no statement about memories waits for it
        yield api


Check = Callable[[Api], object]


@dataclass(frozen=True, slots=True)
class Statement:
    """
    One sentence of the contract.

    Attributes:
        subject: Its module, such as `memory`.
        text: The sentence.
        check: Sends requests; raises AssertionError if the sentence is not true.
    """

    subject: str
    text: str
    check: Check

    @property
    def id(self) -> str:
        """The name of its test."""
        return f"{self.subject}: {self.text}"


STATEMENTS: list[Statement] = []


def _subject(function: Callable[..., object]) -> str:
    return function.__module__.rpartition(".")[2]


def statement(text: str) -> Callable[[Check], Check]:
    """Register a function as the check of a statement."""

    def register(check: Check) -> Check:
        STATEMENTS.append(Statement(_subject(check), text, check))
        return check

    return register


def is_time(value: object) -> bool:
    """Return whether *value* is an ISO 8601 time in UTC, written with Z."""
    return isinstance(value, str) and value.endswith("Z") and bool(datetime.fromisoformat(value))


def is_number(value: object) -> bool:
    """Return whether *value* is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


KINDS: Mapping[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "time": is_time,
    "string or null": lambda value: value is None or isinstance(value, str),
    "time or null": lambda value: value is None or is_time(value),
    "array or null": lambda value: value is None or isinstance(value, list),
}
"""Types of fields."""


def statements_about_fields(thing: str, kinds: Mapping[str, str], example: Callable[[Api], Mapping[str, Any]]) -> None:
    """Register a statement for each field of a table: the object that *example* returns has the field, with its type."""
    for name, kind in kinds.items():

        def check(api: Api, name: str = name, kind: str = kind) -> None:
            example_object = example(api)
            assert name in example_object, f"{thing} has {sorted(example_object)}"
            assert KINDS[kind](example_object[name]), f"{name} is {example_object[name]!r}, not {kind}"

        STATEMENTS.append(Statement(_subject(example), f"{thing} has {name} ({kind}).", check))


def statement_per_value(text: str, values: Sequence[object], check: Callable[[Api, Any], object]) -> None:
    """Register a statement for each of *values*; *text* names it as {}."""
    for value in values:

        def run(api: Api, value: object = value) -> None:
            check(api, value)

        STATEMENTS.append(Statement(_subject(check), text.format(value), run))


def assert_error(response: Any, status: int, code: str | None = None) -> dict[str, Any]:  # noqa: ANN401 - as above
    """Assert that the response is an error with *status* and *code* in the one body of errors; return that body."""
    assert response.status_code == status, f"{response.status_code}: {response.text[:300]}"
    body = cast("dict[str, Any]", response.json())
    assert isinstance(body["error"], str), body
    assert code is None or body["error"] == code, body
    assert isinstance(body["message"], str), body
    assert body["message"], body
    return body
