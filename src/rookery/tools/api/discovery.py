"""Routes of discovery: published documents (D-35), tool search and OpenAPI documents (D-37)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import find_caller, get_caller
from rookery.access.models import Caller
from rookery.kernel.errors import NotFound, PermissionDenied
from rookery.kernel.http import Operation, document_route, json_response
from rookery.kernel.http.routes import Handler
from rookery.tools.api.listing import READ_SCOPE, build_deprecation_headers
from rookery.tools.api.pages import HtmlPages, wants_html
from rookery.tools.catalogue import Catalogue
from rookery.tools.discovery.client_guides import KEY_COMMANDS, KEY_VARIABLE, SetupTarget, list_setups
from rookery.tools.discovery.documents import Discovery, ServerListing
from rookery.tools.discovery.documents import get_version as version_here
from rookery.tools.discovery.server_openapi import build_openapi
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.errors import ServerNotFound, ToolDisabled
from rookery.tools.models import JsonObject
from rookery.tools.schemas import (
    ClientSetup,
    ConnectQuery,
    ConnectResponse,
    OpenApi,
    RegistryQuery,
    ServerList,
    ServerSummary,
    ToolSearchQuery,
    ToolSearchResponse,
)

_CARD_MEDIA_TYPE = "application/mcp-server-card+json"
_TAGS = ("Discovery",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryRoutes:
    """
    The routes of discovery, in every supported format.

    Attributes:
        api: The base URL of the HTTP API, with its prefix. It never comes from a request.
        is_public: No key is required. A key that is sent is checked nevertheless and decides what is visible.
    """

    catalogue: Catalogue
    discovery: Discovery
    search: ToolSearch
    api: str
    is_public: bool
    pages: HtmlPages = field(default_factory=HtmlPages)

    def api_routes(self) -> list[Operation]:
        """Return the routes under {base_url}'s prefix. They always require a key."""
        return [
            Operation(
                method="GET",
                path="/tools/search",
                handler=self.get_search,
                required_scope=READ_SCOPE,
                response_model=ToolSearchResponse,
                operation_id="search_tools",
                summary="Find tools by meaning and by word",
                tags=_TAGS,
            ),
            Operation(
                method="GET",
                path="/servers/{server_id}/openapi.json",
                handler=self.get_openapi,
                required_scope=READ_SCOPE,
                response_model=OpenApi,
                operation_id="get_server_openapi",
                summary="Describe a server's tools in OpenAPI 3.1",
                tags=_TAGS,
            ),
        ]

    def host_routes(self) -> list[Operation]:
        """Return the routes at the root of {mcp_url}."""
        definitions: list[tuple[str, Handler, str, str, type[BaseModel] | None]] = [
            (
                "/.well-known/mcp-servers.json",
                self.get_registry,
                "get_server_registry",
                "List the tool servers in Rookery's own discovery format",
                None,
            ),
            ("/.well-known/ai-catalog.json", self.get_ai_catalog, "get_ai_catalog", "List the tool servers as an AI Catalog", None),
            ("/mcp/server-card", self.get_own_card, "get_gateway_card", "Show the server card of `/mcp`", None),
            ("/mcp/{server_id}/server-card", self.get_card, "get_server_card", "Show the server card of one tool server", None),
            ("/v0.1/servers", self.get_entries, "list_registry_servers", "List the tool servers in the format of the MCP registry", None),
            (
                "/v0.1/servers/{name:path}/versions",
                self.get_versions,
                "list_registry_versions",
                "List a server's versions in the format of the MCP registry",
                None,
            ),
            (
                "/v0.1/servers/{name:path}/versions/{version}",
                self.get_version,
                "get_registry_version",
                "Show a server's version in the format of the MCP registry",
                None,
            ),
            ("/servers", self.get_servers, "browse_servers", "Show the tool servers as a page or as JSON", ServerList),
            ("/connect", self.get_connect, "get_connect_guide", "Show how to connect an MCP client", ConnectResponse),
        ]
        return [
            Operation(
                method="GET",
                path=path,
                handler=handler,
                required_scope=None if self.is_public else READ_SCOPE,
                public=self.is_public,
                optional_auth=self.is_public,
                response_model=response_model,
                operation_id=operation_id,
                summary=summary,
                tags=_TAGS,
            )
            for path, handler, operation_id, summary, response_model in definitions
        ]

    @document_route(errors=(PermissionDenied, ToolDisabled, ServerNotFound))
    async def get_search(self, request: Request, query: ToolSearchQuery) -> Response:
        """Return the tools that fit a description best, compared by meaning and by words. No tool server is contacted."""
        started = time.perf_counter()
        matches = await self.search.find(get_caller(request), query.q, query.limit, query.server)
        tools = [{**_select_fields(match.tool.definition), "server": match.server.id, "score": match.score} for match in matches]
        took_ms = round((time.perf_counter() - started) * 1000)
        return json_response(ToolSearchResponse(query=query.q, tools=tools, count=len(tools), took_ms=took_ms))

    @document_route(errors=(PermissionDenied, ToolDisabled, ServerNotFound), response_headers=("Deprecation", "Sunset"))
    async def get_openapi(self, request: Request, server_id: str) -> Response:
        """
        Return an OpenAPI 3.1 document with one operation per tool of the server.

        Waits up to 5 seconds if the server was never listed before.
        """
        caller = get_caller(request)
        server = self.catalogue.get_server(caller, server_id)
        await self.catalogue.wait_listed(server)
        tools = [tool.definition for tool in self.catalogue.list_tools(caller, server)]
        document = OpenApi(build_openapi(server, tools, address=self.api, version=version_here()))
        return json_response(document, headers=build_deprecation_headers(self.catalogue, server))

    async def get_registry(self, request: Request) -> Response:
        """Return the tool servers that this key, or a caller without a key, may discover."""
        caller = find_caller(request)
        return self._reply(caller, self.discovery.build_registry(self.discovery.list_servers(caller)))

    async def get_ai_catalog(self, request: Request) -> Response:
        """Return the tool servers in the format of AI Catalog 1.0."""
        caller = find_caller(request)
        return self._reply(caller, self.discovery.build_ai_catalog(self.discovery.list_servers(caller)))

    @document_route(media_types=(_CARD_MEDIA_TYPE,))
    async def get_own_card(self, request: Request) -> Response:
        """Return the MCP server card of `/mcp`, which serves the tools of all servers."""
        return self._reply(find_caller(request), self.discovery.build_gateway_card(), kind=_CARD_MEDIA_TYPE)

    @document_route(media_types=(_CARD_MEDIA_TYPE,), errors=(ServerNotFound,))
    async def get_card(self, request: Request, server_id: str) -> Response:
        """Return the MCP server card of `/mcp/{server_id}`, which serves the tools of one server."""
        caller = find_caller(request)
        return self._reply(caller, self.discovery.build_card(self.discovery.get_server(caller, server_id)), kind=_CARD_MEDIA_TYPE)

    async def get_entries(self, request: Request, query: RegistryQuery) -> Response:
        """
        Return a page of tool servers in the format of the official MCP registry, ordered by name.

        `cursor` continues after the last one.
        """
        caller = find_caller(request)
        named_listings = sorted(
            ((self.discovery.get_registry_name(listing.server.id), listing) for listing in self.discovery.list_servers(caller)),
            key=lambda pair: pair[0],
        )
        listings = [
            (name, listing)
            for name, listing in named_listings
            if (query.cursor is None or name > query.cursor) and _matches(name, listing, query)
        ]
        page = listings[: query.limit]
        metadata: dict[str, object] = {"count": len(page)}
        if len(listings) > len(page):
            metadata["nextCursor"] = page[-1][0]
        return self._reply(caller, {"servers": [self.discovery.build_registry_entry(listing) for _, listing in page], "metadata": metadata})

    async def get_versions(self, request: Request, name: str) -> Response:
        """Return the versions of a tool server. Each server has one."""
        caller = find_caller(request)
        return self._reply(
            caller, {"servers": [self.discovery.build_registry_entry(self._get_by_registry_name(caller, name))], "metadata": {"count": 1}}
        )

    async def get_version(self, request: Request, name: str, version: str) -> Response:
        """Return one version of a tool server, or the latest."""
        caller = find_caller(request)
        entry = self.discovery.build_registry_entry(self._get_by_registry_name(caller, name))
        if version not in {"latest", version_here()}:
            raise NotFound("version", version)
        return self._reply(caller, entry)

    @document_route(media_types=("text/html",))
    async def get_servers(self, request: Request) -> Response:
        """Return the list of tool servers as JSON, or as an HTML page if `Accept` names `text/html`, as browsers do."""
        caller = find_caller(request)
        listings = self.discovery.list_servers(caller)
        if wants_html(request):
            return self.pages.render(
                "servers.html",
                organization=self.discovery.organization,
                servers=[{"url": self.discovery.get_mcp_url(listing.server.id), "listed": listing} for listing in listings],
                url=self.discovery.get_mcp_url(),
                is_known=caller is not None,
            )
        content = ServerList(servers=[_to_summary(listing) for listing in listings], count=len(listings))
        return json_response(content, headers=_build_cache_headers(caller))

    @document_route(media_types=("text/html",), errors=(ServerNotFound,))
    async def get_connect(self, request: Request, query: ConnectQuery) -> Response:
        """Return the set-up of each supported MCP client as JSON, or as an HTML page if `Accept` names `text/html`, as browsers do."""
        caller = find_caller(request)
        listing = None if query.server is None else self.discovery.get_server(caller, query.server)
        target = self._build_target(query)
        setups = list_setups(target)
        search_url = f"{self.discovery.get_mcp_url(query.server)}?mode=search"
        if wants_html(request):
            return self.pages.render(
                "connect.html",
                organization=self.discovery.organization,
                target=target,
                setups=setups,
                server=None if listing is None else listing.server,
                servers=[listing.server for listing in self.discovery.list_servers(caller)],
                mode=query.mode,
                search_url=search_url,
                key_variable=KEY_VARIABLE,
                key_commands=KEY_COMMANDS,
            )
        content = ConnectResponse(
            name=target.name,
            url=target.url,
            search_url=search_url,
            api=target.api,
            server=target.server,
            key_variable=KEY_VARIABLE,
            key_commands=KEY_COMMANDS,
            clients=[ClientSetup(**asdict(setup)) for setup in setups],
        )
        return json_response(content, headers=_build_cache_headers(caller))

    def _build_target(self, query: ConnectQuery) -> SetupTarget:
        url = self.discovery.get_mcp_url(query.server) + ("" if query.mode is None else f"?mode={query.mode}")
        return SetupTarget(name=query.server or "rookery", url=url, api=self.api, server=query.server)

    def _get_by_registry_name(self, caller: Caller | None, name: str) -> ServerListing:
        for listing in self.discovery.list_servers(caller):
            if self.discovery.get_registry_name(listing.server.id) == name:
                return listing
        raise NotFound("server", name)

    def _reply(self, caller: Caller | None, content: JsonObject, *, kind: str | None = None) -> Response:
        response = json_response(content, headers=_build_cache_headers(caller))
        if kind is not None:
            response.headers["content-type"] = kind
        return response


