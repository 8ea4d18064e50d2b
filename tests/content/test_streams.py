"""Streams and clients that leave, over real sockets, and `kill -9` with work in progress."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx2
import pytest

from tests.chat_service import ANSWER, ChatService, build_chunk, build_event, hang, run_chat_service, split_words, stream_parts
from tests.content.conftest import BATCHES, GENERATIONS
from tests.deadlines import HANG_S
from tests.processes import Server, get_environment, run_rookery, run_server

T = TypeVar("T")
Json = dict[str, Any]


def _wait_for(claim: Callable[[], T]) -> T:
    """Return what *claim* returns once it is true; fail after `HANG_S`."""
    deadline = time.monotonic() + HANG_S
    while not (value := claim()):
        assert time.monotonic() < deadline, f"not true within {HANG_S} s"
        time.sleep(0.02)
    return value


@pytest.fixture(scope="module")
def provider() -> Iterator[ChatService]:
    """A scripted provider for the tests of this module."""
    with run_chat_service() as service:
        yield service


@pytest.fixture(scope="module")
def server(provider: ChatService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in a process of its own that uses the provider."""
    with run_server(tmp_path_factory.mktemp("content"), generation=provider.url(), generation_prices="*=1/2") as running:
        yield running


def _events(response: httpx2.Response) -> Iterator[tuple[str, Json]]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, (json.loads(line.removeprefix("data: ")))


@contextmanager
def _open_stream(server: Server, **body: str) -> Generator[Iterator[tuple[str, Json]]]:
    """Request a stream and yield its events, as they arrive."""
    with (
        httpx2.Client(base_url=server.url, headers=_authorization(server), timeout=HANG_S) as client,
        client.stream("POST", GENERATIONS, json={"prompt": "a", "mode": "stream", **body}) as response,
    ):
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        yield _events(response)


def _authorization(server: Server) -> dict[str, str]:
    return {"Authorization": server.client.headers["authorization"]}


def _get(server: Server, path: str) -> Json:
    response = server.client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


def _find_status(server: Server, generation_id: object, status: str) -> Json:
    record = _get(server, f"{GENERATIONS}/{generation_id}")
    return record if record["status"] == status else {}


def test_a_stream_has_the_generation_its_pieces_and_its_end(server: Server) -> None:
    """server-sent events with the pieces as the provider sends them, and one final event with the record."""
    with _open_stream(server) as stream:
        events = list(stream)

    assert [name for name, _ in events] == ["start", *["delta"] * len(split_words(ANSWER)), "done"]
    assert "".join(str(data["text"]) for name, data in events if name == "delta") == ANSWER
    start, done = events[0][1], events[-1][1]
    assert (start["status"], done["status"], done["id"]) == ("running", "succeeded", start["id"])
    assert done == _get(server, f"{GENERATIONS}/{done['id']}")
    assert done["usage"]["output_tokens"] == 17


def test_a_client_that_leaves_a_stream_cancels_the_call(server: Server, provider: ChatService) -> None:
    """The provider's connection is closed, and the row has the text so far and an estimate of its cost."""
    before = provider.disconnects
    with _open_stream(server, model="hang-in-stream") as stream:
        events = list(islice(stream, 3))

    _wait_for(lambda: provider.disconnects > before)
    record = _wait_for(lambda: _find_status(server, events[0][1]["id"], "cancelled"))
    assert record["error"]["code"] == "client_disconnected"
    assert ANSWER.startswith(str(record["output"]["text"]))
    assert record["usage"]["is_estimated"] is True
    assert _get(server, "/api/agent/content/budgets")["data"][0]["reserved"] == 0.0


def test_a_client_that_leaves_within_the_reasoning_is_charged_for_it(server: Server, provider: ChatService) -> None:
    """The provider charges what it has written, also before the first piece of the answer."""
    delta = {"content": None, "reasoning_content": "x" * 400}
    provider.queue.append(stream_parts([build_event(build_chunk(choices=[{"index": 0, "delta": delta}]))], then=hang))
    with _open_stream(server) as stream:
        (_, start), (name, piece) = islice(stream, 2)

    record = _wait_for(lambda: _find_status(server, start["id"], "cancelled"))
    assert (name, piece["text"]) == ("reasoning", "x" * 400)
    assert (record["usage"]["output_tokens"], record["usage"]["reasoning_tokens"], record["output"]) == (100, 100, None)


def test_a_client_that_leaves_a_call_cancels_it(server: Server, provider: ChatService) -> None:
    """Also a client that waits for the whole answer."""
    before, requests = provider.disconnects, len(provider.requests)
    call = httpx2.Request("POST", f"{server.url}{GENERATIONS}", json={"prompt": "a", "model": "hang"}, headers=_authorization(server))
    head = "\r\n".join([f"POST {GENERATIONS} HTTP/1.1", *(f"{name}: {value}" for name, value in call.headers.items())])
    with socket.create_connection((call.url.host, call.url.port or 0), timeout=HANG_S) as client:
        client.sendall(f"{head}\r\n\r\n".encode() + call.read())
        _wait_for(lambda: len(provider.requests) > requests)

    _wait_for(lambda: provider.disconnects > before)
    newest = cast("list[Json]", _get(server, f"{GENERATIONS}?model=hang")["data"])[0]
    record = _wait_for(lambda: _find_status(server, newest["id"], "cancelled"))
    assert record["error"]["code"] == "client_disconnected"


