"""
A stand-in for a Qdrant server, which no package registry has: its REST interface before Qdrant's own engine (qdrant-edge-py).

Each body is checked by the strict models of qdrant-client, which are generated from Qdrant's published description of its API. A request
with an unknown field or parameter is rejected, and so is a filter without an index, as by the server's strict mode.

It has one shard, no copies and no background tasks: `optimize` builds the graphs. The models check what it accepts of shards, copies and
storage, and it has no effect.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from qdrant_client.http import models as rest

from tests.qdrant_edge_engine import EdgeCollection

VERSION = "1.20.0"
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
_WRITE_PARAMETERS = frozenset({"wait", "ordering", "timeout"})
_READ_PARAMETERS = frozenset({"consistency", "timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A prepared answer of the stand-in."""

    status: int
    body: bytes = b'{"status": {"error": "prepared"}, "time": 0.0}'
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that the stand-in accepted. *route* is its method and its path, with `*` for the collection."""

    route: str
    collection: str
    parameters: Mapping[str, str]
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """A path of the interface. *model* checks the body of its requests; None for those without one."""

    method: str
    path: str
    run: Callable[[QdrantStandIn, str, Any], object]
    model: Any = None
    parameters: frozenset[str] = frozenset()


@dataclass
class QdrantStandIn:
    """
    The server.

    Attributes:
        answers: The next answers, whatever is requested.
        requests: The accepted requests, in order.
        api_key: The key that requests must have; None for none.
    """

    folder: Path
    port: int = 0
    api_key: str | None = None
    version: str = VERSION
    answers: deque[Answer] = field(default_factory=deque[Answer])
    requests: list[Request] = field(default_factory=list[Request])
    collections: dict[str, EdgeCollection] = field(default_factory=dict[str, EdgeCollection])
    created_count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def address(self, collection: str = "", *, port: int | None = None) -> str:
        """Return the address for ROOKERY_VECTORS."""
        return f"qdrant://127.0.0.1:{port or self.port}/{collection}"

    def optimize(self) -> None:
        """Build the graphs of all collections."""
        with self.lock:
            for collection in self.collections.values():
                collection.optimize()

    def answer(self, method: str, target: str, body: bytes, api_key: str | None) -> Answer:
        """Return the answer to a request."""
        if self.answers:
            return self.answers.popleft()
        if self.api_key is not None and api_key != self.api_key:
            return Answer(status=401, body=b"Must provide an API key or an Authorization bearer token")
        path, _, query = target.partition("?")
        for route in _ROUTES:
            match = re.fullmatch(route.path.replace("*", r"([^/]+)"), path)
            if match is None or route.method != method:
                continue
            parameters = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
            if unknown := parameters.keys() - route.parameters:
                return _refuse(400, f"unknown parameters: {sorted(unknown)}")
            return self._run(route, match[1] if match.groups() else "", parameters, body)
        return _refuse(404, f"no such route: {method} {path}")

    def create(self, name: str, settings: rest.CreateCollection) -> bool:
        """Create a collection."""
        if name in self.collections:
            raise FileExistsError(f"Wrong input: Collection `{name}` already exists!")
        self.created_count += 1
        self.collections[name] = EdgeCollection(self.folder / str(self.created_count), settings)
        return True

    def delete(self, name: str) -> bool:
        """Delete a collection."""
        collection = self.collections.pop(name, None)
        if collection is not None:
            collection.close()
        return collection is not None

    def find(self, name: str) -> EdgeCollection:
        """Return a collection."""
        if name not in self.collections:
            raise LookupError(f"Not found: Collection `{name}` doesn't exist!")
        return self.collections[name]

    def _run(self, route: _Route, collection: str, parameters: Mapping[str, str], body: bytes) -> Answer:
        try:
            content: object = TypeAdapter(route.model).validate_json(body) if route.model is not None else None
        except ValidationError as error:
            return _refuse(400, f"Format error in JSON body: {error}")
        with self.lock:
            self.requests.append(
                Request(
                    route=f"{route.method} {route.path}", collection=collection, parameters=parameters, body=orjson.loads(body or b"null")
                )
            )
            try:
                result = route.run(self, collection, content)
            except LookupError as error:
                return _refuse(404, str(error))
            except FileExistsError as error:
                return _refuse(409, str(error))
            except Exception as error:  # noqa: BLE001 - the engine raises Exception for a wrong request
                return _refuse(400, f"Wrong input: {error}")
        if "wait" in route.parameters and parameters.get("wait") != "true":
            result = json.loads(json.dumps(result).replace("completed", "acknowledged"))
        content = result if route.path == "/" else {"result": result, "status": "ok", "time": 0.0}
        return Answer(status=200, body=orjson.dumps(content, default=_to_plain, option=orjson.OPT_SERIALIZE_NUMPY))


def _apply(server: QdrantStandIn, name: str, request: rest.UpdateOperations) -> list[object]:
    collection = server.find(name)
    for operation in request.operations:
        if isinstance(operation, rest.UpsertOperation) and isinstance(operation.upsert, rest.PointsList):
            collection.upsert(operation.upsert)
        elif isinstance(operation, rest.DeleteOperation):
            collection.delete(operation.delete)
        else:
            raise TypeError(f"the stand-in does not translate {operation!r}")
    return [_COMPLETED] * len(request.operations)


def _delete(server: QdrantStandIn, name: str, selector: rest.PointsSelector) -> object:
    server.find(name).delete(selector)
    return _COMPLETED


def _create_index(server: QdrantStandIn, name: str, request: rest.CreateFieldIndex) -> object:
    server.find(name).create_index(request)
    return _COMPLETED


def _list(server: QdrantStandIn, _: str, __: object) -> object:
    return rest.CollectionsResponse(collections=[rest.CollectionDescription(name=name) for name in server.collections])


_COMPLETED: dict[str, object] = {"operation_id": 0, "status": "completed"}

_ROUTES = [
    _Route(method="GET", path="/", run=lambda server, _, __: {"title": "stand-in for qdrant", "version": server.version}),
    _Route(method="GET", path="/collections", run=_list),
    _Route(method="GET", path="/collections/*", run=lambda server, name, _: server.find(name).describe()),
    _Route(
        method="PUT",
        path="/collections/*",
        model=rest.CreateCollection,
        parameters=frozenset({"timeout"}),
        run=lambda server, name, body: server.create(name, body),
    ),
    _Route(method="DELETE", path="/collections/*", run=lambda server, name, _: server.delete(name)),
    _Route(method="PUT", path="/collections/*/index", model=rest.CreateFieldIndex, parameters=_WRITE_PARAMETERS, run=_create_index),
    _Route(method="POST", path="/collections/*/points/batch", model=rest.UpdateOperations, parameters=_WRITE_PARAMETERS, run=_apply),
    _Route(method="POST", path="/collections/*/points/delete", model=rest.PointsSelector, parameters=_WRITE_PARAMETERS, run=_delete),
    _Route(
        method="POST",
        path="/collections/*/points/query",
        model=rest.QueryRequest,
        parameters=_READ_PARAMETERS,
        run=lambda server, name, body: server.find(name).query(body),
    ),
    _Route(
        method="POST",
        path="/collections/*/points/count",
        model=rest.CountRequest,
        parameters=_READ_PARAMETERS,
        run=lambda server, name, body: server.find(name).count(body),
    ),
    _Route(
        method="POST",
        path="/collections/*/points/scroll",
        model=rest.ScrollRequest,
        parameters=_READ_PARAMETERS,
        run=lambda server, name, body: server.find(name).scroll(body),
    ),
]


def _refuse(status: int, reason: str) -> Answer:
    return Answer(status=status, body=orjson.dumps({"status": {"error": reason}, "time": 0.0}))


def _to_plain(value: object) -> object:
    """Return a model as JSON. Scores and vectors are written as the server's numbers of 32 bits."""
    if not isinstance(value, BaseModel):
        raise TypeError(type(value))
    fields = value.model_dump(mode="json", exclude_none=True)
    for point in fields.get("points", []):
        if "score" in point:
            point["score"] = np.float32(point["score"])
        if "vector" in point:
            point["vector"] = np.asarray(point["vector"], np.float32)
    return fields


@contextmanager
def run_qdrant_stand_in(*, api_key: str | None = None) -> Generator[QdrantStandIn]:
    """Run the server until the end of the block."""
    # In memory where possible: the engine syncs its files at each new index.
    folder = Path(tempfile.mkdtemp(prefix="qdrant-", dir=_MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else None))
    stand_in = QdrantStandIn(folder=folder, api_key=api_key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            answer = stand_in.answer(self.command, self.path, body, self.headers.get("api-key"))
            self.send_response(answer.status)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(answer.body)), **answer.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the names that the base class calls

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # with the default of 5, many connections at once are reset

        def handle_error(self, request: object, client_address: object) -> None:
            """Print nothing. Clients and proxies reset connections."""

    with Server(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        stand_in.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield stand_in
        finally:
            server.shutdown()
            thread.join()
            for name in list(stand_in.collections):
                stand_in.delete(name)
            shutil.rmtree(folder, ignore_errors=True)
