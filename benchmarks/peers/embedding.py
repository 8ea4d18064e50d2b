"""An embedding service on the loopback, with our built-in model: `python -m benchmarks.peers.embedding PORT`; a text is embedded once."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import sys
import tempfile
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypedDict, cast

from rookery.engines import embedders
from rookery.memory.models import Passage

MODEL = "all-MiniLM-L6-v2"
WIDTH = 384


class _EmbeddingRequest(TypedDict, total=False):
    input: str | list[str]
    encoding_format: str


class Service:
    """Embeds on a loop of its own, for the threads of the HTTP server."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._engine = embedders.open("embedded:", data_dir=folder)
        self._known: dict[str, bytes] = {}
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def vectors(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vector of what the model reads of each text: its first window."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            chunks = asyncio.run_coroutine_threadsafe(self._embed(new), self._loop).result()
            self._known |= {text: of_text[0] for text, of_text in zip(new, chunks, strict=True)}
        return [self._known[text] for text in texts]

    async def _embed(self, texts: Sequence[str]) -> list[tuple[bytes, ...]]:
        return await self._engine.embed_passages([Passage(context="", content=text) for text in texts])


def serve(port: int, folder: Path) -> None:
    """Serve until the process is ended."""
    service = Service(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Else the body waits for the client's delayed acknowledgement of the headers: 40 ms a request.
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_POST(self) -> None:
            request = cast("_EmbeddingRequest", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            texts = request.get("input", [])
            texts = [texts] if isinstance(texts, str) else texts
            is_packed = request.get("encoding_format") == "base64"
            data = [
                {
                    "object": "embedding",
                    "index": index,
                    "embedding": base64.b64encode(vector).decode() if is_packed else list(struct.unpack(f"<{WIDTH}f", vector)),
                }
                for index, vector in enumerate(service.vectors(texts))
            ]
            self._answer({"object": "list", "model": MODEL, "data": data, "usage": {"prompt_tokens": 0, "total_tokens": 0}})

        def do_GET(self) -> None:
            self._answer({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def _answer(self, body: dict[str, object]) -> None:
            written = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)
            self.wfile.flush()

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        serve(int(sys.argv[1]), Path(folder))
