"""Log lines: whose request they are of, and that no key is in any, however it came there."""

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
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import jsonrpc_message_adapter
from starlette.responses import Response

from rookery.kernel import logs
from rookery.kernel.http import EdgeMiddleware, Route, json_response, mount_routes
from rookery.kernel.http.access_log import RequestMetrics
from rookery.kernel.http.edge import respond_not_found
from rookery.kernel.http.routes import RouteTable
from rookery.kernel.ids import ALPHANUMERIC
from rookery.kernel.metrics import Metrics
from rookery.kernel.redaction import redact
from tests.conftest import eventually
from tests.kernel.conftest import FakeGuard

RANDOM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fG"
SECRETS = [f"sk_live_{RANDOM}", f"sk_test_{RANDOM}", f"ak_{RANDOM}", f"whsec_{RANDOM}"]
KEY = SECRETS[0]

FORMS: dict[str, Callable[[str], str]] = {
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
@pytest.mark.parametrize("form", FORMS)
def test_a_key_is_cut_out_of_text_in_whatever_form_it_is_there(form: str, secret: str) -> None:
    """Spec 5.2 rule 2, D-20: of the random part no stretch is left that anybody could use."""
    written = FORMS[form](secret)
    shown = redact(written)

    encoded = base64.b64encode(f"{secret}:".encode()).decode()
    assert shown != written
    assert "…" in shown
    for part in (RANDOM[:6], RANDOM[-8:], encoded[-12:]):
        assert part not in shown


@given(before=st.text(max_size=20), after=st.text(max_size=20), random=st.text(ALPHANUMERIC, min_size=32, max_size=32))
def test_a_key_is_found_whatever_stands_around_it(before: str, after: str, random: str) -> None:
    """Spec 5.2 rule 2: keys of both kinds, between any two texts."""
    for prefix in ("sk_live_", "sk_test_", "ak_", "whsec_"):
        assert random not in redact(f"{before}{prefix}{random}{after}")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer xoxb-1234-abcd to them", "Authorization: Bearer … to them"),
        ("('Cookie', 'session=abc; other=def')", "('Cookie', '…')"),
        ('{"x-api-key": "theirs"}', '{"x-api-key": "…"}'),
        ("postgresql://rookery:hunter2@db/rookery", "postgresql://rookery:…@db/rookery"),
    ],
)
def test_credentials_of_others_are_cut_out_too(text: str, shown: str) -> None:
    """House 6, errors: never a secret; what a tool server asks for is one as well."""
    assert redact(text) == shown


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
def test_what_is_no_secret_stays(text: str) -> None:
    """D-11: ids, addresses and words are what a line is read for."""
    assert redact(text) == text


@pytest.mark.parametrize(
    "piece", ["a", "sk_live_", "ak_", '"', " ", "\\", "bearer ", "cookie=", "http://a:", "YWtf", "sk_live_'a", "ak_'' '"]
)
def test_no_text_takes_long(piece: str) -> None:
    """Notes on the platform 5.3: linear patterns only; quadratic ones would take minutes for this."""
    text = piece * (200_000 // len(piece)) + KEY
    started = time.process_time()
    redact(text)

    assert time.process_time() - started < 5


# Lines.


@pytest.fixture(params=["json", "console"])
def form(request: pytest.FixtureRequest) -> logs.LogFormat:
    """Both ways in which lines are written."""
    return cast("logs.LogFormat", request.param)


@pytest.fixture
def stream(form: logs.LogFormat) -> Iterator[io.StringIO]:
    """The log stream of the running test."""
    yield from _logged(form)


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, object]]]]:
    """A function that returns the parsed log lines so far."""
    for stream in _logged("json"):
        yield partial(_read, stream)


