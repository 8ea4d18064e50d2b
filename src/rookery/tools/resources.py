"""Read resources, fill in prompts and complete arguments: what upstreams have beside tools (D-30, D-36)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound
from rookery.tools.calling.asked import PLAINLY, Manner
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
from rookery.tools.ports import Asking, Method, OnUpdate
from rookery.tools.servers.brakes import Brakes
from rookery.tools.servers.headers import forwarded
from rookery.tools.supervision.sessions import Sessions
from rookery.tools.uris import gateway_uri, server_of, upstream_uris

_NO_SUCH = frozenset({-32002, -32602, -32601})
"""How upstreams say that they have no such resource or prompt: not found, invalid params, and method not found."""

_METHOD_NOT_FOUND = -32601
_NO_COMPLETION: JsonObject = {"completion": {"values": [], "hasMore": False}}


class Resources:
    """Reads what is not a tool."""

    def __init__(self, catalogue: Catalogue, sessions: Sessions, brakes: Brakes | None = None) -> None:
        self._catalogue = catalogue
        self._sessions = sessions
        self._brakes = brakes

    def listed(self, server: Server, caller: Caller) -> list[JsonObject]:
        """Return the resources of *server* by the gateway's uris, as far as they are *caller*'s business."""
        return [_renamed(server, each, "uri") for each in self._catalogue.offer(server, caller).resources]

    def templates(self, server: Server) -> list[JsonObject]:
        """Return the templates of resources of *server* by the gateway's uris."""
        return [_renamed(server, each, "uriTemplate") for each in self._catalogue.offer(server).templates]

    def own_template(self, server: Server, uri: str) -> str:
        """Return the server's own name for a template of resources that it may have listed as *uri*."""
        own = _texts(self._catalogue.offer(server).templates, "uriTemplate")
        return next((each for each in own if gateway_uri(server.id, each) == uri), uri)

    async def read(self, caller: Caller, uri: str, *, manner: Manner = PLAINLY) -> JsonObject:
        """
        Return {contents: […]} of the resource that the gateway's *uri* names, each content by the gateway's uri too.

        Raises:
            NotFound: No server, or a server without such a resource.
            ResourceFailed: The server has it but could not give it, or asks for input first.
            ServerUnavailable: The server could not be reached.
        """
        server = self.server_of(caller, uri)
        result = await self.read_of(caller, server, uri, manner=manner)
        contents = result.get("contents")
        if not isinstance(contents, list):
            raise ResourceFailed(f"{server.id} asks for input before it gives {uri!r}.", server=server.id, uri=uri)
        return {"contents": [_renamed(server, piece, "uri") for piece in cast("list[object]", contents)]}

    def server(self, caller: Caller, server_id: str) -> Server:
        """
        Return a server that the caller knows.

        Raises:
            RookeryError: There is none, or not for this key.
        """
        return self._catalogue.server(caller, server_id)

    def server_of(self, caller: Caller, uri: str) -> Server:
        """
        Return the server that the gateway's *uri* is of.

        Raises:
            NotFound: It names none that the caller knows.
        """
        server_id = server_of(uri)
        if server_id is None:
            raise NotFound("resource", uri)
        try:
            return self._catalogue.server(caller, server_id)
        except ServerNotFound:
            raise NotFound("resource", uri) from None

    async def read_of(self, caller: Caller, server: Server, uri: str, *, manner: Manner = PLAINLY) -> JsonObject:
        """
        Return the protocol's whole result of reading *uri*, the gateway's or the server's own, with the server's own uris in it.

        Raises:
            RookeryError: As `read`.
        """
        await self._catalogue.seen(server, caller)
        offer = self._catalogue.offer(server, caller)
        listed = _texts(offer.resources, "uri")
        candidates = [uri] if uri in listed else upstream_uris(server.id, uri, listed, _texts(offer.templates, "uriTemplate"))
        for candidate in candidates:
            try:
                return await self._asked(server, caller, manner, "resources/read", {"uri": candidate})
            except UpstreamRefused as refused:
                if refused.number in _NO_SUCH or candidate not in listed:
                    continue
                raise ResourceFailed(f"{server.id} could not give {uri!r}: {refused}", server=server.id, uri=uri) from refused
            except UpstreamError as error:
                raise ResourceFailed(f"{server.id} could not give {uri!r}: {error}", server=server.id, uri=uri) from error
        raise NotFound("resource", uri)

    async def prompt(
        self, caller: Caller, server: Server, name: str, arguments: Mapping[str, str], *, manner: Manner = PLAINLY
    ) -> JsonObject:
        """
        Return the protocol's whole result: {description?, messages: […]}, or what it asks for first.

        Raises:
            PromptNotFound: The server has none of that name.
            PromptFailed: The server could not give it, for example because an argument is missing.
            ServerUnavailable: The server could not be reached.
        """
        await self._catalogue.seen(server)
        if self._catalogue.is_known(server) and name not in _texts(self._catalogue.offer(server).prompts, "name"):
            raise PromptNotFound(server.id, name)
        try:
            return await self._asked(server, caller, manner, "prompts/get", {"name": name, "arguments": dict(arguments)})
        except UpstreamError as error:
            raise PromptFailed(f"{server.id} could not give the prompt {name!r}: {error}", server=server.id, prompt=name) from error

    async def complete(self, caller: Caller, server: Server, params: JsonObject, *, manner: Manner = PLAINLY) -> JsonObject:
        """
        Return {completion: {values: […]}} for an argument of a prompt or a template; none of a server that completes nothing.

        Args:
            params: The protocol's {ref, argument, context?}, by the server's own names and uris.

        Raises:
            PromptFailed: The server could not tell.
            ServerUnavailable: The server could not be reached.
        """
        try:
            return await self._asked(server, caller, manner, "completion/complete", params)
        except UpstreamError as error:
            if isinstance(error, UpstreamRefused) and error.number == _METHOD_NOT_FOUND:
                return _NO_COMPLETION
            raise PromptFailed(f"{server.id} could not complete the argument: {error}", server=server.id) from error

    async def _must_be_usable(self, caller: Caller, server: Server) -> None:
        if self._brakes is not None:
            await self._brakes.must_be_free(caller, server.id)
        if server.fault is not None:
            raise ServerUnavailable(server.fault, server=server.id)

    async def watch(self, caller: Caller, server: Server, uri: str, on_update: OnUpdate, *, is_on: bool = True) -> None:
        """
        Have *on_update* told when the resource changes, until its session is over; or, with *is_on* false, no more.

        Args:
            uri: The server's own.

        Raises:
            ResourceFailed: The server does not tell of it.
            ServerUnavailable: The server could not be reached.
        """
        method: Method = "resources/subscribe" if is_on else "resources/unsubscribe"
        try:
            await self._asked(server, caller, PLAINLY, method, {"uri": uri}, on_update=on_update)
        except UpstreamError as error:
            raise ResourceFailed(f"{server.id} does not tell of changes of {uri!r}: {error}", server=server.id, uri=uri) from error

    def own_uri(self, server: Server, uri: str, caller: Caller) -> str:
        """Return the server's own name for a resource, from the gateway's."""
        offer = self._catalogue.offer(server, caller)
        listed = _texts(offer.resources, "uri")
        return uri if uri in listed else upstream_uris(server.id, uri, listed, _texts(offer.templates, "uriTemplate"))[0]

    async def _asked(
        self, server: Server, caller: Caller, manner: Manner, method: Method, params: JsonObject, *, on_update: OnUpdate | None = None
    ) -> JsonObject:
        """Ask the caller's session, a second time if it broke: reading changes nothing."""
        await self._must_be_usable(caller, server)
        session, asking, params = (
            self._sessions.session(server, caller, manner.session_id),
            _asking(server, caller, manner, on_update),
            dict(params),
        )
        if manner.input_responses is not None:
            params["inputResponses"] = manner.input_responses
        if manner.request_state is not None:
            params["requestState"] = manner.request_state
        if manner.meta:
            params["_meta"] = manner.meta
        is_last = False
        while True:
            try:
                async with session.slot():
                    connection = await session.connection()
                    try:
                        async with asyncio.timeout(server.timeout_s):
                            return await connection.ask(method, params, asking)
                    except ConnectionLost as lost:
                        session.broken(connection)
                        if is_last:
                            raise ServerUnavailable(str(lost), server=server.id) from lost
                        is_last = True
            except ConnectFailed as failed:
                raise ServerUnavailable(str(failed), server=server.id) from failed
            except TimeoutError as error:
                raise ServerUnavailable(f"The server did not answer within {server.timeout_s:g} s.", server=server.id) from error


def _asking(server: Server, caller: Caller, manner: Manner, on_update: OnUpdate | None) -> Asking:
    return Asking(
        caller=caller,
        on_progress=manner.on_progress,
        on_log=manner.on_log,
        on_request=manner.on_request,
        on_update=on_update,
        headers=forwarded(server, manner.headers),
        capabilities=manner.capabilities,
    )


def _renamed(server: Server, thing: object, field: str) -> JsonObject:
    """Return *thing* with the gateway's uri in the place of the upstream's."""
    content = cast("JsonObject", thing) if isinstance(thing, dict) else JsonObject()
    uri = content.get(field)
    return {**content, field: gateway_uri(server.id, uri)} if isinstance(uri, str) else dict(content)


def _texts(things: tuple[JsonObject, ...], field: str) -> list[str]:
    return [value for thing in things if isinstance(value := thing.get(field), str)]
