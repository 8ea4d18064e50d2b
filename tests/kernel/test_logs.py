"""Log lines: the ids of their request, and the redaction of keys."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import pprint
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import cast
from urllib.parse import quote

import httpx2
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import jsonrpc_message_adapter
from starlette.responses import Response

from rookery.kernel import logs
from rookery.kernel.http import EdgeMiddleware, Operation, json_response, mount_routes
from rookery.kernel.http.access_log import RequestMetrics
from rookery.kernel.http.routes import RouteTable
from rookery.kernel.ids import ALPHANUMERIC
from rookery.kernel.metrics import Metrics
from rookery.kernel.safe_texts import redact
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.guards import FakeGuard

RANDOM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fG"
SECRETS = [f"sk_live_{RANDOM}", f"sk_test_{RANDOM}", f"ak_{RANDOM}", f"whsec_{RANDOM}"]
KEY = SECRETS[0]

CONTEXTS: dict[str, Callable[[str], str]] = {
    "alone": lambda key: key,
    "a header": lambda key: f"Authorization: Bearer {key}",
    "a dump of headers": lambda key: repr([(b"authorization", f"Bearer {key}".encode()), (b"x-api-key", key.encode())]),
    "Basic": lambda key: f"Authorization: Basic {base64.b64encode(f'{key}:'.encode()).decode()}",
    "Basic, nameless": lambda key: f"sent {base64.b64encode(f'{key}:'.encode()).decode()} to us",
    "JSON in JSON": lambda key: json.dumps({"body": json.dumps({"key": key})}),
    "an address": lambda key: f"GET /v1/brain/tags?key={key}&x=1",
    "an encoded address": lambda key: f"/x?key=Bearer%20{quote(key).replace('_', '%5F')}&x=1",
    "encoded twice": lambda key: quote(key.replace("_", "%5f")),
    "after an escape": lambda key: f"first\\n{key}",
    "after a word": lambda key: f"KEY_{key} and key={key}",
    "source code": lambda key: f"'{key[:8]}' '{key[8:]}'",
    "source code, added up": lambda key: f'"{key[:20]}" + "{key[20:]}"',
    "a pretty printer's": lambda key: pprint.pformat({"k": [key, {"deep": (key.encode(),)}]}, width=20),
    "shortened": lambda key: f"<Handle f('{key[:20]}...{key[-12:]}')>",
}


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.rpartition("_")[0])
@pytest.mark.parametrize("form", CONTEXTS)
def test_a_key_is_redacted_in_every_form(form: str, secret: str) -> None:
    """No usable part of the random characters stays."""
    original = CONTEXTS[form](secret)
    redacted = redact(original)

    encoded = base64.b64encode(f"{secret}:".encode()).decode()
    assert redacted != original
    assert "…" in redacted
    for part in (RANDOM[:6], RANDOM[-8:], encoded[-12:]):
        assert part not in redacted


@given(before=st.text(max_size=20), after=st.text(max_size=20), random=st.text(ALPHANUMERIC, min_size=32, max_size=32))
def test_a_key_is_redacted_between_any_two_texts(before: str, after: str, random: str) -> None:
    """This holds for every kind of key."""
    for prefix in ("sk_live_", "sk_test_", "ak_", "whsec_"):
        assert random not in redact(f"{before}{prefix}{random}{after}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer xoxb-1234-abcd to them", "Authorization: Bearer … to them"),
        ("('Cookie', 'session=abc; other=def')", "('Cookie', '…')"),
        ('{"x-api-key": "theirs"}', '{"x-api-key": "…"}'),
        ("postgresql://rookery:hunter2@db/rookery", "postgresql://rookery:…@db/rookery"),
    ],
)
def test_credentials_of_other_systems_are_redacted(text: str, expected: str) -> None:
    """Credentials for tool servers are secrets too."""
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Basic credentials are not accepted in requests from other sites.",
        "break_time and peak_memory of task_runner, speak_up",
        "send it as `Bearer KEY`",
        "sk_live_KEY",
        "http://127.0.0.1:8400/v1/brain/tags?org=a:b",
        "01a1fbcc-0000-7000-8000-000000000000 req_113d081ef76f0a8618f5",
    ],
)
def test_text_without_secrets_stays(text: str) -> None:
    """Ids, addresses and words must stay readable."""
    assert redact(text) == text


@pytest.mark.parametrize(
    "piece", ["a", "sk_live_", "ak_", '"', " ", "\\", "bearer ", "cookie=", "http://a:", "YWtf", "sk_live_'a", "ak_'' '"]
)
def test_redaction_takes_linear_time(piece: str) -> None:
    """Quadratic patterns would take minutes for these texts."""
    text = piece * (200_000 // len(piece)) + KEY
    started = time.process_time()
    redact(text)

    assert time.process_time() - started < 5


# Lines


@pytest.fixture(params=["json", "console"])
def form(request: pytest.FixtureRequest) -> logs.LogFormat:
    """Return each format of log lines in turn."""
    return cast("logs.LogFormat", request.param)


@pytest.fixture
def stream(form: logs.LogFormat) -> Iterator[io.StringIO]:
    """Yield the log stream of the test."""
    yield from _capture_log(form)


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, object]]]]:
    """Yield a function that returns the parsed log lines so far."""
    for stream in _capture_log("json"):
        yield partial(_read, stream)


def _read(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def _capture_log(form: logs.LogFormat) -> Iterator[io.StringIO]:
    saved_config, root, stream = structlog.get_config(), logging.getLogger(), io.StringIO()
    handlers, level = root.handlers, root.level
    logs.configure_logging("info", stream, log_format=form)
    structlog.configure(cache_logger_on_first_use=False)
    try:
        yield stream
    finally:
        structlog.configure(**saved_config)
        root.handlers = handlers
        root.setLevel(level)


class _LibraryObject:
    """An object that a library may log."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"<Odd {self.text}>"


