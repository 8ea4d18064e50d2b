"""`/servers`: the servers that a workspace added (D-31), under /api/v1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.access.models import Caller
from rookery.kernel.egress import AddressRefused
from rookery.kernel.errors import Conflict, PermissionDenied
from rookery.kernel.http import Route, allowed_on_full_disk, describe, page, record_made, reply
from rookery.kernel.http.conditional_requests import by_etag, expected, tagged, with_etag
from rookery.kernel.http.pages import Page, PageQuery
from rookery.tools.api import server_shapes as shapes
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import ServerBusy
from rookery.tools.models import Added
from rookery.tools.servers.checking import Checker
from rookery.tools.servers.owned import Owned, OwnedServer
from rookery.tools.supervision.sessions import Sessions

READ, WRITE, DELETE = "servers:read", "servers:write", "servers:delete"


@dataclass(frozen=True, slots=True)
class ServerRoutes:
    """Reads a request, calls one verb, shapes the answer. Decides nothing."""

    owned: Owned
    catalogue: Catalogue
    sessions: Sessions
    checker: Checker

    def routes(self) -> list[Route]:
        """Return the table, one line per endpoint."""
        base, one, tags = "/servers", "/servers/{id}", ("Tool servers",)
        return [
            Route(method="GET", path=base, handler=self.get_servers, needs=READ, answers=Page[shapes.AddedServerAnswer],
                  operation_id="list_added_servers", summary="List the tool servers that the workspace added", tags=tags),
            Route(method="POST", path=base, handler=self.post_server, needs=WRITE, status=201, answers=shapes.AddedServerAnswer,
                  once=True, rebuild=self.get_server, operation_id="add_server",
                  summary="Add a tool server to the workspace", tags=tags),
            Route(method="GET", path=one, handler=self.get_server, needs=READ, answers=shapes.AddedServerAnswer,
                  operation_id="get_added_server", summary="Show a tool server that the workspace added", tags=tags),
            Route(method="PATCH", path=one, handler=self.patch_server, needs=WRITE, answers=shapes.AddedServerAnswer,
                  operation_id="update_added_server", summary="Change a tool server that the workspace added", tags=tags),
            Route(method="DELETE", path=one, handler=self.delete_server, needs=DELETE, status=204,
                  operation_id="remove_server", summary="Remove a tool server that the workspace added", tags=tags),
            Route(method="POST", path=f"{one}/check", handler=self.post_check, needs=WRITE, answers=shapes.CheckAnswer,
                  operation_id="check_server", summary="Check a tool server that the workspace added", tags=tags),
        ]  # fmt: skip

    async def get_servers(self, request: Request, query: Annotated[PageQuery, Query()]) -> Response:
        """List the tool servers that the workspace added over the API, by id. A test key sees those of the sandbox."""
        caller = caller_of(request)
        found = await self.owned.list(caller)
        shown = found[query.offset : query.offset + query.per_page]
        return page(request, [self._answer(caller, each) for each in shown], query=query, total=len(found))

    @with_etag
    @describe(errors=(AddressRefused, Conflict, PermissionDenied))
    async def post_server(self, request: Request, body: shapes.NewServerBody) -> Response:
        """Add a tool server to the workspace. Its tools are listed in the background."""
        caller = caller_of(request)
        record_made(Added, lambda added: added.server_id)
        made = await self.owned.create(caller, body.new())
        self._look_at(made)
        return self._tagged(caller, made, status=201)

    @with_etag
    async def get_server(self, request: Request, id: str) -> Response:
        """
        Return the settings of a tool server. Of its secrets, only the names are returned.

        Its ETag changes with its settings and secrets, not with its health and the number of its tools.
        """
        caller = caller_of(request)
        return self._tagged(caller, await self.owned.get(caller, id))

    @with_etag
    @by_etag
    @describe(errors=(AddressRefused, Conflict, PermissionDenied))
    async def patch_server(self, request: Request, body: shapes.ServerChangeBody, id: str) -> Response:
        """Change settings of a tool server. Fields that are left out keep their value; the next call uses the new settings."""
        caller = caller_of(request)
        changed = await self.owned.change(caller, id, body.change(), expected=expected(request))
        self._look_at(changed)
        return self._tagged(caller, changed)

    @by_etag
    async def delete_server(self, request: Request, id: str) -> Response:
        """Remove a tool server and its secrets. Its calls stay in the log."""
        await self.owned.remove(caller_of(request), id, expected=expected(request))
        return Response(status_code=204)

    @allowed_on_full_disk
    @describe(errors=(ServerBusy,))
    async def post_check(self, request: Request, id: str) -> Response:
        """Connect to a tool server in a separate session and return the tools it lists, or what is wrong."""
        owned = await self.owned.get(caller_of(request), id)
        checked = await self.checker.check(owned.server)
        if checked.error is None:
            self._look_at(owned)
        return reply(
            shapes.CheckAnswer(
                id=checked.server_id,
                ok=checked.error is None,
                error=checked.error,
                advice=checked.advice,
                warnings=list(checked.warnings),
                software=checked.facts.software or None,
                era=checked.facts.era,
                tools=checked.tools,
                took_ms=round(checked.took_ms),
                stderr=list(checked.stderr),
            )
        )

    def _look_at(self, owned: OwnedServer) -> None:
        known = self.catalogue.known(owned.server.key)
        if known is not None:
            self.catalogue.look_at(known)

    def _tagged(self, caller: Caller, owned: OwnedServer, *, status: int = 200) -> Response:
        return tagged(self._answer(caller, owned), owned.added.version, status=status)

    def _answer(self, caller: Caller, owned: OwnedServer) -> shapes.AddedServerAnswer:
        condition, offer = self.sessions.condition(owned.server), self.catalogue.offer(owned.server)
        return shapes.answer(
            owned,
            caller.shown_workspace_id,
            health=condition.health,
            last_error=condition.last_error or None,
            counts=(len(offer.tools), len(offer.resources)),
        )
