"""The service behind the proxies: scripted answers in the forms of real providers, chosen by the name of the model. No network but this."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

Json = dict[str, Any]

UPSTREAM_KEY = "upstream-key-0001"
REASONING = "The user asks for the height. It is 173 m."
ANSWER = "Lyon is 173 m high."
THINK = f"<think>\n{REASONING}\n</think>\n\n{ANSWER}"


@dataclass(frozen=True, kw_only=True)
class Script:
    """
    An answer of the service.

    Attributes:
        error: The body of an error, in place of an answer.
        breaks: A stream ends with *error* after the first piece.
    """

    text: str = ANSWER
    reasoning: str = ""
    usage: Json | None = None
    status: int = 200
    error: object = None
    headers: Json = field(default_factory=dict[str, Any])
    breaks: bool = False


def _usage(prompt: int, completion: int, total: int, **details: object) -> Json:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total, **details}


def _error(message: str, *, code: object = None, kind: str = "invalid_request_error", param: str | None = None) -> Json:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


_REASONED = {"completion_tokens_details": {"reasoning_tokens": 405}}
_CACHED = {"prompt_tokens_details": {"cached_tokens": 1024}}

SCRIPTS: dict[str, Script] = {
    "plain": Script(usage=_usage(20, 8, 28)),
    "reasoning-field": Script(reasoning=REASONING, usage=_usage(20, 603, 623, **_REASONED)),
    "think-block": Script(text=THINK, usage=_usage(20, 30, 50)),
    "reasoning-outside": Script(reasoning=REASONING, usage=_usage(20, 198, 623, **_REASONED)),
    "reasoning-in-total": Script(usage=_usage(20, 198, 623)),
    "cached": Script(usage=_usage(1100, 8, 1108, **_CACHED)),
    "cached-and-reasoning": Script(reasoning=REASONING, usage=_usage(1100, 500, 1600, **_CACHED, **_REASONED)),
    "no-usage": Script(),
    "rate-limit": Script(
        status=429,
        error=_error("Rate limit reached for requests", code="rate_limit_exceeded", kind="requests"),
        headers={"retry-after": "7", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "7s"},
    ),
    "quota": Script(
        status=429,
        error=_error("You exceeded your current quota, please check your plan and billing details.", code="insufficient_quota"),
    ),
    "wrong-key": Script(
        status=401,
        error=_error("Incorrect API key provided: upstrea**********0001.", code="invalid_api_key"),
    ),
    "no-temperature": Script(
        status=400,
        error=_error(
            "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
            code="unsupported_value",
            param="temperature",
        ),
    ),
    "new-limit": Script(
        status=400,
        error=_error(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            code="unsupported_parameter",
            param="max_tokens",
        ),
    ),
    "too-long": Script(
        status=400,
        error=_error(
            "This model's maximum context length is 4096 tokens. However, your messages resulted in 5012 tokens.",
            code="context_length_exceeded",
            param="messages",
        ),
    ),
    "invalid-schema": Script(
        status=400,
        error=_error(
            "Invalid schema for response_format 'answer': 'additionalProperties' is required to be supplied and to be false.",
            param="response_format",
        ),
    ),
    "error-list": Script(
        status=400,
        error=[
            {"error": {"code": 400, "message": "Invalid value at 'generation_config.max_output_tokens'.", "status": "INVALID_ARGUMENT"}}
        ],
    ),
    "failure": Script(status=500, error=_error("The server had an error while processing your request.", kind="server_error")),
    "overloaded": Script(status=503, error=_error("The model is overloaded.", kind="overloaded"), headers={"retry-after": "3"}),
    "breaks": Script(error=_error("The engine stopped.", kind="server_error"), breaks=True),
}


def build_answer(model: str, script: Script) -> Json:
    """Return the JSON of a whole answer."""
    message: Json = {"role": "assistant", "content": script.text}
    if script.reasoning:
        message["reasoning_content"] = script.reasoning
    answer: Json = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_764_000_000, "model": model}
    answer["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return answer if script.usage is None else answer | {"usage": script.usage}


def build_chunks(model: str, script: Script) -> Iterator[object]:
    """Yield the chunks of a streamed answer."""
    base: Json = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_764_000_000, "model": model}

    def chunk(delta: Json, finish_reason: str | None = None) -> Json:
        return base | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}

    yield chunk({"role": "assistant", "content": ""})
    if script.reasoning:
        half = len(script.reasoning) // 2
        yield chunk({"reasoning_content": script.reasoning[:half]})
        yield chunk({"reasoning_content": script.reasoning[half:]})
    half = len(script.text) // 2
    yield chunk({"content": script.text[:half]})
    if script.breaks:
        yield script.error
        return
    yield chunk({"content": script.text[half:]})
    yield chunk({}, "stop")
    if script.usage is not None:
        yield base | {"choices": [], "usage": script.usage}


@contextmanager
def run_upstream() -> Generator[int]:
    """Run the service on a port of its own, and yield the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with the list of models."""
        self._send(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in SCRIPTS]}, {})

    def do_POST(self) -> None:
        """Answer as the script of the model says."""
        body = cast("Json", json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}"))
        model = str(body.get("model"))
        script = SCRIPTS.get(model)
        if script is None:
            missing = _error(f"The model `{model}` does not exist or you do not have access to it.", code="model_not_found")
            self._send(404, missing, {})
        elif script.error is not None and not (script.breaks and body.get("stream")):
            self._send(500 if script.breaks else script.status, script.error, script.headers)
        elif body.get("stream"):
            events = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in build_chunks(model, script)]
            self._send_bytes(200, b"".join([*events, b"data: [DONE]\n\n"]), {"content-type": "text/event-stream"})
        else:
            self._send(200, build_answer(model, script), script.headers)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _send(self, status: int, body: object, headers: Json) -> None:
        self._send_bytes(status, json.dumps(body).encode(), {"content-type": "application/json", **headers})

    def _send_bytes(self, status: int, data: bytes, headers: Json) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