def _build_cache_headers(caller: Caller | None) -> Mapping[str, str]:
    """Return the cache headers of a response. Public responses may be cached by anyone and read by pages of any site."""
    if caller is not None:
        return {"Cache-Control": "private, no-cache", "Vary": "Accept, Authorization, X-API-Key"}
    return {
        "Cache-Control": "public, max-age=60",
        "Vary": "Accept, Authorization, X-API-Key",
        "Access-Control-Allow-Origin": "*",
    }


def _select_fields(definition: JsonObject) -> JsonObject:
    """Return the fields that a model needs to select and call a tool. The output schema is omitted."""
    return {name: definition[name] for name in ("name", "title", "description", "inputSchema", "annotations") if name in definition}


def _matches(name: str, listing: ServerListing, query: RegistryQuery) -> bool:
    if query.version not in {None, "latest", version_here()}:
        return False
    if query.updated_since is not None and (listing.changed_at is None or listing.changed_at <= query.updated_since):
        return False
    search = (query.search or "").casefold()
    return search in name.casefold() or search in listing.server.name.casefold()


def _to_summary(listing: ServerListing) -> ServerSummary:
    server = listing.server
    return ServerSummary(
        id=server.id,
        name=server.name,
        tagline=server.tagline,
        status=server.status.value,
        health=listing.health.value,
        tool_count=listing.tool_count,
        resource_count=listing.resource_count,
        icon=server.icon,
        use_when=server.use_when,
        related_servers=list(listing.related),
    )
