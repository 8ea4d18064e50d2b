"""A language model on the loopback interface that calls tools by a script and records what it is given."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.real_agents.model_requests import Json, ModelReply, ModelRequest, read_request, write_reply

END = "The script has ended."
_SEARCH_TOOL, _INDIRECT_TOOL = "toolsearch", "toolcall"
"""Tools by which agents load and call the tools that they did not offer at first, without punctuation."""

_END_TOOL = "finalanswer"
"""The tool by which a model of smolagents ends."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """
    A call of the script.

    Attributes:
        tool: The end of the tool's name, as Rookery lists it.
        prepare: What happens before the call: a restart, a lower limit.
    """

    label: str
    tool: str
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    prepare: Callable[[], None] | None = None


@dataclass(kw_only=True)
class Conversation:
    """
    The state of the script, and the content of the requests so far.

    Attributes:
        first: The first request with tools.
        names: The name of each tool that the script called, as the model knows it.
        results: The result of each step, as the model got it.
        missing: Tools of the script that the model was not offered.
    """

    steps: Sequence[Step]
    first: ModelRequest | None = None
    last: ModelRequest | None = None
    names: dict[str, str] = field(default_factory=dict[str, str])
    results: dict[str, str] = field(default_factory=dict[str, str])
    missing: list[str] = field(default_factory=list[str])
    requests: int = 0
    _position: int = 0
    _calls: int = 0
    _pending: str = ""
    _searched: list[str] = field(default_factory=list[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def searches(self) -> int:
        """Searches for tools that were not offered at first."""
        return len(self._searched)

    @property
    def pending(self) -> str:
        """The label of the call whose result has not come yet."""
        return self._pending

    def answer(self, request: ModelRequest) -> ModelReply:
        """Return the next call of the script, or its end; requests without tools, such as for a title, get a short text."""
        with self._lock:
            self.requests += 1
            if not request.tools:
                return ModelReply(text="ok", number=self.requests)
            self.first = self.first or request
            self.last = request
            if self._pending and len(request.results) >= self._calls:
                self.results[self._pending] = request.results[-1]
                self._pending = ""
            elif self._pending and self.requests > 40 * len(self.steps):
                return ModelReply(text=END, number=self.requests)
            reply = self._call_next(request)
            reply.number = self.requests
            return reply

    def _call_next(self, request: ModelRequest) -> ModelReply:
        while self._position < len(self.steps):
            step = self.steps[self._position]
            name = find_tool(step.tool, request)
            tool, arguments = name, dict(step.arguments)
            if name is None and (search := _find_own(_SEARCH_TOOL, request)):
                mention = _find_mention(step.tool, request.text)
                if step.tool not in self._searched:
                    self._searched.append(step.tool)
                    self._calls = len(request.results) + 1
                    return ModelReply(tool=search, arguments={"query": f"select:{mention or step.tool}"})
                if indirect := _find_own(_INDIRECT_TOOL, request):
                    name, tool = mention, indirect
                    arguments = dict[str, object](name=mention, arguments=arguments)
            self._position += 1
            if name is None:
                self.missing.append(step.tool)
                continue
            if step.prepare is not None:
                step.prepare()
            self.names[step.tool] = name
            self._pending, self._calls = step.label, len(request.results) + 1
            return ModelReply(tool=tool, arguments=arguments)
        if ending := _find_own(_END_TOOL, request):
            return ModelReply(tool=ending, arguments={"answer": END})
        return ModelReply(text=END)


def find_tool(tool: str, request: ModelRequest) -> str | None:
    """Return the name under which the model knows a tool: its end is the same, whatever its punctuation."""
    wanted = _simplify(tool)
    return next((name for name in request.tools if wanted in _simplify(name)), None)


def _find_own(tool: str, request: ModelRequest) -> str | None:
    return next((name for name in request.tools if _simplify(name) == tool), None)


def _find_mention(tool: str, text: str) -> str | None:
    """Return the name of a tool that a text mentions without offering it."""
    match = re.search(rf"[A-Za-z0-9_.-]*{re.escape(tool)}[A-Za-z0-9_.-]*", text)
    return None if match is None else match[0]


def _simplify(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


class _QuietServer(ThreadingHTTPServer):
    """A server for clients that may be killed in the middle of a request."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore it: the client is gone."""


class ScriptedModel:
    """The model: a server of every protocol that agents speak, with one conversation at a time."""

    def __init__(self) -> None:
        self.conversation = Conversation(steps=())
        self.paths = list[str]()
        self.server = _QuietServer(("127.0.0.1", 0), self._build_handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def _build_handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                model.paths.append(f"GET {self.path}")
                models = [{"id": "scripted", "object": "model", "owned_by": "tests", "created": 1_764_000_000}]
                self._send("application/json", json.dumps({"object": "list", "data": models}).encode())

            def do_POST(self) -> None:
                body: Json = json.loads(self._read_body() or b"{}")
                path = self.path.partition("?")[0]
                model.paths.append(f"POST {path}")
                if path.endswith("/count_tokens") or "countTokens" in path:
                    self._send("application/json", b'{"input_tokens": 10, "totalTokens": 10}')
                    return
                request = read_request(path, body)
                reply = model.conversation.answer(request)
                self._send(*write_reply(path, reply, streams=request.streams))

            def _read_body(self) -> bytes:
                if self.headers.get("transfer-encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("content-length", 0)))
                parts = list[bytes]()
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def _send(self, media_type: str, body: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", media_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler


@contextmanager
def run_model() -> Generator[ScriptedModel]:
    """Run a model until the block ends."""
    model = ScriptedModel()
    model.server.daemon_threads = True
    thread = threading.Thread(target=model.server.serve_forever, name="scripted-model", daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.server.shutdown()
        model.server.server_close()
