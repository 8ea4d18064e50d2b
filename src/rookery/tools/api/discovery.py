"""Discovery: what is shown of our tool servers to those who do not know them yet (D-35), search, and OpenAPI (D-37)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_if_any, caller_of
from rookery.access.models import Caller
from rookery.kernel.errors import NotFound, PermissionDenied
from rookery.kernel.http import Route, describe, reply
from rookery.kernel.http.routes import Handler
from rookery.tools.api.listing import READ, deprecation
from rookery.tools.api.pages import Pages, wants_html
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import Disabled, ServerNotFound
from rookery.tools.finding.client_setups import KEY_VARIABLE, Target, setups
from rookery.tools.finding.discovery import Discovery, Listed
from rookery.tools.finding.discovery import version as version_here
from rookery.tools.finding.openapi import document
from rookery.tools.finding.tool_search import ToolSearch
from rookery.tools.models import JsonObject
from rookery.tools.schemas import (
    ClientSetup,
    ConnectAnswer,
    ConnectQuery,
    FoundTools,
    OpenApi,
    RegistryQuery,
    ServerList,
    ServerSummary,
    ToolSearchQuery,
)

_CARD = "application/mcp-server-card+json"
_TAGS = ("Discovery",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryRoutes:
    """
    Tells of tool servers, in every shape that somebody looks for.

    Attributes:
        api: Absolute address of the tool-server API, its prefix included, never from a request.
        is_public: Whether a key is not asked for. One that is sent is checked all the same, and sees what it may see.
    """

    catalogue: Catalogue
    discovery: Discovery
    search: ToolSearch
    api: str
    is_public: bool
    pages: Pages = field(default_factory=Pages)

    def api_routes(self) -> list[Route]:
        """Return the routes under {base_url}'s prefix; they ask for a key always."""
        return [
            Route(
                method="GET",
                path="/tools/search",
                handler=self.get_search,
                needs=READ,
                answers=FoundTools,
                summary="Find tools by meaning and by word",
                tags=_TAGS,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}/openapi.json",
                handler=self.get_openapi,
                needs=READ,
                answers=OpenApi,
                summary="Describe a server's tools in OpenAPI 3.1",
                tags=_TAGS,
            ),
        ]

    def host_routes(self) -> list[Route]:
        """Return the routes at the root of {mcp_url}."""
        told: list[tuple[str, Handler, str, type[BaseModel] | None]] = [
            ("/.well-known/mcp-servers.json", self.get_registry, "Tell of the tool servers, in our own shape", None),
            ("/.well-known/ai-catalog.json", self.get_ai_catalog, "Tell of the tool servers as an AI Catalog", None),
            ("/mcp/server-card", self.get_own_card, "Show the card of all tool servers at once", None),
            ("/mcp/{server_id}/server-card", self.get_card, "Show a server's card", None),
            ("/v0.1/servers", self.get_entries, "List the tool servers as the official registry does", None),
            ("/v0.1/servers/{name:path}/versions", self.get_versions, "List a server's versions as the official registry does", None),
            ("/v0.1/servers/{name:path}/versions/{version}", self.get_version, "Show a server as the official registry does", None),
            ("/servers", self.get_servers, "Show the tool servers: a page for a browser, else JSON", ServerList),
            ("/connect", self.get_connect, "Show how clients are set up: a page, or JSON when asked", ConnectAnswer),
        ]
        return [
            Route(
                method="GET",
                path=path,
                handler=handler,
                needs=None if self.is_public else READ,
                public=self.is_public,
                greets=self.is_public,
                answers=answers,
                summary=summary,
                tags=_TAGS,
            )
            for path, handler, summary, answers in told
        ]

    @describe(errors=(PermissionDenied, Disabled, ServerNotFound))
    async def get_search(self, request: Request, query: Annotated[ToolSearchQuery, Query()]) -> Response:
        """Answer from memory: no upstream is asked."""
        started = time.perf_counter()
        found = await self.search.find(caller_of(request), query.q, query.limit, query.server)
        tools = [{**_shown(each.tool.definition), "server": each.server.id, "score": each.score} for each in found]
        took_ms = round((time.perf_counter() - started) * 1000, 2)
        return reply(FoundTools(query=query.q, tools=tools, count=len(tools), took_ms=took_ms))

    @describe(errors=(PermissionDenied, Disabled, ServerNotFound), sends=("Deprecation",))
    async def get_openapi(self, request: Request, server_id: str) -> Response:
        """Wait, 5 seconds at most, for a server never seen before."""
        caller = caller_of(request)
        server = self.catalogue.server(caller, server_id)
        await self.catalogue.seen(server)
        tools = [tool.definition for tool in self.catalogue.tools(caller, server)]
        described = OpenApi(document(server, tools, address=self.api, version=version_here()))
        return reply(described, headers=deprecation(self.catalogue, server))

    async def get_registry(self, request: Request) -> Response:
        """Answer in our own shape: this path is nobody's standard."""
        caller = caller_if_any(request)
        return self._told(caller, self.discovery.registry(self.discovery.servers(caller)))

    async def get_ai_catalog(self, request: Request) -> Response:
        """Answer an AI Catalog 1.0."""
        caller = caller_if_any(request)
        return self._told(caller, self.discovery.ai_catalog(self.discovery.servers(caller)))

    @describe(media=(_CARD,))
    async def get_own_card(self, request: Request) -> Response:
        """Answer for `/mcp`."""
        return self._told(caller_if_any(request), self.discovery.own_card(), kind=_CARD)

    @describe(media=(_CARD,), errors=(ServerNotFound,))
    async def get_card(self, request: Request, server_id: str) -> Response:
        """Answer for `/mcp/{server_id}`."""
        caller = caller_if_any(request)
        return self._told(caller, self.discovery.card(self.discovery.server(caller, server_id)), kind=_CARD)

    async def get_entries(self, request: Request, query: Annotated[RegistryQuery, Query()]) -> Response:
        """Answer a page; the order is that of names, so that a cursor stays good when servers come and go."""
        caller = caller_if_any(request)
        named = sorted(
            ((self.discovery.name_of(each.server.id), each) for each in self.discovery.servers(caller)), key=lambda pair: pair[0]
        )
        found = [(name, each) for name, each in named if (query.cursor is None or name > query.cursor) and _fits(name, each, query)]
        page = found[: query.limit]
        metadata: dict[str, object] = {"count": len(page)}
        if len(found) > len(page):
            metadata["nextCursor"] = page[-1][0]
        return self._told(caller, {"servers": [self.discovery.entry(each) for _, each in page], "metadata": metadata})

    async def get_versions(self, request: Request, name: str) -> Response:
        """Answer the one version that each server has."""
        caller = caller_if_any(request)
        return self._told(caller, {"servers": [self.discovery.entry(self._named(caller, name))], "metadata": {"count": 1}})

    async def get_version(self, request: Request, name: str, version: str) -> Response:
        """Answer one version, or the latest."""
        caller = caller_if_any(request)
        entry = self.discovery.entry(self._named(caller, name))
        if version not in {"latest", version_here()}:
            raise NotFound("version", version)
        return self._told(caller, entry)

    @describe(media=("text/html",))
    async def get_servers(self, request: Request) -> Response:
        """Answer a page to a browser, the ServerList to everybody else."""
        caller = caller_if_any(request)
        listed = self.discovery.servers(caller)
        if wants_html(request, default=False):
            return self.pages.show(
                "servers.html",
                organization=self.discovery.organization,
                servers=[{"url": self.discovery.url(each.server.id), "listed": each} for each in listed],
                url=self.discovery.url(),
                is_known=caller is not None,
            )
        answer = ServerList(servers=[_summary(each) for each in listed], count=len(listed))
        return reply(answer, headers=_headers(caller))

    @describe(media=("text/html",), errors=(ServerNotFound,))
    async def get_connect(self, request: Request, query: Annotated[ConnectQuery, Query()]) -> Response:
        """Answer a page, unless JSON is what is asked for."""
        caller = caller_if_any(request)
        listed = None if query.server is None else self.discovery.server(caller, query.server)
        target = self._target(query)
        ways = setups(target)
        if wants_html(request, default=True):
            return self.pages.show(
                "connect.html",
                organization=self.discovery.organization,
                target=target,
                setups=ways,
                server=None if listed is None else listed.server,
                servers=[each.server for each in self.discovery.servers(caller)],
                mode=query.mode,
                key_variable=KEY_VARIABLE,
            )
        answer = ConnectAnswer(
            name=target.name,
            url=target.url,
            api=target.api,
            server=target.server,
            key_variable=KEY_VARIABLE,
            clients=[ClientSetup(**asdict(each)) for each in ways],
        )
        return reply(answer, headers=_headers(caller))

    def _target(self, query: ConnectQuery) -> Target:
        url = self.discovery.url(query.server) + ("" if query.mode is None else f"?mode={query.mode}")
        return Target(name=query.server or "rookery", url=url, api=self.api, server=query.server)

    def _named(self, caller: Caller | None, name: str) -> Listed:
        for each in self.discovery.servers(caller):
            if self.discovery.name_of(each.server.id) == name:
                return each
        raise NotFound("server", name)

    def _told(self, caller: Caller | None, content: JsonObject, *, kind: str | None = None) -> Response:
        response = reply(content, headers=_headers(caller))
        if kind is not None:
            response.headers["content-type"] = kind
        return response