class _BrokenRepr:
    """An object whose repr raises an error with a key."""

    def __repr__(self) -> str:
        raise LookupError(KEY)


def _raise(key: str) -> None:
    local = f"Bearer {key}"
    raise LookupError(local, {"key": key})


def _log_with_key(key: str) -> None:
    logger, library_log = structlog.stdlib.get_logger("ours"), logging.getLogger("theirs")
    logger.info(key)
    logger.info(
        "fields", key=key, listed=[key], pair=(key, 1), raw=f"Bearer {key}".encode(), odd=_LibraryObject(key), nothing=None, number=1.5
    )
    logger.info("nested", deep={"a": {"b": [{"c": {key: {"d": {"e": {"f": [key]}}}}}]}, (1, key): {key}, b"raw": bytearray(key.encode())})
    logger.info("said of %s", key)
    logger.info("where", stack_info=True)
    library_log.warning("%s asks with %r, %s", "he", {"Authorization": f"Bearer {key}"}, [key.encode()])
    library_log.info("more", extra={"key": key}, stack_info=True)
    try:
        _raise(key)
    except LookupError as error:
        error.add_note(key)
        logger.exception("failed", error=error)
        library_log.exception("failed with %r", error)
    logger.error("group", exc_info=ExceptionGroup(key, [ValueError(key)]))


def test_no_log_line_has_a_key(stream: io.StringIO) -> None:
    """This holds for events, nested fields, arguments, exceptions with notes and groups, and stacks."""
    _log_with_key(KEY)

    text = stream.getvalue()
    assert text.count("sk_live_") > 20
    assert RANDOM[:8] not in text
    assert RANDOM[-8:] not in text
    assert "Odd" in text
    assert text.count("LookupError") >= 2


def test_responses_of_upstreams_are_not_logged(stream: io.StringIO) -> None:
    """The SDK's client would log a part of an invalid response."""
    try:
        jsonrpc_message_adapter.validate_json(b'{"the patient": "is ill"')
    except ValueError:
        logging.getLogger("mcp.client.streamable_http").exception("Error parsing JSON response")

    assert "patient" not in stream.getvalue()


@pytest.mark.parametrize("logger", ["faiss.loader", "httpx2", "alembic.runtime"])
def test_progress_of_libraries_is_not_logged(stream: io.StringIO, logger: str) -> None:
    """At the default level, a start has Rookery's own lines only. Warnings of libraries are logged."""
    logging.getLogger(logger).info("loading")
    logging.getLogger(logger).warning("this is slow")

    assert "loading" not in stream.getvalue()
    assert "this is slow" in stream.getvalue()


def test_the_values_of_credential_headers_are_redacted(stream: io.StringIO) -> None:
    """Headers may contain keys of other systems with an unknown form."""
    structlog.stdlib.get_logger("ours").info("dump", headers={"X-API-Key": "theirs-1", "cookie": "session=theirs-2", "accept": "*/*"})

    assert "theirs" not in stream.getvalue()
    assert "*/*" in stream.getvalue()


def test_other_log_handlers_get_no_key(stream: io.StringIO, caplog: pytest.LogCaptureFixture) -> None:
    """Other handlers get the event instead of the formatted line."""
    structlog.stdlib.get_logger("ours").info("fields", key=KEY, raw=KEY.encode(), deep=[{"a": KEY}], odd=_LibraryObject(KEY))

    assert "sk_live_" in caplog.text
    assert RANDOM[:8] not in caplog.text


