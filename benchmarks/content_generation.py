"""
Overhead of content generation over the provider's own time: `python -m benchmarks.content_generation`.

A provider on 127.0.0.1 in a process of its own answers after a fixed time, or streams. It is asked by turns directly over a kept
connection, by the engine in this process, and through a server with a record store:

- answers: milliseconds of each request. The overhead is the difference of the medians. Beside other work, the difference of the fastest
  tenths is nearer to the figure of an idle machine.
- streams: the provider writes its clock into each piece. The delay is the time from there until the client has read the piece.
- budget: 50 requests at the same time on a budget for one of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.load import Connection, Timings
from benchmarks.servers import Running, run_server
from rookery.content.chat import ChatMessage, ChatRequest, Delta
from rookery.content.ports import TextGenerator
from rookery.engines import text_generators

_KEY = "a-key-for-a-benchmark"
_GENERATIONS = "/api/agent/content/generations"
_PROMPT = "Write one sentence about herons."
_ANSWER = "A heron stands in the shallow water and waits until a fish comes near. " * 4
_PIECES = 20
_WARM_UP = 20
_REQUESTS_AT_ONCE = 50


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.content_generation", description=__doc__)
    parser.add_argument("--answers", type=int, default=600)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--answer-ms", type=float, default=5.0, help="the provider's own time")
    options = parser.parse_args()
    figures: dict[str, object] = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="rookery-content-") as name, _run_provider(options.answer_ms / 1000) as address:
        settings = {"generation": address, "generation_prices": "*=1/1"}
        with run_server(Path(name) / "server", **settings) as running:
            figures |= asyncio.run(_measure(address, running, options.answers, options.streams))
        with run_server(Path(name) / "budget", **settings, generation_key_daily_budget="0.00015") as running:
            figures["budget"] = asyncio.run(_spend_at_once(running.url, running.api_key))
    print(json.dumps(figures, indent=1))


async def _measure(address: str, running: Running, answers: int, streams: int) -> dict[str, object]:
    url, key = running.url, running.api_key
    generator = text_generators.open(address)
    provider, server = Connection(_provider_url(address), _KEY), Connection(url, key)
    request = ChatRequest(model="heron", messages=(ChatMessage(role="user", content=_PROMPT),), max_tokens=100)
    body = {"model": "heron", "messages": [{"role": "user", "content": _PROMPT}], "max_tokens": 100}

    async def ask_directly() -> None:
        await _expect(provider, "/v1/chat/completions", body)

    async def ask_engine() -> None:
        await generator.complete(request)

    async def ask_server() -> None:
        await _expect(server, _GENERATIONS, {"prompt": _PROMPT, "max_tokens": 100})

    cpu_s = _cpu_s(running.pid)
    timed = await _time_by_turns({"direct": ask_directly, "engine": ask_engine, "server": ask_server}, answers)
    cpu_ms = (_cpu_s(running.pid) - cpu_s) / (answers + _WARM_UP) * 1000
    delays = {"engine": await _stream_engine(generator, request, streams), "server": await _stream_server(url, key, streams)}
    for closable in (generator, provider, server):
        await closable.close()
    return {
        "answers": {name: timings.as_json() for name, timings in timed.items()},
        "overhead_p50_ms": {name: round(timed[name].p50 - timed["direct"].p50, 3) for name in ("engine", "server")},
        "overhead_p10_ms": {name: round(timed[name].percentile(0.1) - timed["direct"].percentile(0.1), 3) for name in ("engine", "server")},
        "server_cpu_ms_each": round(cpu_ms, 3),
        "first_piece": {name: Timings(each_ms=[each[0] for each in all_ms], took_s=1).as_json() for name, all_ms in delays.items()},
        "all_pieces_p50_ms": {name: round(statistics.median(ms for each in all_ms for ms in each), 3) for name, all_ms in delays.items()},
    }


async def _time_by_turns(cases: dict[str, Callable[[], Awaitable[None]]], count: int) -> dict[str, Timings]:
    """Time the cases by turns, so that a slow minute of the machine concerns all of them."""
    each_ms: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(count + _WARM_UP):
        for name, ask in cases.items():
            started = time.perf_counter()
            await ask()
            if number >= _WARM_UP:  # the first ones open connections and import libraries
                each_ms[name].append((time.perf_counter() - started) * 1000)
    return {name: Timings(each_ms=values, took_s=sum(values) / 1000) for name, values in each_ms.items()}


async def _stream_engine(generator: TextGenerator, request: ChatRequest, count: int) -> list[list[float]]:
    """Return the delays of the pieces of each stream in milliseconds."""
    delays: list[list[float]] = []
    for number in range(count + 5):
        each = [_since(event.text) async for event in generator.stream(request) if isinstance(event, Delta)]
        if number >= 5:
            delays.append(each)
    return delays


async def _stream_server(url: str, key: str, count: int) -> list[list[float]]:
    parts = urlsplit(url)
    content = json.dumps({"prompt": _PROMPT, "max_tokens": 100, "mode": "stream"}).encode()
    head = f"POST {_GENERATIONS} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    message = f"{head}Connection: close\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
    delays: list[list[float]] = []
    for number in range(count + 5):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(message)
        each, is_delta = list[float](), False
        while line := await reader.readline():
            if is_delta and line.startswith(b"data:"):
                each.append(_since(json.loads(line[5:])["text"]))
            if line.startswith(b"event:"):
                is_delta = line.strip() == b"event: delta"
        writer.close()
        if len(each) != _PIECES:
            raise RuntimeError(f"{len(each)} of {_PIECES} pieces arrived")
        if number >= 5:
            delays.append(each)
    return delays


async def _spend_at_once(url: str, key: str) -> dict[str, int]:
    """Return the number of each status of requests at the same time, of which the budget allows one."""
    connections = [Connection(url, key) for _ in range(_REQUESTS_AT_ONCE)]
    results = await asyncio.gather(*(each.send("POST", _GENERATIONS, {"prompt": _PROMPT, "max_tokens": 100}) for each in connections))
    for connection in connections:
        await connection.close()
    statuses = [str(status) for status, _ in results]
    return {status: statuses.count(status) for status in sorted(set(statuses))}


async def _expect(connection: Connection, path: str, body: object) -> None:
    status, response = await connection.send("POST", path, body)
    if status >= 300:
        raise RuntimeError(f"{path}: {status} {response[:300]!r}")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _since(text: str) -> float:
    """Return the milliseconds since the clock in a piece of text."""
    return (time.perf_counter_ns() - int(text)) / 1e6


def _provider_url(address: str) -> str:
    return f"http://127.0.0.1:{urlsplit(address).port}"


@contextmanager
def _run_provider(answer_s: float) -> Generator[str]:
    """Run the provider in a process of its own, and yield its address for ROOKERY_GENERATION."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_provide, args=(there, answer_s), daemon=True)
    process.start()
    try:
        yield f"openai://:{_KEY}@127.0.0.1:{here.recv()}/v1?model=heron"
    finally:
        process.terminate()
        process.join()


