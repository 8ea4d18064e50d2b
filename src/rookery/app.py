"""The ASGI application: every domain's routes under their paths, inside one shell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlsplit

import structlog
from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.access.api import AccessApi
from rookery.agents.api import AgentsApi
from rookery.agents.api.phases import PhaseRoutes
from rookery.agents.api.plans import PlanRoutes
from rookery.agents.api.sessions import SessionRoutes
from rookery.agents.api.stream import StreamRoutes
from rookery.agents.api.tasks import TaskRoutes
from rookery.agents.api.templates import TemplateRoutes
from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError
from rookery.kernel.http import Described, Once, Route, Shell, describe, mount, reply, tag
from rookery.kernel.http.cross_origin import CrossOrigin
from rookery.kernel.http.metrics_page import MetricsPage
from rookery.kernel.http.routes import Admit, Mounted
from rookery.kernel.http.unknown_paths import UnknownPaths
from rookery.memory.api import MemoryApi
from rookery.observation import Observation
from rookery.reference.api import ReferenceApi
from rookery.reference.examples import shipped
from rookery.reference.openapi import Announced, document
from rookery.reference.published import Published
from rookery.tools.api import ToolsApi
from rookery.tools.api.logins import CALLBACK, LoginRoutes
from rookery.tools.api.pages import Pages
from rookery.tools.api.start_page import StartPage
from rookery.tools.finding.discovery import version
from rookery.tools.gateway.routes import GatewayRoutes
from rookery.webhooks.api import WebhooksApi
from rookery.webhooks.catalogue import TYPES
from rookery.wiring import STARTING, Rookery

_log = structlog.stdlib.get_logger("rookery.app")

_PROBE_S = 2.0
_UNAVAILABLE = "unavailable"

TOOLS = "/api/v1/mcp"
BRAIN = "/v1/brain"
PLATFORM = "/api/v1"
AGENT = "/api/agent"
PLAIN = "/v1"

_ALIASES = {
    "/docs": "/api/docs",
    "/redoc": "/api/docs/redoc",
    "/api/openapi.json": "/docs/openapi.json",
}
"""Where other frameworks have what we have elsewhere."""


def mounted_routes(rookery: Rookery) -> Mounted:
    """Return every route of the server; the one table of prefixes."""
    app = FastAPI(title="Rookery", version="1.0.0", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    mounted = Mounted(app, disk=rookery.disk_space)
    memory, tools = rookery.memory, rookery.tools
    access = AccessApi(
        guard=rookery.access.guard,
        api_keys=rookery.access.api_keys,
        agent_keys=rookery.access.agent_keys,
        workspaces=rookery.access.workspaces,
        usage=rookery.access.usage,
        audit=rookery.access.audit,
        clock=rookery.clock,
    )
    brain = MemoryApi(
        remember=memory.remember,
        records=memory.records,
        recall=memory.recall,
        search=memory.search,
        listing=memory.listing,
        feedback=memory.feedback,
        context=memory.context,
        answers=memory.answers,
        mode=rookery.settings.recall_mode,
    )
    toolbox = ToolsApi(
        catalogue=tools.catalogue,
        sessions=tools.sessions,
        calls=tools.calls,
        analytics=tools.analytics,
        resources=tools.resources,
        owned=tools.owned,
        checker=tools.checker,
        logins=LoginRoutes(tools.logins, tools.catalogue, rookery.clock, rookery.settings.address_of(CALLBACK)),
        discovery=tools.discovery,
        search=tools.search,
        api=rookery.settings.address_of(TOOLS) + TOOLS,
        is_discovery_public=rookery.settings.is_discovery_public,
        has_docs=rookery.settings.has_api_docs,
    )
    work = AgentsApi(
        plans=PlanRoutes(plans=rookery.agents.plans),
        phases=PhaseRoutes(phases=rookery.agents.phases, tasks=rookery.agents.tasks),
        tasks=TaskRoutes(tasks=rookery.agents.tasks, claims=rookery.agents.claims),
        templates=TemplateRoutes(templates=rookery.agents.templates, plans=rookery.agents.plans),
        sessions=SessionRoutes(sessions=rookery.agents.sessions),
        stream=StreamRoutes(following=rookery.agents.sessions.following),
    )
    hooks = WebhooksApi(rookery.webhooks.endpoints, rookery.webhooks.deliveries, rookery.clock)
    health = Health(rookery.probes)
    start = StartPage(
        organization=tools.discovery.organization,
        version=version(),
        is_public=rookery.settings.is_discovery_public,
        has_docs=rookery.settings.has_api_docs,
        status=health.status,
        address=rookery.settings.address_of,
        pages=Pages(has_docs=rookery.settings.has_api_docs),
    )
    tables: list[tuple[str, list[Route]]] = [
        (TOOLS, toolbox.gateway_routes()),
        ("", toolbox.host_routes()),
        ("", GatewayRoutes(tools.gateway, origins_of(rookery.settings)).routes()),
        (BRAIN, brain.routes()),
        (PLATFORM, access.platform_routes()),
        (PLATFORM, toolbox.platform_routes()),
        (AGENT, access.agent_routes()),
        (AGENT, toolbox.agent_routes()),
        (AGENT, work.routes()),
        (PLAIN, work.routes()),
        (PLATFORM, hooks.routes()),
        ("", health.routes()),
        ("", start.routes()),
        ("", MetricsPage(rookery.observation.metrics).routes()),
    ]
    if rookery.settings.has_api_docs:
        announced = [Announced(name=each.name, says=each.says, data=each.data) for each in TYPES]
        published = Published(
            lambda: document(mounted.endpoints, address=rookery.settings.address_of, announced=announced, examples=shipped())
        )
        tables.append(("", ReferenceApi(published=published).routes()))
    once = Once(rookery.sealing.kept_answers)
    for prefix, routes in tables:
        mount(mounted, prefix, routes, rookery.access.guard, once)
    return mounted


def create_app(rookery: Rookery) -> ASGIApp:
    """Return the server of *rookery*, which it starts and closes with its lifespan."""
    return Application(rookery, shell(rookery.settings, mounted_routes(rookery), rookery.access.guard, rookery.observation))


class Application:
    """HTTP by the shell; the lifespan by the rookery itself."""

    def __init__(self, rookery: Rookery, shell: ASGIApp) -> None:
        self._rookery = rookery
        self._shell = shell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of whatever kind."""
        if scope["type"] == "http":
            await self._shell(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
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


@tag("Operation")
class Health:
    """Whether the process is up, and whether it can work (D-05)."""

    def __init__(self, probes: Mapping[str, Callable[[], Awaitable[str]]]) -> None:
        self._probes = probes

    def routes(self) -> list[Route]:
        """Return the two routes that need no key."""
        return [
            Route(
                method="GET",
                path="/healthz",
                handler=self.healthz,
                needs=None,
                public=True,
                operation_id="check_health",
                summary="Check that the process is up",
                ignores_query=True,
            ),
            Route(
                method="GET",
                path="/readyz",
                handler=self.readyz,
                needs=None,
                public=True,
                operation_id="check_readiness",
                summary="Check the engines",
                ignores_query=True,
            ),
        ]

    async def healthz(self) -> Response:
        """Return 200 while the process is up. No engine is contacted."""
        return reply({"status": "ok"})

    @describe(answers={503: Described(says="The record store is down.", media=("application/json",))})
    async def readyz(self) -> Response:
        """Return the state of each engine. The status is 503 only if the record store is down."""
        states = await self._states()
        status = _summary(states)
        return reply({"status": status, "engines": states}, status=503 if status == _UNAVAILABLE else 200)

    async def status(self) -> str:
        """Return the status of all engines together."""
        return _summary(await self._states())

    async def _states(self) -> dict[str, str]:
        names = list(self._probes)
        return dict(zip(names, await asyncio.gather(*(self._state(name) for name in names)), strict=True))

    async def _state(self, name: str) -> str:
        try:
            async with asyncio.timeout(_PROBE_S):
                return await self._probes[name]()
        except TimeoutError:
            return f"no answer within {_PROBE_S:.0f} s"
        except RookeryError as error:
            return error.message
        except Exception as error:
            _log.exception("health.probe_failed", engine=name)
            return type(error).__name__


def _summary(states: Mapping[str, str]) -> str:
    """Return the state of the whole: as good as its worst engine."""
    if states.get("database") != "ok":
        return _UNAVAILABLE
    if all(state == "ok" for state in states.values()):
        return "ok"
    return STARTING if all(state in {"ok", STARTING} for state in states.values()) else "degraded"


def shell(settings: Settings, mounted: Mounted, admit: Admit | None = None, observation: Observation | None = None) -> ASGIApp:
    """Return what stands around *mounted*: hosts, origins and request ids by *settings*."""
    hosts = {"localhost", "127.0.0.1", "::1", settings.host, *settings.allowed_hosts}
    hosts.update(name for each in _addresses(settings) if (name := urlsplit(each).hostname))
    mounted.app.router.default = UnknownPaths(mounted, _ALIASES)
    outer: ASGIApp = Shell(
        exact=mounted.exact,
        router=mounted.app.router,
        hosts=hosts,
        origins=origins_of(settings),
        address=settings.address_of,
        admit=admit,
        error_format=mounted.error_format,
        traffic=observation.traffic if observation else None,
        tracer=observation.tracer if observation else None,
    )
    if settings.cors_origins:
        return CrossOrigin(outer, settings.cors_origins)
    return outer


def origins_of(settings: Settings) -> frozenset[str]:
    """Return the origins that are ours, lower case: pages that may act with a browser's credentials, and speak MCP."""
    local = {f"http://{host}:{settings.port}" for host in ("localhost", "127.0.0.1", "[::1]")}
    ours = {f"{parts.scheme}://{parts.netloc}" for parts in map(urlsplit, _addresses(settings))}
    return frozenset(each.lower() for each in (*local, *settings.cors_origins, *ours))


def _addresses(settings: Settings) -> list[str]:
    return [each for each in (settings.base_url, settings.api_url, settings.mcp_url, settings.address_of("/")) if each]