def test_json_lines_are_json_whatever_is_logged(lines: Callable[[], list[dict[str, object]]]) -> None:
    """A value that cannot be formatted must not lose the log line."""
    _log_with_key(KEY)
    structlog.stdlib.get_logger("ours").info("broken", broken=_BrokenRepr(), endless=[[[[[[[[1]]]]]]]], long=list(range(10_000)))

    last_line = lines()[-1]
    assert last_line["broken"] == "<_BrokenRepr, whose repr raises LookupError>"
    assert last_line["endless"] == [[[[[[["…"]]]]]]]
    assert len(cast("list[int]", last_line["long"])) == 200


def test_a_line_that_cannot_be_formatted_has_no_arguments(stream: io.StringIO) -> None:
    """Logging's own error handler would print the arguments."""
    library_log = logging.Logger("theirs")  # noqa: LOG001 - without a parent: pytest's own handler at the root would raise
    for handler in logging.getLogger().handlers:
        if getattr(handler, "stream", None) is stream:
            library_log.addHandler(handler)
    library_log.warning("%d %d", KEY)
    library_log.warning("%s", _BrokenRepr())

    text = stream.getvalue()
    assert text.count("A log line of theirs") == 2
    assert RANDOM[:8] not in text
    assert "TypeError" in text


def test_logged_values_cannot_forge_a_line(stream: io.StringIO) -> None:
    """A path may contain line ends and terminal commands."""
    logger = structlog.stdlib.get_logger("ours")
    logger.info("request", path="/a\n2026-11-21 [critical] forged")
    logger.info("moved\x1b[2J", path="\x1b[2J\u202e/a", listed=["\x1b[2J"])
    logging.getLogger("theirs").info("asked for %s", "/a\r\nforged\x9b2J")

    assert len(stream.getvalue().splitlines()) == 3
    assert not any(control in stream.getvalue() for control in ("\x1b[2J", "\x9b", "\u202e", "\r"))


# Requests


@dataclass(frozen=True)
class _Caller:
    """The admitted caller, with the fields of log lines."""

    key_id: str = "key-1"
    public_workspace_id: int = 7
    address: str = "192.0.2.1"
    secret: str = KEY


def _client(handler: Callable[..., Awaitable[Response]], *, access_log: bool = False) -> httpx2.AsyncClient:
    routes_table = RouteTable()
    routes = [
        Operation(method="GET", path="/things/{name}", handler=handler, required_scope="things:read"),
        Operation(method="GET", path="/open/{name}", handler=handler, required_scope=None, public=True),
    ]
    mount_routes(routes_table, "", routes, FakeGuard(lambda headers, required_scope: _Caller()))
    app = EdgeMiddleware(
        endpoints_by_path=routes_table.endpoints_by_path,
        router=routes_table.router,
        hosts={"rookery.test"},
        origins=(),
        public_url=lambda path: "https://shown.example",
        request_metrics=RequestMetrics(Metrics(), access_log=access_log),
    )
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://rookery.test")


async def test_log_lines_of_a_request_have_its_id(lines: Callable[[], list[dict[str, object]]]) -> None:
    """This includes lines of libraries, threads and tasks; lines after the request do not have its id."""
    logger, continued, tasks = structlog.stdlib.get_logger("ours"), asyncio.Event(), list[asyncio.Task[None]]()

    async def run_in_background() -> None:
        logger.info("task")
        await continued.wait()
        logger.info("long after")

    async def handle(name: str) -> Response:
        logger.info("ours")
        logging.getLogger("theirs").warning("theirs %s", name)
        tasks.append(asyncio.create_task(run_in_background()))
        await asyncio.to_thread(logger.info, "thread")
        return json_response({})

    async with _client(handle) as client:
        await asyncio.gather(*(client.get(f"/things/{name}", headers={"X-Request-ID": f"id-{name}"}) for name in "ab"))
        logger.info("between")
        await client.get("/open/c", headers={"X-Request-ID": "id-c"})
        logger.info("between")
    continued.set()
    await asyncio.gather(*tasks)

    entries = [
        (line["event"], line.get("request_id"), line.get("born_in"), line.get("workspace_id"), line.get("key_id")) for line in lines()
    ]
    for name in "ab":
        for event in ("ours", f"theirs {name}", "task", "thread"):
            assert (event, f"id-{name}", None, 7, "key-1") in entries
        assert ("long after", None, f"id-{name}", None, None) in entries
    assert entries.count(("between", None, None, None, None)) == 2
    assert ("ours", "id-c", None, None, None) in entries


