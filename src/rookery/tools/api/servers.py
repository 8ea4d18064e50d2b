"""Operations on `/servers`: the servers that a workspace added, under /api/v1."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial

from starlette.requests import Request

from rookery.access.guard import get_caller
from rookery.access.models import Caller
from rookery.kernel.egress import AddressRefused
from rookery.kernel.errors import Conflict, NotFound, NotInAllowList, PermissionDenied
from rookery.kernel.http import ItemPage, Operation, Output, store_created_id
from rookery.kernel.pages import slice_sorted
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import Page, PageQuery, RequestModel
from rookery.kernel.unset import value_or
from rookery.tools.api import server_schemas as schemas
from rookery.tools.api.listing import to_call_options
from rookery.tools.catalogue import Catalogue
from rookery.tools.catalogue_tool import is_tool_allowed, list_tool_names
from rookery.tools.errors import ServerBusy, ServerNotAdded, ServerNotFound, ToolDisabled
from rookery.tools.models import JsonObject, Server, SessionIsolation, StoredServer
from rookery.tools.servers.kill_switch import KillSwitch
from rookery.tools.servers.registry import is_server_allowed
from rookery.tools.servers.server_check import ServerChecker, ServerCheckResult
from rookery.tools.servers.workspace_servers import WorkspaceServer, WorkspaceServers
from rookery.tools.supervision.session_pool import SessionPool

READ_SCOPE, WRITE_SCOPE, DELETE_SCOPE = "servers:read", "servers:write", "servers:delete"

_operation = partial(Operation, tags=("Tool servers",))


@dataclass(frozen=True, slots=True)
class WorkspaceServerApi:
    """The operations on added servers. Each handler calls one service."""

    workspace_servers: WorkspaceServers
    catalogue: Catalogue
    sessions: SessionPool
    checker: ServerChecker
    kill_switch: KillSwitch

    def operations(self) -> list[Operation]:
        """Return the operations."""
        base, one = "/servers", "/servers/{id}"
        server = partial(_operation, present=self._present, response_model=schemas.AddedServerResponse, etag=True)
        changes = (AddressRefused, Conflict, PermissionDenied)
        return [
            _operation(method="GET", path=base, handler=self.get_servers, present=self._present, required_scope=READ_SCOPE,
                       response_model=Page[schemas.AddedServerResponse], operation_id="list_added_servers",
                       summary="List the tool servers that the workspace added"),
            server(method="POST", path=base, handler=self.post_server, required_scope=WRITE_SCOPE, status=201, idempotent=True,
                   rebuild_response=self._load, operation_id="add_server", summary="Add a tool server to the workspace",
                   errors=changes),
            server(method="GET", path=one, handler=self.get_server, required_scope=READ_SCOPE, operation_id="get_added_server",
                   summary="Show a tool server that the workspace added"),
            server(method="PATCH", path=one, handler=self.patch_server, required_scope=WRITE_SCOPE,
                   operation_id="update_added_server", summary="Change a tool server that the workspace added", errors=changes),
            _operation(method="DELETE", path=one, handler=self.delete_server, required_scope=DELETE_SCOPE, status=204,
                       operation_id="remove_server", summary="Remove a tool server that the workspace added"),
            _operation(method="POST", path=f"{one}/check", handler=self.post_check, required_scope=WRITE_SCOPE,
                       response_model=schemas.CheckResponse, operation_id="check_server",
                       summary="Check a tool server", errors=(ServerBusy, ToolDisabled), allowed_on_full_disk=True),
        ]  # fmt: skip

    async def get_servers(self, caller: Caller, query: PageQuery) -> ItemPage[WorkspaceServer]:
        """List the tool servers that the workspace added over the API, by id. A test key sees those of the sandbox."""
        servers = await self.workspace_servers.list_servers(caller)
        return ItemPage(*slice_sorted(servers, query.slice, lambda server: (server.stored.server_id,)))

    async def post_server(self, caller: Caller, body: schemas.NewServerBody) -> WorkspaceServer:
        """Add a tool server to the workspace. Its tools are listed in the background."""
        store_created_id(StoredServer, lambda stored_server: stored_server.server_id)
        return self._refresh(await self.workspace_servers.create(caller, body.id, _to_entry(body), body.secrets))

    async def get_server(self, caller: Caller, id: str) -> WorkspaceServer:
        """
        Return the settings of a tool server. Of its secrets, only the names are returned.

        Its ETag changes with its settings and secrets, not with its health and the number of its tools.
        """
        with self._explain_missing(caller, id):
            return await self.workspace_servers.get(caller, id)

    async def patch_server(self, caller: Caller, id: str, body: schemas.ServerChangeBody, expected: ExpectedETags) -> WorkspaceServer:
        """Change settings of a tool server. Fields that are left out keep their value; the next call uses the new settings."""
        with self._explain_missing(caller, id):
            return self._refresh(
                await self.workspace_servers.change(caller, id, _to_entry(body), value_or(body.secrets, {}), expected=expected)
            )

    async def delete_server(self, caller: Caller, id: str, expected: ExpectedETags) -> None:
        """Remove a tool server and its secrets. Its calls stay in the log."""
        with self._explain_missing(caller, id):
            await self.workspace_servers.remove(caller, id, expected=expected)

    async def post_check(self, caller: Caller, request: Request, id: str) -> ServerCheckResult:
        """
        Connect to a tool server in a separate session and return the tools it lists, or what is wrong.

        Any server that the key may use can be checked: one that the workspace added, or one of the installation. Headers of the request
        that the entry forwards (`forward_headers`) are sent to the server.
        """
        server = await self._find_usable(caller, id)
        shares_session = server.owner is None and server.isolation is SessionIsolation.SHARED
        opener = to_call_options(request).to_request_options(server, caller, on_progress=None)
        result = await self.checker.check(server, workspace_id=None if shares_session else caller.workspace_id, opener=opener)
        if result.error is None:
            self._refresh_features(server)
        return replace(result, tool_names=[name for name in result.tool_names if is_tool_allowed(caller, server.id, name)])

    async def _find_usable(self, caller: Caller, server_id: str) -> Server:
        """Return a server that the workspace added, or else one of the installation that the key may use."""
        try:
            return (await self.workspace_servers.get(caller, server_id)).server
        except NotFound as missing:
            try:
                server = self.catalogue.get_server(caller, server_id)
            except (NotInAllowList, ServerNotFound):
                raise missing from None
        await self.kill_switch.require_enabled(caller, server.id)
        return server

    @contextmanager
    def _explain_missing(self, caller: Caller, server_id: str) -> Generator[None]:
        """Say of a server of the installation that its settings are the operator's."""
        try:
            yield
        except NotFound:
            server = self.catalogue.find_server(caller, server_id)
            if server is None or server.owner is not None or not is_server_allowed(caller, server_id):
                raise
            raise ServerNotAdded(server_id) from None

    async def _load(self, request: Request, server_id: str) -> WorkspaceServer:
        """Return a server whose process exited before the response was stored."""
        return await self.workspace_servers.get(get_caller(request), server_id)

    def _refresh(self, workspace_server: WorkspaceServer) -> WorkspaceServer:
        """List the server's features in the background. Return *workspace_server*."""
        self._refresh_features(workspace_server.server)
        return workspace_server

    def _refresh_features(self, server: Server) -> None:
        catalogue_server = self.catalogue.find_by_key(server.key)
        if catalogue_server is not None:
            self.catalogue.refresh(catalogue_server)

    def _present(self, caller: Caller, workspace_server: WorkspaceServer) -> Output:
        """Return a server for its owners: the entry as written, with the values of the server for omitted fields."""
        server, stored = workspace_server.server, workspace_server.stored
        health_state, features = self.sessions.get_shown_health(server, caller.workspace_id), self.catalogue.get_features(server)
        content = {
            **{field.name: getattr(server, field.name) for field in fields(server)},
            "auth": None,
            "roots": None,
            **stored.entry,
            "name": stored.entry.get("name") or stored.server_id,
            "max_concurrency": stored.entry.get("max_concurrency") or (1 if stored.entry.get("command") else server.call_limit),
            "id": stored.server_id,
            "workspace_id": caller.public_workspace_id,
            "type": "stdio" if stored.entry.get("command") else stored.entry.get("type") or "http",
            "secrets": workspace_server.secret_names,
            "health": health_state.health,
            "last_error": server.fault or health_state.last_error or None,
            "tool_count": len(list_tool_names(server, features)),
            "resource_count": len(features.resources),
            "created_at": stored.created_at,
            "updated_at": stored.updated_at,
        }
        return Output(body=schemas.AddedServerResponse.model_validate(content), version=stored.version)


def _to_entry(body: RequestModel) -> JsonObject:
    """Return the given fields, in the form of a file's entry."""
    return body.model_dump(exclude={"id", "secrets"})
