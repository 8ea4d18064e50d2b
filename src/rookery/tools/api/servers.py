"""Routes of `/servers`: the servers that a workspace added (D-31), under /api/v1."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import get_caller
from rookery.access.models import Caller
from rookery.kernel.egress import AddressRefused
from rookery.kernel.errors import Conflict, PermissionDenied
from rookery.kernel.http import Operation, allowed_on_full_disk, document_route, json_response, page_response, store_created_id
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag
from rookery.kernel.schema import Page, PageQuery
from rookery.tools.api import server_schemas as shapes
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import ServerBusy
from rookery.tools.models import StoredServer
from rookery.tools.servers.server_check import ServerChecker
from rookery.tools.servers.workspace_servers import WorkspaceServer, WorkspaceServers
from rookery.tools.supervision.session_pool import SessionPool

READ_SCOPE, WRITE_SCOPE, DELETE_SCOPE = "servers:read", "servers:write", "servers:delete"


@dataclass(frozen=True, slots=True)
class WorkspaceServerRoutes:
    """Parses requests, calls one service each and builds the responses."""

    workspace_servers: WorkspaceServers
    catalogue: Catalogue
    sessions: SessionPool
    checker: ServerChecker

    def routes(self) -> list[Operation]:
        """Return the routes, one line per endpoint."""
        base, server_path, tags = "/servers", "/servers/{id}", ("Tool servers",)
        return [
            Operation(method="GET", path=base, handler=self.get_servers, required_scope=READ_SCOPE,
                  response_model=Page[shapes.AddedServerResponse],
                  operation_id="list_added_servers", summary="List the tool servers that the workspace added", tags=tags),
            Operation(method="POST", path=base, handler=self.post_server, required_scope=WRITE_SCOPE, status=201,
                  response_model=shapes.AddedServerResponse, idempotent=True, rebuild_response=self.get_server, operation_id="add_server",
                  summary="Add a tool server to the workspace", tags=tags),
            Operation(method="GET", path=server_path, handler=self.get_server, required_scope=READ_SCOPE,
                  response_model=shapes.AddedServerResponse, operation_id="get_added_server",
                  summary="Show a tool server that the workspace added", tags=tags),
            Operation(method="PATCH", path=server_path, handler=self.patch_server, required_scope=WRITE_SCOPE,
                  response_model=shapes.AddedServerResponse,
                  operation_id="update_added_server", summary="Change a tool server that the workspace added", tags=tags),
            Operation(method="DELETE", path=server_path, handler=self.delete_server, required_scope=DELETE_SCOPE, status=204,
                  operation_id="remove_server", summary="Remove a tool server that the workspace added", tags=tags),
            Operation(method="POST", path=f"{server_path}/check", handler=self.post_check, required_scope=WRITE_SCOPE,
                  response_model=shapes.CheckResponse,
                  operation_id="check_server", summary="Check a tool server that the workspace added", tags=tags),
        ]  # fmt: skip

    async def get_servers(self, request: Request, query: PageQuery) -> Response:
        """List the tool servers that the workspace added over the API, by id. A test key sees those of the sandbox."""
        caller = get_caller(request)
        servers = await self.workspace_servers.list_servers(caller)
        page = servers[query.offset : query.offset + query.per_page]
        return page_response(request, [self._to_response(caller, server) for server in page], query=query, total=len(servers))

    @with_etag
    @document_route(errors=(AddressRefused, Conflict, PermissionDenied))
    async def post_server(self, request: Request, body: shapes.NewServerBody) -> Response:
        """Add a tool server to the workspace. Its tools are listed in the background."""
        caller = get_caller(request)
        store_created_id(StoredServer, lambda stored_server: stored_server.server_id)
        workspace_server = await self.workspace_servers.create(caller, body.to_request())
        self._refresh(workspace_server)
        return self._json_with_etag(caller, workspace_server, status=201)

    @with_etag
    async def get_server(self, request: Request, id: str) -> Response:
        """
        Return the settings of a tool server. Of its secrets, only the names are returned.

        Its ETag changes with its settings and secrets, not with its health and the number of its tools.
        """
        caller = get_caller(request)
        return self._json_with_etag(caller, await self.workspace_servers.get(caller, id))

    @with_etag
    @by_etag
    @document_route(errors=(AddressRefused, Conflict, PermissionDenied))
    async def patch_server(self, request: Request, body: shapes.ServerChangeBody, id: str) -> Response:
        """Change settings of a tool server. Fields that are left out keep their value; the next call uses the new settings."""
        caller = get_caller(request)
        workspace_server = await self.workspace_servers.change(caller, id, body.to_change(), expected=read_if_match(request))
        self._refresh(workspace_server)
        return self._json_with_etag(caller, workspace_server)

    @by_etag
    async def delete_server(self, request: Request, id: str) -> Response:
        """Remove a tool server and its secrets. Its calls stay in the log."""
        await self.workspace_servers.remove(get_caller(request), id, expected=read_if_match(request))
        return Response(status_code=204)

    @allowed_on_full_disk
    @document_route(errors=(ServerBusy,))
    async def post_check(self, request: Request, id: str) -> Response:
        """Connect to a tool server in a separate session and return the tools it lists, or what is wrong."""
        workspace_server = await self.workspace_servers.get(get_caller(request), id)
        result = await self.checker.check(workspace_server.server)
        if result.error is None:
            self._refresh(workspace_server)
        return json_response(
            shapes.CheckResponse(
                id=result.server_id,
                ok=result.error is None,
                error=result.error,
                advice=result.advice,
                warnings=list(result.warnings),
                software=result.info.software or None,
                era=result.info.protocol_version,
                tools=result.tool_names,
                took_ms=round(result.took_ms),
                stderr=list(result.stderr),
            )
        )

    def _refresh(self, workspace_server: WorkspaceServer) -> None:
        catalogue_server = self.catalogue.find_by_key(workspace_server.server.key)
        if catalogue_server is not None:
            self.catalogue.refresh_in_background(catalogue_server)

    def _json_with_etag(self, caller: Caller, workspace_server: WorkspaceServer, *, status: int = 200) -> Response:
        return json_with_etag(self._to_response(caller, workspace_server), workspace_server.stored.version, status=status)

    def _to_response(self, caller: Caller, workspace_server: WorkspaceServer) -> shapes.AddedServerResponse:
        health_state, features = (
            self.sessions.get_health_state(workspace_server.server),
            self.catalogue.get_features(workspace_server.server),
        )
        return shapes.to_workspace_server_response(
            workspace_server,
            caller.public_workspace_id,
            health=health_state.health,
            last_error=health_state.last_error or None,
            counts=(len(features.tools), len(features.resources)),
        )