def test_another_request_cancels_a_stream(server: Server, provider: ChatService) -> None:
    """The stream ends with the cancelled generation."""
    before = provider.disconnects
    with _open_stream(server, model="hang-in-stream") as stream:
        _, start = next(stream)
        next(stream)
        assert server.client.post(f"{GENERATIONS}/{start['id']}/cancel").status_code == 200
        name, done = list(stream)[-1]

    assert (name, done["status"], done["error"]["code"]) == ("done", "cancelled", "cancelled")
    _wait_for(lambda: provider.disconnects > before)


def test_a_stream_that_breaks_is_not_requested_again(server: Server, provider: ChatService) -> None:
    """Never a retry after a byte was streamed; the final event and the row have the reason and the text so far."""
    before = len(provider.requests)
    with _open_stream(server, model="cut-in-stream") as stream:
        events = list(stream)

    name, done = events[-1]
    assert (name, done["status"], done["error"]["code"]) == ("done", "failed", "stream_interrupted")
    assert done["output"]["text"] == "".join(str(data["text"]) for event, data in events if event == "delta")
    assert len(provider.requests) == before + 1


def test_a_repeated_stream_returns_the_generation(server: Server, provider: ChatService) -> None:
    """The second request with the same Idempotency-Key is the record as JSON, and calls no provider."""
    before, headers = len(provider.requests), {"Idempotency-Key": "stream"}
    first = server.client.post(GENERATIONS, json={"prompt": "a", "mode": "stream"}, headers=headers)
    second = server.client.post(GENERATIONS, json={"prompt": "a", "mode": "stream"}, headers=headers)

    assert first.headers["content-type"].startswith("text/event-stream")
    assert (second.status_code, second.headers["idempotent-replay"]) == (200, "true")
    assert second.json()["status"] == "succeeded"
    assert len(provider.requests) == before + 1


def test_a_killed_server_leaves_no_generation_open(provider: ChatService, tmp_path: Path) -> None:
    """After kill -9 and a restart, queued work runs again, the calls of clients have failed, and nothing is reserved."""
    provider.is_released.clear()
    waiting = ThreadPoolExecutor(1)
    with run_server(tmp_path, generation=provider.url(), generation_prices="*=1/2", job_lease_s="1") as first:
        batch = first.client.post(BATCHES, json={"requests": [{"prompt": str(number), "model": "hold"} for number in range(12)]}).json()
        _wait_for(lambda: provider.active_count >= 4)
        headers = _authorization(first)
        call = waiting.submit(
            lambda: httpx2.post(f"{first.url}{GENERATIONS}", json={"prompt": "a", "model": "hang"}, headers=headers, timeout=HANG_S)
        )
        _wait_for(lambda: _get(first, f"{GENERATIONS}?model=hang&status=running")["data"])
        first.kill()
        with pytest.raises(httpx2.TransportError):
            call.result(HANG_S)
    waiting.shutdown()
    provider.release()
    with run_server(tmp_path, generation=provider.url(), generation_prices="*=1/2", job_lease_s="1") as second:
        second.client.headers["Authorization"] = headers["Authorization"]
        finished = _wait_for(lambda: _find_finished(second, batch["id"]))
        assert finished["counts"] == {"queued": 0, "running": 0, "succeeded": 12, "failed": 0, "cancelled": 0}
        failed = _wait_for(lambda: cast("list[Json]", _get(second, f"{GENERATIONS}?model=hang&status=failed")["data"]))
        assert failed[0]["error"]["code"] == "interrupted"
        budgets = cast("list[Json]", _get(second, "/api/agent/content/budgets")["data"])
        assert [budget["reserved"] for budget in budgets] == [0.0, 0.0]


def _find_finished(server: Server, batch_id: object) -> Json:
    batch = _get(server, f"{BATCHES}/{batch_id}")
    return batch if batch["status"] == "finished" else {}


def test_commands_generate_and_list(server: Server, provider: ChatService) -> None:
    """`rookery content` generates, shows and lists, as text and as JSON; a failure has exit code 1."""
    data_dir, environment = server.data, {"ROOKERY_GENERATION": provider.url(), "ROOKERY_GENERATION_PRICES": "*=1/2"}

    def run(*arguments: str) -> tuple[int, str, str]:
        process = run_rookery("content", *arguments, data_dir=data_dir, environment={**get_environment(), **environment})
        return process.returncode, process.stdout, process.stderr

    assert run("generate", "Hello")[:2] == (0, ANSWER + "\n")
    record = json.loads(run("generate", "Hello", "--json")[1])
    assert (record["status"], record["key_id"]) == ("succeeded", None)
    status, _, message = run("generate", "Hello", "--model", "413")
    assert (status, "rejected the request" in message) == (1, True)
    assert run("generate")[0] == 2
    assert json.loads(run("show", record["id"], "--json")[1]) == record
    assert record["id"] in run("list", "--status", "succeeded")[1]
    template = data_dir / "note.json"
    template.write_text(
        json.dumps({"slug": "note", "name": "Note", "prompt": "About {{ it }}.", "variables": {"it": {}}}), encoding="utf-8"
    )
    assert json.loads(run("put-template", str(template), "--json")[1])["version"] == 1
    assert "note" in run("templates")[1]
    assert json.loads(run("template", "note", "--json")[1])["messages"][0]["content"] == "About {{ it }}."
    assert json.loads(run("generate", "--template", "note", "--var", "it=tea", "--json")[1])["messages"][0]["content"] == "About tea."
    assert run("delete-template", "note", "--yes")[0] == 0
    assert sum(row["requests"] for row in json.loads(run("usage", "--json")[1]) if row["key_id"] is None) == 4
    assert json.loads(run("budgets", "--json")[1])[0]["scope"] == "workspace"
