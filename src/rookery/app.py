"""The ASGI application: the routes of every domain under their prefixes, behind one middleware."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Literal
from urllib.parse import urlsplit

import structlog
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.console.mount import ConsoleMount
from rookery.console.ports import ConsolePorts
from rookery.console.store import SignOuts
from rookery.doctor import FindingGrade, examine, has_no_problem
from rookery.kernel.config import Settings
from rookery.kernel.data_folder import DiskSpace
from rookery.kernel.engine_breakers import READS_ONLY
from rookery.kernel.errors import EngineUnavailable, RookeryError
from rookery.kernel.events import EventCatalogue
from rookery.kernel.http import (
    DocumentedResponse,
    EdgeMiddleware,
    IdempotencyHandler,
    Operation,
    Output,
    mount_routes,
)
from rookery.kernel.http.cross_origin import CorsMiddleware, list_allowed_origins, list_public_urls
from rookery.kernel.http.metrics_page import MetricsRoutes
from rookery.kernel.http.proxy_check import describe_arrival
from rookery.kernel.http.routes import RequestGuard, RouteTable
from rookery.kernel.http.unknown_paths import UnknownPathHandler
from rookery.kernel.metrics import PROCESS_METRICS_PATH
from rookery.kernel.schema import ResponseModel
from rookery.kernel.sealing import KeySource
from rookery.kernel.working_context import WorkingContextFinder
from rookery.memory.transfer.draft_files import read_draft_file
from rookery.observability import Observability
from rookery.reference.api import DocumentCache, ReferenceApi
from rookery.reference.downgrade import Schema
from rookery.reference.examples import load_packaged_examples
from rookery.reference.openapi import build_document
from rookery.tools.api.pages import HtmlPages
from rookery.tools.api.start_page import StartPage
from rookery.tools.discovery.documents import get_version
from rookery.wiring import STATUS_STARTING, Rookery

_log = structlog.stdlib.get_logger("rookery.app")

_PROBE_TIMEOUT_S = 2.0
_EXAMINATION_TIMEOUT_S = 20.0
_STATUS_UNAVAILABLE = "unavailable"

_DOCUMENTATION_REDIRECTS = {
    "/docs": "/api/docs",
    "/redoc": "/api/docs/redoc",
    "/api/openapi.json": "/docs/openapi.json",
}
"""Paths that other frameworks use for the documentation, by which clients are redirected."""


def build_route_table(rookery: Rookery) -> RouteTable:
    """Return the table of all routes of the server with their prefixes."""
    settings, table, health = (
        rookery.settings,
        RouteTable(disk=rookery.runtime.use(DiskSpace), contexts=rookery.runtime.use(WorkingContextFinder)),
        HealthRoutes(rookery.probes, rookery.sealing.keys),
    )
    start_page = StartPage(
        organization=rookery.tools.discovery.organization,
        version=get_version(),
        is_public=settings.is_discovery_public,
        has_docs=settings.has_api_docs,
        status=health.status,
        has_console=settings.console,
        address=settings.public_url_of,
        paths=lambda: table.methods_by_path,
        pages=HtmlPages(has_docs=settings.has_api_docs),
    )
    mounts = [mount for domain in rookery.domains for mount in domain.operations]
    platform = [
        *health.operations(),
        *DoctorRoutes(rookery).operations(),
        *start_page.operations(),
        *MetricsRoutes(rookery.observability.metrics).operations(),
    ]
    if settings.has_api_docs:

        def build() -> Schema:
            events = rookery.runtime.use(EventCatalogue).types
            return build_document(table.endpoints, public_url=settings.public_url_of, events=events, examples=load_packaged_examples())

        platform += ReferenceApi(document_cache=DocumentCache(build)).operations()
    idempotency = IdempotencyHandler(rookery.sealing.idempotency_store)
    for prefix, operations in [*mounts, ("", platform)]:
        mount_routes(table, prefix, operations, rookery.access.guard, idempotency)
    return table


def create_app(rookery: Rookery) -> ASGIApp:
    """Return the ASGI application of *rookery*. Its lifespan starts and closes *rookery*."""
    return Application(rookery, build_server_edge(rookery, build_route_table(rookery)))


def build_server_edge(rookery: Rookery, table: RouteTable) -> ASGIApp:
    """Return the middleware around *table*, to which the console is added unless `ROOKERY_CONSOLE` is off."""
    console = _build_console(rookery) if rookery.settings.console else None
    if console is not None:
        for route in console.routes():
            table.router.add(route)
    edge = build_edge(rookery.settings, table, rookery.access.guard, rookery.observability)
    if console is not None:
        console.server = edge
    return edge


def _build_console(rookery: Rookery) -> ConsoleMount:
    access, runtime = rookery.access, rookery.runtime
    return ConsoleMount(
        ConsolePorts(
            db=runtime.db,
            sealer=rookery.sealing.sealer,
            audit=access.audit,
            limiter=access.limiter,
            sign_outs=SignOuts(runtime.db, runtime.clock),
            clock=runtime.clock,
            find_address=access.guard.find_client_address,
            organization=rookery.tools.discovery.organization,
            has_docs=rookery.settings.has_api_docs,
            list_operations=lambda: rookery.operations,
            read_memory_file=read_draft_file,
        )
    )


class Application:
    """The ASGI application: HTTP requests go to *edge*, lifespan events start and close *rookery*."""

    def __init__(self, rookery: Rookery, edge: ASGIApp) -> None:
        self._rookery = rookery
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection. WebSockets are closed."""
        if scope["type"] == "http":
            await self._edge(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._rookery.start()
        except RookeryError as error:
            await send({"type": "lifespan.startup.failed", "message": error.message})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._rookery.close()
        await send({"type": "lifespan.shutdown.complete"})


class GroupApplication:
    """
    The ASGI application on the Unix socket of one process of several: the requests of the others.

    Only the user of the server can open the socket, so its requests need no key. It has no lifespan of its own.
    """

    def __init__(self, rookery: Rookery) -> None:
        self._metrics = rookery.observability.metrics
        self._gateway = rookery.tools.gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the metrics of this process, its health, or an MCP request whose session it has."""
        if scope["path"] == PROCESS_METRICS_PATH:
            response = Response(await self._metrics.export(), media_type="application/json")
            await response(scope, receive, send)
        elif scope["path"] == "/healthz":
            await Response(b"")(scope, receive, send)
        else:
            await self._gateway.serve_forwarded(scope, receive, send)


class LivenessResponse(ResponseModel):
    """The state of the process."""

    status: Literal["ok"]


class ReadinessResponse(ResponseModel):
    """The states of the engines."""

    status: Annotated[
        Literal["ok", "starting", "degraded", "unavailable"], Field(description="`unavailable`: the record store is missing.")
    ]
    engines: Annotated[dict[str, str], Field(description="`ok`, or what is wrong, for each engine.")]


class HealthRoutes:
    """The health routes: the state of the process and of its engines."""

    def __init__(self, probes: Mapping[str, Callable[[], Awaitable[str]]], keys: KeySource) -> None:
        self._probes = probes
        self._keys = keys

    def operations(self) -> list[Operation]:
        """Return the two operations, which need no key."""
        operation = partial(Operation, method="GET", required_scope=None, public=True, ignores_query=True, tags=("Operation",))
        unavailable = DocumentedResponse(description="The record store is unavailable.", model=ReadinessResponse)
        return [
            operation(path="/healthz", handler=self.healthz, response_model=LivenessResponse, operation_id="check_health",
                      summary="Check that the process is up"),
            operation(path="/readyz", handler=self.readyz, response_model=ReadinessResponse, operation_id="check_readiness",
                      summary="Check the engines", responses={503: unavailable}),
        ]  # fmt: skip

    async def healthz(self, request: Request) -> Output:
        """Return 200 while the process is up. No engine is contacted."""
        return Output(body={"status": "ok"}, headers=describe_arrival(request.scope, self._keys))

    async def readyz(self) -> Output:
        """Return the state of each engine. The status is 503 only if the record store is unavailable."""
        states = await self._get_states()
        status = _summarize_states(states)
        return Output(body={"status": status, "engines": states}, status=503 if status == _STATUS_UNAVAILABLE else 200)

    async def status(self) -> str:
        """Return the status of all engines combined."""
        return _summarize_states(await self._get_states())

    async def _get_states(self) -> dict[str, str]:
        names = list(self._probes)
        return dict(zip(names, await asyncio.gather(*(self._get_state(name) for name in names)), strict=True))

    async def _get_state(self, name: str) -> str:
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                return await self._probes[name]()
        except TimeoutError:
            return f"no response within {_PROBE_TIMEOUT_S:.0f} s"
        except RookeryError as error:
            return error.message
        except Exception as error:
            _log.exception("health.probe_failed", engine=name)
            return type(error).__name__


class DoctorFindingResponse(ResponseModel):
    """The result of one check."""

    about: Annotated[str, Field(description="The part that was checked, such as `disk`.")]
    grade: Annotated[FindingGrade, Field(description="`problem`: something cannot work. `warning`: something deserves attention.")]
    says: Annotated[str, Field(description="The finding, for people.")]
    advice: Annotated[str | None, Field(description="The next step, with a command or a setting; null if all is well.")]


class DoctorResponse(ResponseModel):
    """The findings of all checks."""

    healthy: Annotated[bool, Field(description="True if no finding is a problem.")]
    findings: list[DoctorFindingResponse]


class DoctorRoutes:
    """The diagnosis of the installation, as `rookery doctor` prints it."""

    def __init__(self, rookery: Rookery) -> None:
        self._rookery = rookery

    def operations(self) -> list[Operation]:
        """Return the operation of the diagnosis."""
        return [
            Operation(method="GET", path="/api/v1/doctor", handler=self.examine, required_scope="platform:metrics",
                      response_model=DoctorResponse, operation_id="check_installation", summary="Examine the installation",
                      tags=("Operation",)),
        ]  # fmt: skip

    async def examine(self) -> DoctorResponse:
        """
        Run the checks of `rookery doctor` in this process. Each finding that is not `ok` names the next step.

        Raises:
            EngineUnavailable: The checks took too long.
        """
        try:
            async with asyncio.timeout(_EXAMINATION_TIMEOUT_S):
                findings = await examine(self._rookery)
        except TimeoutError as error:
            raise EngineUnavailable("doctor", f"the checks took longer than {_EXAMINATION_TIMEOUT_S:.0f} s") from error
        return DoctorResponse(
            healthy=has_no_problem(findings),
            findings=[DoctorFindingResponse.from_parts(finding) for finding in findings],
        )


def _summarize_states(states: Mapping[str, str]) -> str:
    """Return the combined state, which is that of the worst engine."""
    database = states.get("database", "")
    if database != "ok" and not database.startswith(READS_ONLY):
        return _STATUS_UNAVAILABLE
    if all(state == "ok" for state in states.values()):
        return "ok"
    return STATUS_STARTING if all(state in {"ok", STATUS_STARTING} for state in states.values()) else "degraded"


def build_edge(
    settings: Settings, table: RouteTable, guard: RequestGuard | None = None, observation: Observability | None = None
) -> ASGIApp:
    """Return the middleware around *table*: hosts, origins and request ids according to *settings*."""
    hosts = {"localhost", "127.0.0.1", "::1", settings.host, *settings.allowed_hosts}
    hosts.update(name for url in list_public_urls(settings) if (name := urlsplit(url).hostname))
    pages = HtmlPages(has_docs=settings.has_api_docs)
    table.router.default = UnknownPathHandler(table, _DOCUMENTATION_REDIRECTS, guard=guard, render_page=pages.render_error)
    edge: ASGIApp = EdgeMiddleware(
        endpoints_by_path=table.endpoints_by_path,
        router=table.router,
        hosts=hosts,
        origins=list_allowed_origins(settings),
        public_url=settings.public_url_of,
        guard=guard,
        error_format=table.find_error_format,
        request_metrics=observation.request_metrics if observation else None,
        tracer=observation.tracer if observation else None,
    )
    if settings.cors_origins:
        return CorsMiddleware(edge, settings.cors_origins)
    return edge