def _provide(pipe: Pipe, answer_s: float) -> None:
    asyncio.run(_serve(pipe, answer_s))


async def _serve(pipe: Pipe, answer_s: float) -> None:
    completion = {
        "model": "heron-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": _ANSWER}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 8, "completion_tokens": 64},
    }
    body = json.dumps(completion).encode()
    whole = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                request = json.loads(await reader.readexactly(length))
                await asyncio.sleep(answer_s)
                if request.get("stream"):
                    await _stream(writer)
                else:
                    writer.write(whole)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for number in range(_PIECES):
        await asyncio.sleep(0.002 if number else 0)
        chunk = {"model": "heron-1", "choices": [{"index": 0, "delta": {"content": str(time.perf_counter_ns())}, "finish_reason": None}]}
        _write_event(writer, chunk)
        await writer.drain()
    last: dict[str, object] = {"index": 0, "delta": {}, "finish_reason": "stop"}
    _write_event(writer, {"choices": [last]})
    _write_event(writer, {"choices": [], "usage": {"prompt_tokens": 8, "completion_tokens": 64}})
    data = b"data: [DONE]\n\n"
    writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))
    await writer.drain()


def _write_event(writer: asyncio.StreamWriter, value: object) -> None:
    data = b"data: " + json.dumps(value).encode() + b"\n\n"
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


if __name__ == "__main__":
    main()
