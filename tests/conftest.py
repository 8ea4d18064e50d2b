"""Fixtures for every test: a clock, a new record store of each dialect, a server in this process and its client."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import httpcore2
import httpx2
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from rookery.access.key_fields import NewAgentKey, NewApiKey
from rookery.access.models import Actor
from rookery.access.scopes import PRESETS
from rookery.app import Application, build_route_table, build_server_edge
from rookery.engines import embedders
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, open_database
from rookery.kernel.http.routes import RouteEndpoint, RouteTable
from rookery.kernel.ids import uuid7
from rookery.kernel.secret import Secret
from rookery.migrations import migrate
from rookery.wiring import Rookery, build_platform
from tests.deadlines import HANG_S
from tests.openapi_check import OpenApiCheck

pytest_plugins = ["tests.postgres", "tests.postgres_databases", "tests.key_leaks", "tests.engines.engine_record"]

T = TypeVar("T")

SECRET_KEY = "a secret key of the tests: 0123456789"
"""The secret key, which a shared record store needs; an embedded one creates its own."""

OPERATOR = Actor(kind="operator", name="test")
"""The actor that sets up tests; it may do everything."""

# The time of an example depends on the machine, so there is no deadline. In CI hypothesis generates the same examples every time.
hypothesis_settings.register_profile(
    "rookery",
    hypothesis_settings.get_profile("ci" if "CI" in os.environ else "default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
hypothesis_settings.load_profile("rookery")


def pytest_collection_finish() -> None:
    """Exclude the imports and the tests themselves from garbage collection, which would take a fifth of the CPU time of the suite."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def shared_tls_context() -> Iterator[None]:
    """
    Give the HTTP clients of the tests one TLS context per set of certificates.

    Otherwise each client makes its own, also for addresses without TLS. It takes 22 ms of CPU: 30 of the 98 s of `tests/contract`.
    """
    make_context = httpcore2.default_ssl_context

    @cache
    def make_once(_: tuple[str | None, ...], *, trust_env: bool) -> ssl.SSLContext:
        return make_context(_trust_env=trust_env)

    def get_context(*, _trust_env: bool = True) -> ssl.SSLContext:
        return make_once((os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")), trust_env=_trust_env)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", get_context)
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The async backend of all tests: asyncio, as in the server."""
    return "asyncio"


class FakeClock:
    """A clock that advances only by `advance`; callable as a `Clock`."""

    def __init__(self, at: datetime = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def advance(self, **units: float) -> None:
        """Advance by `timedelta(**units)`."""
        self.at += timedelta(**units)


@pytest.fixture
def clock() -> FakeClock:
    """A new clock for each test."""
    return FakeClock()


async def eventually(claim: Callable[[], Awaitable[T] | T]) -> T:
    """Return what *claim* returns once that is true; fail after `HANG_S`."""
    deadline = time.monotonic() + HANG_S
    while True:
        result = claim()
        value = await cast("Awaitable[T]", result) if inspect.isawaitable(result) else cast("T", result)
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not true within {HANG_S} s; last seen: {value!r}")
        await asyncio.sleep(0.01)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty record store, to be copied."""
    folder = tmp_path_factory.mktemp("migrated")
    migrate("embedded:", data_dir=folder)
    return folder / "records.db"


@pytest.fixture
def data_dir(tmp_path: Path, migrated: Path) -> Path:
    """A data folder with a migrated, empty record store."""
    folder = tmp_path / "data"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(migrated, folder / "records.db")
    return folder


@pytest.fixture(params=["embedded", pytest.param("postgresql", marks=pytest.mark.external_service)])
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of a migrated, empty record store, of each dialect in turn."""
    if request.param == "embedded":
        return "embedded:"
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture
async def database(database_url: str, data_dir: Path) -> AsyncIterator[Database]:
    """A migrated, empty record store of each dialect in turn."""
    db = open_database(database_url, data_dir=data_dir)
    yield db
    await db.close()


@pytest.fixture(scope="session")
def built_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in which embedders build the files of their models, once for all workers of the run."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built_models"


@pytest.fixture(scope="session")
def model_folder(built_models: Path) -> Iterator[Path]:
    """A data folder that contains the embedder's graph, and an embedder with the loaded model, which those of the tests share."""
    folder = built_models / "default"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # `lend_model` copies the mode
    engine = embedders.open("embedded:", data_dir=folder)
    asyncio.run(engine.warm())
    yield folder
    asyncio.run(engine.close())


def lend_model(model_folder: Path, data_dir: Path) -> None:
    """Link the embedder's files into *data_dir*; they are only ever replaced as a whole."""
    shutil.copytree(model_folder, data_dir, copy_function=os.link, dirs_exist_ok=True)


@pytest.fixture
def route_table(settings: Settings) -> RouteTable:
    """The route table of the application."""
    return build_route_table(build_platform(settings))


def operation_name(endpoint: RouteEndpoint) -> str:
    """Return the method and the path of an operation."""
    return f"{endpoint.route.method} {endpoint.path}"


@pytest.fixture
def settings(data_dir: Path, database_url: str, model_folder: Path) -> Settings:
    """Settings of a server for one test, on each record store in turn."""
    lend_model(model_folder, data_dir)
    secret_key = None if database_url == "embedded:" else Secret(SECRET_KEY)
    return Settings(
        data_dir=data_dir,
        database_url=Secret(database_url),
        secret_key=secret_key,
        bcrypt_cost=4,
        min_free_disk_mb=0,
        hook_timeout_ms=int(HANG_S * 1000),
    )


class Caller:
    """A client with one key; its requests go through the whole application, in this process."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, key: str | None, key_id: str = "") -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.http = httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=HANG_S)
        self.key = key
        self.key_id = key_id

    async def get(self, path: str, **more: str) -> httpx2.Response:
        """GET *path* with headers *more*."""
        return await self.http.get(path, headers=more)

    async def post(self, path: str, body: object = None, **more: str) -> httpx2.Response:
        """POST *body* as JSON."""
        return await self.http.post(path, json=body, headers=more)

    async def send(self, method: str, path: str, body: object = None, **more: str) -> httpx2.Response:
        """Send any request; without *body* the request has no content."""
        if body is None:
            return await self.http.request(method, path, headers=more)
        return await self.http.request(method, path, json=body, headers=more)

    async def remember(self, content: str = "We deploy on Tuesdays.", **fields: object) -> dict[str, object]:
        """Store a memory and wait until it is indexed."""
        response = await self.post("/v1/brain/remember", {"type": "decision", "content": content, "wait_ms": 5000} | fields)
        assert response.status_code in {200, 201}, response.text
        return dict(response.json())


@dataclass
class Instance:
    """A running server in this process with its first workspace and keys, and methods to create more."""

    rookery: Rookery
    transport: httpx2.ASGITransport
    workspace_id: int
    admin: Caller
    agent: Caller

    def caller(self, key: str | None) -> Caller:
        """Return a client with *key*, or without a key."""
        return Caller(self.transport, key)

    async def workspace(self, name: str) -> int:
        """Create another workspace."""
        return (await self.rookery.access.workspaces.create(name, by=OPERATOR)).id

    async def api_key(self, *scopes: str, workspace_id: int | None = None, **fields: object) -> Caller:
        """Create an API key with *scopes* (default: all) and return a client with it."""
        new = NewApiKey(name="test", scopes=scopes or ("*",), **fields)  # pyright: ignore[reportArgumentType] - fields by name
        created = await self.rookery.access.api_keys.create(workspace_id or self.workspace_id, new, by=OPERATOR)
        return Caller(self.transport, created.plaintext.reveal(), created.key.id)

    async def agent_key(self, *permissions: str, workspace_id: int | None = None, **fields: object) -> Caller:
        """Create an agent key with *permissions* (default: the preset agent) and return a client with it."""
        granted = permissions or PRESETS["agent"]
        new = NewAgentKey(name=f"agent {uuid7()}", permissions=tuple(granted), **fields)  # pyright: ignore[reportArgumentType] - as above
        created = await self.rookery.access.agent_keys.create(workspace_id or self.workspace_id, new, by=OPERATOR)
        return Caller(self.transport, created.plaintext.reveal(), created.key.id)


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server on an empty store, with the first run's workspace and keys."""
    async with run_instance(settings) as running:
        yield running


@asynccontextmanager
async def run_instance(settings: Settings, clock: Clock = utc_now) -> AsyncGenerator[Instance]:
    """Run a server of *settings* in this process until the block ends."""
    rookery = build_platform(settings, clock=clock)
    await rookery.start()
    try:
        first_keys = await rookery.create_first_keys()
        route_table = build_route_table(rookery)
        edge = build_server_edge(rookery, route_table)
        app = OpenApiCheck(Application(rookery, edge), route_table)
        transport = httpx2.ASGITransport(app)
        api_key = first_keys.api_key.reveal() if first_keys.api_key else None
        agent_key = first_keys.agent_key.reveal() if first_keys.agent_key else None
        yield Instance(
            rookery=rookery,
            transport=transport,
            workspace_id=first_keys.workspace_id or 0,
            admin=Caller(transport, api_key),
            agent=Caller(transport, agent_key),
        )
        app.assert_no_violations()
    finally:
        await rookery.close()
