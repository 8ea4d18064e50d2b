"""Operations of discovery: published documents, tool search and OpenAPI documents."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from functools import partial

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound
from rookery.kernel.http import DocumentedResponse, Operation, Output, json_response
from rookery.tools.api.listing import READ_SCOPE, SERVER_ERRORS, build_deprecation_headers, to_call_options
from rookery.tools.api.pages import HtmlPages, wants_html
from rookery.tools.catalogue import Catalogue
from rookery.tools.discovery.client_guides import KEY_COMMANDS, KEY_VARIABLE, SEARCH_QUERY, SetupTarget, list_setups
from rookery.tools.discovery.documents import Discovery, ServerListing
from rookery.tools.discovery.documents import get_version as version_here
from rookery.tools.discovery.server_openapi import build_openapi
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.errors import ServerNotFound
from rookery.tools.models import JsonObject
from rookery.tools.schemas import (
    ClientSetup,
    ConnectQuery,
    ConnectResponse,
    OpenApi,
    RegistryQuery,
    ServerList,
    ToolSearchQuery,
    ToolSearchResponse,
)
from rookery.tools.server_info import complete_server

_CARD_MEDIA_TYPE = "application/mcp-server-card+json"
_operation = partial(Operation, method="GET", tags=("Discovery",))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryApi:
    """
    The operations of discovery, in every supported format.

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

    def api_operations(self) -> list[Operation]:
        """Return the operations under {base_url}'s prefix. They always require a key."""
        operation = partial(_operation, required_scope=READ_SCOPE, errors=SERVER_ERRORS)
        return [
            operation(path="/tools/search", handler=self.get_search, response_model=ToolSearchResponse, operation_id="search_tools",
                      summary="Find tools by meaning and by word"),
            operation(path="/servers/{server_id}/openapi.json", handler=self.get_openapi, response_model=OpenApi,
                      operation_id="get_server_openapi", summary="Describe a server's tools in OpenAPI 3.1",
                      request_headers=("X-Session-ID",), response_headers=("Deprecation", "Sunset")),
        ]  # fmt: skip

    def host_operations(self) -> list[Operation]:
        """Return the operations at the root of {mcp_url}."""
        operation = partial(_operation, required_scope=None if self.is_public else READ_SCOPE, public=self.is_public,
                            optional_auth=self.is_public, present=_with_cache_headers)  # fmt: skip
        versions = "/v0.1/servers/{name:path}/versions"
        return [
            operation(path="/.well-known/mcp-servers.json", handler=self.get_registry, operation_id="get_server_registry",
                      summary="List the tool servers in Rookery's own discovery format"),
            operation(path="/.well-known/ai-catalog.json", handler=self.get_ai_catalog, operation_id="get_ai_catalog",
                      summary="List the tool servers as an AI Catalog"),
            operation(path="/mcp/server-card", handler=self.get_own_card, operation_id="get_gateway_card",
                      summary="Show the server card of `/mcp`", media_types=(_CARD_MEDIA_TYPE,)),
            operation(path="/mcp/{server_id}/server-card", handler=self.get_card, operation_id="get_server_card",
                      summary="Show the server card of one tool server", media_types=(_CARD_MEDIA_TYPE,), errors=(ServerNotFound,)),
            operation(path="/v0.1/servers", handler=self.get_entries, operation_id="list_registry_servers",
                      summary="List the tool servers in the format of the MCP registry"),
            operation(path=versions, handler=self.get_versions, operation_id="list_registry_versions",
                      summary="List a server's versions in the format of the MCP registry"),
            operation(path=f"{versions}/{{version}}", handler=self.get_version, operation_id="get_registry_version",
                      summary="Show a server's version in the format of the MCP registry"),
            operation(path="/servers", handler=self.get_servers, response_model=ServerList, operation_id="browse_servers",
                      summary="Show the tool servers as a page or as JSON", media_types=("text/html",)),
            operation(path="/connect", handler=self.get_connect, response_model=ConnectResponse, operation_id="get_connect_guide",
                      summary="Show how to connect an MCP client", media_types=("text/html",), errors=(ServerNotFound,),
                      responses={404: DocumentedResponse(description="A page about the error.", media_types=("text/html",))}),
        ]  # fmt: skip

    async def get_search(self, caller: Caller, query: ToolSearchQuery) -> ToolSearchResponse:
        """Return the tools that fit a description best, compared by meaning and by words. No tool server is contacted."""
        started = time.perf_counter()
        matches = await self.search.find(caller, query.q, query.limit, query.server)
        tools = [{**_select_fields(match.tool.definition), "server": match.server.id, "score": match.score} for match in matches]
        took_ms = round((time.perf_counter() - started) * 1000)
        return ToolSearchResponse(query=query.q, tools=tools, count=len(tools), took_ms=took_ms)

    async def get_openapi(self, caller: Caller, request: Request, server_id: str) -> Output:
        """
        Return an OpenAPI 3.1 document with one operation per tool of the server.

        Waits up to 5 seconds if the server was never listed before.
        """
        server = self.catalogue.get_server(caller, server_id)
        options = to_call_options(request)
        await self.catalogue.wait_listed(server, caller, options)
        tools = [tool.definition for tool in self.catalogue.list_tools(caller, server, options.session_id)]
        described = complete_server(server, self.catalogue.get_features(server, caller, options.session_id))
        document = OpenApi(build_openapi(described, tools, address=self.api, version=version_here()))
        return Output(body=document, headers=build_deprecation_headers(self.catalogue, server))

    async def get_registry(self, caller: Caller | None) -> JsonObject:
        """Return the tool servers that this key, or a caller without a key, may discover."""
        return self.discovery.build_registry(self.discovery.list_servers(caller))

    async def get_ai_catalog(self, caller: Caller | None) -> JsonObject:
        """Return the tool servers in the format of AI Catalog 1.0."""
        return self.discovery.build_ai_catalog(self.discovery.list_servers(caller))

    async def get_own_card(self, caller: Caller | None) -> Response:
        """Return the MCP server card of `/mcp`, which serves the tools of all servers."""
        return _card_response(caller, self.discovery.build_gateway_card())

    async def get_card(self, caller: Caller | None, server_id: str) -> Response:
        """Return the MCP server card of `/mcp/{server_id}`, which serves the tools of one server."""
        return _card_response(caller, self.discovery.build_card(self.discovery.get_server(caller, server_id)))

    async def get_entries(self, caller: Caller | None, query: RegistryQuery) -> JsonObject:
        """
        Return a page of tool servers in the format of the official MCP registry, ordered by name.

        `cursor` continues after the last one.
        """
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
        return {"servers": [self.discovery.build_registry_entry(listing) for _, listing in page], "metadata": metadata}

    async def get_versions(self, caller: Caller | None, name: str) -> JsonObject:
        """Return the versions of a tool server. Each server has one."""
        return {"servers": [self.discovery.build_registry_entry(self._get_by_registry_name(caller, name))], "metadata": {"count": 1}}

    async def get_version(self, caller: Caller | None, name: str, version: str) -> JsonObject:
        """Return one version of a tool server, or the latest."""
        entry = self.discovery.build_registry_entry(self._get_by_registry_name(caller, name))
        if version not in {"latest", version_here()}:
            raise NotFound("version", version)
        return entry

    async def get_servers(self, caller: Caller | None, request: Request) -> ServerList | Response:
        """Return the list of tool servers as JSON, or as an HTML page if `Accept` names `text/html`, as browsers do."""
        listings = self.discovery.list_servers(caller)
        if wants_html(request):
            return self.pages.render(
                "servers.html",
                organization=self.discovery.organization,
                servers=[{"url": self.discovery.get_mcp_url(listing.server.id), "listed": listing} for listing in listings],
                url=self.discovery.get_mcp_url(),
                is_known=caller is not None,
            )
        return ServerList.from_listings(listings)

    async def get_connect(self, caller: Caller | None, request: Request, query: ConnectQuery) -> ConnectResponse | Response:
        """Return the set-up of each supported MCP client as JSON, or as an HTML page if `Accept` names `text/html`, as browsers do."""
        try:
            listing = None if query.server is None else self.discovery.get_server(caller, query.server)
        except ServerNotFound as error:
            page = self.pages.render_error(request, error)
            if page is None:
                raise
            return page
        url = self.discovery.get_mcp_url(query.server) + ("" if query.mode is None else f"?mode={query.mode}")
        target = SetupTarget(name=query.server or "rookery", url=url, api=self.api, server=query.server)
        setups = list_setups(target)
        search_url = f"{self.discovery.get_mcp_url(query.server)}{SEARCH_QUERY}"
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
        return ConnectResponse(
            **asdict(target),
            search_url=search_url,
            key_variable=KEY_VARIABLE,
            key_commands=KEY_COMMANDS,
            clients=[ClientSetup.model_validate(setup, from_attributes=True) for setup in setups],
        )

    def _get_by_registry_name(self, caller: Caller | None, name: str) -> ServerListing:
        for listing in self.discovery.list_servers(caller):
            if self.discovery.get_registry_name(listing.server.id) == name:
                return listing
        raise NotFound("server", name)


def _with_cache_headers(caller: Caller | None, content: BaseModel | JsonObject) -> Output:
    """Return a response with its cache headers. Public responses may be cached by anyone and read by pages of any site."""
    headers = {"Cache-Control": "private, no-cache", "Vary": "Accept, Authorization, X-API-Key"}
    if caller is None:
        headers |= {"Cache-Control": "public, max-age=60", "Access-Control-Allow-Origin": "*"}
    return Output(body=content, headers=headers)


def _card_response(caller: Caller | None, card: JsonObject) -> Response:
    """Return a card, with the content type of cards."""
    response = json_response(card, headers=_with_cache_headers(caller, card).headers)
    response.headers["content-type"] = _CARD_MEDIA_TYPE
    return response


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
