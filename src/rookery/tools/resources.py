"""Resources, prompts and argument completion: the features of upstreams other than tools (D-30, D-36)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound
from rookery.tools.calling.tool_call import DEFAULT_CALL_OPTIONS, CallOptions
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
    UpstreamErrorResponse,
)
from rookery.tools.gateway_names import list_upstream_candidates, parse_server_id, to_gateway_uri
from rookery.tools.models import JsonObject, Server
from rookery.tools.ports import OnUpdate, UpstreamMethod
from rookery.tools.servers.kill_switch import KillSwitch
from rookery.tools.supervision.session_pool import SessionPool

_NOT_FOUND_CODES = frozenset({-32002, -32602, -32601})
"""Error codes by which upstreams report an unknown resource or prompt: not found, invalid params and method not found."""

_METHOD_NOT_FOUND = -32601
_EMPTY_COMPLETION: JsonObject = {"completion": {"values": [], "hasMore": False}}


class ResourceReader:
    """Reads resources, prompts and completions."""

    def __init__(self, catalogue: Catalogue, sessions: SessionPool, kill_switch: KillSwitch | None = None) -> None:
        self._catalogue = catalogue
        self._sessions = sessions
        self._kill_switch = kill_switch

    def list_resources(self, server: Server, caller: Caller) -> list[JsonObject]:
        """Return the resources of *server* that *caller* may see, with gateway URIs."""
        return [_with_gateway_uri(server, resource, "uri") for resource in self._catalogue.get_features(server, caller).resources]

    def list_templates(self, server: Server) -> list[JsonObject]:
        """Return the resource templates of *server*, with gateway URIs."""
        return [_with_gateway_uri(server, template, "uriTemplate") for template in self._catalogue.get_features(server).templates]

    def to_upstream_template(self, server: Server, uri: str) -> str:
        """Return the server's own form of a resource template *uri*."""
        templates = _list_texts(self._catalogue.get_features(server).templates, "uriTemplate")
        return next((template for template in templates if to_gateway_uri(server.id, template) == uri), uri)

    async def read(self, caller: Caller, uri: str, *, options: CallOptions = DEFAULT_CALL_OPTIONS) -> JsonObject:
        """
        Return {contents: […]} of the resource with the gateway *uri*. The contents have gateway URIs too.

        Raises:
            NotFound: The server or the resource does not exist.
            ResourceFailed: The server could not return the resource, or requires input first.
            ServerUnavailable: The server could not be reached.
        """
        server = self.find_server_by_uri(caller, uri)
        result = await self.read_from_server(caller, server, uri, options=options)
        contents = result.get("contents")
        if not isinstance(contents, list):
            raise ResourceFailed(f"{server.id} requires input before it returns {uri!r}.", server=server.id, uri=uri)
        return {"contents": [_with_gateway_uri(server, content, "uri") for content in cast("list[object]", contents)]}

    def get_server(self, caller: Caller, server_id: str) -> Server:
        """
        Return a server that the caller may use.

        Raises:
            RookeryError: The server does not exist, is disabled, or is not allowed for this key.
        """
        return self._catalogue.get_server(caller, server_id)

    def find_server_by_uri(self, caller: Caller, uri: str) -> Server:
        """
        Return the server of a gateway *uri*.

        Raises:
            NotFound: The URI names no server that the caller sees.
        """
        server_id = parse_server_id(uri)
        if server_id is None:
            raise NotFound("resource", uri)
        try:
            return self._catalogue.get_server(caller, server_id)
        except ServerNotFound:
            raise NotFound("resource", uri) from None

    async def read_from_server(
        self, caller: Caller, server: Server, uri: str, *, options: CallOptions = DEFAULT_CALL_OPTIONS
    ) -> JsonObject:
        """
        Return the protocol's complete result of reading *uri*, a gateway URI or the server's own. The result has the server's own URIs.

        Raises:
            RookeryError: See `read`.
        """
        await self._catalogue.wait_listed(server, caller)
        features = self._catalogue.get_features(server, caller)
        listed_uris = _list_texts(features.resources, "uri")
        candidates = (
            [uri]
            if uri in listed_uris
            else list_upstream_candidates(server.id, uri, listed_uris, _list_texts(features.templates, "uriTemplate"))
        )
        for candidate in candidates:
            try:
                return await self._request(server, caller, options, "resources/read", {"uri": candidate})
            except UpstreamErrorResponse as upstream_error:
                if upstream_error.number in _NOT_FOUND_CODES or candidate not in listed_uris:
                    continue
                raise ResourceFailed(
                    f"{server.id} could not return {uri!r}: {upstream_error}", server=server.id, uri=uri
                ) from upstream_error
            except UpstreamError as error:
                raise ResourceFailed(f"{server.id} could not return {uri!r}: {error}", server=server.id, uri=uri) from error
        raise NotFound("resource", uri)

    async def get_prompt(
        self, caller: Caller, server: Server, name: str, arguments: Mapping[str, str], *, options: CallOptions = DEFAULT_CALL_OPTIONS
    ) -> JsonObject:
        """
        Return the protocol's complete result: {description?, messages: […]}, or a request for input.

        Raises:
            PromptNotFound: The server has no prompt of this name.
            PromptFailed: The server could not return the prompt, for example because an argument is missing.
            ServerUnavailable: The server could not be reached.
        """
        await self._catalogue.wait_listed(server)
        if self._catalogue.is_known(server) and name not in _list_texts(self._catalogue.get_features(server).prompts, "name"):
            raise PromptNotFound(server.id, name)
        try:
            return await self._request(server, caller, options, "prompts/get", {"name": name, "arguments": dict(arguments)})
        except UpstreamError as error:
            raise PromptFailed(f"{server.id} could not return the prompt {name!r}: {error}", server=server.id, prompt=name) from error

    async def complete_argument(
        self, caller: Caller, server: Server, params: JsonObject, *, options: CallOptions = DEFAULT_CALL_OPTIONS
    ) -> JsonObject:
        """
        Return {completion: {values: […]}} for an argument of a prompt or a template. Empty if the server has no completion.

        Args:
            params: The protocol's {ref, argument, context?}, with the server's own names and URIs.

        Raises:
            PromptFailed: The server returned an error.
            ServerUnavailable: The server could not be reached.
        """
        try:
            return await self._request(server, caller, options, "completion/complete", params)
        except UpstreamError as error:
            if isinstance(error, UpstreamErrorResponse) and error.number == _METHOD_NOT_FOUND:
                return _EMPTY_COMPLETION
            raise PromptFailed(f"{server.id} could not complete the argument: {error}", server=server.id) from error

    async def subscribe(self, caller: Caller, server: Server, uri: str, on_update: OnUpdate, *, is_on: bool = True) -> None:
        """
        Subscribe *on_update* to changes of a resource until the session ends, or unsubscribe it if *is_on* is false.

        Args:
            uri: The server's own URI.

        Raises:
            ResourceFailed: The server does not support subscriptions to it.
            ServerUnavailable: The server could not be reached.
        """
        method: UpstreamMethod = "resources/subscribe" if is_on else "resources/unsubscribe"
        try:
            await self._request(server, caller, DEFAULT_CALL_OPTIONS, method, {"uri": uri}, on_update=on_update)
        except UpstreamError as error:
            raise ResourceFailed(f"{server.id} cannot subscribe to {uri!r}: {error}", server=server.id, uri=uri) from error

    def to_upstream_uri(self, server: Server, uri: str, caller: Caller) -> str:
        """Return the server's own URI for a gateway *uri*."""
        features = self._catalogue.get_features(server, caller)
        listed_uris = _list_texts(features.resources, "uri")
        return (
            uri
            if uri in listed_uris
            else list_upstream_candidates(server.id, uri, listed_uris, _list_texts(features.templates, "uriTemplate"))[0]
        )

    async def _request(
        self,
        server: Server,
        caller: Caller,
        options: CallOptions,
        method: UpstreamMethod,
        params: JsonObject,
        *,
        on_update: OnUpdate | None = None,
    ) -> JsonObject:
        """Send a request in the caller's session. Retry once if the session breaks, because reads change nothing."""
        if self._kill_switch is not None:
            await self._kill_switch.require_enabled(caller, server.id)
        if server.fault is not None:
            raise ServerUnavailable(server.fault, server=server.id)
        session = self._sessions.get_session(server, caller, options.session_id)
        request_options = options.to_request_options(server, caller, on_progress=options.on_progress, on_update=on_update)
        params = options.add_to_params(params)
        is_last = False
        while True:
            try:
                async with session.slot():
                    connection = await session.get_connection()
                    try:
                        async with asyncio.timeout(server.timeout_s):
                            return await connection.request(method, params, request_options)
                    except ConnectionLost as connection_error:
                        session.mark_failed(connection)
                        if is_last:
                            raise ServerUnavailable(str(connection_error), server=server.id) from connection_error
                        is_last = True
            except ConnectFailed as failed:
                raise ServerUnavailable(str(failed), server=server.id) from failed
            except TimeoutError as error:
                raise ServerUnavailable(f"The server did not answer within {server.timeout_s:g} s.", server=server.id) from error


def _with_gateway_uri(server: Server, item: object, field: str) -> JsonObject:
    """Return *item* with its URI replaced by the gateway URI."""
    content = cast("JsonObject", item) if isinstance(item, dict) else JsonObject()
    uri = content.get(field)
    return {**content, field: to_gateway_uri(server.id, uri)} if isinstance(uri, str) else dict(content)


def _list_texts(items: tuple[JsonObject, ...], field: str) -> list[str]:
    return [value for item in items if isinstance(value := item.get(field), str)]
