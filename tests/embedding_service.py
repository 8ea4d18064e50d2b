"""
An embedding service on the loopback interface, with all supported protocols and configurable faults.

Its vectors are sums of word vectors, so that texts that share words are similar.

    python -m tests.embedding_service [WIDTH] [PORT]
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

KEY = "the key of the embedding service"

_MAX_TEI_TEXTS = 32
_TEI_FIELDS = frozenset({"inputs", "normalize", "truncate", "truncation_direction", "prompt_name", "dimensions"})
"""Fields of `EmbedRequest` in the OpenAPI description of Text Embeddings Inference, and `dimensions`, which version 1.8 added."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The fault of the next response; *status* 0 sends a valid beginning and cuts it off."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    delay_s: float = 0.0


@dataclass
class EmbeddingService:
    """
    The service and its requests.

    Attributes:
        limit: Maximum length of a text in characters.
        poison: Words that it rejects, with the status of each.
        reports_tokens: Its answers have the number of tokens, which is that of their words.
    """

    name: str = "words"
    width: int = 32
    limit: int = 10_000
    poison: dict[str, int] = field(default_factory=dict[str, int])
    key: str | None = None
    reports_tokens: bool = False
    salt: str = ""
    faults: deque[Fault] = field(default_factory=deque[Fault])
    permanent_fault: Fault | None = None
    requests: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    active_requests: int = 0
    max_active_requests: int = 0
    delay_s: float = 0.0
    port: int = 0
    certificate: Path | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def texts(self) -> list[str]:
        """All requested texts, in order of arrival."""
        return [text for request in self.requests for text in cast("list[str]", request.get("input") or request.get("inputs"))]

    def openai_url(self, parameters: str = "") -> str:
        """Return its URL for the OpenAI protocol."""
        key = f":{self.key.replace(' ', '%20')}@" if self.key else ""
        return f"openai://{key}127.0.0.1:{self.port}/v1?model={self.name}{parameters}"

    def ollama_url(self, parameters: str = "") -> str:
        """Return its URL for the Ollama protocol."""
        return f"ollama://127.0.0.1:{self.port}/{self.name}{parameters}"

    def tei_url(self, parameters: str = "") -> str:
        """Return its URL for the protocol of Text Embeddings Inference."""
        return f"tei://127.0.0.1:{self.port}/{self.name}{parameters}"

    def respond(self, path: str, headers: dict[str, str], body: dict[str, object]) -> tuple[int, object]:
        """Return the status and body of a response."""
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            return 401, {"error": {"message": f"Incorrect API key provided: {headers.get('authorization')}"}}
        if path == "/embed":
            return self._respond_tei(body)
        texts = cast("list[str]", body["input"])
        if body["model"] != self.name:
            return 404, {"error": f"model {body['model']!r} not found"}
        for word, status in self.poison.items():
            if any(word in text for text in texts):
                return status, {"error": "json: unsupported value: NaN"}
        if any(len(text) > self.limit for text in texts):
            return 400, {"error": "the input length exceeds the context length"}
        width = cast("int", body.get("dimensions", self.width))
        rows = [embed(text, width, self.salt).tolist() for text in texts]
        tokens = sum(len(text.split()) for text in texts)
        if path == "/api/embed":
            return 200, {"model": self.name, "embeddings": rows, **({"prompt_eval_count": tokens} if self.reports_tokens else {})}
        # Reversed, because clients must use the index.
        data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
        usage = {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}} if self.reports_tokens else {}
        return 200, {"object": "list", "model": self.name, "data": data[::-1], **usage}

    def _respond_tei(self, body: dict[str, object]) -> tuple[int, object]:
        """Return the status and body of a response of Text Embeddings Inference. Its limit of texts is the default one."""
        if unknown := body.keys() - _TEI_FIELDS:
            return 400, {"error": f"unknown fields {sorted(unknown)}", "error_type": "Validation"}
        texts = cast("list[str]", body["inputs"])
        for word, status in self.poison.items():
            if any(word in text for text in texts):
                return status, {"error": "model failure", "error_type": "Backend"}
        if len(texts) > _MAX_TEI_TEXTS:
            return 413, {"error": f"batch size {len(texts)} > maximum allowed batch size {_MAX_TEI_TEXTS}", "error_type": "Validation"}
        if any(not text for text in texts) or (not body.get("truncate") and any(len(text) > self.limit for text in texts)):
            return 413, {"error": "`inputs` must have less than 512 tokens and cannot be empty", "error_type": "Validation"}
        width = cast("int", body.get("dimensions", self.width))
        return 200, [normalize(embed(text, width, self.salt)).tolist() for text in texts]


def normalize(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return *row* scaled to length 1."""
    return row / np.linalg.norm(row)


def embed(text: str, width: int, salt: str = "") -> npt.NDArray[np.float64]:
    """Return the sum of the vectors of its words, without normalisation."""
    words = re.findall(r"[a-z0-9]+", text.lower()) or ["nothing"]
    return np.sum([word_vector(word, width, salt) for word in words], axis=0)


@cache
def word_vector(word: str, width: int, salt: str) -> npt.NDArray[np.float64]:
    """Return the fixed random vector of a word."""
    seed = int.from_bytes(hashlib.sha256(f"{salt}{word}".encode()).digest()[:8])
    return np.random.default_rng(seed).standard_normal(width)


@contextmanager
def run_embedding_service(service: EmbeddingService | None = None) -> Generator[EmbeddingService]:
    """Run a service on its own port."""
    service = service or EmbeddingService()
    server = ThreadingHTTPServer(("127.0.0.1", service.port), _handler(service))
    server.daemon_threads = True
    if service.certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(service.certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    service.port = server.server_address[1]
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(service: EmbeddingService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            content = json.dumps({"model_id": service.name, "max_client_batch_size": _MAX_TEI_TEXTS, "version": "1.8.0"}).encode()
            self.send_response(200 if self.path == "/info" else 404)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            body = cast("dict[str, object]", json.loads(raw))
            with service.lock:
                service.requests.append(body)
                service.active_requests += 1
                service.max_active_requests = max(service.max_active_requests, service.active_requests)
                fault = service.permanent_fault or (service.faults.popleft() if service.faults else Fault())
            try:
                time.sleep(service.delay_s + fault.delay_s)
                self._send(fault, body)
            except OSError:
                self.close_connection = True  # the client has disconnected
            finally:
                with service.lock:
                    service.active_requests -= 1

        def _send(self, fault: Fault, body: dict[str, object]) -> None:
            status, response = service.respond(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            content = json.dumps(response).encode() if fault.body is None else fault.body
            self.send_response(status if fault.status in {0, 200} else fault.status)
            for name, value in fault.headers.items():
                self.send_header(name, value)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if fault.status == 0 else content)
            if fault.status == 0:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    return Handler


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    with run_embedding_service(
        EmbeddingService(width=arguments[0] if arguments else 32, port=arguments[1] if len(arguments) > 1 else 0)
    ) as running:
        print(running.openai_url(), running.ollama_url(), flush=True)  # noqa: T201 - where it is
        sys.stdin.read()
