"""The sessions of the older era, by the SDK's manager of them; whose they are is counted here."""

from __future__ import annotations

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from rookery.access.models import Caller
from rookery.tools.errors import TooManySessions
from rookery.tools.gateway.catalogue_views import GatewayView

MAX_SESSIONS = 1000
MAX_SESSIONS_PER_KEY = 100
MAX_SESSIONS_PER_WORKSPACE = 250


class ClientSessionManager(StreamableHTTPSessionManager):
    """
    Binds a session to its key and address, and leaves room for others'.

    Here and not where `initialize` is handled: by then the SDK has a session, and keeps it for half an hour though it was refused.
    """

    async def end_session(self, session_id: str) -> None:
        """End a session whose key is no longer good."""
        transport = self._server_instances.get(session_id)
        if transport is not None:
            await self._discard_session(session_id, transport)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if requestor is not None:
            workspace, _, key = requestor["client_id"].partition("/")
            owners = [each["client_id"].partition("/") for each in self._session_owners.values()]
            if sum(owner[2] == key for owner in owners) >= MAX_SESSIONS_PER_KEY:
                raise TooManySessions(f"This key has {MAX_SESSIONS_PER_KEY} MCP sessions open; end some (DELETE), or let them idle out.")
            if sum(owner[0] == workspace for owner in owners) >= MAX_SESSIONS_PER_WORKSPACE:
                raise TooManySessions(f"The keys of this workspace have {MAX_SESSIONS_PER_WORKSPACE} MCP sessions open; end some (DELETE).")
        transport = super()._admit_session(requestor)
        if transport is None:
            raise TooManySessions("Too many MCP sessions are open here; try again later.")
        return transport


def build_user(caller: Caller, view: GatewayView) -> AuthenticatedUser:
    """Return by what a session is bound to the key that opened it, and to the address: to any other it is not there."""
    owner = f"{caller.public_workspace_id}/{caller.key_id}"
    return AuthenticatedUser(AccessToken(token=caller.key_id, client_id=owner, scopes=[], subject=str(view)))
