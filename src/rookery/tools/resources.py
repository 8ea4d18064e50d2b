"""Read resources and prompts of upstreams by the gateway's names (D-30)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import (
    ConnectFailed,
    ConnectionLost,
    PromptFailed,
    PromptNotFound,
    ResourceFailed,
    ServerNotFound,
    ServerUnavailable,
    UpstreamError,
    UpstreamRefused,
)
from rookery.tools.models import JsonObject, Server
from rookery.tools.ports import Asking, Method
from rookery.tools.sessions import Sessions
from rookery.tools.uris import gateway_uri, server_of, upstream_uris

_NO_SUCH = frozenset({-32002, -32602, -32601})
"""How upstreams say that they have no such resource or prompt: not found, invalid params, and method not found."""


class Resources:
    """Reads what is not a tool."""

    def __init__(self, catalogue: Catalogue, sessions: Sessions) -> None:
        self._catalogue = catalogue
        self._sessions = sessions

    def listed(self, server: Server) -> list[JsonObject]:
        """Return the resources of *server* by the gateway's uris."""
        return [_renamed(server, each, "uri") for each in self._catalogue.offer(server).resources]

    def templates(self, server: Server) -> list[JsonObject]:
        """Return the templates of resources of *server* by the gateway's uris."""
        return [_renamed(server, each, "uriTemplate") for each in self._catalogue.offer(server).templates]

    async def read(self, caller: Caller, uri: str, *, session_id: str | None = None) -> JsonObject:
        """
        Return {contents: […]} of the resource that the gateway's *uri* names, each content by the gateway's uri too.

        Raises:
            NotFound: No server, or a server without such a resource.
            ResourceFailed: The server has it but could not give it.
            ServerUnavailable: The server could not be reached.
        """
        server_id = server_of(uri)
        if server_id is None:
            raise NotFound("resource", uri)
        try:
            server = self._catalogue.server(caller, server_id)
        except ServerNotFound:
            raise NotFound("resource", uri) from None
        await self._catalogue.seen(server)
        offer = self._catalogue.offer(server)
        candidates = upstream_uris(server.id, uri, _texts(offer.resources, "uri"), _texts(offer.templates, "uriTemplate"))
        for candidate in candidates:
            try:
                result = await self._asked(server, caller, session_id, "resources/read", {"uri": candidate})
            except UpstreamRefused as refused:
                if refused.number in _NO_SUCH or candidate not in _texts(offer.resources, "uri"):
                    continue
                raise ResourceFailed(f"{server.id} could not give {uri!r}: {refused}", server=server.id, uri=uri) from refused
            except UpstreamError as error:
                raise ResourceFailed(f"{server.id} could not give {uri!r}: {error}", server=server.id, uri=uri) from error
            contents = result.get("contents")
            pieces = cast("list[object]", contents if isinstance(contents, list) else [])
            return {"contents": [_renamed(server, piece, "uri") for piece in pieces]}
        raise NotFound("resource", uri)

    async def prompt(
        self, caller: Caller, server: Server, name: str, arguments: Mapping[str, str], *, session_id: str | None = None
    ) -> JsonObject:
        """
        Return {description?, messages: […]} of a prompt.

        Raises:
            PromptNotFound: The server has none of that name.
            PromptFailed: The server could not give it, for example because an argument is missing.
            ServerUnavailable: The server could not be reached.
        """
        await self._catalogue.seen(server)
        if self._catalogue.is_known(server) and name not in _texts(self._catalogue.offer(server).prompts, "name"):
            raise PromptNotFound(server.id, name)
        try:
            return await self._asked(server, caller, session_id, "prompts/get", {"name": name, "arguments": dict(arguments)})
        except UpstreamError as error:
            raise PromptFailed(f"{server.id} could not give the prompt {name!r}: {error}", server=server.id, prompt=name) from error

    async def _asked(self, server: Server, caller: Caller, session_id: str | None, method: Method, params: JsonObject) -> JsonObject:
        """Ask the caller's session, a second time if it broke: reading changes nothing."""
        if server.fault is not None:
            raise ServerUnavailable(server.fault, server=server.id)
        session = self._sessions.session(server, caller, session_id)
        is_last = False
        while True:
            try:
                async with session.slot():
                    connection = await session.connection()
                    try:
                        async with asyncio.timeout(server.timeout_s):
                            return await connection.ask(method, params, Asking(caller=caller))
                    except ConnectionLost as lost:
                        session.broken(connection)
                        if is_last:
                            raise ServerUnavailable(str(lost), server=server.id) from lost
                        is_last = True
            except ConnectFailed as failed:
                raise ServerUnavailable(str(failed), server=server.id) from failed
            except TimeoutError as error:
                raise ServerUnavailable(f"The server did not answer within {server.timeout_s:g} s.", server=server.id) from error


def _renamed(server: Server, thing: object, field: str) -> JsonObject:
    """Return *thing* with the gateway's uri in the place of the upstream's."""
    content = cast("JsonObject", thing) if isinstance(thing, dict) else JsonObject()
    uri = content.get(field)
    return {**content, field: gateway_uri(server.id, uri)} if isinstance(uri, str) else dict(content)


def _texts(things: tuple[JsonObject, ...], field: str) -> list[str]:
    return [value for thing in things if isinstance(value := thing.get(field), str)]