async def test_the_access_log_has_a_line_per_request_without_secrets(lines: Callable[[], list[dict[str, object]]]) -> None:
    """The line has only the names of query parameters, not their values."""

    async def handle(name: str) -> Response:
        return json_response({})

    async with _client(handle, access_log=True) as client:
        await client.get("/things/x?password=hunter2&a=1", headers={"X-Request-ID": "id-1"})
        await client.get(f"/nowhere/{KEY}")
        await client.get("/things/x", headers={"Host": "evil.test"})
    async with _client(handle) as client:
        await client.get("/things/x")

    first, second, third = (line for line in lines() if line["logger"] == "rookery.requests")
    duration = first.pop("duration_ms")
    assert isinstance(duration, float)
    assert first | {"timestamp": ""} == {
        "event": "request",
        "level": "info",
        "logger": "rookery.requests",
        "timestamp": "",
        "method": "GET",
        "route": "/things/{name}",
        "path": "/things/x",
        "query": ["a", "password"],
        "status": 422,
        "error": "validation_error",
        "address": "192.0.2.1",
        "request_id": "id-1",
        "workspace_id": 7,
        "key_id": "key-1",
    }
    assert (second["route"], second["path"], second["status"], second["error"]) == ("unmatched", "/nowhere/sk_live_…", 404, "not_found")
    assert (third["status"], third["error"], third["address"]) == (400, "host_not_allowed", "127.0.0.1")


@pytest.mark.parametrize("secret", SECRETS)
async def test_a_request_id_that_contains_a_key_is_replaced(secret: str) -> None:
    """Request ids are returned, logged and stored, which keys must never be."""

    async def handle(name: str) -> Response:
        return json_response({})

    async with _client(handle) as client:
        responses = [
            await client.get("/open/x", headers={"X-Request-ID": request_id}) for request_id in (secret, f"x.{secret}", "task_list-1")
        ]

    assert [response.headers["x-request-id"].startswith("req_") for response in responses] == [True, True, False]


# A process

_PROGRAM = f"""
import asyncio, logging, sys, threading, warnings
from rookery.kernel import logs

KEY = {KEY!r}
logs.configure_logging("info", sys.stderr)
logs.log_uncaught_errors()

class Dying:
    def __del__(self):
        raise LookupError("ignored " + KEY)

def thread():
    raise LookupError("thread " + KEY)

async def lost(key):
    raise LookupError("lost " + key)

async def main():
    task = asyncio.create_task(lost(KEY))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
    asyncio.get_running_loop().call_soon(thread)
    await asyncio.sleep(0)

asyncio.run(main())
started = threading.Thread(target=thread, name="worker")
started.start()
started.join()
Dying()
warnings.warn("warned " + KEY)
raise LookupError("main " + KEY)
"""


def test_uncaught_errors_are_logged_without_keys() -> None:
    """The errors come from tasks, callbacks, threads, destructors, warnings and the main program."""
    process = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=HANG_S, check=False)

    assert process.returncode == 1
    assert process.stdout == ""
    assert RANDOM[:8] not in process.stderr
    lines_of_process = [json.loads(line) for line in process.stderr.splitlines()]
    assert len(lines_of_process) == 6, process.stderr
    texts = [f"{line['event']} {line.get('exception', '')}" for line in lines_of_process]
    for text, expected_words in zip(
        texts,
        [
            ("Task exception was never retrieved", "lost sk_live_…"),
            ("Exception in callback", "thread sk_live_…"),
            ("process.thread_failed", "thread sk_live_…"),
            ("process.ignored", "ignored sk_live_…"),
            ("UserWarning", "warned sk_live_…"),
            ("process.failed", "main sk_live_…"),
        ],
        strict=True,
    ):
        assert all(word in text for word in expected_words), text


def test_all_hooks_for_uncaught_errors_are_installed() -> None:
    """A later replacement of these hooks would fail this test."""
    saved_hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    try:
        with warnings.catch_warnings():
            logs.log_uncaught_errors()
            hooks = {hook.__module__ for hook in (sys.excepthook, threading.excepthook, sys.unraisablehook)}
    finally:
        sys.excepthook, threading.excepthook, sys.unraisablehook = saved_hooks
        logging.captureWarnings(capture=False)

    assert hooks == {"rookery.kernel.logs"}


async def test_the_log_line_of_a_500_has_the_request_id(lines: Callable[[], list[dict[str, object]]]) -> None:
    """It is the id in the response."""

    async def handle(name: str) -> Response:
        raise LookupError(KEY)

    async with _client(handle) as client:
        response = await client.get("/things/x")

    (line,) = await eventually(lines)
    assert (line["event"], line["request_id"], line["key_id"]) == ("http.failed", response.json()["request_id"], "key-1")
    assert "LookupError: sk_live_…" in str(line["exception"])