def _read(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def _logged(form: logs.LogFormat) -> Iterator[io.StringIO]:
    saved, root, stream = structlog.get_config(), logging.getLogger(), io.StringIO()
    handlers, level = root.handlers, root.level
    logs.configure_logging("info", stream, log_format=form)
    structlog.configure(cache_logger_on_first_use=False)
    try:
        yield stream
    finally:
        structlog.configure(**saved)
        root.handlers = handlers
        root.setLevel(level)


class _Odd:
    """An object that a library may log."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"<Odd {self.text}>"


class _Broken:
    """An object whose repr fails, and says why."""

    def __repr__(self) -> str:
        raise LookupError(KEY)


def _raise(key: str) -> None:
    local = f"Bearer {key}"
    raise LookupError(local, {"key": key})


def _log_in_every_way(key: str) -> None:
    ours, theirs = structlog.stdlib.get_logger("ours"), logging.getLogger("theirs")
    ours.info(key)
    ours.info("fields", key=key, listed=[key], pair=(key, 1), raw=f"Bearer {key}".encode(), odd=_Odd(key), nothing=None, number=1.5)
    ours.info("nested", deep={"a": {"b": [{"c": {key: {"d": {"e": {"f": [key]}}}}}]}, (1, key): {key}, b"raw": bytearray(key.encode())})
    ours.info("said of %s", key)
    ours.info("where", stack_info=True)
    theirs.warning("%s asks with %r, %s", "he", {"Authorization": f"Bearer {key}"}, [key.encode()])
    theirs.info("more", extra={"key": key}, stack_info=True)
    try:
        _raise(key)
    except LookupError as error:
        error.add_note(key)
        ours.exception("failed", error=error)
        theirs.exception("failed with %r", error)
    ours.error("group", exc_info=ExceptionGroup(key, [ValueError(key)]))


def test_no_line_has_a_key(stream: io.StringIO) -> None:
    """Spec 5.2 rule 2: events, fields of any depth and kind, arguments, exceptions with their notes and groups, stacks."""
    _log_in_every_way(KEY)

    text = stream.getvalue()
    assert text.count("sk_live_") > 20
    assert RANDOM[:8] not in text
    assert RANDOM[-8:] not in text
    assert "Odd" in text
    assert text.count("LookupError") >= 2


def test_what_an_upstream_answered_is_not_logged(stream: io.StringIO) -> None:
    """D-07, spec 2.8: the SDK's client logs an answer that it cannot read, with a piece of it."""
    try:
        jsonrpc_message_adapter.validate_json(b'{"the patient": "is ill"')
    except ValueError:
        logging.getLogger("mcp.client.streamable_http").exception("Error parsing JSON response")

    assert "patient" not in stream.getvalue()


def test_fields_named_as_headers_are_cut_whatever_they_hold(stream: io.StringIO) -> None:
    """House 6, errors: dumped headers may contain keys of other systems, whose form is unknown."""
    structlog.stdlib.get_logger("ours").info("dump", headers={"X-API-Key": "theirs-1", "cookie": "session=theirs-2", "accept": "*/*"})

    assert "theirs" not in stream.getvalue()
    assert "*/*" in stream.getvalue()


def test_handlers_beside_ours_see_no_key_either(stream: io.StringIO, caplog: pytest.LogCaptureFixture) -> None:
    """Spec 5.2 rule 2: an operator's own handler, or a test's, gets the event and not the line."""
    structlog.stdlib.get_logger("ours").info("fields", key=KEY, raw=KEY.encode(), deep=[{"a": KEY}], odd=_Odd(KEY))

    assert "sk_live_" in caplog.text
    assert RANDOM[:8] not in caplog.text


def test_json_lines_are_json_whatever_is_logged(lines: Callable[[], list[dict[str, object]]]) -> None:
    """House 6, errors: a value that cannot be formatted must not lose the log line."""
    _log_in_every_way(KEY)
    structlog.stdlib.get_logger("ours").info("broken", broken=_Broken(), endless=[[[[[[[[1]]]]]]]], long=list(range(10_000)))

    last = lines()[-1]
    assert last["broken"] == "<_Broken, whose repr raises LookupError>"
    assert last["endless"] == [[[[[[["…"]]]]]]]
    assert len(cast("list[int]", last["long"])) == 200


def test_a_line_that_cannot_be_made_shows_no_argument(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec 5.2 rule 2: logging's own handler would print the arguments as they are."""
    theirs = logging.getLogger("theirs")
    # pytest's own handler, which is at the root beside ours, raises.
    ours = [each for each in logging.getLogger().handlers if getattr(each, "stream", None) is stream]
    monkeypatch.setattr(theirs, "handlers", ours)
    monkeypatch.setattr(theirs, "propagate", False)
    theirs.warning("%d %d", KEY)
    theirs.warning("%s", _Broken())

    text = stream.getvalue()
    assert text.count("A log line of theirs") == 2
    assert RANDOM[:8] not in text
    assert "TypeError" in text


def test_nothing_that_is_logged_can_forge_a_line(stream: io.StringIO) -> None:
    """D-11: a path may hold line ends and a terminal's commands."""
    logger = structlog.stdlib.get_logger("ours")
    logger.info("request", path="/a\n2026-11-21 [critical] forged")
    logger.info("moved\x1b[2J", path="\x1b[2J\u202e/a", listed=["\x1b[2J"])
    logging.getLogger("theirs").info("asked for %s", "/a\r\nforged\x9b2J")

    assert len(stream.getvalue().splitlines()) == 3
    assert not any(control in stream.getvalue() for control in ("\x1b[2J", "\x9b", "\u202e", "\r"))


# Requests.


@dataclass(frozen=True)
class _Caller:
    """The admitted caller: the fields of it that a log line shows."""

    key_id: str = "key-1"
    public_workspace_id: int = 7
    address: str = "192.0.2.1"
    secret: str = KEY


class _FakeGuard(FakeGuard):
    """Lets everybody in."""

    async def admit(self, scope: object, *, required_scope: str | None, rate_limited: bool = True) -> _Admission:
        return _Admission()


class _Admission:
    caller = _Caller()
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def record(self, *, method: str, route: str, status: int, duration_ms: float) -> None:
        """Forget it."""


def _client(handler: Callable[..., Awaitable[Response]], *, access_log: bool = False) -> httpx2.AsyncClient:
    mounted = RouteTable(FastAPI())
    routes = [
        Route(method="GET", path="/things/{name}", handler=handler, required_scope="things:read"),
        Route(method="GET", path="/open/{name}", handler=handler, required_scope=None, public=True),
    ]
    mount_routes(mounted, "", routes, _FakeGuard())
    mounted.app.router.default = respond_not_found
    shell = EdgeMiddleware(
        endpoints_by_path=mounted.endpoints_by_path,
        router=mounted.app.router,
        hosts={"rookery.test"},
        origins=(),
        public_url=lambda path: "https://shown.example",
        request_metrics=RequestMetrics(Metrics(), access_log=access_log),
    )
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(shell), base_url="http://rookery.test")


async def test_what_is_logged_for_a_request_carries_its_id(lines: Callable[[], list[dict[str, object]]]) -> None:
    """D-11: ours, a library's, and of tasks born in it; the ids of key and workspace once admitted; nothing after it, nothing of others."""
    logger, go_on, tasks = structlog.stdlib.get_logger("ours"), asyncio.Event(), list[asyncio.Task[None]]()

    async def later() -> None:
        logger.info("task")
        await go_on.wait()
        logger.info("long after")

    async def handle(name: str) -> Response:
        logger.info("ours")
        logging.getLogger("theirs").warning("theirs %s", name)
        tasks.append(asyncio.create_task(later()))
        await asyncio.to_thread(logger.info, "thread")
        return json_response({})

    async with _client(handle) as client:
        await asyncio.gather(*(client.get(f"/things/{each}", headers={"X-Request-ID": f"id-{each}"}) for each in "ab"))
        logger.info("between")
        await client.get("/open/c", headers={"X-Request-ID": "id-c"})
        logger.info("between")
    go_on.set()
    await asyncio.gather(*tasks)

    found = [(line["event"], line.get("request_id"), line.get("born_in"), line.get("workspace_id"), line.get("key_id")) for line in lines()]
    for each in "ab":
        for event in ("ours", f"theirs {each}", "task", "thread"):
            assert (event, f"id-{each}", None, 7, "key-1") in found
        assert ("long after", None, f"id-{each}", None, None) in found
    assert found.count(("between", None, None, None, None)) == 2
    assert ("ours", "id-c", None, None, None) in found


async def test_the_access_log_is_a_line_a_request_without_what_may_be_secret(lines: Callable[[], list[dict[str, object]]]) -> None:
    """D-11: route, path, status, time, key and address; of a query the names alone."""

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
async def test_an_id_that_holds_a_key_is_not_kept(secret: str) -> None:
    """D-11: an id is shown, logged and stored, and a key never is."""

    async def handle(name: str) -> Response:
        return json_response({})

    async with _client(handle) as client:
        answers = [await client.get("/open/x", headers={"X-Request-ID": given}) for given in (secret, f"x.{secret}", "task_list-1")]

    assert [answer.headers["x-request-id"].startswith("req_") for answer in answers] == [True, True, False]


# A process.

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


def test_what_nobody_caught_is_a_line_without_keys() -> None:
    """Spec 5.2 rule 2: lost tasks, callbacks, threads, destructors, warnings and the end of the process, in a real one."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 1
    assert done.stdout == ""
    assert RANDOM[:8] not in done.stderr
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(found) == 6, done.stderr
    texts = [f"{line['event']} {line.get('exception', '')}" for line in found]
    for text, words in zip(
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
        assert all(word in text for word in words), text


def test_a_process_is_watched_in_every_place() -> None:
    """House 6, errors: a later installation of these hooks would be detected here."""
    saved = sys.excepthook, threading.excepthook, sys.unraisablehook
    try:
        with warnings.catch_warnings():
            logs.log_uncaught_errors()
            hooks = {each.__module__ for each in (sys.excepthook, threading.excepthook, sys.unraisablehook)}
    finally:
        sys.excepthook, threading.excepthook, sys.unraisablehook = saved
        logging.captureWarnings(capture=False)

    assert hooks == {"rookery.kernel.logs"}


async def test_lines_of_a_real_server_have_their_request(lines: Callable[[], list[dict[str, object]]]) -> None:
    """D-11: the id that a 500 answers is in the line that tells why."""

    async def handle(name: str) -> Response:
        raise LookupError(KEY)

    async with _client(handle) as client:
        answer = await client.get("/things/x")

    (line,) = await eventually(lines)
    assert (line["event"], line["request_id"], line["key_id"]) == ("http.failed", answer.json()["request_id"], "key-1")
    assert "LookupError: sk_live_…" in str(line["exception"])