def _headers(caller: Caller | None) -> Mapping[str, str]:
    """Return who may keep an answer; what everybody may see, pages of every site may read."""
    if caller is not None:
        return {"Cache-Control": "private, no-cache", "Vary": "Accept, Authorization, X-API-Key"}
    return {
        "Cache-Control": "public, max-age=60",
        "Vary": "Accept, Authorization, X-API-Key",
        "Access-Control-Allow-Origin": "*",
    }


def _shown(definition: JsonObject) -> JsonObject:
    """Return what a model needs in order to choose and call: what comes back it will see."""
    return {name: definition[name] for name in ("name", "title", "description", "inputSchema", "annotations") if name in definition}


def _fits(name: str, listed: Listed, query: RegistryQuery) -> bool:
    if query.version not in {None, "latest", version_here()}:
        return False
    if query.updated_since is not None and (listed.changed_at is None or listed.changed_at <= query.updated_since):
        return False
    wanted = (query.search or "").casefold()
    return wanted in name.casefold() or wanted in listed.server.name.casefold()


def _summary(listed: Listed) -> ServerSummary:
    server = listed.server
    return ServerSummary(
        id=server.id,
        name=server.name,
        tagline=server.tagline,
        status=server.status.value,
        health=listed.health.value,
        tool_count=listed.tool_count,
        resource_count=listed.resource_count,
        icon=server.icon,
        use_when=server.use_when,
        related_servers=list(listed.related),
    )
